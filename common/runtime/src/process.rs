//! What both planes are told alike at their start, besides who they are. An embedding program leaves it at its default,
//! which touches nothing of the process.

use crate::api_version::{self, MinimumVersion};
use crate::environment::{self, EnvironmentError};
use crate::telemetry::LogControl;
use common::config;

/// Settings of a process that is a plane and nothing else.
#[derive(Clone, Default)]
pub struct ProcessOptions {
    /// Follows `config-logging`; none: log levels are somebody else's affair.
    pub logs: Option<LogControl>,
    /// The oldest API server that will do; none: any.
    pub kubernetes_min_version: Option<MinimumVersion>,
    /// Names of config maps that a cluster may have renamed.
    pub config_maps: ConfigMapNames,
}

/// Names of config maps that both planes read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapNames {
    /// `CONFIG_LOGGING_NAME`, default `config-logging`.
    pub logging: String,
    /// `CONFIG_OBSERVABILITY_NAME`, default `config-observability`.
    pub observability: String,
}

impl Default for ConfigMapNames {
    fn default() -> Self {
        Self { logging: config::LOGGING.to_owned(), observability: config::OBSERVABILITY.to_owned() }
    }
}

impl ProcessOptions {
    /// From Knative's environment variables.
    ///
    /// # Errors
    /// A variable does not parse; the error names it, its value and the rule.
    pub fn from_env(get: &impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let least = MinimumVersion::default();
        let least = environment::parsed(get, api_version::VARIABLE, least, api_version::RULE)?;
        let default = ConfigMapNames::default();
        let named = |variable: &str, default| get(variable).filter(|name| !name.is_empty()).unwrap_or(default);
        Ok(Self {
            logs: None,
            kubernetes_min_version: Some(least),
            config_maps: ConfigMapNames {
                logging: named("CONFIG_LOGGING_NAME", default.logging),
                observability: named("CONFIG_OBSERVABILITY_NAME", default.observability),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_version_is_named() {
        let error = ProcessOptions::from_env(&|name| (name == api_version::VARIABLE).then(|| "1.x".to_owned()))
            .err()
            .expect("no version");
        assert_eq!((error.variable, error.value.as_deref()), (api_version::VARIABLE, Some("1.x")));
        let options = ProcessOptions::from_env(&|_| None).expect("defaults");
        assert_eq!(options.kubernetes_min_version, Some(MinimumVersion::default()));
        assert_eq!(options.config_maps, ConfigMapNames::default());
    }
}
