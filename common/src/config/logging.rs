//! `config-logging`, limited to the log level.
//!
//! A component's own key, `loglevel.COMPONENT`, overrides the `level` inside `zap-logger-config`. If neither is set,
//! the level is `info`. Levels are zap's names, in any case. `dpanic`, `panic` and `fatal` count as `error`, because
//! Zeroscale logs nothing above it.
//!
//! Not here: the other keys of `zap-logger-config` (encoding, output, sampling, time format). Log lines are always JSON
//! on stderr.

use super::ConfigError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

const LEVEL: &str = "loglevel.";
const ZAP: &str = "zap-logger-config";

/// Log level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Details that help to find a fault.
    Debug,
    /// Events of interest to an operator.
    #[default]
    Info,
    /// Faults that may be temporary.
    Warn,
    /// Faults that need an operator's attention.
    Error,
}

/// Part of `zap-logger-config` that is used.
#[derive(Deserialize)]
struct Zap {
    level: Option<String>,
}

impl LogLevel {
    /// Reads the level of `component` from the map's data. Fails if any component's level is not one of zap's: as
    /// upstream, this makes the whole map invalid. Also fails if `zap-logger-config` is not a JSON object.
    pub fn from_map(data: &BTreeMap<String, String>, component: &str) -> Result<Self, ConfigError> {
        let mut own = None;
        for (key, value) in data.iter().filter(|(_, value)| !value.is_empty()) {
            let Some(name) = key.strip_prefix(LEVEL).filter(|name| !name.is_empty()) else { continue };
            let level = parse(key, value, value)?;
            if name == component {
                own = Some(level);
            }
        }
        let zap = match data.get(ZAP).filter(|text| !text.trim().is_empty()) {
            None => None,
            Some(text) => {
                let zap: Zap = serde_json::from_str(text).map_err(|error| {
                    ConfigError::new(ZAP, text, format!("must be a JSON object whose `level` is a string: {error}"))
                })?;
                zap.level.map(|level| parse(ZAP, text, &level)).transpose()?
            }
        };
        Ok(own.or(zap).unwrap_or_default())
    }
}

fn parse(key: &str, value: &str, level: &str) -> Result<LogLevel, ConfigError> {
    match level.to_ascii_lowercase().as_str() {
        "debug" => Ok(LogLevel::Debug),
        "info" | "" => Ok(LogLevel::Info),
        "warn" | "warning" => Ok(LogLevel::Warn),
        "error" | "dpanic" | "panic" | "fatal" => Ok(LogLevel::Error),
        _ => {
            let rule = "is not a log level; it must be debug, info, warn, error, dpanic, panic or fatal";
            Err(ConfigError::new(key, value, format!("{level:?} {rule}")))
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::map;

    #[test]
    fn a_components_own_key_beats_the_loggers_level() {
        let zap = (ZAP, r#"{"level": "warn", "encoding": "json"}"#);
        for (pairs, expected) in [
            (&[][..], LogLevel::Info),
            (&[zap], LogLevel::Warn),
            (&[zap, ("loglevel.activator", "DEBUG")], LogLevel::Debug),
            (&[zap, ("loglevel.activator", "")], LogLevel::Warn),
            (&[zap, ("loglevel.autoscaler", "debug")], LogLevel::Warn),
            (&[("loglevel.activator", "fatal")], LogLevel::Error),
            (&[(ZAP, r#"{"encoding": "json"}"#)], LogLevel::Info),
        ] {
            assert_eq!(LogLevel::from_map(&map(pairs), "activator"), Ok(expected), "{pairs:?}");
        }
    }

    #[test]
    fn an_invalid_level_is_refused_by_key_and_value() {
        let loud = r#"{"level": "loud"}"#;
        for (key, value) in [("loglevel.activator", "loud"), ("loglevel.other", "5"), (ZAP, "{"), (ZAP, loud)] {
            let error = LogLevel::from_map(&map(&[(key, value)]), "activator").expect_err(value);
            assert_eq!((error.key.as_str(), error.value.as_str()), (key, value));
        }
    }
}
