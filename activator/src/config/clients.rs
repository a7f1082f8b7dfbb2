//! Limits on client connections.
//!
//! | setting | default | reason |
//! |---|---|---|
//! | keep-alive | 15 s, 9 probes | same as Go's servers, and so as Knative's activator |
//! | idle | two hours | longer than the idle time of proxies in front of us (Envoy's default is an hour), so that they close an idle HTTP/1.1 connection first; if the server does, a request may be lost |
//! | connections | as many as the descriptors and half of the memory allow | HAProxy derives its limit from both, too |
//!
//! A quarter of the descriptors, but at most [`RESERVE_MAX`], is reserved for everything else: links between activator
//! and autoscaler, watches, metrics, probes, idle connections to pods. Of the rest, each workload listener takes one,
//! and each client connection takes two: its own and its pod's.

use activator_net::{ClientBounds, KeepAlive};
use common::golang;
use common_runtime::environment::{self, EnvironmentError, optional};
use rustix::process::{Resource, getrlimit};
use std::num::NonZeroUsize;
use std::time::Duration;

/// Bytes of the memory limit per connection: twice the size of an idle one.
const MEMORY_EACH: u64 = 16 * 1024;

/// Maximum number of descriptors that are reserved for other uses than clients. Half of it covers idle connections to
/// pods (1000 by default).
const RESERVE_MAX: u64 = 2048;

/// Largest keep-alive interval in seconds that Linux accepts.
const SECONDS_MAX: u64 = 32_767;
/// Largest number of keep-alive probes that Linux accepts.
const PROBES_MAX: u32 = 127;

/// Limits on client connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Keep-alive probes that detect vanished clients; `None` turns them off.
    pub keepalive: Option<KeepAlive>,
    /// Maximum number of connections, and their longest time without a request.
    pub bounds: ClientBounds,
}

impl ClientOptions {
    /// Returns the defaults for a process with this memory limit in bytes.
    pub fn new(memory_limit: Option<u64>) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let by_memory = memory_limit.map_or(u64::MAX, |bytes| bytes / MEMORY_EACH);
        let connections = usize::try_from(by_memory).unwrap_or(usize::MAX).max(1);
        let descriptors = limit - (limit / 4).min(RESERVE_MAX);
        Self {
            keepalive: Some(KeepAlive { every: Duration::from_secs(15), probes: 9 }),
            bounds: ClientBounds { connections, descriptors, idle: Some(Duration::from_secs(2 * 60 * 60)) },
        }
    }

    /// Reads our environment variables through `get`. An error names the variable, its value and the rule.
    pub(super) fn from_env(
        get: &impl Fn(&str) -> Option<String>,
        memory_limit: Option<u64>,
    ) -> Result<Self, EnvironmentError> {
        let mut options = Self::new(memory_limit);
        let KeepAlive { mut every, mut probes } =
            options.keepalive.unwrap_or(KeepAlive { every: Duration::ZERO, probes: 0 });
        let rule = "must be whole seconds in Go's syntax, such as 15s, at most 32767s; 0s turns it off";
        let is_whole = |d: &Duration| d.subsec_nanos() == 0 && d.as_secs() <= SECONDS_MAX;
        every = duration(get, "ZEROSCALE_CLIENT_KEEPALIVE", rule, is_whole)?.unwrap_or(every);
        let rule = "must be a number from 1 to 127";
        probes = environment::parsed(get, "ZEROSCALE_CLIENT_KEEPALIVE_PROBES", probes, rule)?;
        if !(1..=PROBES_MAX).contains(&probes) {
            return Err(EnvironmentError::new("ZEROSCALE_CLIENT_KEEPALIVE_PROBES", probes.to_string(), rule));
        }
        options.keepalive = (!every.is_zero()).then_some(KeepAlive { every, probes });
        let rule = "must be a duration of a second or more in Go's syntax, such as 2h; 0s turns it off";
        let is_long = |d: &Duration| d.is_zero() || d.as_secs() > 0;
        if let Some(idle) = duration(get, "ZEROSCALE_CLIENT_IDLE", rule, is_long)? {
            options.bounds.idle = (!idle.is_zero()).then_some(idle);
        }
        let rule = "must be a number of connections, at least 1";
        let connections = NonZeroUsize::new(options.bounds.connections).unwrap_or(NonZeroUsize::MIN);
        options.bounds.connections = environment::parsed(get, "ZEROSCALE_CLIENT_CONNECTIONS", connections, rule)?.get();
        Ok(options)
    }
}

/// Reads a duration that `allowed` accepts; `None` if the variable is missing or empty.
pub(super) fn duration(
    get: &impl Fn(&str) -> Option<String>,
    variable: &'static str,
    rule: &'static str,
    allowed: impl Fn(&Duration) -> bool,
) -> Result<Option<Duration>, EnvironmentError> {
    let Some(value) = optional(get, variable) else { return Ok(None) };
    let parsed = golang::parse_duration(&value).ok().filter(|d| *d >= golang::GoDuration::ZERO);
    let parsed = parsed.map(golang::GoDuration::to_std).filter(allowed);
    parsed.map(Some).ok_or_else(|| EnvironmentError::new(variable, value, rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variable: &str, value: &str) -> Result<ClientOptions, EnvironmentError> {
        ClientOptions::from_env(&|name| (name == variable).then(|| value.to_owned()), Some(160 * MEMORY_EACH))
    }

    #[test]
    fn set_variables_apply_and_the_others_have_defaults() {
        let options = from("NOTHING", "").expect("the defaults");
        assert_eq!(options, ClientOptions::new(Some(160 * MEMORY_EACH)));
        assert_eq!(options.bounds.connections, 160);
        assert!(ClientOptions::new(None).bounds.connections > 0);
        let keepalive = |every, probes| Some(KeepAlive { every: Duration::from_secs(every), probes });
        assert_eq!(from("ZEROSCALE_CLIENT_KEEPALIVE", "1m").map(|o| o.keepalive), Ok(keepalive(60, 9)));
        assert_eq!(from("ZEROSCALE_CLIENT_KEEPALIVE", "0s").map(|o| o.keepalive), Ok(None));
        assert_eq!(from("ZEROSCALE_CLIENT_KEEPALIVE_PROBES", "3").map(|o| o.keepalive), Ok(keepalive(15, 3)));
        assert_eq!(from("ZEROSCALE_CLIENT_IDLE", "90s").map(|o| o.bounds.idle), Ok(Some(Duration::from_secs(90))));
        assert_eq!(from("ZEROSCALE_CLIENT_IDLE", "0s").map(|o| o.bounds.idle), Ok(None));
        assert_eq!(from("ZEROSCALE_CLIENT_CONNECTIONS", "7").map(|o| o.bounds.connections), Ok(7));
    }

    #[test]
    fn an_invalid_variable_is_rejected_with_its_name_and_value() {
        for (variable, value) in [
            ("ZEROSCALE_CLIENT_KEEPALIVE", "15"),
            ("ZEROSCALE_CLIENT_KEEPALIVE", "1500ms"),
            ("ZEROSCALE_CLIENT_KEEPALIVE", "10h"),
            ("ZEROSCALE_CLIENT_KEEPALIVE", "-1s"),
            ("ZEROSCALE_CLIENT_KEEPALIVE_PROBES", "0"),
            ("ZEROSCALE_CLIENT_KEEPALIVE_PROBES", "128"),
            ("ZEROSCALE_CLIENT_IDLE", "10ms"),
            ("ZEROSCALE_CLIENT_CONNECTIONS", "0"),
            ("ZEROSCALE_CLIENT_CONNECTIONS", "many"),
        ] {
            let error = from(variable, value).expect_err(value).to_string();
            assert!(error.contains(variable) && error.contains(value), "{error}");
        }
    }
}
