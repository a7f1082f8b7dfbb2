//! Settings that both planes read at their start, besides their identity. An embedding program uses the default, which
//! leaves the process unchanged.

use crate::admin_tls::AdminTls;
use crate::api_version::{self, MinimumVersion};
use crate::environment::{self, EnvironmentError};
use crate::telemetry::{LogControl, otlp};
use common::config;

/// Settings of a process that runs one plane only.
#[derive(Clone, Default)]
pub struct ProcessOptions {
    /// Log control that follows `config-logging`; `None`: the embedding program sets log levels.
    pub logs: Option<LogControl>,
    /// Oldest supported API server; `None`: any.
    pub kubernetes_min_version: Option<MinimumVersion>,
    /// TLS on the admin port; `None`: plain HTTP.
    pub admin_tls: Option<AdminTls>,
    /// Set if the environment defines the address of the admin port, so `metrics-endpoint` does not.
    pub admin_is_fixed: bool,
    /// OpenTelemetry's own variables.
    pub otel: otlp::Environment,
    /// Names of ConfigMaps that a cluster may have renamed.
    pub config_maps: ConfigMapNames,
}

/// Names of ConfigMaps that both planes read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapNames {
    /// `CONFIG_LOGGING_NAME`, default `config-logging`.
    pub logging: String,
    /// `CONFIG_LEADERELECTION_NAME`, default `config-leader-election`; read by autoscalers only.
    pub leader_election: String,
    /// `CONFIG_OBSERVABILITY_NAME`, default `config-observability`.
    pub observability: String,
}

impl Default for ConfigMapNames {
    fn default() -> Self {
        Self {
            logging: config::LOGGING.to_owned(),
            leader_election: config::LEADER_ELECTION.to_owned(),
            observability: config::OBSERVABILITY.to_owned(),
        }
    }
}

impl ProcessOptions {
    /// Reads the environment variables of Knative, OpenTelemetry and Zeroscale. Fails if a variable does not parse; the
    /// error names it, its value and the rule.
    pub fn from_env(get: &impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let minimum = MinimumVersion::for_mode(get("ZEROSCALE_MODE").unwrap_or_default().parse()?);
        let minimum = environment::parsed(get, api_version::VARIABLE, minimum, api_version::RULE)?;
        let default = ConfigMapNames::default();
        let named = |variable: &str, default| environment::optional(get, variable).unwrap_or(default);
        let is_set = |variable: &str| environment::optional(get, variable).is_some();
        Ok(Self {
            logs: None,
            admin_tls: AdminTls::from_env(get)?,
            admin_is_fixed: is_set("METRICS_PROMETHEUS_HOST") || is_set("METRICS_PROMETHEUS_PORT"),
            otel: otlp::Environment::from_env(get),
            kubernetes_min_version: Some(minimum),
            config_maps: ConfigMapNames {
                logging: named("CONFIG_LOGGING_NAME", default.logging),
                leader_election: named("CONFIG_LEADERELECTION_NAME", default.leader_election),
                observability: named("CONFIG_OBSERVABILITY_NAME", default.observability),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Mode;

    #[test]
    fn the_minimum_version_is_read_and_depends_on_the_mode() {
        let error = ProcessOptions::from_env(&|name| (name == api_version::VARIABLE).then(|| "1.x".to_owned()))
            .err()
            .expect("no version");
        assert_eq!((&*error.variable, error.value.as_deref()), (api_version::VARIABLE, Some("1.x")));
        let options = ProcessOptions::from_env(&|_| None).expect("defaults");
        assert_eq!(options.kubernetes_min_version, Some(MinimumVersion::for_mode(Mode::Knative)));
        let standalone = |name: &str| (name == "ZEROSCALE_MODE").then(|| "standalone".to_owned());
        let options = ProcessOptions::from_env(&standalone).expect("defaults");
        assert_eq!(options.kubernetes_min_version, Some(MinimumVersion::for_mode(Mode::Standalone)));
        assert_eq!(options.config_maps, ConfigMapNames::default());
    }
}
