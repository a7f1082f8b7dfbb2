//! TLS on the admin port, configured by environment variables: `METRICS_PROMETHEUS_TLS_CERT` and `_KEY`,
//! `_CLIENT_AUTH`, `_CLIENT_CA_FILE`, versions and so on ([`Parameters`]). Changed certificate files are reloaded.

use crate::environment::{EnvironmentError, optional};
use crate::tls::files::{self, Pair};
use crate::tls::rustls::ServerConfig;
use crate::tls::{ClientAuth, Parameters, server_config};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const PREFIX: &str = "METRICS_PROMETHEUS_TLS";

/// TLS on the admin port.
#[derive(Clone, Debug)]
pub struct AdminTls {
    pair: Pair,
    parameters: Parameters,
    /// Set if client certificates are verified: whether they are required, and the CA file.
    clients: Option<(bool, PathBuf)>,
}

impl AdminTls {
    /// Reads the environment. Returns `None` if neither certificate nor key is set. Fails if only one of the two is
    /// set, if client certificates are requested without a CA, or if a value is unknown.
    pub fn from_env(get: &impl Fn(&str) -> Option<String>) -> Result<Option<Self>, EnvironmentError> {
        let Some(pair) = Pair::from_env(get, PREFIX)? else { return Ok(None) };
        let read = |suffix: &str| optional(get, &format!("{PREFIX}_{suffix}"));
        let wanted = read("CLIENT_AUTH").unwrap_or_default();
        let refused = |rule: &'static str| EnvironmentError::new(format!("{PREFIX}_CLIENT_AUTH"), wanted.clone(), rule);
        let authority = || {
            let file = read("CLIENT_CA_FILE").map(PathBuf::from);
            file.ok_or_else(|| refused("requires METRICS_PROMETHEUS_TLS_CLIENT_CA_FILE to be set"))
        };
        let clients = match wanted.to_ascii_lowercase().as_str() {
            "" | "none" => None,
            "optional" => Some((false, authority()?)),
            "require" => Some((true, authority()?)),
            _ => return Err(refused("must be none, optional or require")),
        };
        Ok(Some(Self { pair, parameters: Parameters::from_env(get, PREFIX)?, clients }))
    }

    pub(crate) async fn config(&self, shutdown: &CancellationToken) -> anyhow::Result<Arc<ServerConfig>> {
        let identity = self.pair.clone().follow(files::CHECK_INTERVAL, shutdown.clone()).await?;
        let clients = match &self.clients {
            None => ClientAuth::None,
            Some((required, file)) => {
                let roots = Arc::new(files::read_roots(file).await?);
                if *required { ClientAuth::Required(roots) } else { ClientAuth::Optional(roots) }
            }
        };
        Ok(server_config(&identity, &self.parameters, clients, &[b"http/1.1"])?)
    }
}

#[cfg(test)]
pub(crate) mod tests;
