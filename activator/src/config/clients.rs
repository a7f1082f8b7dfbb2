//! What the connections of clients may occupy.
//!
//! | setting | default | as |
//! |---|---|---|
//! | keep-alive | 15 s, 9 questions | Go's servers, and so Knative's activator |
//! | idle | two hours | longer than what keeps connections to us (Envoy's default is an hour): whoever closes an idle HTTP/1.1 connection first loses no request |
//! | connections | what the descriptors and half of the memory hold | HAProxy's, which derives it from both, too |
//!
//! A quarter of the descriptors, but at most [`RESERVE_MAX`], is for everything else: links between planes, watches, metrics,
//! probes, idle connections to pods. Of the rest, workloads' listeners take one each, and a connection two: its own and its
//! pod's.

use activator_net::{ClientBounds, KeepAlive};
use common::golang;
use common_runtime::environment::{self, EnvironmentError};
use rustix::process::{Resource, getrlimit};
use std::time::Duration;

/// Bytes of the memory limit for each connection: what an idle one keeps, twice.
const MEMORY_EACH: u64 = 16 * 1024;

/// Descriptors that are for everything but clients, at most: half of them are for idle connections to pods, of which there
/// are 1000 by default.
const RESERVE_MAX: u64 = 2048;

/// Most seconds and questions that Linux takes for keep-alive.
const SECONDS_MAX: u64 = 32_767;
const QUESTIONS_MAX: u32 = 127;

/// Bounds on clients' connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// When a client that says nothing counts as vanished; none: never.
    pub keepalive: Option<KeepAlive>,
    /// How many connections there may be, and for how long without a request.
    pub bounds: ClientBounds,
}

impl ClientOptions {
    /// Defaults for a process of so many bytes of memory.
    pub fn new(memory_limit: Option<u64>) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let by_memory = memory_limit.map_or(u64::MAX, |bytes| bytes / MEMORY_EACH);
        let connections = usize::try_from(by_memory).unwrap_or(usize::MAX).max(1);
        let descriptors = limit - (limit / 4).min(RESERVE_MAX);
        Self {
            keepalive: Some(KeepAlive { every: Duration::from_secs(15), questions: 9 }),
            bounds: ClientBounds { connections, descriptors, idle: Some(Duration::from_secs(2 * 60 * 60)) },
        }
    }

    /// From our environment variables, read through `get`.
    ///
    /// # Errors
    /// One of them does not parse; the error names it, its value and the rule.
    pub(super) fn from_env(
        get: &impl Fn(&str) -> Option<String>,
        memory_limit: Option<u64>,
    ) -> Result<Self, EnvironmentError> {
        let mut options = Self::new(memory_limit);
        let KeepAlive { mut every, mut questions } =
            options.keepalive.unwrap_or(KeepAlive { every: Duration::ZERO, questions: 0 });
        if let Some(value) = read(get, "ZEROSCALE_CLIENT_KEEPALIVE") {
            let rule = "must be whole seconds in Go's syntax, such as 15s, at most 32767s; 0s turns it off";
            let is_whole = |d: &Duration| d.subsec_nanos() == 0 && d.as_secs() <= SECONDS_MAX;
            every = seconds("ZEROSCALE_CLIENT_KEEPALIVE", value, rule, is_whole)?;
        }
        let rule = "must be a number from 1 to 127";
        questions = environment::parsed(get, "ZEROSCALE_CLIENT_KEEPALIVE_PROBES", questions, rule)?;
        if !(1..=QUESTIONS_MAX).contains(&questions) {
            return Err(EnvironmentError::new("ZEROSCALE_CLIENT_KEEPALIVE_PROBES", questions.to_string(), rule));
        }
        options.keepalive = (!every.is_zero()).then_some(KeepAlive { every, questions });
        if let Some(value) = read(get, "ZEROSCALE_CLIENT_IDLE") {
            let rule = "must be a duration of a second or more in Go's syntax, such as 2h; 0s turns it off";
            let is_long = |d: &Duration| d.is_zero() || d.as_secs() > 0;
            let idle = seconds("ZEROSCALE_CLIENT_IDLE", value, rule, is_long)?;
            options.bounds.idle = (!idle.is_zero()).then_some(idle);
        }
        let rule = "must be a number of connections, at least 1";
        let connections = options.bounds.connections;
        options.bounds.connections = environment::parsed(get, "ZEROSCALE_CLIENT_CONNECTIONS", connections, rule)?;
        if options.bounds.connections == 0 {
            return Err(EnvironmentError::new("ZEROSCALE_CLIENT_CONNECTIONS", "0", rule));
        }
        Ok(options)
    }
}

fn read(get: &impl Fn(&str) -> Option<String>, variable: &str) -> Option<String> {
    get(variable).filter(|value| !value.is_empty())
}

/// A duration that `rule` allows.
fn seconds(
    variable: &'static str,
    value: String,
    rule: &'static str,
    allowed: impl Fn(&Duration) -> bool,
) -> Result<Duration, EnvironmentError> {
    let parsed = golang::parse_duration(&value).ok().filter(|d| *d >= golang::GoDuration::ZERO);
    parsed.map(golang::GoDuration::to_std).filter(allowed).ok_or_else(|| EnvironmentError::new(variable, value, rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variable: &str, value: &str) -> Result<ClientOptions, EnvironmentError> {
        ClientOptions::from_env(&|name| (name == variable).then(|| value.to_owned()), Some(160 * MEMORY_EACH))
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let options = from("NOTHING", "").expect("nothing is wrong");
        assert_eq!(options, ClientOptions::new(Some(160 * MEMORY_EACH)));
        assert_eq!(options.bounds.connections, 160);
        assert!(ClientOptions::new(None).bounds.connections > 0);
    }

    #[test]
    fn what_is_said_counts() {
        let keepalive = |every, questions| Some(KeepAlive { every: Duration::from_secs(every), questions });
        assert_eq!(from("ZEROSCALE_CLIENT_KEEPALIVE", "1m").map(|o| o.keepalive), Ok(keepalive(60, 9)));
        assert_eq!(from("ZEROSCALE_CLIENT_KEEPALIVE", "0s").map(|o| o.keepalive), Ok(None));
        assert_eq!(from("ZEROSCALE_CLIENT_KEEPALIVE_PROBES", "3").map(|o| o.keepalive), Ok(keepalive(15, 3)));
        assert_eq!(from("ZEROSCALE_CLIENT_IDLE", "90s").map(|o| o.bounds.idle), Ok(Some(Duration::from_secs(90))));
        assert_eq!(from("ZEROSCALE_CLIENT_IDLE", "0s").map(|o| o.bounds.idle), Ok(None));
        assert_eq!(from("ZEROSCALE_CLIENT_CONNECTIONS", "7").map(|o| o.bounds.connections), Ok(7));
    }

    #[test]
    fn what_breaks_a_rule_is_named() {
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
