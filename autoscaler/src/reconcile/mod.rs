//! Reconcilers: PodAutoscaler (class KPA), ServerlessService (standalone) and Metric.
//!
//! ```text
//! watches ─▶ world ─▶ queues ─▶ workers ─▶ kpa ─▶ /scale, ServerlessService, Metric, status
//!  decisions, pods ─▶ attention ─┘  │         metric ─▶ collector, status
//!                                   └───────▶ sks ─▶ Services, EndpointSlices, status
//! ```
//!
//! Each controller has one [work queue](common_controller::WorkQueue), fed by the [`world`]'s watches and the attention feed, and a few workers. Only
//! the leader of a revision acts on it, and it looks at its lease before each write.
//!
//! # What goes first
//!
//! A decision is an urgent key, whose passes only scale ([`kpa::hurry`]) and leave all else to a pass with normal
//! priority. Some workers serve nothing but urgent keys, and of all writes those that wake a sleeping service are sent
//! first ([`WriteLimiter`]): whatever else there is to write, no request is held for it, not even for what an earlier
//! pass over the same revision still has to write.
//!
//! A reconcile that fails comes back after a back-off; one that panics is logged and comes back likewise, so no object
//! can stop the others.

pub(crate) mod context;
pub(crate) mod error;
pub(crate) mod kpa;
mod metric;
pub(crate) mod world;

#[cfg(test)]
mod tests;

use crate::engine::Engine;
use crate::front_end::FrontEnd;
use crate::scale::{OnScale, Ports};
use crate::standalone::{Hpa, serverless};
use common::RevisionKey as Key;
use common::config::{AutoscalerConfig, DeploymentConfig};
use common::write_rate::Rate;
use common_controller::{Priority, Recorder, Workers, WriteLimiter};
use common_runtime::clock::Clock;
use common_runtime::environment::Mode;
use common_runtime::resolve::Resolve;
use context::{Context, Sound};
use dashmap::DashMap;
use error::Error;
use kpa::probe::Prober;
use kube::Client;
use std::iter;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use world::{Queues, World};

/// Workers for each controller. A worker spends its time waiting for the API server or for its turn, so many more than
/// cores.
const WORKERS: usize = 16;
/// Workers that scale and do nothing else: as many services wake at the same time.
const URGENT_WORKERS: usize = 32;

/// What the reconcilers are made of.
pub struct Wiring {
    /// How the autoscaler is installed.
    pub front_end: FrontEnd,
    /// Where the activators live.
    pub system_namespace: String,
    /// The cluster's DNS domain.
    pub cluster_domain: String,
    /// How fast the API server is written to.
    pub api_rate: Rate,
    /// Told of every replicas patch that was answered.
    pub on_scale: Option<OnScale>,
    /// The API server.
    pub client: Client,
    /// From names to addresses.
    pub resolver: Arc<dyn Resolve>,
    /// Decisions, measurements, pods, leadership, and the feed.
    pub ports: Ports,
    /// Wall-clock time.
    pub clock: Clock,
    /// `config-autoscaler`, live.
    pub autoscaler_config: watch::Receiver<Arc<AutoscalerConfig>>,
    /// `config-deployment`, live.
    pub deployment_config: watch::Receiver<Arc<DeploymentConfig>>,
}

/// Reconciles until `shutdown`, and then until what is under way has come to its end. The one consumer of the feed.
///
/// # Errors
/// None so far: whatever goes wrong with one object is tried again.
pub async fn run(wiring: Wiring, shutdown: CancellationToken) -> anyhow::Result<()> {
    let cx = Arc::new(context(wiring, &shutdown));
    cx.world.follow(&cx.client, &shutdown).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(attend(cx.clone(), shutdown.clone()));
    tasks.spawn(sweep(cx.clone(), shutdown.clone()));
    for only in iter::repeat_n(Some(Priority::Urgent), URGENT_WORKERS).chain(iter::repeat_n(None, WORKERS)) {
        let workers = Workers { kind: "PodAutoscaler", queue: cx.queues.autoscalers.clone(), only };
        let cx = cx.clone();
        tasks.spawn(workers.work(shutdown.clone(), move |key, priority| scale(cx.clone(), key, priority)));
    }
    for _ in 0..WORKERS {
        let (workers, of) = (Workers { kind: "Metric", queue: cx.queues.metrics.clone(), only: None }, cx.clone());
        let pass = move |key, _| {
            let cx = of.clone();
            async move { metric::reconcile(&cx, &key).await }
        };
        tasks.spawn(workers.work(shutdown.clone(), pass));
        if cx.mode == Mode::Standalone {
            let (queue, of) = (cx.queues.serverless.clone(), cx.clone());
            let pass = move |key, _| {
                let cx = of.clone();
                async move { serverless::reconcile(&cx, &key).await }
            };
            let workers = Workers { kind: "ServerlessService", queue, only: None };
            tasks.spawn(workers.work(shutdown.clone(), pass));
        }
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// A decision is carried out at once, and whatever else there is to do is left to a pass of its own.
async fn scale(cx: Arc<Context>, key: Key, priority: Priority) -> Result<(), Error> {
    match priority {
        Priority::Urgent => {
            kpa::hurry(&cx, &key).await?;
            cx.queues.autoscalers.add(key, Priority::Normal);
            Ok(())
        }
        Priority::Normal | Priority::Slow => kpa::reconcile(&cx, &key).await,
    }
}

fn context(wiring: Wiring, shutdown: &CancellationToken) -> Context {
    let Wiring { front_end, system_namespace, cluster_domain, api_rate, on_scale, client, resolver, ports, .. } =
        wiring;
    let queues = Queues::default();
    let (mode, hpa) = front_end.decides().rules();
    let world = World::new(client.clone(), (mode, hpa), &system_namespace, queues.clone(), shutdown.clone());
    let probed = queues.autoscalers.clone();
    let prober = Prober::new(resolver, shutdown.clone(), move |key| probed.add(key.clone(), Priority::Normal));
    let clock = wiring.clock;
    let engine = (hpa == Hpa::Engine).then(|| Engine::new(client.clone(), clock.clone(), ports.attention.clone()));
    let limiter = WriteLimiter::new(api_rate);
    let recorder = Recorder::limited(client.clone(), limiter.clone(), shutdown.clone());
    Context {
        engine,
        client,
        mode,
        cluster_domain,
        on_scale,
        world,
        queues,
        ports,
        prober,
        limiter,
        recorder,
        clock,
        autoscaler_config: wiring.autoscaler_config,
        deployment_config: wiring.deployment_config,
        accepted: Sound::default(),
        conflicts: DashMap::new(),
        leaving: DashMap::new(),
        retiring: DashMap::new(),
    }
}

/// Hands on what decisions and pods ask for.
async fn attend(cx: Arc<Context>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            key = cx.ports.attention.next() => cx.world.attend(&key),
            () = shutdown.cancelled() => return,
        }
    }
}

/// Looks at everything again when configuration or leadership change.
async fn sweep(cx: Arc<Context>, shutdown: CancellationToken) {
    let (mut autoscaler, mut deployment) = (cx.autoscaler_config.clone(), cx.deployment_config.clone());
    let mut leadership = cx.ports.leadership.changes();
    loop {
        tokio::select! {
            () = changed(&mut autoscaler) => {}
            () = changed(&mut deployment) => {}
            () = changed(&mut leadership) => {}
            () = shutdown.cancelled() => return,
        }
        cx.world.sweep();
    }
}

/// Waits for a change; for ever, if whoever could make one is gone.
async fn changed<T>(value: &mut watch::Receiver<T>) {
    if value.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
