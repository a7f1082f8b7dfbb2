//! TLS for stats, from activators to autoscalers and between autoscalers, configured by environment variables.
//!
//! Knative's stat stream has no TLS, whatever `system-internal-tls` says. So it is off by default, in either mode.
//!
//! | variable | read by | meaning |
//! |---|---|---|
//! | `ZEROSCALE_STAT_TLS_CA_FILE` | both | CAs of the autoscalers' certificates; the URL of stats becomes `wss://` |
//! | `ZEROSCALE_STAT_TLS_NAME` | both | name in every autoscaler's certificate; default `autoscaler.NAMESPACE.svc` |
//! | `ZEROSCALE_STAT_TLS_CERT`, `_KEY` | both | certificate presented to stat senders or to siblings |
//! | `ZEROSCALE_STAT_TLS_PLAIN` | autoscaler | `allow`: also plain connections, for rollouts; default `refuse` |
//! | `ZEROSCALE_STAT_TLS_MIN_VERSION` and so on | autoscaler | accepted TLS parameters ([`Parameters`]) |
//!
//! Siblings are activators that share limits. All files are reloaded when they change, so certificates are renewed
//! without a restart.

use crate::environment::{EnvironmentError, optional};
use crate::tls::files::{self, Pair};
use crate::tls::rustls::ServerConfig;
use crate::tls::{ClientAuth, Parameters, PemError, Trust, server_config};
use common::names;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const PREFIX: &str = "ZEROSCALE_STAT_TLS";
const HTTP1: &[u8] = b"http/1.1";

/// Requirements on an autoscaler's certificate, for senders of stats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatTrust {
    /// File with the CAs.
    pub authorities: PathBuf,
    /// Name that the certificate must contain.
    pub name: String,
}

/// An autoscaler's own certificate, and its requirements on other autoscalers.
#[derive(Clone, Debug)]
pub struct StatTls {
    /// Own certificate.
    pub pair: Pair,
    /// Accepted TLS parameters.
    pub parameters: Parameters,
    /// Set if plain connections are accepted as well.
    pub allow_plain: bool,
    /// Requirements on other autoscalers, to which this one forwards.
    pub trust: StatTrust,
}

/// TLS of a stat server with its current certificate.
#[derive(Clone, Debug)]
pub struct StatServerTls {
    /// Settings for each handshake.
    pub config: Arc<ServerConfig>,
    /// Set if plain connections are accepted as well.
    pub allow_plain: bool,
}

/// Returns the certificate that an activator presents to its siblings, which must present one, too. Returns `None` if
/// neither certificate nor key is set. Fails if the certificate, the key or the CA file is missing.
pub fn sibling_pair(get: &impl Fn(&str) -> Option<String>) -> Result<Option<Pair>, EnvironmentError> {
    let pair = Pair::from_env(get, PREFIX)?;
    match &pair {
        Some(pair) if read(get, "CA_FILE").is_none() => {
            Err(pair_refused(pair, "requires ZEROSCALE_STAT_TLS_CA_FILE to be set as well"))
        }
        _ => Ok(pair),
    }
}

impl StatTrust {
    /// Reads the environment. Returns `None` if no CA file is set. Fails if a name is set without a CA file.
    pub fn from_env(get: &impl Fn(&str) -> Option<String>, namespace: &str) -> Result<Option<Self>, EnvironmentError> {
        let read = |suffix: &str| read(get, suffix);
        match (read("CA_FILE"), read("NAME")) {
            (Some(file), name) => {
                let name = name.unwrap_or_else(|| format!("{}.{namespace}.svc", names::AUTOSCALER_SERVICE));
                Ok(Some(Self { authorities: file.into(), name }))
            }
            (None, None) => Ok(None),
            (None, Some(name)) => Err(refused("NAME", name, "requires ZEROSCALE_STAT_TLS_CA_FILE to be set as well")),
        }
    }

    /// Reads the CAs, and reloads them until `shutdown`. Fails if they cannot be used.
    pub async fn open(self, shutdown: &CancellationToken) -> Result<Trust, PemError> {
        Trust::follow(self.authorities, &self.name, files::CHECK_INTERVAL, shutdown.clone()).await
    }
}

impl StatTls {
    /// Reads the environment. Returns `None` if nothing is set. Fails if one of certificate, key and CA file is
    /// missing, or if a value is unknown.
    pub fn from_env(get: &impl Fn(&str) -> Option<String>, namespace: &str) -> Result<Option<Self>, EnvironmentError> {
        let read = |suffix: &str| read(get, suffix);
        let (pair, trust) = match (Pair::from_env(get, PREFIX)?, StatTrust::from_env(get, namespace)?) {
            (Some(pair), Some(trust)) => (pair, trust),
            (None, None) => {
                let refused = |value| refused("PLAIN", value, "requires ZEROSCALE_STAT_TLS_CERT to be set as well");
                return read("PLAIN").map_or(Ok(None), |value| Err(refused(value)));
            }
            (Some(pair), None) => {
                let rule =
                    "requires ZEROSCALE_STAT_TLS_CA_FILE to be set as well: autoscalers forward stats to each other";
                return Err(pair_refused(&pair, rule));
            }
            (None, Some(trust)) => {
                let rule = "requires ZEROSCALE_STAT_TLS_CERT and _KEY to be set as well: autoscalers receive stats from each other";
                return Err(refused("CA_FILE", trust.authorities.display().to_string(), rule));
            }
        };
        let allow_plain = match read("PLAIN").as_deref() {
            None | Some("refuse") => false,
            Some("allow") => true,
            Some(value) => return Err(refused("PLAIN", value.to_owned(), "must be allow or refuse")),
        };
        Ok(Some(Self { pair, parameters: Parameters::from_env(get, PREFIX)?, allow_plain, trust }))
    }

    /// Reads all files, and reloads them until `shutdown`. Fails if one cannot be used.
    pub async fn open(self, shutdown: &CancellationToken) -> anyhow::Result<(StatServerTls, Trust)> {
        let Self { pair, parameters, allow_plain, trust } = self;
        let identity = pair.follow(files::CHECK_INTERVAL, shutdown.clone()).await?;
        let config = server_config(&identity, &parameters, ClientAuth::None, &[HTTP1])?;
        Ok((StatServerTls { config, allow_plain }, trust.open(shutdown).await?))
    }
}

fn read(get: &impl Fn(&str) -> Option<String>, suffix: &str) -> Option<String> {
    optional(get, &format!("{PREFIX}_{suffix}"))
}

fn pair_refused(pair: &Pair, rule: &'static str) -> EnvironmentError {
    refused("CERT", pair.certificate.display().to_string(), rule)
}

fn refused(suffix: &str, value: String, rule: &'static str) -> EnvironmentError {
    EnvironmentError::new(format!("{PREFIX}_{suffix}"), value, rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::variables;

    fn tls(pairs: &[(&str, &str)]) -> Result<Option<StatTls>, EnvironmentError> {
        StatTls::from_env(&variables(PREFIX, pairs), "sys")
    }

    fn siblings(pairs: &[(&str, &str)]) -> Result<Option<Pair>, EnvironmentError> {
        sibling_pair(&variables(PREFIX, pairs))
    }

    #[test]
    fn tls_is_off_by_default_and_on_with_a_certificate_and_cas() {
        assert!(tls(&[]).expect("off").is_none());
        let all = [("CERT", "c"), ("KEY", "k"), ("CA_FILE", "a")];
        let on = tls(&all).expect("complete").expect("on");
        assert_eq!((on.trust.name.as_str(), on.allow_plain), ("autoscaler.sys.svc", false));
        let named = [&all[..], &[("NAME", "stats.example.com"), ("PLAIN", "allow")]].concat();
        let on = tls(&named).expect("complete").expect("on");
        assert_eq!((on.trust.name.as_str(), on.allow_plain), ("stats.example.com", true));
        assert_eq!(
            StatTrust::from_env(&variables(PREFIX, &all[2..]), "sys").expect("an activator's").map(|t| t.name),
            Some("autoscaler.sys.svc".into())
        );
        assert_eq!(siblings(&all[2..]).expect("stats alone"), None);
        let pair = Pair { certificate: "c".into(), key: "k".into() };
        assert_eq!(siblings(&all).expect("complete"), Some(pair));
    }

    #[test]
    fn an_incomplete_setting_is_an_error_that_names_what_is_missing() {
        let rows = [
            (&[("CERT", "c")][..], "CERT", "_KEY"),
            (&[("KEY", "k")], "KEY", "_CERT"),
            (&[("CERT", "c"), ("KEY", "k")], "CERT", "_CA_FILE"),
            (&[("CA_FILE", "a")], "CA_FILE", "_CERT"),
            (&[("NAME", "n")], "NAME", "_CA_FILE"),
            (&[("PLAIN", "allow")], "PLAIN", "_CERT"),
            (&[("CERT", "c"), ("KEY", "k"), ("CA_FILE", "a"), ("PLAIN", "yes")], "PLAIN", "allow or refuse"),
            (&[("CERT", "c"), ("KEY", "k"), ("CA_FILE", "a"), ("MIN_VERSION", "1.1")], "MIN_VERSION", "1.1"),
        ];
        for (pairs, named, rule) in rows {
            let error = tls(pairs).expect_err(named);
            assert_eq!(error.variable, format!("{PREFIX}_{named}"));
            assert!(error.to_string().contains(rule), "{error}");
        }
        for (pairs, named, _) in &rows[..3] {
            assert_eq!(siblings(pairs).expect_err(named).variable, format!("{PREFIX}_{named}"));
        }
    }
}
