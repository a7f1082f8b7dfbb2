//! Workload controllers, as in Kubernetes' controller manager: Deployment → ReplicaSet → Pods, and Services →
//! EndpointSlices. The controller of HorizontalPodAutoscalers is separate ([`run_horizontal`]).
//!
//! The other controllers share one in-memory [`index`](Index), because they are on the path of every cold start. A
//! watch event queues the keys that it affects. A pure function over the index plans each key, and the plan's writes
//! are sent at once and in parallel. Their responses update the index before the watch confirms them, so that the next
//! controller acts without waiting for an event. There is no batching, no relisting and no resync.
//!
//! ```text
//! watches ──► Index ──► work queue ──► plan (pure) ──► writes ──► API server
//!               ▲                                    │ answers
//!               └────────────────────────────────────┘
//! ```
//!
//! The controllers are a plain client and work with any API server that has no controllers for these kinds.
//!
//! # Limits
//!
//! There is no leader election (one instance is assumed), and there are no Jobs, StatefulSets, DaemonSets, garbage
//! collection, namespace deletion and Events. Endpoints of core/v1 are not written; planes read them only if they may
//! not read slices. The header of each module lists its own limits.

mod deployment;
#[cfg(test)]
mod fixture;
mod index;
mod replica_set;
mod rolling;
mod slices;
mod write;

use common_controller::{Cache, ObjectKey, Priority, WorkQueue, Workers, WriteError};
use common_runtime::watching;
use futures::stream::{self, BoxStream, StreamExt};
use hpa::native::{self, Wiring};
use hpa::options::ControllerOptions;
use index::{Change, Index, Indexed, Key, Write};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use write::Request;

/// Number of workers. Each mostly waits for the API server, where more requests would only queue.
const WORKERS: usize = 64;
/// Maximum retry delay. A cluster on one machine recovers soon.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Maximum number of concurrent writes of one plan.
const WRITES_MAX: usize = 32;

/// Runs all controllers until `shutdown`.
///
/// A broken watch is restarted with growing delays, without a limit. Meanwhile the controllers act on the known state.
pub async fn run(client: Client, shutdown: CancellationToken) {
    let queue = WorkQueue::with_backoff_max(RETRY_MAX);
    let workers = Workers { kind: "object", queue: queue.clone(), only: None };
    let shared = Arc::new(ControllerShared { client, index: Mutex::new(Index::default()), queue });
    let mut events = stream::select_all([
        shared.follow::<Deployment>(),
        shared.follow::<ReplicaSet>(),
        shared.follow::<Pod>(),
        shared.follow::<Service>(),
        shared.follow::<EndpointSlice>(),
    ]);
    let mut working = JoinSet::new(); // Dropping it aborts the workers.
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            Some(()) = events.next() => {}
        }
        // Keys wait until every kind has been listed.
        if working.is_empty() && shared.index.lock().is_synced() {
            for _ in 0..WORKERS {
                let shared = shared.clone();
                working.spawn(workers.clone().work(shutdown.clone(), move |key, _| reconcile(shared.clone(), key)));
            }
        }
    }
}

/// Runs this project's controller of HorizontalPodAutoscalers instead of Kubernetes' own, until `shutdown`. It serves
/// all of them, also those without a PodAutoscaler, and evaluates each once per `sync_period`. Waits for an unreachable
/// cluster. Metrics come from the API server: the embedded one serves `metrics.k8s.io` if a node measures.
pub async fn run_horizontal(client: Client, sync_period: Duration, shutdown: CancellationToken) {
    let options = ControllerOptions { sync_period, ..ControllerOptions::default() };
    native::run(Wiring::alone(client, options), shutdown).await;
}

/// State shared by all reconciliations.
struct ControllerShared {
    client: Client,
    /// Locked for one plan or one change at a time, never across an await.
    index: Mutex<Index>,
    queue: WorkQueue<Key>,
}

impl ControllerShared {
    /// Watches all objects of one kind in every namespace, without `managedFields`, and applies each event.
    fn follow<K: Indexed>(self: &Arc<Self>) -> BoxStream<'static, ()> {
        let (shared, all) = (self.clone(), Api::<K>::all(self.client.clone()));
        let events = watching::watch(all, watcher::Config::default());
        let apply = move |event: watcher::Event<K>| {
            let event = event.modify(|object| object.meta_mut().managed_fields = None);
            shared.apply(|cache: &mut Cache<Arc<K>>| cache.take(event, Arc::new));
        };
        events.map(apply).boxed()
    }

    /// Applies the response to a write.
    fn apply_response<K: Indexed>(&self, request: &Request<K>, written: Option<K>) {
        self.apply(|cache: &mut Cache<Arc<K>>| match (written, request) {
            (Some(object), _) => cache.apply_response(object),
            (None, Request::Delete { key, uid }) => cache.apply_deletion(key, uid),
            (None, _) => None,
        });
    }

    /// Updates the index, and queues the affected keys.
    fn apply<K: Indexed, C: IntoIterator<Item = Change<K>>>(&self, update: impl FnOnce(&mut Cache<Arc<K>>) -> C) {
        let keys = self.index.lock().apply(update);
        keys.into_iter().for_each(|key| self.queue.add(key, Priority::Normal));
    }
}

/// Plans one key and sends the writes. Returns the first error.
async fn reconcile(shared: Arc<ControllerShared>, key: Key) -> Result<(), WriteError> {
    let writes = plan(&shared.index.lock(), &key);
    let outcomes: Vec<_> = stream::iter(writes.into_iter().map(|write| carry_out(&shared, &key, write)))
        .buffer_unordered(WRITES_MAX)
        .collect()
        .await;
    outcomes.into_iter().collect()
}

fn plan(index: &Index, key: &Key) -> Vec<Write> {
    let now = Timestamp::now();
    match key {
        Key::Deployment(key) => deployment::plan(index, key, now),
        Key::ReplicaSet(key) => replica_set::plan(index, key, now),
        Key::Service(key) => slices::plan(index, key),
    }
}

/// Sends one write, and applies its response.
async fn carry_out(shared: &ControllerShared, key: &Key, write: Write) -> Result<(), WriteError> {
    let client = &shared.client;
    match write {
        Write::Deployment(request) => shared.apply_response(&request, request.execute(client).await?),
        Write::ReplicaSet(request) => shared.apply_response(&request, request.execute(client).await?),
        Write::Slice(request) => shared.apply_response(&request, request.execute(client).await?),
        Write::Pod(request) => {
            let outcome = request.execute(client).await;
            if let (Request::Create(_), Key::ReplicaSet(set)) = (&request, key) {
                record_creation(&mut shared.index.lock(), set, outcome.as_ref().err());
            }
            shared.apply_response(&request, outcome?);
        }
    }
    Ok(())
}

/// Records the result of creating a pod of `set`, for the status of `set`.
fn record_creation(index: &mut Index, set: &ObjectKey, error: Option<&WriteError>) {
    let message = error.map(|error| match error {
        WriteError::Api { source, .. } => source.to_string(),
        other => other.to_string(),
    });
    match message {
        Some(message) => index.create_failures.insert(set.clone(), message),
        None => index.create_failures.remove(set),
    };
}
