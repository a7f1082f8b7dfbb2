//! PodAutoscalers of class `hpa.autoscaling.knative.dev`, as Knative scales them: by a HorizontalPodAutoscaler for
//! each, which Kubernetes evaluates. There is no decider, no Metric, and no scale to zero.
//!
//! # A pass
//!
//! 1. The HorizontalPodAutoscaler of the same name is made or put right ([`objects`]). One that somebody else controls
//!    is left alone and told in the status.
//! 2. So is the ServerlessService: mode `Serve`, all activators.
//! 3. The status says what both say: names of the Services, whether they are ready, current and desired replicas.
//!    `Active` is always True.
//!
//! A class that is missing or another's is none of ours, whatever the cluster's default is.
//!
//! # Where we differ from upstream
//!
//! - A HorizontalPodAutoscaler that says what it should but for the API server's defaults is not written again.
//!   Upstream compares before defaults, and so writes the same once more with each pass.
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
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Workers, unless the environment says otherwise; upstream's.
pub const WORKERS: usize = 2;

/// What the controller runs with.
#[derive(Clone)]
pub struct Wiring {
    /// The API server.
    pub client: Client,
    /// Passes at once.
    pub workers: usize,
    /// Which PodAutoscalers are this process's.
    pub leadership: Arc<dyn Leadership>,
    /// Cancelled as soon as all objects have been listed once: until then nothing can be done as a leader.
    pub listed: CancellationToken,
    /// `config-autoscaler`, live.
    pub config: watch::Receiver<Arc<AutoscalerConfig>>,
    /// Wall-clock time.
    pub clock: Clock,
}

/// What all passes share.
struct Context {
    client: Client,
    autoscalers: Arc<Store<PodAutoscaler>>,
    horizontals: Arc<Store<HorizontalPodAutoscaler>>,
    serverless: Arc<Store<ServerlessService>>,
    queue: WorkQueue<Key>,
    recorder: Recorder,
    leadership: Arc<dyn Leadership>,
    config: watch::Receiver<Arc<AutoscalerConfig>>,
    clock: Clock,
}

impl Context {
    fn new(wiring: Wiring) -> Self {
        let Wiring { client, workers: _, leadership, listed: _, config, clock } = wiring;
        let queue: WorkQueue<Key> = WorkQueue::new();
        let (own, owners, others) = (queue.clone(), queue.clone(), queue.clone());
        let horizontals = Store::new(move |key: &Key, old, new| wake(&owners, key, meta(old, new)));
        let serverless = Store::new(move |key: &Key, old, new| wake(&others, key, meta(old, new)));
        Self {
            autoscalers: Arc::new(Store::new(move |key: &Key, _, _| own.add(key.clone(), Priority::Normal))),
            horizontals: Arc::new(horizontals),
            serverless: Arc::new(serverless),
            // No shutdown ends it, since passes under way still say something: it ends when all passes have, once all is
            // written, and with the process at the latest.
            recorder: Recorder::start(client.clone(), CancellationToken::new()),
            client,
            queue,
            leadership,
            config,
            clock,
        }
    }

    fn writer(&self) -> Writer<'_> {
        Writer { client: &self.client, leadership: &*self.leadership, pacing: None }
    }

    fn sweep(&self) {
        for key in self.autoscalers.keys() {
            self.queue.add(key, Priority::Slow);
        }
    }
}

fn meta<'a, K: Resource>(old: Option<&'a Arc<K>>, new: Option<&'a Arc<K>>) -> Option<&'a ObjectMeta> {
    new.or(old).map(|object| object.meta())
}

/// Asks for the PodAutoscaler that controls an object.
fn wake(queue: &WorkQueue<Key>, key: &Key, meta: Option<&ObjectMeta>) {
    let owner = meta.and_then(controller).filter(|owner| owner.kind == "PodAutoscaler");
    if let Some(owner) = owner {
        queue.add(Key::new(key.namespace(), owner.name.as_str()), Priority::Normal);
    }
}

/// Runs until `shutdown`, and then until what is under way has come to its end.
pub async fn run(wiring: Wiring, shutdown: CancellationToken) {
    let (workers, listed) = (wiring.workers, wiring.listed.clone());
    let cx = Arc::new(Context::new(wiring));
    cx.autoscalers.spawn(Api::all(cx.client.clone()), &shutdown);
    cx.horizontals.spawn(Api::all(cx.client.clone()), &shutdown);
    cx.serverless.spawn(Api::all(cx.client.clone()), &shutdown);
    let synced = async {
        cx.autoscalers.synced().await;
        cx.horizontals.synced().await;
        cx.serverless.synced().await;
    };
    tokio::select! {
        () = synced => {}
        () = shutdown.cancelled() => return,
    }
    listed.cancel();
    let mut tasks = JoinSet::new();
    tasks.spawn(sweep(cx.clone(), shutdown.clone()));
    for _ in 0..workers {
        let (workers, of) = (Workers { kind: "PodAutoscaler", queue: cx.queue.clone(), only: None }, cx.clone());
        let pass = move |key, _| {
            let cx = of.clone();
            async move { pass::reconcile(&cx, &key).await }
        };
        tasks.spawn(workers.work(shutdown.clone(), pass));
    }
    while tasks.join_next().await.is_some() {}
}

/// Looks at everything again when configuration or leadership change.
async fn sweep(cx: Arc<Context>, shutdown: CancellationToken) {
    let (mut config, mut leadership) = (cx.config.clone(), cx.leadership.changes());
    loop {
        let changed = async {
            tokio::select! {
                Ok(()) = config.changed() => {}
                Ok(()) = leadership.changed() => {}
                else => std::future::pending().await, // Neither will ever change.
            }
        };
        tokio::select! {
            () = changed => cx.sweep(),
            () = shutdown.cancelled() => return,
        }
    }
}
