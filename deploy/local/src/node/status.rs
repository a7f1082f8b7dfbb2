//! Status of a pod, computed from the states of its containers as the kubelet does.
//!
//! A pod is ready if every container is ready and every readiness gate is True. A container is ready if it has started
//! (its startup probe has succeeded, if it has one) and its readiness probe, if it has one, passes. Conditions of other
//! writers are kept. The transition time of a condition changes only with its status.

use super::process::Exit;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, HostIP,
    Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::net::IpAddr;

/// Reason of a container that is about to be started, for the first time or again.
pub(crate) const CREATING: &str = "ContainerCreating";

/// End of a run of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    /// `Completed`, `Error`, `PortCollision` and the like.
    pub(crate) reason: String,
    pub(crate) message: Option<String>,
    pub(crate) started: Timestamp,
    pub(crate) finished: Timestamp,
    pub(crate) pid: i32,
}

/// Phase of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not running; will be started.
    Waiting { reason: String, message: Option<String> },
    /// Running.
    Running { since: Timestamp, pid: i32 },
    /// Not running; will not be started again.
    Ended(Ended),
}

/// State of a container for its pod's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) phase: Phase,
    /// End of the previous run.
    pub(crate) last: Option<Ended>,
    pub(crate) restarts: i32,
    pub(crate) started: bool,
    pub(crate) ready: bool,
}

impl View {
    /// Returns the view before the first attempt.
    pub(crate) fn creating(restarts: i32) -> Self {
        let phase = Phase::Waiting { reason: CREATING.into(), message: None };
        Self { phase, last: None, restarts, started: false, ready: false }
    }

    /// Reports whether the first attempt has no result yet.
    pub(crate) fn is_creating(&self) -> bool {
        matches!(&self.phase, Phase::Waiting { reason, .. } if reason == CREATING) && self.last.is_none()
    }
}

/// Addresses, node and start time of a pod.
#[derive(Clone, Debug)]
pub(crate) struct PodPlacement {
    pub(crate) pod_ip: IpAddr,
    pub(crate) host_ip: IpAddr,
    pub(crate) node_name: String,
    pub(crate) start: Timestamp,
}

/// Returns the status of `pod` at `now`. `before` is the last reported status.
pub(crate) fn pod_status(
    pod: &Pod,
    home: &PodPlacement,
    views: &[View],
    before: Option<&PodStatus>,
    now: Timestamp,
) -> PodStatus {
    let containers = pod.spec.as_ref().map(|s| s.containers.as_slice()).unwrap_or_default();
    let phase = phase(pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref()).unwrap_or("Always"), views);
    let is_over = matches!(phase, "Succeeded" | "Failed");
    let unready: Vec<_> =
        containers.iter().zip(views).filter(|(_, view)| !view.ready).map(|(c, _)| c.name.as_str()).collect();
    let all_ready = unready.is_empty() && !is_over;
    let reason = match (all_ready, phase) {
        (true, _) => None,
        (false, "Succeeded") => Some(("PodCompleted", String::new())),
        (false, "Failed") => Some(("PodFailed", String::new())),
        (false, _) => Some(("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))),
    };
    let gates_open = pod.spec.iter().flat_map(|s| s.readiness_gates.iter().flatten()).all(|gate| {
        let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
        conditions.into_iter().any(|c| c.type_ == gate.condition_type && c.status == "True")
    });
    let ready_reason = match &reason {
        None if !gates_open => Some(("ReadinessGatesNotReady", "a readiness gate's condition is not True".to_owned())),
        other => other.clone(),
    };
    let mut conditions = vec![
        condition("PodReadyToStartContainers", true, None),
        condition("Initialized", true, None),
        condition("Ready", all_ready && gates_open, ready_reason),
        condition("ContainersReady", all_ready, reason),
        condition("PodScheduled", true, None),
    ];
    let known: Vec<_> = before.or(pod.status.as_ref()).iter().flat_map(|s| s.conditions.iter().flatten()).collect();
    for condition in &mut conditions {
        let held = known.iter().find(|c| c.type_ == condition.type_ && c.status == condition.status);
        let since = held.and_then(|c| c.last_transition_time.clone()).unwrap_or(Time(now));
        condition.last_transition_time = Some(since);
    }
    let foreign = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let foreign = foreign.filter(|c| !conditions.iter().any(|own| own.type_ == c.type_)).cloned().collect::<Vec<_>>();
    conditions.extend(foreign);
    PodStatus {
        phase: Some(phase.into()),
        conditions: Some(conditions),
        host_ip: Some(home.host_ip.to_string()),
        host_ips: Some(vec![HostIP { ip: home.host_ip.to_string() }]),
        pod_ip: Some(home.pod_ip.to_string()),
        pod_ips: Some(vec![PodIP { ip: home.pod_ip.to_string() }]),
        start_time: Some(Time(home.start)),
        container_statuses: Some(containers.iter().zip(views).map(|(c, v)| container(c, v)).collect()),
        ..PodStatus::default()
    }
}

/// Returns the phase of a pod from its restart policy and its containers.
fn phase(policy: &str, views: &[View]) -> &'static str {
    let (mut waiting, mut running, mut ended, mut good) = (0_usize, 0_usize, 0_usize, 0_usize);
    for view in views {
        match &view.phase {
            Phase::Running { .. } => running += 1,
            Phase::Waiting { .. } if view.last.is_some() => ended += 1, // It will run again.
            Phase::Waiting { .. } => waiting += 1,
            Phase::Ended(how) => {
                ended += 1;
                good += usize::from(how.exit.code() == 0);
            }
        }
    }
    match (waiting, running) {
        (1.., _) => "Pending",
        (0, 1..) => "Running",
        (0, 0) if ended == 0 => "Pending",
        (0, 0) if policy == "Always" => "Running",
        (0, 0) if good == ended => "Succeeded",
        (0, 0) if policy == "Never" => "Failed",
        (0, 0) => "Running",
    }
}

fn condition(type_: &str, is_true: bool, reason: Option<(&str, String)>) -> PodCondition {
    let (reason, message) = reason.map_or((None, None), |(reason, message)| (Some(reason.to_owned()), Some(message)));
    PodCondition {
        type_: type_.into(),
        status: if is_true { "True" } else { "False" }.into(),
        reason,
        message: message.filter(|m| !m.is_empty()),
        ..PodCondition::default()
    }
}

fn container(spec: &k8s_openapi::api::core::v1::Container, view: &View) -> ContainerStatus {
    let state = match &view.phase {
        Phase::Waiting { reason, message } => ContainerState {
            waiting: Some(ContainerStateWaiting { reason: Some(reason.clone()), message: message.clone() }),
            ..ContainerState::default()
        },
        Phase::Running { since, .. } => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(Time(*since)) }),
            ..ContainerState::default()
        },
        Phase::Ended(how) => terminated(how),
    };
    let pid = match (&view.phase, &view.last) {
        (Phase::Running { pid, .. }, _) | (Phase::Ended(Ended { pid, .. }), _) | (_, Some(Ended { pid, .. })) => {
            Some(pid)
        }
        _ => None,
    };
    ContainerStatus {
        name: spec.name.clone(),
        image: spec.image.clone().unwrap_or_default(),
        image_id: String::new(),
        container_id: pid.map(|pid| format!("process://{pid}")),
        ready: view.ready,
        started: Some(view.started),
        restart_count: view.restarts,
        state: Some(state),
        last_state: view.last.as_ref().map(terminated),
        ..ContainerStatus::default()
    }
}

fn terminated(how: &Ended) -> ContainerState {
    let signal = match how.exit {
        Exit::Signal(signal) => Some(signal),
        Exit::Code(_) => None,
    };
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(format!("process://{}", how.pid)),
            exit_code: how.exit.code(),
            signal,
            reason: Some(how.reason.clone()),
            message: how.message.clone(),
            started_at: Some(Time(how.started)),
            finished_at: Some(Time(how.finished)),
        }),
        ..ContainerState::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn pod(containers: usize, extra: serde_json::Value) -> Pod {
        let containers: Vec<_> = (0..containers).map(|n| json!({"name": format!("c{n}")})).collect();
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
        json_patch::merge(&mut pod, &extra);
        serde_json::from_value(pod).expect("a valid Pod")
    }

    fn home() -> PodPlacement {
        let (pod_ip, host_ip) = ([127, 1, 0, 2].into(), [127, 0, 0, 1].into());
        PodPlacement { pod_ip, host_ip, node_name: "node".into(), start: at(1) }
    }

    fn running(ready: bool) -> View {
        View { phase: Phase::Running { since: at(2), pid: 1 }, ready, started: true, ..View::creating(0) }
    }

    fn ended(code: i32) -> Ended {
        let (exit, reason) = (Exit::Code(code), "Error".to_owned());
        Ended { exit, reason, message: None, started: at(2), finished: at(3), pid: 1 }
    }

    fn over(code: i32) -> View {
        View { phase: Phase::Ended(ended(code)), ..View::creating(0) }
    }

    fn backing_off() -> View {
        let phase = Phase::Waiting { reason: "CrashLoopBackOff".into(), message: None };
        View { phase, last: Some(ended(1)), ..View::creating(1) }
    }

    #[test]
    fn the_phase_follows_the_containers_and_the_restart_policy() {
        let rows = [
            ("Always", vec![View::creating(0)], "Pending"),
            ("Always", vec![running(false)], "Running"),
            ("Always", vec![running(true), View::creating(0)], "Pending"),
            ("Always", vec![backing_off()], "Running"),
            ("Always", vec![over(0)], "Running"),
            ("OnFailure", vec![over(0)], "Succeeded"),
            ("OnFailure", vec![backing_off()], "Running"),
            ("Never", vec![over(0), over(0)], "Succeeded"),
            ("Never", vec![over(0), over(1)], "Failed"),
            ("Never", vec![over(1), running(true)], "Running"),
        ];
        for (policy, views, expected) in rows {
            assert_eq!(phase(policy, &views), expected, "{policy} {views:?}");
        }
    }

    fn ready(status: &PodStatus) -> (String, Option<Time>) {
        let condition = status.conditions.iter().flatten().find(|c| c.type_ == "Ready").expect("always there");
        (condition.status.clone(), condition.last_transition_time.clone())
    }

    #[test]
    fn ready_needs_every_container_and_keeps_the_time_of_its_transition() {
        let pod = pod(2, json!({}));
        let one = pod_status(&pod, &home(), &[running(true), running(false)], None, at(10));
        assert_eq!(ready(&one), ("False".into(), Some(Time(at(10)))));
        let still = pod_status(&pod, &home(), &[running(false), running(false)], Some(&one), at(20));
        assert_eq!(ready(&still), ("False".into(), Some(Time(at(10)))));
        let both = pod_status(&pod, &home(), &[running(true), running(true)], Some(&still), at(30));
        assert_eq!(ready(&both), ("True".into(), Some(Time(at(30)))));
        assert_eq!(both.pod_ip.as_deref(), Some("127.1.0.2"));
    }

    #[test]
    fn readiness_gates_and_foreign_conditions_are_respected() {
        let gate = json!({"spec": {"readinessGates": [{"conditionType": "x/y"}]}});
        let mut pod = pod(1, gate);
        let closed = pod_status(&pod, &home(), &[running(true)], None, at(1));
        assert_eq!(ready(&closed).0, "False");
        pod.status = Some(PodStatus { conditions: Some(vec![condition("x/y", true, None)]), ..PodStatus::default() });
        let open = pod_status(&pod, &home(), &[running(true)], None, at(1));
        assert_eq!(ready(&open).0, "True");
        assert!(open.conditions.iter().flatten().any(|c| c.type_ == "x/y"), "it is not dropped");
    }

    #[test]
    fn a_restarted_container_tells_how_its_last_run_ended() {
        let status = pod_status(&pod(1, json!({})), &home(), &[backing_off()], None, at(9));
        let container = &status.container_statuses.expect("statuses")[0];
        let waiting = container.state.as_ref().and_then(|s| s.waiting.as_ref()).and_then(|w| w.reason.clone());
        let last = container.last_state.as_ref().and_then(|s| s.terminated.as_ref()).map(|t| t.exit_code);
        assert_eq!((waiting.as_deref(), last, container.restart_count), (Some("CrashLoopBackOff"), Some(1), 1));
    }
}
