//! What may change while an activator runs, from ConfigMaps of the system namespace. A version that breaks a rule is
//! refused by key and value, and the former one stays in force.
//!
//! `system-internal-tls` of `config-network` is read at the start alone: listeners and connections to pods hang on it.
//! The certificates behind it are live ([`crate::InternalTls`]).
//!
//! | map | key | effect |
//! |---|---|---|
//! | `config-network` | `mesh-compatibility-mode`, `enable-mesh-pod-addressability` | how pods are reached, in knative mode |
//! | `config-logging` | `loglevel.activator`, `zap-logger-config` | how much is logged |
//! | `config-observability` | `logging.enable-request-log`, `logging.request-log-template` | the [request log](crate::layers::request_log) |
//! | the same | `runtime-profiling` | [`common_runtime::profiling`] |
//!
//! `metrics-*` and `tracing-*` of `config-observability` are read at the start alone, too ([`common_runtime::observe`],
//! [`common_runtime::telemetry::traces`]).
//!
//! # Better than Knative
//!
//! Its activator reads the first two at the start alone.
//!
//! # Not here
//!
//! Request logs of probes (`logging.enable-probe-request-log`): upstream's activator ignores that key too.

pub(crate) mod certificates;
pub(crate) mod options;

use crate::layers::request_log::template::Template;
use certificates::InternalTls;
use common::config::{ConfigError, LogLevel, NETWORK, NetworkConfig, ObservabilityConfig};
use common::golang;
use common_runtime::config_map::{ConfigMaps, Refusals};
use common_runtime::process::ProcessOptions;
use kube::Client;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Longest wait for the first versions: an activator that may not read them serves with defaults.
const FIRST_WAIT: Duration = Duration::from_secs(5);

const ENABLE: &str = "logging.enable-request-log";
const TEMPLATE: &str = "logging.request-log-template";

/// The template where none is set: upstream's fields in upstream's shape.
const DEFAULT_TEMPLATE: &str = concat!(
    r#"{"httpRequest": {"requestMethod": "{{.Request.Method}}", "requestUrl": "{{js .Request.RequestURI}}", "#,
    r#""requestSize": "{{.Request.ContentLength}}", "status": {{.Response.Code}}, "#,
    r#""responseSize": "{{.Response.Size}}", "userAgent": "{{js .Request.UserAgent}}", "#,
    r#""remoteIp": "{{js .Request.RemoteAddr}}", "serverIp": "{{.Revision.PodIP}}", "#,
    r#""referer": "{{js .Request.Referer}}", "latency": "{{.Response.Latency}}s", "#,
    r#""protocol": "{{.Request.Proto}}"}, "traceId": "{{.TraceID}}"}"#
);

/// Live configuration.
#[derive(Clone, Debug)]
pub struct Configs {
    /// `config-network`.
    pub network: watch::Receiver<Arc<NetworkConfig>>,
    /// `config-observability`.
    pub observability: watch::Receiver<Arc<Observability>>,
    /// The same map, as far as both planes read it.
    pub telemetry: watch::Receiver<Arc<ObservabilityConfig>>,
    /// System-internal TLS; none: off.
    pub tls: Option<InternalTls>,
    /// Which maps break a rule.
    pub refusals: Refusals,
}

/// What `config-observability` says to an activator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observability {
    request_log: Option<Arc<Template>>,
}

impl Configs {
    /// Watches the maps of `namespace` until `shutdown`. Returns when they have been read, or cannot be for a while.
    pub(crate) async fn watch(
        client: Client,
        namespace: &str,
        process: &ProcessOptions,
        shutdown: CancellationToken,
    ) -> Self {
        let names = &process.config_maps;
        let mut maps = ConfigMaps::default();
        let network = maps.subscribe(NETWORK, NetworkConfig::default(), NetworkConfig::from_map);
        let observability = maps.subscribe(&names.observability, Observability::default(), Observability::from_map);
        let telemetry =
            maps.subscribe(&names.observability, ObservabilityConfig::default(), ObservabilityConfig::from_map);
        if let Some(logs) = &process.logs {
            let level = |data: &BTreeMap<String, String>| LogLevel::from_map(data, "activator");
            logs.clone().follow(maps.subscribe(&names.logging, LogLevel::default(), level));
        }
        let refusals = maps.refusals();
        if tokio::time::timeout(FIRST_WAIT, maps.start(client, namespace, shutdown)).await.is_err() {
            tracing::warn!(namespace, "config maps could not be read yet; defaults until they can");
        }
        Self { network, observability, telemetry, tls: None, refusals }
    }
}

impl Default for Configs {
    /// Defaults that never change.
    fn default() -> Self {
        Self {
            network: watch::channel(Arc::default()).1,
            observability: watch::channel(Arc::default()).1,
            telemetry: watch::channel(Arc::default()).1,
            tls: None,
            refusals: Refusals::default(),
        }
    }
}

impl Observability {
    /// Reads the map's data.
    ///
    /// # Errors
    /// `logging.enable-request-log` is no boolean, or the template is empty although it is true, or holds what is not
    /// [supported](crate::layers::request_log::template).
    pub fn from_map(data: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let refused = |key: &str, value: &str, rule: String| {
            Err(ConfigError { key: key.to_owned(), value: value.to_owned(), rule })
        };
        let enabled = match data.get(ENABLE) {
            None => false,
            Some(text) => match golang::parse_bool(text) {
                Ok(enabled) => enabled,
                Err(error) => return refused(ENABLE, text, format!("it {}", error.problem)),
            },
        };
        let text = data.get(TEMPLATE).map_or(DEFAULT_TEMPLATE, String::as_str);
        match (enabled, Template::parse(text)) {
            (_, Err(rule)) => refused(TEMPLATE, text, rule),
            (true, Ok(None)) => refused(TEMPLATE, text, format!("must not be empty while {ENABLE} is true")),
            (true, Ok(template)) => Ok(Self { request_log: template.map(Arc::new) }),
            (false, Ok(_)) => Ok(Self::default()),
        }
    }

    /// The request log's template; none: no log.
    pub(crate) fn template(&self) -> Option<Arc<Template>> {
        self.request_log.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Observability, ConfigError> {
        Observability::from_map(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn a_bad_key_is_refused_with_its_value() {
        assert!(read(&[]).expect("defaults").template().is_none());
        assert!(read(&[(ENABLE, "true")]).expect("the default template").template().is_some());
        assert!(read(&[(TEMPLATE, "")]).expect("off").template().is_none());
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);
        let rows: [Row<'_>; 3] = [
            (&[(ENABLE, "yes")], ENABLE, "yes"),
            (&[(ENABLE, "true"), (TEMPLATE, "")], TEMPLATE, "empty"),
            (&[(TEMPLATE, "{{.Request.Foo}}")], TEMPLATE, ".Request.Foo"),
        ];
        for (pairs, key, named) in rows {
            let error = read(pairs).expect_err(key);
            assert_eq!(error.key, key);
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
