//! Certificates in files, reloaded when they change.
//!
//! A mounted Secret changes when a symbolic link is swapped. So the files are read again every few seconds, which is
//! cheap, and compared. An incomplete change (a certificate whose key has not been written yet) does not match. It is
//! rejected, and a later check adopts the complete change.

use super::{Identity, PemError, Roots, pem, roots};
use crate::environment::{EnvironmentError, optional};
use crate::failure_log::FailureLog;
use rustls::RootCertStore;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::timeout;
use tokio_rustls::rustls;
use tokio_util::sync::CancellationToken;

/// Time between two checks.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Files with a server's certificate and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Certificate chain, leaf first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl Pair {
    /// Reads `PREFIX_CERT` and `PREFIX_KEY`. Returns `None` if neither is set. Fails if only one of them is set.
    pub fn from_env(get: &impl Fn(&str) -> Option<String>, prefix: &str) -> Result<Option<Self>, EnvironmentError> {
        let [certificate, key] = ["CERT", "KEY"].map(|suffix| optional(get, &format!("{prefix}_{suffix}")));
        let alone = |set, value, missing| {
            let rule = format!("requires {prefix}_{missing} to be set as well");
            Err(EnvironmentError::new(format!("{prefix}_{set}"), value, rule))
        };
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some(Self { certificate: certificate.into(), key: key.into() })),
            (None, None) => Ok(None),
            (Some(file), None) => alone("CERT", file, "KEY"),
            (None, Some(file)) => alone("KEY", file, "CERT"),
        }
    }

    /// Reads both files, and reloads them until `shutdown`. Fails if one cannot be read or they do not match. Later
    /// failures are logged, and the former certificate stays.
    pub async fn follow(self, every: Duration, shutdown: CancellationToken) -> Result<Identity, PemError> {
        let files = vec![self.certificate, self.key];
        let parse = |files: &[PathBuf], contents: &[Vec<u8>]| {
            pem::key_pair((&name(&files[0]), &contents[0]), (&name(&files[1]), &contents[1]))
        };
        let contents = read_all(&files).await?;
        let identity = Identity::new(parse(&files, &contents)?);
        let followed = identity.clone();
        let adopt =
            move |files: &[PathBuf], contents: &[Vec<u8>]| parse(files, contents).map(|pair| followed.replace(pair));
        tokio::spawn(reload(files, contents, every, shutdown, adopt));
        Ok(identity)
    }
}

/// Reads CAs from `file`, and reloads it until `shutdown`. Fails if it cannot be read or contains no CA. Later failures
/// are logged, and the former CAs stay.
pub async fn follow_roots(file: PathBuf, every: Duration, shutdown: CancellationToken) -> Result<Roots, PemError> {
    let files = vec![file];
    let contents = read_all(&files).await?;
    let unusable = |error: rustls::Error| PemError::new("TLS", error);
    let roots = Roots::new(authorities(&files[0], &contents[0])?).map_err(unusable)?;
    let followed = roots.clone();
    let adopt = move |files: &[PathBuf], contents: &[Vec<u8>]| {
        followed.replace(authorities(&files[0], &contents[0])?).map_err(unusable)
    };
    tokio::spawn(reload(files, contents, every, shutdown, adopt));
    Ok(roots)
}

/// Reads the files again and again until `shutdown`, and passes their contents to `adopt` when they have changed.
async fn reload(
    files: Vec<PathBuf>,
    mut contents: Vec<Vec<u8>>,
    every: Duration,
    shutdown: CancellationToken,
    adopt: impl Fn(&[PathBuf], &[Vec<u8>]) -> Result<(), PemError> + Send,
) {
    let mut failures = FailureLog::for_operation(name(&files[0]));
    while timeout(every, shutdown.cancelled()).await.is_err() {
        let present = match read_all(&files).await {
            Ok(present) => present,
            Err(error) => {
                failures.failed(&error);
                continue;
            }
        };
        failures.recovered();
        if present != contents {
            match adopt(&files, &present) {
                Ok(()) => tracing::info!(file = %files[0].display(), "the file has changed, and its content is in use"),
                Err(error) => {
                    tracing::error!(%error, "the file has changed and is rejected; the former content stays in use")
                }
            }
            contents = present;
        }
    }
}

/// Reads the CAs in `file`. Fails if it cannot be read or contains no CA.
pub async fn read_roots(file: &Path) -> Result<RootCertStore, PemError> {
    authorities(file, &read(file).await?)
}

fn authorities(file: &Path, pem: &[u8]) -> Result<RootCertStore, PemError> {
    let mut store = RootCertStore::empty();
    roots::add(&mut store, &name(file), pem)?;
    Ok(store)
}

async fn read_all(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, PemError> {
    futures::future::try_join_all(files.iter().map(|file| read(file))).await
}

async fn read(file: &Path) -> Result<Vec<u8>, PemError> {
    tokio::fs::read(file).await.map_err(|error| PemError::new(name(file), format_args!("cannot be read: {error}")))
}

fn name(file: &Path) -> String {
    format!("file {}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{self_signed, wait_until};
    use std::fs;
    use std::sync::Arc;

    const EVERY: Duration = Duration::from_millis(5);

    /// Goal: a matching pair is adopted, a mismatch keeps the former one, and an error at the start names the file.
    #[tokio::test]
    async fn changed_files_are_reloaded() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        let files = Pair { certificate: file("tls.crt"), key: file("tls.key") };
        let missing = files.clone().follow(EVERY, CancellationToken::new()).await.expect_err("not there");
        assert!(missing.to_string().contains("tls.crt: cannot be read"), "{missing}");
        let (first, second) = (self_signed("a"), self_signed("a"));
        let write = |name: &str, text: &str| fs::write(file(name), text).expect("writable");
        write("tls.crt", &first.0);
        write("tls.key", &first.1);
        let stop = CancellationToken::new();
        let identity = files.follow(EVERY, stop.clone()).await.expect("a pair");
        let current = || identity.certificates();
        let before = current();
        write("tls.crt", &second.0);
        // The new certificate does not match the former key, so a check before this line rejects it.
        write("tls.key", &second.1);
        wait_until(|| current() != before).await;
        assert_eq!(current(), pem::certificates("second", second.0.as_bytes()).expect("PEM"));

        write("ca.crt", &first.0);
        let roots = follow_roots(file("ca.crt"), EVERY, stop.clone()).await.expect("an authority");
        let before = roots.config();
        write("ca.crt", "nonsense");
        write("ca.crt", &second.0);
        wait_until(|| !Arc::ptr_eq(&roots.config(), &before)).await;
        stop.cancel();
    }
}
