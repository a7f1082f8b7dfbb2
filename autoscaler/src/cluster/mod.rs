//! Cluster state of the reconcilers, apart from a front end's own objects: the targets of workloads, an index that each
//! event updates at once, and the routing of events to the workloads concerned.
//!
//! A front end watches its own objects and records them with their targets in the [`Index`]. It receives other events
//! through [`FrontEndQueues`].
//!
//! Pod counts are behind [`crate::scale::Pods`], and decisions behind [`crate::scale::Deciders`]. Both arrive through
//! the request queue.

pub(crate) mod error;
pub(crate) mod facts;
pub(crate) mod links;
pub(crate) mod multi_map;
pub(crate) mod target_key;
pub(crate) mod targets;
pub(crate) mod writes;

use common::RevisionKey as Key;
use common_controller::{Priority, WorkQueue};
use common_runtime::namespaces::Namespaces;
use kube::Client;
use links::{Links, Named};
use std::sync::Arc;
use std::time::Duration;
use target_key::TargetResource;
use targets::{TargetEvent, TargetListener, Targets};
use tokio_util::sync::CancellationToken;

/// Queues of a front end, apart from the queue of scale decisions.
pub(crate) trait FrontEndQueues: Send + Sync + 'static {
    /// Requests a check of the workload's measurement.
    fn queue_measurement(&self, _key: &Key, _priority: Priority) {}

    /// Requests a check of the workload's routing.
    fn queue_path(&self, _key: &Key, _priority: Priority) {}

    /// Requests a check of the workload's routing after `delay`.
    fn queue_path_after(&self, _key: &Key, _delay: Duration) {}
}

/// State that both front ends watch.
pub(crate) struct Stores {
    pub(crate) targets: Arc<Targets>,
    pub(crate) index: Arc<Index>,
}

/// All workloads, and their targets.
pub(crate) struct Index {
    pub(crate) queue: WorkQueue<Key>,
    front_end_queues: Arc<dyn FrontEndQueues>,
    pub(crate) links: Links,
}

impl Stores {
    /// Creates empty stores. Targets are watched in `namespaces`.
    pub(crate) fn new(
        client: Client,
        queue: WorkQueue<Key>,
        (front_end_queues, namespaces): (Arc<dyn FrontEndQueues>, Namespaces),
        shutdown: CancellationToken,
    ) -> Self {
        let index = Arc::new(Index { queue, front_end_queues, links: Links::default() });
        Self { targets: Arc::new(Targets::new(client, namespaces, shutdown, index.clone())), index }
    }

    /// Starts to watch the targets of all known workloads before any of them is read.
    pub(crate) fn prepare_targets(&self) {
        self.index.links.resources().iter().for_each(|resource| self.targets.prepare(resource));
    }
}

impl Index {
    /// Records a workload and its targets; none: it is gone.
    pub(crate) fn apply(&self, key: &Key, targets: Option<Named>, priority: Priority) {
        // Another workload may have waited for a target that this one has released.
        for released in self.links.apply(key, targets) {
            self.links.of_target(&released).into_iter().for_each(|waiting| self.queue.add(waiting, Priority::Normal));
        }
        self.queue.add(key.clone(), priority);
    }

    /// Requests a low-priority reconcile of all workloads. After a change of ownership, the new owner starts to
    /// collect and the old one stops.
    pub(crate) fn reconcile_all(&self) {
        for key in &self.links.keys() {
            self.front_end_queues.queue_measurement(key, Priority::Slow);
            self.queue.add(key.clone(), Priority::Slow);
            self.front_end_queues.queue_path(key, Priority::Slow);
        }
    }

    /// Requests an urgent reconcile of a workload, because its decision, measurement or pods have changed.
    pub(crate) fn reconcile_now(&self, key: &Key) {
        self.front_end_queues.queue_measurement(key, Priority::Normal);
        self.front_end_queues.queue_path(key, Priority::Normal);
        // This comes last, because the runtime first runs the task that was woken last.
        self.queue.add(key.clone(), Priority::Urgent);
    }
}

impl TargetListener for Index {
    fn is_named(&self, resource: &TargetResource) -> bool {
        self.links.is_named(resource)
    }

    fn on_event(&self, event: TargetEvent<'_>) {
        let (concerned, priority) = match event {
            TargetEvent::Created(target) => (self.links.of_target(target), Priority::New),
            TargetEvent::Changed(target) => (self.links.of_target(target), Priority::Normal),
            TargetEvent::Listed(resource) => (self.links.of_resource(resource), Priority::New),
        };
        for workload in concerned {
            self.queue.add(workload.clone(), priority);
            self.front_end_queues.queue_path(&workload, Priority::Normal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::target_key::TargetKey;
    use super::*;
    use crate::api_server;
    use smallvec::smallvec;

    /// Front end without further queues.
    struct NoQueues;

    impl FrontEndQueues for NoQueues {}

    fn deployment(name: &str) -> TargetKey {
        TargetKey { resource: TargetResource::for_kind("apps/v1", "Deployment"), object: Key::new("ns", name) }
    }

    fn stores(client: Client) -> Stores {
        Stores::new(client, WorkQueue::new(), (Arc::new(NoQueues), Namespaces::default()), CancellationToken::new())
    }

    /// Goal: if many workloads arrive at once, the first is finished before the last is started.
    #[tokio::test]
    async fn follow_up_work_precedes_new_workloads() {
        let stores = stores(api_server::client(|_| None).0);
        let put =
            |name, priority| stores.index.apply(&Key::new("ns", name), Some(smallvec![deployment(name)]), priority);
        ["a", "b", "c"].into_iter().for_each(|name| put(name, Priority::New));
        stores.index.on_event(TargetEvent::Created(&deployment("c")));
        let queue = &stores.index.queue;
        let next = || queue.try_next().expect("a queued key").key().name().to_owned();
        assert_eq!(next(), "a");
        put("a", Priority::Normal); // The event of a write by its own reconcile.
        assert_eq!([next(), next()], ["a", "b"]);
        stores.index.on_event(TargetEvent::Changed(&deployment("b")));
        assert_eq!([next(), next()], ["b", "c"]);
    }

    /// Goal: targets are listed as soon as the named targets are known, not only when this process becomes an owner.
    #[tokio::test]
    async fn targets_are_listed_before_the_first_read() {
        let (client, requests) = api_server::client(|_| None);
        let stores = stores(client);
        stores.index.apply(&Key::new("ns", "hello"), Some(smallvec![deployment("hello")]), Priority::New);
        stores.prepare_targets();
        while requests.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*requests.lock(), ["GET /apis/apps/v1/deployments"]);
    }
}
