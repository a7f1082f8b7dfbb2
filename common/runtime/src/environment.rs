//! Environment variables that apply before any configuration is read: mode, names, cluster domain.

use std::borrow::Cow;
use std::str::FromStr;

pub use ipnet::IpNet as Cidr;

/// Kind of install. It selects the rules where the two kinds differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// For ordinary workloads, controlled by Zeroscale's own objects.
    Standalone,
    /// Replaces components of Knative Serving. The default, so that exchanging their images is enough.
    #[default]
    Knative,
}

impl FromStr for Mode {
    type Err = EnvironmentError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "standalone" => Ok(Self::Standalone),
            "knative" | "" => Ok(Self::Knative),
            other => Err(EnvironmentError::new("ZEROSCALE_MODE", other, "must be `standalone` or `knative`")),
        }
    }
}

/// Error of a variable that is missing or invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "environment variable {variable}{}: {rule}",
    .value.as_ref().map_or_else(|| " is not set".to_owned(), |value| format!("={value:?}"))
)]
pub struct EnvironmentError {
    /// Name of the variable.
    pub variable: Cow<'static, str>,
    /// Value of the variable, if it is set.
    pub value: Option<String>,
    /// Broken rule.
    pub rule: Cow<'static, str>,
}

impl EnvironmentError {
    /// Creates an error for a variable whose `value` breaks `rule`.
    pub fn new(
        variable: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
        rule: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { variable: variable.into(), value: Some(value.into()), rule: rule.into() }
    }
}

/// Returns the value of a variable that must exist and must not be empty.
pub fn required(
    get: &impl Fn(&str) -> Option<String>,
    variable: &'static str,
    purpose: &'static str,
) -> Result<String, EnvironmentError> {
    match get(variable) {
        Some(value) if !value.is_empty() => Ok(value),
        value => Err(EnvironmentError { variable: variable.into(), value, rule: purpose.into() }),
    }
}

/// Parses the value of a variable; returns `default` if it is missing or empty. Fails if the value does not parse.
pub fn parsed<T: FromStr>(
    get: &impl Fn(&str) -> Option<String>,
    variable: &'static str,
    default: T,
    rule: &'static str,
) -> Result<T, EnvironmentError> {
    match optional(get, variable) {
        None => Ok(default),
        Some(value) => value.parse().map_err(|_| EnvironmentError::new(variable, value, rule)),
    }
}

/// Returns the value of a variable, or `None` if it is missing or empty.
pub fn optional(get: &impl Fn(&str) -> Option<String>, variable: &str) -> Option<String> {
    get(variable).filter(|value| !value.is_empty())
}

/// Reads the process's environment, in the form that [`required`] and [`parsed`] take; tests pass a map instead.
pub fn process(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

/// Returns the cluster's DNS domain: `CLUSTER_DOMAIN`, else the first `svc.` search entry of `/etc/resolv.conf`, else
/// `cluster.local`. Upstream uses its variable only if the file can be read. Here the variable always applies, since no
/// user can depend on its being ignored.
pub fn cluster_domain() -> String {
    if let Some(domain) = optional(&process, "CLUSTER_DOMAIN") {
        return domain;
    }
    let file = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    search_domain(&file).unwrap_or_else(|| "cluster.local".to_owned())
}

/// Returns the domain in the first `svc.`-prefixed search entry of a `resolv.conf`.
fn search_domain(resolv_conf: &str) -> Option<String> {
    resolv_conf
        .lines()
        .filter_map(|line| line.trim().strip_prefix("search"))
        .flat_map(str::split_whitespace)
        .find_map(|entry| entry.strip_prefix("svc."))
        .map(|domain| domain.trim_end_matches('.').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_domain_is_the_first_svc_entry_of_a_search_line() {
        let rows = [
            ("search default.svc.abc.com svc.abc.com. abc.com\nnameserver 1.2.3.4", Some("abc.com")),
            ("nameserver 1.1.1.1\nsearch foo.com", None),
            ("", None),
        ];
        for (file, expected) in rows {
            assert_eq!(search_domain(file).as_deref(), expected, "{file:?}");
        }
    }

    #[test]
    fn errors_name_the_variable_its_value_and_the_rule() {
        let none = |_: &str| None;
        let error = required(&none, "POD_NAME", "the pod's own name is needed").expect_err("missing");
        assert_eq!(error.to_string(), "environment variable POD_NAME is not set: the pod's own name is needed");
        let bad = |_: &str| Some("x".to_owned());
        let error = parsed::<u16>(&bad, "PORT", 1, "must be a port").expect_err("bad");
        assert_eq!(error.to_string(), "environment variable PORT=\"x\": must be a port");
        assert!("nonsense".parse::<Mode>().is_err());
    }
}
