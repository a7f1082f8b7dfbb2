//! The watch that feeds the index: reads of each pod what is counted and nothing else.

use super::index::{PodIndex, PodState};
use autoscaler_core::pod_counts::{CountedPod, Phase};
use common::time::Timestamp;
use common_runtime::namespaces::Namespaces;
use common_runtime::watching::watch;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Waiting reasons that are part of a normal start. An image that could not be pulled is pulled again; while Kubernetes
/// waits for that, the reason is `ImagePullBackOff`.
const STARTING: [&str; 3] = ["ContainerCreating", "PodInitializing", "ErrImagePull"];

/// Which pods are watched, and what is kept of them.
#[derive(Clone, Debug)]
pub struct PodScope {
    /// Where they are watched.
    pub namespaces: Namespaces,
    /// How the watch is narrowed.
    pub watched: watcher::Config,
    /// Whether pods may be selected by a label, so that it is kept.
    pub keeps: fn(&str) -> bool,
}

/// Watches pods until `shutdown`.
pub async fn run(client: Client, scope: PodScope, index: Arc<PodIndex>, shutdown: CancellationToken) {
    let mut events = watch(scope.namespaces.reach::<SeenPod>(&client), scope.watched);
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => return,
            event = events.next() => event,
        };
        match event {
            Some(watcher::Event::Init) => index.begin_list(),
            Some(watcher::Event::InitDone) => index.end_list(),
            Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
                let mut state = pod.into_state();
                state.labels.retain(|label, _| (scope.keeps)(label));
                index.apply(&namespace, &name, state);
            }
            Some(watcher::Event::Delete(pod)) => {
                index.delete(&pod.namespace().unwrap_or_default(), &pod.name_any());
            }
            None => return,
        }
    }
}

/// A pod as far as it is read.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct SeenPod {
    metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    start_time: Option<Time>,
    conditions: Vec<Condition>,
    init_container_statuses: Vec<Container>,
    container_statuses: Vec<Container>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Container {
    state: State,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct State {
    waiting: Option<Waiting>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Waiting {
    reason: String,
    message: String,
}

impl SeenPod {
    fn into_state(self) -> PodState {
        let status = self.status;
        let ready = status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True");
        let started = status.start_time.map(|time| Timestamp::from_secs(time.0.as_second()));
        let containers = status.init_container_statuses.iter().chain(&status.container_statuses);
        let failure_reason =
            containers.filter_map(|container| container.state.waiting.as_ref()).find_map(failure_reason);
        PodState {
            state: CountedPod {
                phase: Phase::parse(status.phase.as_deref()),
                deleting: self.metadata.deletion_timestamp.is_some(),
                ready,
            },
            labels: self.metadata.labels.unwrap_or_default(),
            address: status.pod_ip.and_then(|ip| ip.parse().ok()),
            started,
            failure_reason,
        }
    }
}

/// Why a waiting container will not run by itself; `None` for one that is merely starting.
fn failure_reason(waiting: &Waiting) -> Option<String> {
    if waiting.reason.is_empty() || STARTING.contains(&waiting.reason.as_str()) {
        return None;
    }
    Some(match waiting.message.as_str() {
        "" => waiting.reason.clone(),
        message => format!("{}: {message}", waiting.reason),
    })
}

impl Resource for SeenPod {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_read_as_kubernetes_writes_it() {
        let json = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c"}]},
            "status": {
                "phase": "Running", "podIP": "10.0.0.9", "startTime": "2026-08-01T00:00:10Z",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}],
            },
        });
        let state = serde_json::from_value::<SeenPod>(json).expect("readable").into_state();
        assert_eq!(state.state, CountedPod { phase: Phase::Running, deleting: false, ready: true });
        assert_eq!(state.address, "10.0.0.9".parse().ok());
        assert_eq!(state.started, Some(Timestamp::from_secs(1_785_542_410)));
        assert_eq!(state.failure_reason.as_deref(), Some("CrashLoopBackOff: back-off"));

        let sparse = serde_json::from_value::<SeenPod>(serde_json::json!({"metadata": {"name": "p"}}));
        let state = sparse.expect("a pod without a status").into_state();
        assert_eq!((state.state.phase, state.failure_reason), (Phase::Other, None));
    }

    #[test]
    fn a_container_that_is_starting_is_no_trouble() {
        let waiting = |reason: &str, message: &str| Waiting { reason: reason.into(), message: message.into() };
        assert_eq!(failure_reason(&waiting("ContainerCreating", "")), None);
        assert_eq!(failure_reason(&waiting("ErrImagePull", "connection refused")), None, "it is tried again");
        assert_eq!(
            failure_reason(&waiting("ImagePullBackOff", "no such image")).as_deref(),
            Some("ImagePullBackOff: no such image")
        );
        assert_eq!(failure_reason(&waiting("PortCollision", "")).as_deref(), Some("PortCollision"));
    }
}
