//! Our own annotations on a PodAutoscaler. They mean something in standalone and local mode only.
//!
//! | `zeroscale.dev/` | value | default |
//! |---|---|---|
//! | `service` | name of the Service that clients call | the PodAutoscaler's name |
//! | `adopt-service` | `true`: take over an existing Service of that name, and give it back | `false` |
//! | `hosts` | names and `*.` wildcards, separated by commas | none |
//! | `port` | number or name of the container port | found by name, else the only one |
//! | `probe` | `tcp`, `http:/path` or `kubernetes` | the container's readiness probe |
//! | `timeout` | longest duration of a request, holding included | `300s` |
//! | `response-start-timeout` | longest wait for the first byte of a response; `0`: no limit | none |
//! | `idle-timeout` | longest silence in a response; `0`: no limit | none |
//! | `max-held` | most requests that one activator holds | `10000` |
//!
//! `metrics`, `behavior` and `period` hold another API's words; `autoscaler_core::engine::plan` reads them.
//!
//! There is no webhook in standalone, so nothing is read leniently: all violations are found, and who reconciles the
//! object shows them in its status.

use super::{Annotations, Key};
use crate::field::FieldErrors;
use crate::golang::{self, GoDuration};
use crate::host::HostPattern;
use std::time::Duration;

/// Name of the Service that clients call.
pub const SERVICE: Key = Key::new("zeroscale.dev/service");
/// Whether an existing Service of that name may be taken over.
pub const ADOPT_SERVICE: Key = Key::new("zeroscale.dev/adopt-service");
/// Further hosts.
pub const HOSTS: Key = Key::new("zeroscale.dev/hosts");
/// Container port.
pub const PORT: Key = Key::new("zeroscale.dev/port");
/// How a pod is proven ready.
pub const PROBE: Key = Key::new("zeroscale.dev/probe");
/// Longest duration of a request.
pub const TIMEOUT: Key = Key::new("zeroscale.dev/timeout");
/// Longest wait for the first byte of a response.
pub const RESPONSE_START_TIMEOUT: Key = Key::new("zeroscale.dev/response-start-timeout");
/// Longest silence in a response.
pub const IDLE_TIMEOUT: Key = Key::new("zeroscale.dev/idle-timeout");
/// Most requests that one activator holds.
pub const MAX_HELD: Key = Key::new("zeroscale.dev/max-held");
/// Metrics that ask for pods beside the load: `metrics` of `autoscaling/v2`, as YAML.
pub const METRICS: Key = Key::new("zeroscale.dev/metrics");
/// Stabilization and rate limits: `behavior` of `autoscaling/v2`, as YAML.
pub const BEHAVIOR: Key = Key::new("zeroscale.dev/behavior");
/// Time between two looks at the metrics.
pub const PERIOD: Key = Key::new("zeroscale.dev/period");

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);
const MAX_HELD_DEFAULT: u32 = 10_000;
/// Longest name of a container port.
const PORT_NAME_LENGTH_MAX: usize = 15;

/// What our own annotations say, with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the public Service; none: the PodAutoscaler's.
    pub service: Option<String>,
    /// Whether an existing Service of that name may be taken over.
    pub adopt_service: bool,
    /// Further hosts, without repeats, in the order given.
    pub hosts: Vec<HostPattern>,
    /// Container port; none: to be found.
    pub port: Option<PortReference>,
    /// How a pod is proven ready; none: by its own probe.
    pub probe: Option<ProbeOverride>,
    /// Longest duration of a request, holding included.
    pub timeout: Duration,
    /// Longest wait for the first byte of a response; none: no limit.
    pub response_start_timeout: Option<Duration>,
    /// Longest silence in a response; none: no limit.
    pub idle_timeout: Option<Duration>,
    /// Most requests that one activator holds; at least 1.
    pub max_held: u32,
}

/// A port of a container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PortReference {
    /// By number.
    Number(u16),
    /// By name.
    Name(String),
}

/// How a pod is proven ready, whatever its container says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProbeOverride {
    /// A TCP connection is accepted.
    Tcp,
    /// An HTTP GET of this path and query is answered with a status from 200 to 399.
    Http(String),
    /// Kubernetes' own readiness is believed.
    Kubernetes,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            service: None,
            adopt_service: false,
            hosts: Vec::new(),
            port: None,
            probe: None,
            timeout: TIMEOUT_DEFAULT,
            response_start_timeout: None,
            idle_timeout: None,
            max_held: MAX_HELD_DEFAULT,
        }
    }
}

impl Settings {
    /// Reads and checks all of them.
    ///
    /// # Errors
    /// Every violation: value, annotation, rule.
    pub fn read(annotations: &Annotations) -> Result<Self, FieldErrors> {
        let mut errors = FieldErrors::new();
        let default = Self::default();
        let mut read = Reader { annotations, errors: &mut errors };
        let settings = Self {
            service: read.value(SERVICE, "a Service's name is expected: at most 63 of a-z, 0-9 and -", service_name),
            adopt_service: read
                .value(ADOPT_SERVICE, "true or false is expected", |text| golang::parse_bool(text).ok())
                .unwrap_or(default.adopt_service),
            hosts: read.hosts(),
            port: read.value(PORT, "a port number or the name of a container port is expected", port),
            probe: read.value(PROBE, "tcp, http:/path or kubernetes is expected", probe),
            timeout: read
                .value(TIMEOUT, "a positive duration such as 300s is expected", |text| {
                    duration(text).filter(|timeout| !timeout.is_zero())
                })
                .unwrap_or(default.timeout),
            response_start_timeout: read.limit(RESPONSE_START_TIMEOUT),
            idle_timeout: read.limit(IDLE_TIMEOUT),
            max_held: read
                .value(MAX_HELD, "a whole number from 1 to 2147483647 is expected", |text| {
                    golang::parse_i32(text).ok().and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0)
                })
                .unwrap_or(default.max_held),
        };
        errors.into_result().map(|()| settings)
    }
}

struct Reader<'a> {
    annotations: &'a Annotations,
    errors: &'a mut FieldErrors,
}

impl Reader<'_> {
    fn value<T>(&mut self, key: Key, rule: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let text = key.text(self.annotations)?;
        let value = parse(text);
        if value.is_none() {
            self.errors.invalid_value(text, key.name, rule);
        }
        value
    }

    /// A duration of which 0 means no limit.
    fn limit(&mut self, key: Key) -> Option<Duration> {
        self.value(key, "a duration of at least 0 is expected", duration).filter(|limit| !limit.is_zero())
    }

    fn hosts(&mut self) -> Vec<HostPattern> {
        let mut hosts = Vec::new();
        let list = HOSTS.text(self.annotations).unwrap_or_default();
        for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            match HostPattern::parse(entry) {
                Some(host) if !hosts.contains(&host) => hosts.push(host),
                Some(_) => {}
                None => {
                    let rule = "a host name is expected, or *. and a domain, without scheme or port";
                    self.errors.invalid_value(entry, HOSTS.name, rule);
                }
            }
        }
        hosts
    }
}

fn duration(text: &str) -> Option<Duration> {
    golang::parse_duration(text).ok().filter(|d| *d >= GoDuration::ZERO).map(GoDuration::to_std)
}

/// RFC 1035, as Kubernetes wants of a Service.
fn service_name(text: &str) -> Option<String> {
    let good = text.len() <= 63
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    good.then(|| text.to_owned())
}

/// RFC 6335, as Kubernetes wants of a container port's name.
fn port(text: &str) -> Option<PortReference> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().filter(|&number| number != 0).map(PortReference::Number);
    }
    let good = !text.is_empty()
        && text.len() <= PORT_NAME_LENGTH_MAX
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && text.bytes().any(|b| b.is_ascii_lowercase())
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--");
    good.then(|| PortReference::Name(text.to_owned()))
}

fn probe(text: &str) -> Option<ProbeOverride> {
    match text {
        "tcp" => Some(ProbeOverride::Tcp),
        "kubernetes" => Some(ProbeOverride::Kubernetes),
        _ => text
            .strip_prefix("http:")
            .filter(|path| path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic()) && !path.contains('#'))
            .map(|path| ProbeOverride::Http(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::map;

    #[test]
    fn no_annotations_mean_the_defaults() {
        assert_eq!(Settings::read(&map(&[])), Ok(Settings::default()));
    }

    #[test]
    fn every_setting_is_read() {
        let annotations = map(&[
            (SERVICE.name, "hello"),
            (ADOPT_SERVICE.name, "true"),
            (HOSTS.name, "Hello.example.com, *.example.org ,hello.example.com,"),
            (PORT.name, "8080"),
            (PROBE.name, "http:/ready?deep=1"),
            (TIMEOUT.name, "10m"),
            (RESPONSE_START_TIMEOUT.name, "1.5s"),
            (IDLE_TIMEOUT.name, "0"),
            (MAX_HELD.name, "5"),
        ]);
        let settings = Settings::read(&annotations).expect("valid");
        assert_eq!(settings.service.as_deref(), Some("hello"));
        assert!(settings.adopt_service);
        let hosts: Vec<String> = settings.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["hello.example.com", "*.example.org"], "lower case, no repeats");
        assert_eq!(settings.port, Some(PortReference::Number(8080)));
        assert_eq!(settings.probe, Some(ProbeOverride::Http("/ready?deep=1".into())));
        assert_eq!(settings.timeout, Duration::from_secs(600));
        assert_eq!(settings.response_start_timeout, Some(Duration::from_millis(1500)));
        assert_eq!((settings.idle_timeout, settings.max_held), (None, 5));
    }

    #[test]
    fn bad_settings_are_named_with_value_and_rule() {
        let bad = [
            (SERVICE, "Hello"),
            (SERVICE, "1st"),
            (SERVICE, ""),
            (ADOPT_SERVICE, "yes"),
            (HOSTS, "http://a.example"),
            (HOSTS, "*"),
            (HOSTS, "a.example:80"),
            (PORT, "0"),
            (PORT, "65536"),
            (PORT, "-"),
            (PORT, "sixteen-letters-"),
            (PROBE, "http"),
            (PROBE, "http:ready"),
            (TIMEOUT, "0"),
            (TIMEOUT, "-1s"),
            (TIMEOUT, "60"),
            (IDLE_TIMEOUT, "-1s"),
            (MAX_HELD, "0"),
            (MAX_HELD, "x"),
        ];
        for (key, value) in bad {
            let errors = Settings::read(&map(&[(key.name, value)])).expect_err(value);
            let error = errors.iter().next().expect("one violation");
            assert_eq!((error.path.as_str(), error.rule.is_empty()), (key.name, false), "{value}");
            assert!(error.message.contains(value), "{}", error.message);
        }
        let two = map(&[(TIMEOUT.name, "x"), (PROBE.name, "x")]);
        assert_eq!(Settings::read(&two).expect_err("two violations").iter().count(), 2);
    }
}
