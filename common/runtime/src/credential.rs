//! A credential that somebody else renews: a token in a file, such as a projected token of a ServiceAccount.
//!
//! The file is read anew for each connection, so a token that was renewed is used from the next one on. What a
//! connection was opened with is not looked at again while it lasts. Who shows one is judged by [`is_secret`].

use http::HeaderValue;
use std::io;
use std::path::PathBuf;

/// Where the token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// The file at `path`, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The token as it is now.
    ///
    /// # Errors
    /// The file cannot be read, or holds no token; the error names it.
    pub async fn read(&self) -> io::Result<String> {
        let text = tokio::fs::read_to_string(&self.0).await;
        let text = text.map_err(|error| io::Error::new(error.kind(), self.named(&error)))?;
        match text.trim() {
            "" => Err(self.invalid("it is empty")),
            token => Ok(token.to_owned()),
        }
    }

    /// The value of an `Authorization` header with the token as it is now.
    ///
    /// # Errors
    /// As [`TokenFile::read`].
    pub async fn bearer(&self) -> io::Result<HeaderValue> {
        let value = HeaderValue::try_from(format!("Bearer {}", self.read().await?));
        let mut value = value.map_err(|_| self.invalid("it holds more than a token"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn invalid(&self, what: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, self.named(&what))
    }

    fn named(&self, error: &dyn std::fmt::Display) -> String {
        format!("token file {}: {error}", self.0.display())
    }
}

/// Compares a text that somebody shows with a secret, in a time that does not tell where they differ.
pub fn is_secret(shown: &str, secret: &str) -> bool {
    let differs = shown.bytes().zip(secret.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
    shown.len() == secret.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_file_is_read_anew_and_named_when_it_is_bad() {
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
