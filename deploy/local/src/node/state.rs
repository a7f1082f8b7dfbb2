//! State shared by all pods of a node, and the selection of its pods.

use super::listeners::Occupant;
use super::options::NodeOptions;
use crate::pool::Pool;
use common_controller::Recorder;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

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
    pub(super) beside: Option<PathBuf>,
    /// Running containers by process group.
    pub(super) occupants: Mutex<HashMap<i32, Occupant>>,
}

impl Node {
    /// Records a running container until the guard is dropped.
    pub(super) fn occupy(self: &Arc<Self>, occupant: Occupant) -> Occupying {
        let group = occupant.group;
        self.occupants.lock().insert(group, occupant);
        Occupying { node: self.clone(), group }
    }

    pub(super) fn occupants(&self) -> Vec<Occupant> {
        self.occupants.lock().values().cloned().collect()
    }

    /// Reports a problem of a pod by an event, as a kubelet does.
    pub(super) fn warn(&self, pod: &Pod, reason: &str, message: &str) {
        self.events.complain("kubelet", pod, reason, message.to_owned());
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

/// Guard of a running container's entry.
pub(super) struct Occupying {
    node: Arc<Node>,
    group: i32,
}

impl Drop for Occupying {
    fn drop(&mut self) {
        self.node.occupants.lock().remove(&self.group);
    }
}
