//! Status of a pod, computed from the states of its containers as the kubelet does.
//!
//! A pod is ready if every container is ready and every readiness gate is True. A container is ready if it has started
//! (its startup probe has succeeded, if it has one) and its readiness probe, if it has one, passes. Conditions of other
//! writers are kept. The transition time of a condition changes only with its status.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, HostIP, Pod,
    PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::net::IpAddr;

/// Reason of a container that is about to be started, for the first time or again.
const CREATING: &str = "ContainerCreating";

/// Returns the status of a container before its first attempt.
pub(crate) fn creating(container: &Container, restarts: i32) -> ContainerStatus {
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        started: Some(false),
        restart_count: restarts,
        state: Some(waiting(CREATING, None)),
        ..ContainerStatus::default()
    }
}

/// Reports whether the first attempt has no result yet.
pub(crate) fn is_creating(container: &ContainerStatus) -> bool {
    let reason = container.state.as_ref().and_then(|state| state.waiting.as_ref()?.reason.as_deref());
    reason == Some(CREATING) && container.last_state.is_none()
}

/// Returns the state of a container that waits to be started.
pub(crate) fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message });
    ContainerState { waiting, ..ContainerState::default() }
}

pub(crate) fn terminated(ended: ContainerStateTerminated) -> ContainerState {
    ContainerState { terminated: Some(ended), ..ContainerState::default() }
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
    placement: &PodPlacement,
    containers: &[ContainerStatus],
    before: &PodStatus,
    now: Timestamp,
) -> PodStatus {
    let phase = phase(pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref()).unwrap_or("Always"), containers);
    let unready: Vec<_> = containers.iter().filter(|c| !c.ready).map(|c| c.name.as_str()).collect();
    let reason = match phase {
        "Succeeded" => Some(("PodCompleted", String::new())),
        "Failed" => Some(("PodFailed", String::new())),
        _ if unready.is_empty() => None,
        _ => Some(("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))),
    };
    let all_ready = reason.is_none();
    let latest: Vec<_> = pod.status.iter().flat_map(|s| s.conditions.iter().flatten()).collect();
    let gates_open = pod.spec.iter().flat_map(|s| s.readiness_gates.iter().flatten()).all(|gate| {
        latest.iter().any(|condition| condition.type_ == gate.condition_type && condition.status == "True")
    });
    let ready_reason = if all_ready && !gates_open {
        Some(("ReadinessGatesNotReady", "a readiness gate's condition is not True".to_owned()))
    } else {
        reason.clone()
    };
    let mut conditions = vec![
        condition("PodReadyToStartContainers", true, None),
        condition("Initialized", true, None),
        condition("Ready", all_ready && gates_open, ready_reason),
        condition("ContainersReady", all_ready, reason),
        condition("PodScheduled", true, None),
    ];
    for condition in &mut conditions {
        let mut known = before.conditions.iter().flatten();
        let held = known.find(|c| c.type_ == condition.type_ && c.status == condition.status);
        condition.last_transition_time = held.and_then(|c| c.last_transition_time.clone()).or(Some(Time(now)));
    }
    let foreign: Vec<_> = latest.into_iter().filter(|c| conditions.iter().all(|own| own.type_ != c.type_)).collect();
    conditions.extend(foreign.into_iter().cloned());
    PodStatus {
        phase: Some(phase.into()),
        conditions: Some(conditions),
        host_ip: Some(placement.host_ip.to_string()),
        host_ips: Some(vec![HostIP { ip: placement.host_ip.to_string() }]),
        pod_ip: Some(placement.pod_ip.to_string()),
        pod_ips: Some(vec![PodIP { ip: placement.pod_ip.to_string() }]),
        start_time: Some(Time(placement.start)),
        container_statuses: Some(containers.to_vec()),
        ..PodStatus::default()
    }
}

/// Returns the phase of a pod from its restart policy and its containers.
fn phase(policy: &str, containers: &[ContainerStatus]) -> &'static str {
    let has = |is: fn(&ContainerState) -> bool| containers.iter().flat_map(|c| &c.state).any(is);
    // A container that waits after a run counts as ended.
    let is_new = |c: &ContainerStatus| c.last_state.is_none() && c.state.as_ref().is_some_and(|s| s.waiting.is_some());
    if containers.is_empty() || containers.iter().any(is_new) {
        "Pending"
    } else if policy == "Always" || has(|state| state.running.is_some()) {
        "Running"
    } else if !has(|state| state.terminated.as_ref().is_none_or(|ended| ended.exit_code != 0)) {
        "Succeeded"
    } else if policy == "Never" {
        "Failed"
    } else {
        "Running"
    }
}

fn condition(type_: &str, is_true: bool, reason: Option<(&str, String)>) -> PodCondition {
    let (reason, message) = reason.unzip();
    PodCondition {
        type_: type_.into(),
        status: if is_true { "True" } else { "False" }.into(),
        reason: reason.map(str::to_owned),
        message: message.filter(|m| !m.is_empty()),
        ..PodCondition::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use k8s_openapi::api::core::v1::ContainerStateRunning;
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

    fn placement() -> PodPlacement {
        let (pod_ip, host_ip) = ([127, 1, 0, 2].into(), [127, 0, 0, 1].into());
        PodPlacement { pod_ip, host_ip, node_name: "node".into(), start: at(1) }
    }

    fn new(restarts: i32) -> ContainerStatus {
        creating(&Container::default(), restarts)
    }

    fn running(ready: bool) -> ContainerStatus {
        let state = ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() };
        ContainerStatus { state: Some(state), ready, started: Some(true), ..new(0) }
    }

    fn ended(exit_code: i32) -> Option<ContainerState> {
        Some(terminated(ContainerStateTerminated { exit_code, ..ContainerStateTerminated::default() }))
    }

    fn ended_with(code: i32) -> ContainerStatus {
        ContainerStatus { state: ended(code), ..new(0) }
    }

    fn backing_off() -> ContainerStatus {
        ContainerStatus { state: Some(waiting("CrashLoopBackOff", None)), last_state: ended(1), ..new(1) }
    }

    #[test]
    fn the_phase_follows_the_containers_and_the_restart_policy() {
        let rows = [
            ("Always", vec![new(0)], "Pending"),
            ("Always", vec![running(false)], "Running"),
            ("Always", vec![running(true), new(0)], "Pending"),
            ("Always", vec![backing_off()], "Running"),
            ("Always", vec![ended_with(0)], "Running"),
            ("OnFailure", vec![ended_with(0)], "Succeeded"),
            ("OnFailure", vec![backing_off()], "Running"),
            ("Never", vec![ended_with(0), ended_with(0)], "Succeeded"),
            ("Never", vec![ended_with(0), ended_with(1)], "Failed"),
            ("Never", vec![ended_with(1), running(true)], "Running"),
        ];
        for (policy, containers, expected) in rows {
            assert_eq!(phase(policy, &containers), expected, "{policy} {containers:?}");
        }
    }

    fn ready(status: &PodStatus) -> (String, Option<Time>) {
        let condition = status.conditions.iter().flatten().find(|c| c.type_ == "Ready").expect("always there");
        (condition.status.clone(), condition.last_transition_time.clone())
    }

    #[test]
    fn ready_needs_every_container_and_keeps_the_time_of_its_transition() {
        let pod = pod(2, json!({}));
        let one = pod_status(&pod, &placement(), &[running(true), running(false)], &PodStatus::default(), at(10));
        assert_eq!(ready(&one), ("False".into(), Some(Time(at(10)))));
        let still = pod_status(&pod, &placement(), &[running(false), running(false)], &one, at(20));
        assert_eq!(ready(&still), ("False".into(), Some(Time(at(10)))));
        let both = pod_status(&pod, &placement(), &[running(true), running(true)], &still, at(30));
        assert_eq!(ready(&both), ("True".into(), Some(Time(at(30)))));
        assert_eq!(both.pod_ip.as_deref(), Some("127.1.0.2"));
    }

    #[test]
    fn readiness_gates_and_foreign_conditions_are_respected() {
        let gate = json!({"spec": {"readinessGates": [{"conditionType": "x/y"}]}});
        let mut pod = pod(1, gate);
        let closed = pod_status(&pod, &placement(), &[running(true)], &PodStatus::default(), at(1));
        assert_eq!(ready(&closed).0, "False");
        pod.status = Some(PodStatus { conditions: Some(vec![condition("x/y", true, None)]), ..PodStatus::default() });
        let open = pod_status(&pod, &placement(), &[running(true)], &PodStatus::default(), at(1));
        assert_eq!(ready(&open).0, "True");
        assert!(open.conditions.iter().flatten().any(|c| c.type_ == "x/y"), "it is not dropped");
    }
}
