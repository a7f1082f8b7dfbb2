//! The pods of a node. Each has a task that receives its state from the watch.
//!
//! At most [`super::NodeOptions::pods_max`] pods run at once. Further pods wait in the order of their arrival until
//! another pod has ended. They are Pending, with the condition and the event that a scheduler would write.

use super::Node;
use super::pod::{self, Worker};
use common_controller::Cache;
use common_controller::cache::Change;
use common_runtime::watching::watch as watch_objects;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Starts a task for each pod of `node` and forwards the watch's events to it until `shutdown`. Then waits for all
/// tasks.
pub(super) async fn run(node: &Arc<Node>, client: Client, shutdown: &CancellationToken) {
    let mut events = watch_objects(Api::<Pod>::all(client), watcher::Config::default());
    let mut pods = Pods {
        node: node.clone(),
        shutdown: shutdown.clone(),
        tasks: JoinSet::new(),
        observed: HashMap::new(),
        waiting: VecDeque::new(),
        known: Cache::default(),
    };
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = pods.tasks.join_next(), if !pods.tasks.is_empty() => match ended {
                Ok(uid) => {
                    pods.observed.remove(&uid);
                    while pods.has_room() && let Some(next) = pods.waiting.pop_front() {
                        pods.start(next);
                    }
                }
                Err(error) => tracing::error!(%error, "the task of a pod failed; this is a bug of the node"),
            },
            Some(event) = events.next() => pods.apply(event),
        }
    }
    while pods.tasks.join_next().await.is_some() {}
}

/// The pods of this node.
struct Pods {
    node: Arc<Node>,
    shutdown: CancellationToken,
    /// Tasks of pods; each returns its pod's uid.
    tasks: JoinSet<String>,
    /// State of each running pod, by uid.
    observed: HashMap<String, watch::Sender<Option<Arc<Pod>>>>,
    /// Pods that wait until another one ends, in order.
    waiting: VecDeque<Arc<Pod>>,
    /// All pods in the watch.
    known: Cache<Arc<Pod>>,
}

impl Pods {
    fn apply(&mut self, event: watcher::Event<Pod>) {
        let event = event.modify(|pod| pod.metadata.managed_fields = None);
        for Change { old, new, .. } in self.known.take(event, Arc::new) {
            if let Some(old) = old.filter(|old| new.as_ref().is_none_or(|new| new.uid() != old.uid())) {
                self.handle_removed(&old);
            }
            if let Some(pod) = new {
                self.handle_present(pod);
            }
        }
    }

    fn handle_removed(&mut self, pod: &Pod) {
        self.waiting.retain(|waiting| waiting.metadata.uid != pod.metadata.uid);
        if let Some(observed) = self.observed.get(&pod.uid().unwrap_or_default()) {
            observed.send_replace(None);
        }
    }

    fn handle_present(&mut self, pod: Arc<Pod>) {
        let uid = pod.uid().unwrap_or_default();
        if let Some(observed) = self.observed.get(&uid) {
            let is_elsewhere =
                pod.spec.as_ref().and_then(|s| s.node_name.as_ref()).is_some_and(|n| *n != self.node.options.name);
            observed.send_replace(Some(pod).filter(|_| !is_elsewhere));
            return;
        }
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.metadata.uid == pod.metadata.uid) {
            *waiting = pod;
            return;
        }
        if !self.node.wants(&pod) {
            return;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            // An earlier process of this node ran the pod; nothing of it runs now. Because of the entry in `observed`,
            // it is removed only once.
            self.observed.insert(uid.clone(), watch::Sender::new(None));
            let (node, shutdown) = (self.node.clone(), self.shutdown.clone());
            self.tasks.spawn(async move {
                pod::remove(&node, &pod, &shutdown).await;
                uid
            });
            return;
        }
        if matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed")) {
            return;
        }
        if self.has_room() {
            self.start(pod);
        } else {
            self.postpone(pod);
        }
    }

    /// Reports whether another pod may run. Pods that are being removed still count.
    fn has_room(&self) -> bool {
        self.tasks.len() < self.node.options.pods_max
    }

    /// Lets a pod wait. Reports that in its status and by an event.
    fn postpone(&mut self, pod: Arc<Pod>) {
        let message = format!("0/1 nodes are available: 1 Too many pods ({} run here).", self.node.options.pods_max);
        self.node.events.record_error("default-scheduler", &*pod, "FailedScheduling", message.clone());
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastTransitionTime": Time(Timestamp::now())});
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}});
        let (api, name) = (self.node.pods(&pod), pod.name_any());
        self.waiting.push_back(pod);
        // One attempt is enough, since the event says the same.
        tokio::spawn(async move {
            if let Err(error) = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
                tracing::debug!(pod = name, %error, "the pod's status could not be set to Unschedulable");
            }
        });
    }

    fn start(&mut self, pod: Arc<Pod>) {
        let uid = pod.uid().unwrap_or_default();
        let (sender, observed) = watch::channel(Some(pod.clone()));
        self.observed.insert(uid.clone(), sender);
        let worker = Worker { node: self.node.clone(), pod, observed, shutdown: self.shutdown.clone() };
        self.tasks.spawn(async move {
            worker.run().await;
            uid
        });
    }
}
