//! Parts of cases that several HorizontalPodAutoscaler kinds share.
//!
//! Reasons are compared. Messages are not, because they contain details of another implementation.

use std::collections::BTreeMap;
use std::time::Duration;

use common::labels::Selector;
use hpa_core::groups::Groups;
use hpa_core::pod::{Container, Phase, Pod, Readiness, Resources};
use hpa_core::request::Reading;
use hpa_core::tolerance::Tolerances;
use hpa_core::usage::{PodUsage, PodValue};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::Mismatch;
use crate::compare::{Time, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PodCase {
    name: String,
    phase: String,
    deleting: bool,
    start_time: Option<Time>,
    ready: Option<ReadyCase>,
    #[serde(default)]
    containers: Vec<ContainerCase>,
    #[serde(default)]
    init_containers: Vec<ContainerCase>,
    #[serde(default)]
    pod_requests: Resources,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadyCase {
    status: String,
    last_transition_time: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContainerCase {
    name: String,
    requests: Resources,
    /// Only of init containers.
    #[serde(default)]
    restart_always: bool,
}

impl PodCase {
    fn pod(self) -> Result<Pod, Mismatch> {
        let phase = match self.phase.as_str() {
            "Pending" => Phase::Pending,
            "Running" => Phase::Running,
            "Succeeded" => Phase::Succeeded,
            "Failed" => Phase::Failed,
            "Unknown" => Phase::Unknown,
            other => return Err(Mismatch::Broken(format!("phase {other:?} is unknown"))),
        };
        let ready = self.ready.map(|ready| Readiness {
            status: match ready.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            },
            last_transition: ready.last_transition_time.0,
        });
        let container = |c: ContainerCase| Container { name: c.name, requests: c.requests, restarts: c.restart_always };
        Ok(Pod {
            name: self.name,
            labels: self.labels.unwrap_or_else(|| [("app".to_owned(), "web".to_owned())].into()),
            phase,
            deleting: self.deleting,
            start_time: self.start_time.map(|time| time.0),
            ready,
            containers: self.containers.into_iter().map(container).collect(),
            init_containers: self.init_containers.into_iter().map(container).collect(),
            requests: self.pod_requests,
            overhead: Resources::new(),
        })
    }
}

/// Parses the pods of a case, for `#[serde(deserialize_with = "pods")]`.
pub(super) fn pods<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Pod>, D::Error> {
    let cases = Vec::<PodCase>::deserialize(deserializer)?;
    cases.into_iter().map(PodCase::pod).collect::<Result<_, _>>().map_err(Error::custom)
}

/// Returns the pods with the label `app=web`, which is the selector of all cases with one metric.
pub(super) fn selected(pods: &[Pod]) -> Result<Vec<&Pod>, Mismatch> {
    let selector = Selector::parse("app=web").map_err(Mismatch::Broken)?;
    Ok(pods.iter().filter(|pod| selector.matches(&pod.labels)).collect())
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageCase {
    pod: String,
    timestamp: Time,
    window_seconds: u64,
    containers: Vec<ContainerUsageCase>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContainerUsageCase {
    name: String,
    usage: Resources,
}

impl From<UsageCase> for PodUsage {
    fn from(case: UsageCase) -> Self {
        Self {
            pod: case.pod,
            timestamp: case.timestamp.0,
            window: Duration::from_secs(case.window_seconds),
            containers: case.containers.into_iter().map(|c| (c.name, c.usage)).collect(),
        }
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValueCase {
    pod: String,
    value: i64,
    timestamp: Time,
    window_seconds: Option<u64>,
}

impl From<ValueCase> for PodValue {
    fn from(case: ValueCase) -> Self {
        let window = case.window_seconds.map(Duration::from_secs);
        Self { pod: case.pod, timestamp: case.timestamp.0, window, value: case.value }
    }
}

/// Converts a list to a response; `null` means that the request fails.
pub(super) fn reading<C: Into<T>, T>(cases: Option<Vec<C>>, kind: fn(Vec<T>) -> Reading) -> Reading {
    let unavailable = || Reading::Failed("the server is currently unable to handle the request".to_owned());
    cases.map_or_else(unavailable, |list| kind(list.into_iter().map(Into::into).collect()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, remote = "Tolerances")]
pub(super) struct ToleranceCase {
    up: f64,
    down: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupsCase {
    ready_count: usize,
    unready: Vec<String>,
    missing: Vec<String>,
    ignored: Vec<String>,
}

impl GroupsCase {
    /// Compares groups, which are unordered.
    pub(super) fn compare(mut self, got: &Groups<'_>) -> Result<(), Mismatch> {
        for list in [&mut self.unready, &mut self.missing, &mut self.ignored] {
            list.sort_unstable();
        }
        equal("want.groups.ready_count", &self.ready_count, &got.ready)?;
        for (name, wanted, got) in [
            ("unready", &self.unready, &got.unready),
            ("missing", &self.missing, &got.missing),
            ("ignored", &self.ignored, &got.ignored),
        ] {
            let got: Vec<&str> = got.iter().copied().collect();
            equal(&format!("want.groups.{name}"), wanted, &got)?;
        }
        Ok(())
    }
}

/// Compares an expected number. `null` accepts any number; the field is absent only with an error.
pub(super) fn reported(at: &str, wanted: Option<Option<i64>>, got: i64) -> Result<(), Mismatch> {
    match wanted {
        Some(Some(wanted)) => equal(at, &wanted, &got),
        Some(None) => Ok(()),
        None => Err(Mismatch::Broken(format!("{at} is missing"))),
    }
}

/// Distinguishes null from absent, for `#[serde(default, deserialize_with = "present")]`.
pub(super) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(d).map(Some)
}
