//! PodAutoscalers of class `hpa.autoscaling.knative.dev`, scaled as in Knative: each by a HorizontalPodAutoscaler that
//! Kubernetes evaluates. There is no decider, no Metric, and no scale to zero.
//!
//! # A reconcile
//!
//! 1. The HorizontalPodAutoscaler of the same name is created or corrected ([`objects`]). If another object controls
//!    it, it is not changed, and the status reports that.
//! 2. The ServerlessService is handled in the same way: mode `Serve`, all activators.
//! 3. The status combines both: names of the Services, their readiness, current and desired replicas. `Active` is
//!    always True.
//!
//! PodAutoscalers without a class, or of another class, are ignored, whatever the cluster's default is.
//!
//! # Differences from upstream
//!
//! - A HorizontalPodAutoscaler that differs only by the API server's defaults is not written again. Upstream compares
//!   before defaults, and so repeats the write with each reconcile.
//! - Events of Metrics are not watched: a PodAutoscaler of this class has none.

mod objects;
mod pass;
#[cfg(test)]
mod tests;

use common::RevisionKey as Key;
use common::config::AutoscalerConfig;
use common_api::{PodAutoscaler, ServerlessService};
use common_controller::objects::controller;
use common_controller::{Leadership, Priority, Recorder, Store, WorkQueue, Workers, Writer};
use common_runtime::clock::Clock;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::{Api, Client, Resource};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Default number of workers, as upstream.
pub const WORKERS: usize = 2;

/// Dependencies of the controller.
#[derive(Clone)]
pub struct Wiring {
    /// Client of the API server.
    pub client: Client,
    /// Number of concurrent reconciles.
    pub workers: usize,
    /// Decides which PodAutoscalers belong to this process.
    pub leadership: Arc<dyn Leadership>,
    /// Cancelled once all objects have been listed: until then a leader could do nothing.
    pub listed: CancellationToken,
    /// Current `config-autoscaler`.
    pub config: watch::Receiver<Arc<AutoscalerConfig>>,
    /// Wall clock.
    pub clock: Clock,
}

/// State shared by all reconciles.
struct Context {
    wiring: Wiring,
    autoscalers: Arc<Store<PodAutoscaler>>,
    horizontals: Arc<Store<HorizontalPodAutoscaler>>,
    serverless: Arc<Store<ServerlessService>>,
    queue: WorkQueue<Key>,
    recorder: Recorder,
}

impl Context {
    fn new(wiring: Wiring) -> Self {
        let queue: WorkQueue<Key> = WorkQueue::new();
        let (own, owners, others) = (queue.clone(), queue.clone(), queue.clone());
        Self {
            autoscalers: Arc::new(Store::new(move |key: &Key, _, _| own.add(key.clone(), Priority::Normal))),
            horizontals: Arc::new(Store::new(move |key: &Key, old, new| queue_owner(&owners, key, old, new))),
            serverless: Arc::new(Store::new(move |key: &Key, old, new| queue_owner(&others, key, old, new))),
            // Not tied to shutdown, because reconciles in flight still record events. It ends after all reconciles,
            // once all events are written, and at the latest with the process.
            recorder: Recorder::start(wiring.client.clone(), CancellationToken::new()),
            queue,
            wiring,
        }
    }

    fn writer(&self) -> Writer<'_> {
        Writer { client: &self.wiring.client, leadership: &*self.wiring.leadership, pacing: None }
    }
}

/// Queues the PodAutoscaler that controls an object.
fn queue_owner<K: Resource>(queue: &WorkQueue<Key>, key: &Key, old: Option<&Arc<K>>, new: Option<&Arc<K>>) {
    let owner = new.or(old).and_then(|object| controller(object.meta()));
    if let Some(owner) = owner.filter(|owner| owner.kind == "PodAutoscaler") {
        queue.add(Key::new(key.namespace(), owner.name.as_str()), Priority::Normal);
    }
}

/// Runs until `shutdown`, and then until all reconciles in flight have ended.
pub async fn run(wiring: Wiring, shutdown: CancellationToken) {
    let cx = Arc::new(Context::new(wiring));
    let client = &cx.wiring.client;
    cx.autoscalers.spawn(Api::all(client.clone()), &shutdown);
    cx.horizontals.spawn(Api::all(client.clone()), &shutdown);
    cx.serverless.spawn(Api::all(client.clone()), &shutdown);
    let synced = async { tokio::join!(cx.autoscalers.synced(), cx.horizontals.synced(), cx.serverless.synced()) };
    if shutdown.run_until_cancelled(synced).await.is_none() {
        return;
    }
    cx.wiring.listed.cancel();
    let mut tasks = JoinSet::new();
    tasks.spawn(queue_all_on_changes(cx.clone(), shutdown.clone()));
    for _ in 0..cx.wiring.workers {
        let (workers, shared) = (Workers { kind: "PodAutoscaler", queue: cx.queue.clone(), only: None }, cx.clone());
        let pass = move |key, _| {
            let cx = shared.clone();
            async move { pass::reconcile(&cx, &key).await }
        };
        tasks.spawn(workers.work(shutdown.clone(), pass));
    }
    while tasks.join_next().await.is_some() {}
}

/// Queues all objects when configuration or leadership change.
async fn queue_all_on_changes(cx: Arc<Context>, shutdown: CancellationToken) {
    let (mut config, mut leadership) = (cx.wiring.config.clone(), cx.wiring.leadership.changes());
    loop {
        tokio::select! {
            Ok(()) = config.changed() => {}
            Ok(()) = leadership.changed() => {}
            () = shutdown.cancelled() => return,
        }
        for key in cx.autoscalers.keys() {
            cx.queue.add(key, Priority::Slow);
        }
    }
}
