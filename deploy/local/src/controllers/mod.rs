//! Workload controllers, as in Kubernetes' controller manager: Deployment → ReplicaSet → Pods, and Services →
//! EndpointSlices. [`horizontal`] is a separate controller.
//!
//! The others share one loop over one in-memory [`index`](Index), because they are on the path of every cold start. A
//! watch event marks the keys that it affects. A pure function over the index plans each key, and the plan's writes are
//! sent at once and in parallel. Their responses update the index before the watch confirms them, so that the next
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
mod deployment_status;
#[cfg(test)]
mod fixture;
mod hash;
pub mod horizontal;
mod index;
mod ports;
mod replica_set;
mod rolling;
mod slices;
mod write;

use common_controller::{Cache, Item, Kind, ObjectKey, Priority, WorkQueue, WriteError};
use common_runtime::failure_log::FailureLog;
use common_runtime::watching;
use futures::stream::{self, BoxStream, FuturesUnordered, StreamExt};
use index::{Change, Index, Key, Plan, Write};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use write::{Answer, Request};

/// Maximum number of keys reconciled at once. Each mostly waits for the API server, where more requests would only
/// queue.
const CONCURRENCY_MAX: usize = 64;
/// Maximum retry delay. A cluster on one machine recovers soon.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Maximum number of concurrent writes of one plan.
const WRITES_MAX: usize = 32;

/// Runs all controllers until `shutdown`.
///
/// A broken watch is restarted with growing delays, without a limit. Meanwhile the controllers act on the known state.
///
/// # Errors
/// Never fails at present; the controllers wait for an unreachable cluster.
pub async fn run(client: Client, shutdown: CancellationToken) -> anyhow::Result<()> {
    let shared = Arc::new(ControllerShared { client: client.clone(), index: Mutex::new(Index::default()) });
    let mut events = stream::select_all([
        watch::<Deployment>(&client, Event::Deployment),
        watch::<ReplicaSet>(&client, Event::ReplicaSet),
        watch::<Pod>(&client, Event::Pod),
        watch::<Service>(&client, Event::Service),
        watch::<EndpointSlice>(&client, Event::Slice),
    ]);
    let queue: WorkQueue<Key> = WorkQueue::with_backoff_max(RETRY_MAX);
    let mark = |key| queue.add(key, Priority::Normal);
    let mut running = FuturesUnordered::new();
    // Only keys that fail now, so the map is bounded by the number of objects.
    let mut failures: HashMap<Key, FailureLog> = HashMap::new();
    let mut synced = false;
    loop {
        // Shutdown comes first, then events, so that a plan uses the latest state.
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            Some(event) = events.next() => {
                let mut index = shared.index.lock();
                let keys = event.apply(&mut index);
                if synced {
                    keys.into_iter().for_each(mark);
                } else if index.is_synced() {
                    synced = true;
                    index.all_keys().into_iter().for_each(mark);
                }
            }
            item = queue.next(), if synced && running.len() < CONCURRENCY_MAX => {
                running.push(reconcile(shared.clone(), item));
            }
            Some(done) = running.next() => {
                let Done { item, marked, again_after, failure } = done;
                marked.into_iter().for_each(mark);
                let key = item.key();
                if let Some(after) = again_after {
                    queue.add_after(key.clone(), after);
                }
                match &failure {
                    Some(error) => {
                        failures
                            .entry(key.clone())
                            .or_insert_with(|| FailureLog::for_operation(format!("the reconciliation of {key}")))
                            .failed(error);
                        item.retry();
                    }
                    None => drop(failures.remove(key).map(|mut failures| failures.recovered())),
                }
            }
        }
    }
}

/// State shared by all reconciliations.
struct ControllerShared {
    client: Client,
    /// Locked for one plan or one change at a time, never across an await.
    index: Mutex<Index>,
}

/// Result of a reconciliation.
struct Done {
    item: Item<Key>,
    /// Keys that its writes affect.
    marked: Vec<Key>,
    again_after: Option<Duration>,
    /// First failed write. Conflicts count, since they are retried too.
    failure: Option<WriteError>,
}

/// Plans one key and sends the writes.
async fn reconcile(shared: Arc<ControllerShared>, item: Item<Key>) -> Done {
    let key = item.key();
    let plan = plan(&shared.index.lock(), key);
    let again_after = plan.again_after;
    let results: Vec<_> = stream::iter(plan.writes.into_iter().map(|write| carry_out(&shared, key, write)))
        .buffer_unordered(WRITES_MAX)
        .collect()
        .await;
    let (mut marked, mut failure) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(keys) => marked.extend(keys),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Done { item, marked, again_after, failure }
}

fn plan(index: &Index, key: &Key) -> Plan {
    let now = Timestamp::now();
    match key {
        Key::Deployment(key) => deployment::plan(index, key, now),
        Key::ReplicaSet(key) => replica_set::plan(index, key, now),
        Key::Service(key) => slices::plan(index, key),
    }
}

/// Sends one write. Returns the keys that it affects.
async fn carry_out(shared: &ControllerShared, key: &Key, write: Write) -> Result<Vec<Key>, WriteError> {
    let client = &shared.client;
    let outcome = match write {
        Write::Deployment(request) => request.execute(client).await.map(|a| Event::Deployment(answered(a))),
        Write::ReplicaSet(request) => request.execute(client).await.map(|a| Event::ReplicaSet(answered(a))),
        Write::Slice(request) => request.execute(client).await.map(|a| Event::Slice(answered(a))),
        Write::Pod(request) => {
            let is_creation = matches!(request, Request::Create(_));
            let outcome = request.execute(client).await;
            if let (true, Key::ReplicaSet(set)) = (is_creation, key) {
                note_creation(&mut shared.index.lock(), set, outcome.as_ref().err());
            }
            outcome.map(|a| Event::Pod(answered(a)))
        }
    };
    outcome.map(|event| event.apply(&mut shared.index.lock()))
}

/// Records the error of creating a pod of `set`, for its status.
fn note_creation(index: &mut Index, set: &ObjectKey, error: Option<&WriteError>) {
    match error {
        Some(WriteError::Api { source, .. }) => drop(index.create_failures.insert(set.clone(), source.to_string())),
        Some(error) => drop(index.create_failures.insert(set.clone(), error.to_string())),
        None => drop(index.create_failures.remove(set)),
    }
}

/// Update of an object of any kind.
enum Event {
    Deployment(Learned<Deployment>),
    ReplicaSet(Learned<ReplicaSet>),
    Pod(Learned<Pod>),
    Service(Learned<Service>),
    Slice(Learned<EndpointSlice>),
}

/// Source of an update.
enum Learned<K> {
    Watch(watcher::Event<K>),
    Answer(Answer<K>),
}

fn answered<K>(answer: Answer<K>) -> Learned<K> {
    Learned::Answer(answer)
}

impl Event {
    /// Updates the index. Returns the affected keys.
    fn apply(self, index: &mut Index) -> Vec<Key> {
        fn changes<K: Kind>(cache: &mut Cache<Arc<K>>, learned: Learned<K>) -> Vec<Change<K>> {
            match learned {
                Learned::Watch(event) => cache.take(event, Arc::new),
                Learned::Answer(Answer::Written(object)) => cache.answered(*object).into_iter().collect(),
                Learned::Answer(Answer::Gone { key, uid }) => cache.removed(&key, &uid).into_iter().collect(),
            }
        }
        match self {
            Event::Deployment(learned) => {
                let changes = changes(&mut index.deployments, learned);
                changes.into_iter().map(|change| Key::Deployment(change.key)).collect()
            }
            Event::ReplicaSet(learned) => {
                let changes = changes(&mut index.replica_sets, learned);
                for gone in changes.iter().filter(|change| change.new.is_none()) {
                    index.create_failures.remove(&gone.key);
                }
                changes.iter().flat_map(|c| index.replica_set_changed(c)).collect()
            }
            Event::Pod(learned) => {
                let changes = changes(&mut index.pods, learned);
                changes.iter().flat_map(|c| index.pod_changed(c)).collect()
            }
            Event::Service(learned) => {
                let changes = changes(&mut index.services, learned);
                changes.into_iter().map(|change| Key::Service(change.key)).collect()
            }
            Event::Slice(learned) => {
                let changes = changes(&mut index.slices, learned);
                changes.iter().flat_map(|c| index.slice_changed(c)).collect()
            }
        }
    }
}

/// Watches all objects of one kind in every namespace, without `managedFields`.
fn watch<K: Kind>(client: &Client, wrap: fn(Learned<K>) -> Event) -> BoxStream<'static, Event> {
    watching::watch(Api::<K>::all(client.clone()), watcher::Config::default())
        .map(move |event| wrap(Learned::Watch(event.modify(|object| object.meta_mut().managed_fields = None))))
        .boxed()
}
