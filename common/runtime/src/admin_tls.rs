//! TLS on the admin port, as the environment asks for it: `METRICS_PROMETHEUS_TLS_CERT` and `_KEY`, `_CLIENT_AUTH`,
//! `_CLIENT_CA_FILE`, versions and so on ([`Parameters`]). The certificate's files are followed as they change.

use crate::environment::EnvironmentError;
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
    /// Whether clients must show a certificate, and who signs them.
    clients: Option<(bool, PathBuf)>,
}

impl AdminTls {
    /// From the environment; none where neither certificate nor key is named.
    ///
    /// # Errors
    /// One of the two is named alone, client certificates are asked for without an authority, or a name is none.
    pub fn from_env(get: &impl Fn(&str) -> Option<String>) -> Result<Option<Self>, EnvironmentError> {
        let read = |suffix: &str| get(&format!("{PREFIX}_{suffix}")).filter(|value| !value.is_empty());
        let refused = |suffix: &str, value: String, rule: &'static str| {
            EnvironmentError::new(format!("{PREFIX}_{suffix}"), value, rule)
        };
        let pair = match (read("CERT"), read("KEY")) {
            (Some(certificate), Some(key)) => Pair { certificate: certificate.into(), key: key.into() },
            (None, None) => return Ok(None),
            (Some(alone), None) => return Err(refused("CERT", alone, "needs METRICS_PROMETHEUS_TLS_KEY beside it")),
            (None, Some(alone)) => return Err(refused("KEY", alone, "needs METRICS_PROMETHEUS_TLS_CERT beside it")),
        };
        let wanted = read("CLIENT_AUTH").unwrap_or_default();
        let authority = || {
            let file = read("CLIENT_CA_FILE").map(PathBuf::from);
            file.ok_or_else(|| refused("CLIENT_AUTH", wanted.clone(), "needs METRICS_PROMETHEUS_TLS_CLIENT_CA_FILE"))
        };
        let clients = match wanted.to_ascii_lowercase().as_str() {
            "" | "none" => None,
            "optional" => Some((false, authority()?)),
            "require" => Some((true, authority()?)),
            _ => return Err(refused("CLIENT_AUTH", wanted.clone(), "must be none, optional or require")),
        };
        Ok(Some(Self { pair, parameters: Parameters::from_env(get, PREFIX)?, clients }))
    }

    pub(crate) async fn config(&self, shutdown: &CancellationToken) -> anyhow::Result<Arc<ServerConfig>> {
        let identity = self.pair.clone().follow(files::LOOK, shutdown.clone()).await?;
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
pub(crate) mod tests {
    use super::*;

    pub(crate) fn tls_from(pairs: &[(&str, &str)]) -> Result<Option<AdminTls>, EnvironmentError> {
        let get = |name: &str| {
            let of = |(key, _): &&(&str, &str)| format!("{PREFIX}_{key}") == name;
            pairs.iter().find(of).map(|(_, value)| (*value).to_owned())
        };
        AdminTls::from_env(&get)
    }

    #[test]
    fn variables_that_contradict_each_other_are_named() {
        assert!(tls_from(&[]).expect("off").is_none());
        assert!(tls_from(&[("CERT", "c"), ("KEY", "k"), ("CLIENT_AUTH", "None")]).expect("on").is_some());
        let pair = [("CERT", "c"), ("KEY", "k")];
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a str);
        let rows: [Row<'_>; 5] = [
            (&pair[..1], "CERT"),
            (&pair[1..], "KEY"),
            (&[pair[0], pair[1], ("CLIENT_AUTH", "require")], "CLIENT_AUTH"),
            (&[pair[0], pair[1], ("CLIENT_AUTH", "often")], "CLIENT_AUTH"),
            (&[pair[0], pair[1], ("MIN_VERSION", "1.1")], "MIN_VERSION"),
        ];
        for (pairs, named) in rows {
            assert_eq!(tls_from(pairs).expect_err(named).variable, format!("{PREFIX}_{named}"));
        }
    }
}
