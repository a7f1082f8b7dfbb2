//! Self-signed certificates in files, for tests.

use common_runtime::tls::files::Pair;
use common_runtime::tls::rustls::ServerConfig;
use common_runtime::tls::{ClientAuth, Identity, Parameters, Trust, server_config};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Time between two polls of the files.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Certificate and key, which may be renewed.
pub(crate) struct Certificate {
    folder: TempDir,
    name: &'static str,
}

impl Certificate {
    /// Creates a certificate that bears `name`.
    pub(crate) fn new(name: &'static str) -> Self {
        let certificate = Self { folder: tempfile::tempdir().expect("a folder"), name };
        certificate.renew();
        certificate
    }

    /// Replaces certificate and key with new ones.
    pub(crate) fn renew(&self) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec![self.name.to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("signed").pem();
        std::fs::write(self.file("tls.key"), key.serialize_pem()).expect("writable");
        std::fs::write(self.file("tls.crt"), certificate).expect("writable");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the identity that a server presents.
    pub(crate) async fn identity(&self, until: &CancellationToken) -> Identity {
        let pair = Pair { certificate: self.file("tls.crt"), key: self.file("tls.key") };
        pair.follow(CHECK_INTERVAL, until.clone()).await.expect("a pair")
    }

    /// Returns a server's settings.
    pub(crate) async fn server(&self, until: &CancellationToken) -> Arc<ServerConfig> {
        let identity = self.identity(until).await;
        server_config(&identity, &Parameters::default(), ClientAuth::None, &[]).expect("settings")
    }

    /// Returns the requirements of a client that trusts this certificate.
    pub(crate) async fn trust(&self, name: &str, until: &CancellationToken) -> Trust {
        Trust::follow(self.file("tls.crt"), name, CHECK_INTERVAL, until.clone()).await.expect("an authority")
    }
}
