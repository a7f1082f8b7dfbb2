//! Credential that another process renews: a token in a file, such as a projected ServiceAccount token.
//!
//! The file is read for each connection, so a renewed token is used from the next connection on. A connection's token
//! is not checked again while the connection lasts. [`is_secret`] verifies a presented token.

use http::HeaderValue;
use std::io;
use std::path::PathBuf;

/// Path of the token file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// Creates a reference to the file at `path`, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Reads the current token. Fails if the file cannot be read or contains no token; the error names the file.
    pub async fn read(&self) -> io::Result<String> {
        let text = tokio::fs::read_to_string(&self.0).await;
        let text = text.map_err(|error| io::Error::new(error.kind(), self.with_name(&error)))?;
        match text.trim() {
            "" => Err(self.invalid("the file is empty")),
            token => Ok(token.to_owned()),
        }
    }

    /// Returns the value of an `Authorization` header with the current token. Fails as [`TokenFile::read`] does.
    pub async fn bearer(&self) -> io::Result<HeaderValue> {
        let value = HeaderValue::try_from(format!("Bearer {}", self.read().await?));
        let mut value = value.map_err(|_| self.invalid("the file contains more than a token"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn invalid(&self, what: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, self.with_name(&what))
    }

    fn with_name(&self, error: &dyn std::fmt::Display) -> String {
        format!("token file {}: {error}", self.0.display())
    }
}

/// Compares a presented text with a secret, in a time that does not reveal where they differ.
pub fn is_secret(presented: &str, secret: &str) -> bool {
    let differs = presented.bytes().zip(secret.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
    presented.len() == secret.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_file_is_read_each_time_and_named_in_errors() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let token = TokenFile::new(file.path());
        let name = file.path().display().to_string();
        for (content, expected) in
            [("", Err("empty")), ("a\n", Ok("Bearer a")), ("b", Ok("Bearer b")), ("b\nc", Err("more"))]
        {
            std::fs::write(file.path(), content).expect("written");
            match (token.bearer().await, expected) {
                (Ok(value), Ok(expected)) => assert_eq!(value, expected),
                (Err(error), Err(part)) => {
                    let error = error.to_string();
                    assert!(error.contains(part) && error.contains(&name), "{error}");
                }
                (found, _) => panic!("{content:?}: {found:?}"),
            }
        }
        drop(file);
        assert!(token.bearer().await.expect_err("gone").to_string().contains(&name));
    }
}
