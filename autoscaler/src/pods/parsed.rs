//! Part of a pod that the index keeps: state and reason why it does not serve.

use super::index::PodState;
use super::ownership::Controller;
use autoscaler_core::cause::{self, Cause, ContainerFacts, Ended};
use autoscaler_core::pod_counts::{CountedPod, Phase};
use common::RevisionKey as PodName;
use common::time::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition, PodStatus, Probe,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;
use std::time::Duration;

/// Time that a pod may take to start before its last warning is looked up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kept part of a pod.
#[derive(Clone, Debug)]
pub(super) struct ParsedPod {
    pub(super) metadata: ObjectMeta,
    pub(super) containers: Vec<Container>,
    pub(super) status: PodStatus,
    /// Reason and message of its last warning; none: not looked up yet.
    pub(super) warning: Option<Option<(String, String)>>,
    /// Set once the lookup of the warning has started. Until its result, no cause is reported, so that the text does
    /// not change.
    pub(super) is_looked_up: bool,
}

impl From<Pod> for ParsedPod {
    fn from(pod: Pod) -> Self {
        let Pod { metadata, spec, status } = pod;
        let containers = spec.map(|spec| spec.containers).unwrap_or_default();
        Self { metadata, containers, status: status.unwrap_or_default(), warning: None, is_looked_up: false }
    }
}

impl ParsedPod {
    pub(super) fn name(&self) -> PodName {
        let ObjectMeta { namespace, name, .. } = &self.metadata;
        PodName::new(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
    }

    /// Returns the kept state at `now`, and the time after which it may change. With `tracks_failures`, its cause and
    /// controller are determined, and a pod in a crash loop is not ready.
    pub(super) fn state(&self, tracks_failures: bool, now: Timestamp) -> (PodState, Option<Duration>) {
        let status = &self.status;
        let mut ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
        let (mut due, mut cause) = (None, None);
        if tracks_failures && !self.is_over() {
            let settles_in = self.containers(now).filter_map(|container| container.settles_in()).max();
            ready = ready && settles_in.is_none();
            cause = self.cause(now).filter(|_| !ready);
            due = settles_in.or_else(|| (!ready).then(|| self.patience(now)));
        }
        let state = PodState {
            state: CountedPod {
                phase: Phase::parse(status.phase.as_deref()),
                deleting: self.metadata.deletion_timestamp.is_some(),
                ready,
            },
            labels: self.metadata.labels.clone().unwrap_or_default(),
            address: status.pod_ip.as_ref().and_then(|ip| ip.parse().ok()),
            started: status.start_time.as_ref().map(timestamp),
            cause,
            controller: if tracks_failures { Controller::from_metadata(&self.metadata).map(Arc::new) } else { None },
        };
        (state, due)
    }

    /// Returns whether it has been starting for so long that its last warning should be looked up.
    pub(super) fn is_stuck(&self, now: Timestamp) -> bool {
        !self.is_over() && self.own_cause(now).is_none() && self.starting_for(now) >= PATIENCE
    }

    /// Takes over a former warning if the container statuses have not changed since.
    pub(super) fn remember(&mut self, before: Self) {
        if self.warning.is_none() && before.status.container_statuses == self.status.container_statuses {
            (self.warning, self.is_looked_up) = (before.warning, before.is_looked_up);
        }
    }

    fn is_over(&self) -> bool {
        let phase = Phase::parse(self.status.phase.as_deref());
        self.metadata.deletion_timestamp.is_some() || phase == Phase::Other
    }

    /// Returns the time until a pod that is not ready must be checked again.
    fn patience(&self, now: Timestamp) -> Duration {
        let left = PATIENCE.saturating_sub(self.starting_for(now));
        if left.is_zero() { PATIENCE } else { left }
    }

    fn cause(&self, now: Timestamp) -> Option<Cause> {
        self.own_cause(now).or_else(|| {
            if self.starting_for(now) < PATIENCE {
                return None;
            }
            let probed = self.unready(now);
            if self.is_looked_up && self.warning.is_none() {
                return None;
            }
            let warning = self.warning.as_ref().and_then(Option::as_ref);
            let warned = warning.and_then(|(reason, words)| cause::warned(reason, words, probed.as_ref()));
            warned.or_else(|| Some(cause::probe_fails(&probed?, "")))
        })
    }

    /// Returns the cause that the pod's own status names.
    fn own_cause(&self, now: Timestamp) -> Option<Cause> {
        let unscheduled = |c: &&PodCondition| {
            c.type_ == "PodScheduled" && c.status == "False" && c.reason.as_deref() == Some("Unschedulable")
        };
        let unscheduled = self.status.conditions.iter().flatten().find(unscheduled);
        unscheduled
            .map(|condition| cause::unschedulable(condition.message.as_deref().unwrap_or_default()))
            .or_else(|| self.containers(now).find_map(|container| container.cause()))
    }

    /// Returns a running container whose readiness probe does not pass.
    fn unready(&self, now: Timestamp) -> Option<ContainerFacts> {
        let starts = |facts: &ContainerFacts| facts.running.is_some() && !facts.ready && facts.probe.is_some();
        self.containers(now).find(starts)
    }

    /// Returns the duration of its present step of starting, without the initial delay of its probe.
    fn starting_for(&self, now: Timestamp) -> Duration {
        let (mut since, mut delay) = (None, Duration::ZERO);
        for (spec, status) in self.specified() {
            if let Some(running) = status.state.as_ref().and_then(|state| state.running.as_ref())
                && !status.ready
            {
                since = since.max(running.started_at.as_ref().map(timestamp));
                let initial = spec.and_then(|spec| spec.readiness_probe.as_ref()?.initial_delay_seconds);
                delay = delay.max(Duration::from_secs(initial.and_then(|delay| delay.try_into().ok()).unwrap_or(0)));
            }
        }
        let status = self.status.start_time.as_ref();
        let since = since.or_else(|| status.or(self.metadata.creation_timestamp.as_ref()).map(timestamp));
        since.map_or(Duration::ZERO, |since| now.saturating_since(since)).saturating_sub(delay)
    }

    fn specified(&self) -> impl Iterator<Item = (Option<&Container>, &ContainerStatus)> {
        let of = |name: &str| self.containers.iter().find(|container| container.name == name);
        let PodStatus { init_container_statuses, container_statuses, .. } = &self.status;
        let all = init_container_statuses.iter().chain(container_statuses).flatten();
        all.map(move |status| (of(&status.name), status))
    }

    fn containers(&self, now: Timestamp) -> impl Iterator<Item = ContainerFacts> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        self.specified().map(move |(spec, status)| {
            // Before the container has started, its startup probe is used, which has its own patience.
            let starts = status.started == Some(false);
            let probe = spec.and_then(|spec| spec.readiness_probe.as_ref()).filter(|_| !starts);
            let ContainerState { waiting, running, terminated } = status.state.clone().unwrap_or_default();
            let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
            ContainerFacts {
                name: status.name.clone(),
                waiting: waiting.map(|waiting| (text(&waiting.reason), text(&waiting.message))),
                running: running.map(|run| run.started_at.map_or(Duration::ZERO, |at| age(&at, now))),
                ended: terminated.as_ref().map(ended),
                last: last.map(ended),
                restarts: status.restart_count.try_into().unwrap_or(0),
                ready: status.ready,
                probe: probe.map(describe_probe),
            }
        })
    }
}

fn timestamp(time: &Time) -> Timestamp {
    Timestamp::from_nanos(i64::try_from(time.0.as_nanosecond()).unwrap_or(i64::MAX))
}

fn age(since: &Time, now: Timestamp) -> Duration {
    now.saturating_since(timestamp(since))
}

fn ended(run: &ContainerStateTerminated) -> Ended {
    let ran = run.started_at.as_ref().zip(run.finished_at.as_ref()).map(|(begun, over)| age(begun, timestamp(over)));
    let (reason, message) = (run.reason.clone().unwrap_or_default(), run.message.clone().unwrap_or_default());
    Ended { exit_code: run.exit_code, reason, message, ran }
}

fn describe_probe(probe: &Probe) -> String {
    let text = |port: &IntOrString| match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => name.clone(),
    };
    match probe {
        Probe { http_get: Some(get), .. } => {
            format!("GET {} on port {}", get.path.as_deref().unwrap_or("/"), text(&get.port))
        }
        Probe { tcp_socket: Some(tcp), .. } => format!("TCP on port {}", text(&tcp.port)),
        Probe { grpc: Some(grpc), .. } => format!("gRPC on port {}", grpc.port),
        _ => "exec".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_secs(1_785_542_400 + seconds)
    }

    /// Returns a running pod of one container, with this status and readiness.
    fn pod(ready: &str, container: Value, probe: Value) -> ParsedPod {
        let json = json!({
            "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "readinessProbe": probe}]},
            "status": {
                "phase": "Running", "podIP": "10.0.0.9", "startTime": "2026-08-01T00:00:00Z",
                "conditions": [{"type": "Ready", "status": ready}], "containerStatuses": [container],
            },
        });
        serde_json::from_value::<Pod>(json).expect("readable").into()
    }

    #[test]
    fn pod_fields_are_parsed() {
        let waiting = json!({"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}});
        let (state, _) = pod("False", waiting, Value::Null).state(true, at(0));
        assert_eq!(state.state, CountedPod { phase: Phase::Running, deleting: false, ready: false });
        assert_eq!((state.address, state.started), ("10.0.0.9".parse().ok(), Some(at(0))));
        assert_eq!(state.cause.map(|cause| cause.reason).as_deref(), Some("CrashLoop"));

        let sparse = serde_json::from_value::<Pod>(json!({"metadata": {"name": "p"}}));
        let (state, due) = ParsedPod::from(sparse.expect("a pod without a status")).state(true, at(0));
        assert_eq!((state.state.phase, state.cause, due), (Phase::Other, None, None));
    }

    /// Goal: a restarted container is not ready before it has run for a while, unless its readiness probe passes. In a
    /// Knative install Kubernetes' condition counts.
    #[test]
    fn a_restarted_container_is_not_ready_at_once() {
        let run = json!({"name": "c", "ready": true, "restartCount": 1, "state": {"running": {"startedAt": "2026-08-01T00:00:10Z"}},
            "lastState": {"terminated": {"exitCode": 1, "startedAt": "2026-08-01T00:00:00Z", "finishedAt": "2026-08-01T00:00:01Z"}}});
        let probe = json!({"tcpSocket": {"port": 80}});
        let rows = [
            (true, Value::Null, 15, false, Some(5)),
            (true, Value::Null, 20, true, None),
            (true, probe, 15, true, None),
            (false, Value::Null, 15, true, None),
        ];
        for (tracks_failures, probe, seconds, ready, due) in rows {
            let (state, next) = pod("True", run.clone(), probe.clone()).state(tracks_failures, at(seconds));
            assert_eq!((state.state.ready, next.map(|next| next.as_secs())), (ready, due), "{probe} at {seconds} s");
        }
    }

    /// Goal: the last warning of a pod that takes long to start is looked up after a while, and becomes its cause.
    #[test]
    fn the_last_warning_of_a_stuck_pod_becomes_its_cause() {
        let creating = json!({"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}});
        let stuck = pod("False", creating, Value::Null);
        assert!(!stuck.is_stuck(at(9)) && stuck.is_stuck(at(10)));
        assert_eq!(stuck.state(true, at(4)).1, Some(Duration::from_secs(6)));
        assert_eq!(stuck.state(true, at(10)).0.cause, None, "it may be pulling a large image");
        let warning = Some(Some(("FailedMount".into(), "volume \"d\"".into())));
        let warned = ParsedPod { warning, ..stuck };
        assert_eq!(warned.state(true, at(10)).0.cause.map(|cause| cause.reason).as_deref(), Some("VolumeFailed"));

        let run = json!({"name": "c", "started": true, "state": {"running": {"startedAt": "2026-08-01T00:00:10Z"}}});
        let probe = json!({"httpGet": {"path": "/healthz", "port": "http"}, "initialDelaySeconds": 5});
        let unready = pod("False", run, probe);
        assert_eq!(unready.state(true, at(24)).0.cause, None);
        let message = |pod: &ParsedPod| pod.state(true, at(25)).0.cause.map(|cause| cause.message);
        let text = r#"the readiness probe of container "c" does not pass (GET /healthz on port http)"#;
        assert_eq!(message(&unready).as_deref(), Some(text));
        let looked_up = ParsedPod { is_looked_up: true, ..unready };
        assert_eq!(message(&looked_up), None, "the lookup is running");
        let warning = Some(Some(("Unhealthy".into(), "Readiness probe failed: status 503".into())));
        let failed = ParsedPod { warning, ..looked_up };
        assert_eq!(message(&failed), Some(format!("{text}: status 503")));
    }
}
