//! The pods of one workload, with the state of their containers and their last log lines, as far as this process has
//! the right to read them.
//!
//! They are read from the API server while a client views the workload; nothing is kept.

use super::records::time;
use common_api::zeroscaler::Target;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// Maximum number of pods shown, youngest first, among the first `LISTED_MAX` of their namespace.
const SHOWN_MAX: usize = 8;
const LISTED_MAX: u32 = 500;
/// Limits of each container's log.
const LINES: i64 = 10;
const BYTES: i64 = 8 * 1024;
/// Longest wait for one response.
const WITHIN: Duration = Duration::from_secs(3);

/// Returns the pods of a workload of this namespace.
pub(super) async fn document(client: &Client, namespace: &str, target: &Target) -> Value {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let listed = match within(api.list(&ListParams::default().limit(LISTED_MAX)), "`list` on `pods`").await {
        Ok(listed) => listed,
        Err(error) => return json!({"error": format!("The pods cannot be listed: {error}.")}),
    };
    let mut pods: Vec<Pod> = listed.into_iter().filter(|pod| belongs_to(pod, target)).collect();
    pods.sort_by_key(|pod| std::cmp::Reverse(pod.metadata.creation_timestamp.as_ref().map(|at| at.0)));
    pods.truncate(SHOWN_MAX);
    json!({"pods": join_all(pods.iter().map(|pod| describe_pod(&api, pod))).await})
}

/// Returns whether a pod is the target's. A Deployment's pod belongs to a ReplicaSet, whose name ends with the pod's
/// hash.
fn belongs_to(pod: &Pod, target: &Target) -> bool {
    let Some(owner) = pod.owner_references().iter().find(|owner| owner.controller == Some(true)) else { return false };
    if owner.kind == target.kind {
        return owner.name == target.name;
    }
    let hashes = ["pod-template-hash", "rollouts-pod-template-hash"].map(|label| pod.labels().get(label));
    let is_own =
        |hash: &String| owner.name.strip_suffix(hash).and_then(|name| name.strip_suffix('-')) == Some(&*target.name);
    owner.kind == "ReplicaSet" && hashes.into_iter().flatten().any(is_own)
}

async fn describe_pod(api: &Api<Pod>, pod: &Pod) -> Value {
    let status = pod.status.clone().unwrap_or_default();
    let is_ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let is_ending = pod.metadata.deletion_timestamp.is_some();
    let phase = if is_ending { "Terminating".to_owned() } else { status.phase.unwrap_or_else(|| "Pending".to_owned()) };
    let statuses = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let name = pod.name_any();
    let containers = join_all(statuses.map(|container| describe_container(api, &name, container))).await;
    let since = pod.metadata.creation_timestamp.as_ref().map(|at| time(at.0.as_second()));
    let reason = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False");
    let reason = reason.map(|c| {
        format!("{}: {}", c.reason.as_deref().unwrap_or("Unschedulable"), c.message.as_deref().unwrap_or_default())
    });
    json!({"name": name, "ready": is_ready && !is_ending, "phase": phase, "since": since, "reason": reason, "containers": containers})
}

async fn describe_container(api: &Api<Pod>, pod: &str, status: &ContainerStatus) -> Value {
    let now = status.state.as_ref().and_then(state);
    let before = status.last_state.as_ref().and_then(state).map(|state| format!("before its last start: {state}"));
    let mut container = json!({
        "name": status.name, "restarts": status.restart_count, "state": now.or(before),
    });
    // A container that was never started has no log.
    if status.started == Some(true) || status.restart_count > 0 || status.ready {
        let params = LogParams {
            container: Some(status.name.clone()),
            tail_lines: Some(LINES),
            limit_bytes: Some(BYTES),
            ..LogParams::default()
        };
        match within(api.logs(pod, &params), "`get` on `pods/log`").await {
            Ok(log) => container["log"] = log.trim_end().into(),
            Err(error) => container["logError"] = error.into(),
        }
    }
    container
}

/// Returns why a container does not run; none: it runs.
fn state(state: &ContainerState) -> Option<String> {
    let with = |reason: Option<&str>, message: Option<&str>| {
        [reason, message].into_iter().flatten().collect::<Vec<_>>().join(": ")
    };
    if let Some(waiting) = &state.waiting {
        return Some(with(waiting.reason.as_deref(), waiting.message.as_deref()));
    }
    let ended = state.terminated.as_ref()?;
    let why = with(ended.reason.as_deref(), ended.message.as_deref());
    Some(format!("exited with code {}{}{why}", ended.exit_code, if why.is_empty() { "" } else { ", " }))
}

/// Waits for a response. `right`: the right that the request requires.
async fn within<T>(request: impl Future<Output = kube::Result<T>>, right: &str) -> Result<T, String> {
    match timeout(WITHIN, request).await {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            Err(format!("the autoscaler's account has no permission; this requires the right {right}"))
        }
        Ok(Err(kube::Error::Api(status))) => Err(status.message),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the API server does not respond".to_owned()),
    }
}
