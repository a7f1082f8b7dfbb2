//! The pods of a node: a task for each, told what the watch says of it.

use super::pod::{self, Seen};
use super::state::Node;
use common_runtime::watching::watch as watch_objects;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Starts a task for each pod of `node` and tells it what the watch says, until `shutdown`; then waits for all.
pub(super) async fn run(node: &Arc<Node>, client: Client, shutdown: &CancellationToken) {
    let mut events = watch_objects(Api::<Pod>::all(client), watcher::Config::default());
    let mut pods = Pods {
        node: node.clone(),
        shutdown: shutdown.clone(),
        tasks: JoinSet::new(),
        seen: HashMap::new(),
        listed: None,
    };
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = pods.tasks.join_next(), if !pods.tasks.is_empty() => match ended {
                Ok(uid) => drop(pods.seen.remove(&uid)),
                Err(error) => tracing::error!(%error, "a bug: a pod's task did not come to its end"),
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
    /// Each ends with its pod's uid.
    tasks: JoinSet<String>,
    /// By uid.
    seen: HashMap<String, watch::Sender<Seen>>,
    /// Uids met since a listing began.
    listed: Option<HashSet<String>>,
}

impl Pods {
    fn apply(&mut self, event: watcher::Event<Pod>) {
        match event {
            watcher::Event::Init => self.listed = Some(HashSet::new()),
            watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(pod.uid().unwrap_or_default());
                }
                self.present(pod);
            }
            watcher::Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                for (_, seen) in self.seen.iter().filter(|(uid, _)| !listed.contains(*uid)) {
                    seen.send_replace(Seen::Gone);
                }
            }
            watcher::Event::Delete(pod) => {
                if let Some(seen) = self.seen.get(&pod.uid().unwrap_or_default()) {
                    seen.send_replace(Seen::Gone);
                }
            }
        }
    }

    fn present(&mut self, mut pod: Pod) {
        pod.metadata.managed_fields = None;
        let (uid, pod) = (pod.uid().unwrap_or_default(), Arc::new(pod));
        if let Some(seen) = self.seen.get(&uid) {
            let is_elsewhere =
                pod.spec.as_ref().and_then(|s| s.node_name.as_ref()).is_some_and(|n| *n != self.node.options.name);
            seen.send_replace(if is_elsewhere { Seen::Gone } else { Seen::Present(pod) });
            return;
        }
        if !self.node.wants(&pod) {
            return;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            // Nothing of it runs here: an earlier process of this node had it. Kept as seen, so that it is removed
            // once.
            self.seen.insert(uid.clone(), watch::channel(Seen::Gone).0);
            let api = Api::namespaced(self.node.client.clone(), &pod.namespace().unwrap_or_default());
            let shutdown = self.shutdown.clone();
            self.tasks.spawn(async move {
                pod::remove(&api, &pod, &shutdown).await;
                uid
            });
            return;
        }
        if matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed")) {
            return;
        }
        let (sender, receiver) = watch::channel(Seen::Present(pod.clone()));
        self.seen.insert(uid.clone(), sender);
        let running = pod::run(self.node.clone(), pod, receiver, self.shutdown.clone());
        self.tasks.spawn(async move {
            running.await;
            uid
        });
    }
}
