//! ConfigMaps as typed structs: one file for each map.
//!
//! Only keys that are present override a default. Unknown keys, including `_example`, are ignored. All keys of a map
//! are read before its rules are checked in a fixed order. The first failure aborts, and the caller keeps its current
//! configuration. Booleans, numbers and durations are not trimmed (see [`crate::golang`]); texts are.
//!
//! One difference from upstream: `NaN` is rejected wherever a number is read. Upstream accepts it, which corrupts
//! scaling decisions.
//!
//! Not here: keys that neither plane reads.

mod autoscaler;
mod deployment;
mod leader_election;
mod logging;
mod network;
mod observability;
mod ports;

pub use autoscaler::{AutoscalerConfig, TARGET_MIN, TARGET_UTILIZATION_RPS, WINDOW_MAX, WINDOW_MIN};
pub use deployment::DeploymentConfig;
pub use leader_election::LeaderElectionConfig;
pub use logging::LogLevel;
pub use network::{MeshMode, NetworkConfig};
pub use observability::{
    MetricsConfig, MetricsProtocol, ObservabilityConfig, OtlpProtocol, TracingConfig, TracingProtocol,
};
pub use ports::{PortRange, PortsConfig};

use crate::golang::{self, GoDuration, ParseError};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

/// Name of the ConfigMap that [`AutoscalerConfig`] reads.
pub const AUTOSCALER: &str = "config-autoscaler";
/// Name of the ConfigMap that [`DeploymentConfig`] reads.
pub const DEPLOYMENT: &str = "config-deployment";
/// Default name of the ConfigMap that [`LeaderElectionConfig`] reads.
pub const LEADER_ELECTION: &str = "config-leader-election";
/// Default name of the ConfigMap that [`LogLevel`] reads.
pub const LOGGING: &str = "config-logging";
/// Default name of the ConfigMap that [`ObservabilityConfig`] reads.
pub const OBSERVABILITY: &str = "config-observability";
/// Name of the ConfigMap that [`NetworkConfig`] reads.
pub const NETWORK: &str = "config-network";
/// Name of the ConfigMap with the cluster's waiting page: HTML for browsers while a workload without its own page
/// scales from zero.
pub const PAGE: &str = "config-page";
/// Name of the ConfigMap that [`PortsConfig`] reads.
pub const PORTS: &str = "config-ports";

/// A value that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: {rule}")]
pub struct ConfigError {
    /// The key, or the conflicting keys.
    pub key: String,
    /// The resolved value, or the text if it could not be parsed.
    pub value: String,
    /// Rule for the expected value.
    pub rule: String,
}

impl ConfigError {
    /// Creates an error for a key whose value breaks a rule.
    pub fn new(key: &str, value: impl Display, rule: impl Into<String>) -> Self {
        Self { key: key.to_owned(), value: value.to_string(), rule: rule.into() }
    }
}

fn ensure(holds: bool, key: &str, value: impl Display, rule: impl Into<String>) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::new(key, value, rule)) }
}

/// Reads single values from a ConfigMap.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a BTreeMap<String, String>);

impl<'a> Reader<'a> {
    /// Returns the first of `keys` that is present, with its value.
    fn first(self, keys: &[&'a str]) -> Option<(&'a str, &'a str)> {
        keys.iter().find_map(|key| self.0.get(*key).map(|value| (*key, value.as_str())))
    }

    fn parse<T>(
        self,
        keys: &[&'a str],
        default: T,
        parse: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Result<T, ConfigError> {
        let Some((key, value)) = self.first(keys) else { return Ok(default) };
        parse(value).map_err(|error| ConfigError::new(key, value, format!("it {}", error.problem)))
    }

    fn boolean(self, key: &'a str, default: bool) -> Result<bool, ConfigError> {
        self.parse(&[key], default, golang::parse_bool)
    }

    fn int32(self, key: &'a str, default: i32) -> Result<i32, ConfigError> {
        self.parse(&[key], default, golang::parse_integer)
    }

    fn float(self, key: &'a str, default: f64) -> Result<f64, ConfigError> {
        let value = self.parse(&[key], default, golang::parse_float)?;
        ensure(!value.is_nan(), key, value, "must be a number")?;
        Ok(value)
    }

    fn duration(self, keys: &[&'a str], default: GoDuration) -> Result<GoDuration, ConfigError> {
        self.parse(keys, default, golang::parse_duration)
    }

    /// Reads a duration that must not be negative.
    fn time(self, key: &'a str, default: Duration) -> Result<Duration, ConfigError> {
        let time = self.duration(&[key], default.into())?;
        ensure(time >= GoDuration::ZERO, key, time, "cannot be negative")?;
        Ok(time.to_std())
    }

    fn word(self, key: &'a str, default: String) -> Result<String, ConfigError> {
        Ok(self.text(key, &default))
    }

    fn text(self, key: &'a str, default: &str) -> String {
        self.0.get(key).map_or(default, |value| value.trim()).to_owned()
    }
}

#[cfg(test)]
pub(crate) fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
