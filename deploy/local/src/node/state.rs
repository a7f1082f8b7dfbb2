//! State shared by all pods of a node, and the selection of its pods.

use super::listeners::RunningContainer;
use super::options::NodeOptions;
use crate::pool::Pool;
use common_controller::Recorder;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// `spec.schedulerName` of pods for this kind of node.
pub const SCHEDULER_NAME: &str = "zeroscale-local";
/// Name of the default scheduler.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// State shared by all pods of a node.
pub(super) struct Node {
    pub(super) options: NodeOptions,
    pub(super) client: Client,
    pub(super) pool: Pool,
    pub(super) events: Recorder,
    /// Folder of the running executable.
    pub(super) exe_dir: Option<PathBuf>,
    /// Running containers. References to ended ones no longer upgrade.
    pub(super) running: Mutex<Vec<Weak<RunningContainer>>>,
}

impl Node {
    /// Records a running container until `container` is dropped.
    pub(super) fn add_running(&self, container: &Arc<RunningContainer>) {
        let mut running = self.running.lock();
        running.retain(|known| known.strong_count() > 0);
        running.push(Arc::downgrade(container));
    }

    /// Returns the running containers.
    pub(super) fn running(&self) -> Vec<Arc<RunningContainer>> {
        self.running.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Reports a problem of a pod by an event, as a kubelet does.
    pub(super) fn warn(&self, pod: &Pod, reason: &str, message: &str) {
        self.events.record_error("kubelet", pod, reason, message.to_owned());
    }

    /// Returns the API of the pods in the namespace of `pod`.
    pub(super) fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default())
    }

    /// Reports whether a pod belongs to this node.
    pub(super) fn wants(&self, pod: &Pod) -> bool {
        let Some(spec) = pod.spec.as_ref() else { return false };
        if let Some(node) = spec.node_name.as_deref().filter(|n| !n.is_empty()) {
            return node == self.options.name;
        }
        let is_gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
        let scheduler = spec.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER);
        let is_ours = scheduler == SCHEDULER_NAME || (self.options.default_scheduler && scheduler == DEFAULT_SCHEDULER);
        is_ours && !is_gated && pod.metadata.deletion_timestamp.is_none()
    }
}
