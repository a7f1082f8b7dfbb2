//! Life cycle of one pod on this node.
//!
//! - The pod gets an address.
//! - It is bound to this node while its containers start.
//! - Its first status is written: address, phase and readiness in one patch. Activators wait for the address, so this
//!   happens after at most [`FIRST_STATUS_WITHIN`], even if a container is slow to configure.
//! - Every change of a container becomes a patch of the differences. Several changes may be combined in one patch.
//! - When the pod is deleted, its containers are stopped within its grace period, their last states are written, and
//!   the object is removed.
//!
//! A pod that disappears without a graceful deletion is stopped within [`FORCED_GRACE`]. When the node itself shuts
//! down, the pod's object is left unchanged.
//!
//! # Limits
//!
//! Init containers and volumes are rejected ([`unsupported`]). Lifecycle hooks, security contexts, resource
//! limits, `activeDeadlineSeconds` and eviction are not supported.

use super::Node;
use super::container::{SupervisedContainer, grace, grace_of};
use super::prepare::unsupported;
use super::status::{PodPlacement, creating, is_creating, pod_status, waiting};
use crate::logs::PodLogs;
use crate::merge::merge_patch;
use crate::retry::Attempts;
use common_controller::key_of;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodStatus};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Maximum delay of the first status, even if a container has not started by then.
const FIRST_STATUS_WITHIN: Duration = Duration::from_millis(20);
/// Grace period for containers of a pod that was deleted by force.
const FORCED_GRACE: Duration = Duration::from_secs(1);
/// Maximum grace period for containers when the node shuts down.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Reason why a pod stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    /// Its deletion has begun, with this grace period.
    Deleted(Duration),
    /// The object is gone, or was bound to another node.
    Gone,
    Shutdown,
}

impl StopReason {
    /// Returns the grace period of the containers of `pod`.
    fn grace(self, pod: &Pod) -> Duration {
        match self {
            Self::Deleted(grace) => grace,
            Self::Gone => FORCED_GRACE,
            Self::Shutdown => grace_of(pod).min(SHUTDOWN_GRACE),
        }
    }
}

/// Task of a pod on this node.
pub(super) struct Worker {
    pub(super) node: Arc<Node>,
    pub(super) pod: Arc<Pod>,
    /// Pod in the watch; `None` if it is gone.
    pub(super) observed: watch::Receiver<Option<Arc<Pod>>>,
    pub(super) shutdown: CancellationToken,
}

impl Worker {
    /// Runs the pod until it is gone or the node shuts down.
    pub(super) async fn run(mut self) {
        // The pool has an address for each pod that may run.
        let Some(allocation) = self.node.pool.allocate() else {
            return tracing::error!(range = %self.node.options.pod_cidr, "the pod range has no free address; this is a bug of the node");
        };
        let placement = PodPlacement {
            pod_ip: IpAddr::V4(allocation.address()),
            host_ip: self.node.options.host_ip,
            node_name: self.node.options.name.clone(),
            start: Timestamp::now(),
        };
        let logs = PodLogs::new(
            &self.node.options.work_dir,
            &self.pod.namespace().unwrap_or_default(),
            &self.pod.name_any(),
            &self.pod.uid().unwrap_or_default(),
        );
        let statuses = Arc::new(watch::Sender::new(self.first_statuses()));
        let (stop, stopping) = watch::channel(None);
        let mut containers = match unsupported(&self.pod) {
            Some(error) => {
                let refused = waiting("CreateContainerConfigError", Some(error.clone()));
                statuses.send_modify(|all| all.iter_mut().for_each(|status| status.state = Some(refused.clone())));
                self.node.warn(&self.pod, "Failed", &error);
                JoinSet::new()
            }
            None => self.start(&placement, &logs, &statuses, &stopping),
        };
        let (why, written) = self.run_until_stopped(&placement, statuses.subscribe()).await;
        stop.send_replace(Some(why.grace(&self.pod)));
        self.join(&mut containers, &stop).await;
        if let StopReason::Deleted(_) = why {
            let status = self.status(&placement, &statuses.borrow(), &written);
            self.finish(&written, &status).await;
        }
        if why != StopReason::Shutdown {
            logs.remove();
        }
    }

    /// Returns the statuses before the start. Containers that ran under an earlier node process count as restarted.
    fn first_statuses(&self) -> Vec<ContainerStatus> {
        let known: Vec<_> = self.pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten()).collect();
        let first = |container: &Container| {
            let before = known.iter().find(|c| c.name == container.name && c.container_id.is_some());
            creating(container, before.map_or(0, |c| c.restart_count + 1))
        };
        self.pod.spec.iter().flat_map(|s| &s.containers).map(first).collect()
    }

    fn start(
        &self,
        placement: &PodPlacement,
        logs: &PodLogs,
        statuses: &Arc<watch::Sender<Vec<ContainerStatus>>>,
        stopping: &watch::Receiver<Option<Duration>>,
    ) -> JoinSet<()> {
        let mut containers = JoinSet::new();
        for (index, spec) in self.pod.spec.iter().flat_map(|s| s.containers.iter()).enumerate() {
            let container = SupervisedContainer {
                node: self.node.clone(),
                pod: self.pod.clone(),
                spec: spec.clone(),
                index,
                placement: placement.clone(),
                logs: logs.clone(),
                statuses: statuses.clone(),
            };
            let restarts = statuses.borrow().get(index).map_or(0, |status| status.restart_count);
            containers.spawn(container.supervise(restarts, stopping.clone()));
        }
        containers
    }

    /// Binds the pod, then writes its status on each change until the pod must stop. Returns the reason and the last
    /// written status.
    async fn run_until_stopped(
        &mut self,
        placement: &PodPlacement,
        mut containers: watch::Receiver<Vec<ContainerStatus>>,
    ) -> (StopReason, PodStatus) {
        let mut written = self.pod.status.clone().unwrap_or_default();
        let first = async {
            let mut containers = containers.clone();
            let all_decided = containers.wait_for(|containers| !containers.iter().any(is_creating));
            let _ = tokio::time::timeout(FIRST_STATUS_WITHIN, all_decided).await;
        };
        let (bound, ()) = tokio::join!(self.bind(), first);
        if let Err(why) = bound {
            return (why, written);
        }
        let api = self.node.pods(&self.pod);
        let mut attempts = Attempts::new(format!("the status of pod {}", key_of(&*self.pod)));
        loop {
            let status = self.status(placement, &containers.borrow_and_update(), &written);
            let outcome = match patch(&written, &status) {
                Some(patch) => {
                    let name = self.pod.name_any();
                    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
                }
                None => Ok(()),
            };
            let failure = match outcome {
                Ok(()) => {
                    written = status;
                    attempts.succeeded();
                    None
                }
                Err(kube::Error::Api(status)) if status.code == 404 => return (StopReason::Gone, written),
                Err(error) => Some(error),
            };
            let again = async {
                match &failure {
                    Some(error) => attempts.failed(error).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                why = self.stopped() => return (why, written),
                Ok(()) = containers.changed() => {}
                () = again => {}
            }
        }
    }

    /// Binds the pod to this node, unless it is already bound.
    async fn bind(&self) -> Result<(), StopReason> {
        if self.pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).is_some_and(|name| !name.is_empty()) {
            return Ok(());
        }
        let name = self.pod.name_any();
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "namespace": self.pod.namespace(), "uid": self.pod.uid()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node.options.name},
        });
        let (api, operation) = (self.node.pods(&self.pod), format!("the binding of pod {}", key_of(&*self.pod)));
        let params = PostParams::default();
        let bind = || api.create_subresource::<_, Value>("binding", &name, &params, &binding);
        until_done_or_gone(operation, &self.shutdown, bind).await
    }

    fn status(&self, placement: &PodPlacement, containers: &[ContainerStatus], before: &PodStatus) -> PodStatus {
        let latest = self.observed.borrow().clone();
        pod_status(latest.as_ref().unwrap_or(&self.pod), placement, containers, before, Timestamp::now())
    }

    /// Returns the reason to stop in the latest state of the pod.
    fn stop_reason(&mut self) -> Option<StopReason> {
        match &*self.observed.borrow_and_update() {
            None => Some(StopReason::Gone),
            Some(pod) => deletion_grace(pod).map(StopReason::Deleted),
        }
    }

    /// Waits until the pod must stop. Cancel safe.
    async fn stopped(&mut self) -> StopReason {
        loop {
            if let Some(why) = self.stop_reason() {
                return why;
            }
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return StopReason::Shutdown,
                changed = self.observed.changed() => if changed.is_err() { return StopReason::Shutdown },
            }
        }
    }

    /// Waits until the containers have ended. A more urgent deletion shortens their grace period.
    async fn join(&mut self, containers: &mut JoinSet<()>, stop: &watch::Sender<Option<Duration>>) {
        let shorten =
            |grace: Duration| stop.send_modify(|held| *held = Some(held.map_or(grace, |held| held.min(grace))));
        loop {
            tokio::select! {
                biased;
                ended = containers.join_next() => if ended.is_none() { return },
                Ok(()) = self.observed.changed() => if let Some(why) = self.stop_reason() {
                    shorten(why.grace(&self.pod));
                },
                () = self.shutdown.cancelled(), if stop.borrow().is_none_or(|grace| grace > SHUTDOWN_GRACE) => {
                    shorten(SHUTDOWN_GRACE);
                }
            }
        }
    }

    /// Writes the last states of the containers, then removes the object.
    async fn finish(&self, written: &PodStatus, status: &PodStatus) {
        if let Some(patch) = patch(written, status) {
            // One attempt is enough, since the object is removed anyway.
            let (api, params) = (self.node.pods(&self.pod), PatchParams::default());
            if let Err(error) = api.patch_status(&self.pod.name_any(), &params, &Patch::Merge(patch)).await {
                tracing::debug!(pod = self.pod.name_any(), %error, "the last status of the pod could not be written");
            }
        }
        remove(&self.node, &self.pod, &self.shutdown).await;
    }
}

/// Removes a pod that is being deleted and no longer runs here.
pub(super) async fn remove(node: &Node, pod: &Pod, shutdown: &CancellationToken) {
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
        ..DeleteParams::default()
    };
    let (api, name) = (node.pods(pod), pod.name_any());
    let operation = format!("the removal of pod {}", key_of(pod));
    let _ = until_done_or_gone(operation, shutdown, || api.delete(&name, &params)).await; // Nothing is left to do.
}

/// Calls `attempt` until it succeeds, the pod is gone (another one may have its name), or `shutdown`. `operation` names
/// it in the log.
async fn until_done_or_gone<T, F: Future<Output = kube::Result<T>>>(
    operation: String,
    shutdown: &CancellationToken,
    attempt: impl Fn() -> F,
) -> Result<(), StopReason> {
    let mut attempts = Attempts::new(operation);
    loop {
        match attempt().await {
            Ok(_) => {
                attempts.succeeded();
                return Ok(());
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Err(StopReason::Gone),
            Err(error) => {
                let waited = shutdown.run_until_cancelled(attempts.failed(&error)).await;
                waited.ok_or(StopReason::Shutdown)?;
            }
        }
    }
}

/// Returns the grace period of a pod under deletion, or `None` for any other pod.
fn deletion_grace(pod: &Pod) -> Option<Duration> {
    pod.metadata.deletion_timestamp.as_ref()?;
    let seconds = pod.metadata.deletion_grace_period_seconds;
    Some(seconds.map_or_else(|| grace_of(pod), grace))
}

/// Returns the change of the status as a patch. It may replace the array of conditions, since the new status includes
/// those of other writers.
fn patch(old: &PodStatus, new: &PodStatus) -> Option<Value> {
    // Keep fields that this node never sets.
    let merged =
        PodStatus { qos_class: old.qos_class.clone(), observed_generation: old.observed_generation, ..new.clone() };
    let patch = merge_patch(&serde_json::to_value(old).ok()?, &serde_json::to_value(merged).ok()?)?;
    Some(json!({"status": patch}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    /// Goal: a pod may have any grace period that a real API server accepts. Method: rows of grace periods and the
    /// resulting seconds.
    #[test]
    fn any_grace_period_fits_into_an_instant() {
        const MOST: u64 = 100 * 365 * 24 * 3600;
        let rows = [
            (Some(7), Some(5), 5),
            (Some(7), None, 7),
            (None, None, 30),
            (Some(-1), None, 0),
            (None, Some(-1), 0),
            (Some(i64::MAX), None, MOST),
            (None, Some(i64::MAX), MOST),
        ];
        for (own, requested, expected) in rows {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": requested},
                "spec": {"containers": [], "terminationGracePeriodSeconds": own},
            }))
            .expect("a Pod");
            let grace = deletion_grace(&pod).expect("it is deleted");
            assert_eq!(grace.as_secs(), expected, "{own:?} {requested:?}");
            assert!(Instant::now().checked_add(grace).is_some());
        }
    }
}
