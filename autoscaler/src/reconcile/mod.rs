//! Reconcilers: PodAutoscaler (class KPA), ServerlessService (standalone) and Metric.
//!
//! ```text
//! watches ─▶ world ─▶ queues ─▶ workers ─▶ kpa ─▶ /scale, ServerlessService, Metric, status
//!  decisions, pods ─▶ attention ─┘  │         metric ─▶ collector, status
//!                                   └───────▶ sks ─▶ Services, EndpointSlices, status
//! ```
//!
//! Each controller has one [`queue`], fed by the [`world`]'s watches and the attention feed, and a few workers. Only
//! the leader of a revision acts on it, and it looks at its lease before each write.
//!
//! # What goes first
//!
//! A decision comes through the urgent lane, whose passes only scale ([`kpa::hurry`]) and leave all else to a pass in
//! the normal lane. Some workers serve nothing but that lane, and of all writes those that wake a sleeping service are
//! the first in line for the API server ([`turns`]): whatever else there is to write, no request is held for it, not
//! even for what an earlier pass over the same revision still has to write.
//!
//! A reconcile that fails comes back after a back-off; one that panics is logged and comes back likewise, so no object
//! can stop the others.

pub(crate) mod api;
pub(crate) mod context;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod kpa;
mod metric;
pub(crate) mod pass;
pub(crate) mod queue;
pub(crate) mod status;
mod turns;
pub(crate) mod world;

#[cfg(test)]
mod tests;

use crate::api_rate;
use crate::engine::Engine;
use crate::options::Hpa;
use crate::run::Wiring;
use crate::standalone::serverless;
use common::RevisionKey as Key;
use common_runtime::environment::Mode;
use context::{Context, Sound};
use dashmap::DashMap;
use error::Error;
use events::Recorder;
use futures::FutureExt;
use kpa::probe::Prober;
use queue::{Lane, Queue};
use std::future::Future;
use std::iter;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use turns::Turns;
use world::{Queues, World};

/// Workers for each controller. A worker spends its time waiting for the API server or for its turn, so many more than
/// cores.
const WORKERS: usize = 16;
/// Workers that scale and do nothing else: as many services wake at the same time.
const URGENT_WORKERS: usize = 32;
/// How long a key may fail before it is told at warn.
const QUIET: Duration = Duration::from_secs(5);
/// Longest duration of one reconcile; what is left undone is done by the next.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(30);

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
    let scale = |cx: Arc<Context>, key: Key, lane: Lane| async move {
        match lane {
            Lane::Urgent => {
                kpa::hurry(&cx, &key).await?;
                cx.queues.autoscalers.add(key, Lane::Normal);
                Ok(())
            }
            Lane::Normal | Lane::Slow => kpa::reconcile(&cx, &key).await,
        }
    };
    for only in iter::repeat_n(Some(Lane::Urgent), URGENT_WORKERS).chain(iter::repeat_n(None, WORKERS)) {
        let source = Source { kind: "PodAutoscaler", queue: cx.queues.autoscalers.clone(), only };
        tasks.spawn(worker(source, cx.clone(), shutdown.clone(), scale));
    }
    for _ in 0..WORKERS {
        let work = |cx: Arc<Context>, key: Key, _| async move { metric::reconcile(&cx, &key).await };
        let source = Source { kind: "Metric", queue: cx.queues.metrics.clone(), only: None };
        tasks.spawn(worker(source, cx.clone(), shutdown.clone(), work));
        if cx.options.mode == Mode::Standalone {
            let work = |cx: Arc<Context>, key: Key, _| async move { serverless::reconcile(&cx, &key).await };
            let source = Source { kind: "ServerlessService", queue: cx.queues.serverless.clone(), only: None };
            tasks.spawn(worker(source, cx.clone(), shutdown.clone(), work));
        }
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

fn context(wiring: Wiring, shutdown: &CancellationToken) -> Context {
    let Wiring { options, client, resolver, ports, clock, metrics: _, autoscaler_config, deployment_config } = wiring;
    let queues = Queues::default();
    let rules = (options.mode, options.hpa);
    let world = World::new(client.clone(), rules, &options.system_namespace, queues.clone(), shutdown.clone());
    let probed = queues.autoscalers.clone();
    let prober = Prober::new(resolver, shutdown.clone(), move |key| probed.add(key.clone(), Lane::Normal));
    let engine =
        (options.hpa == Hpa::Engine).then(|| Engine::new(client.clone(), clock.clone(), ports.attention.clone()));
    let turns = Turns::new(options.api_rate.unwrap_or(api_rate::default(options.mode)));
    let recorder = Recorder::in_turn(client.clone(), turns.clone(), shutdown.clone());
    Context {
        engine,
        client,
        options,
        world,
        queues,
        ports,
        prober,
        turns,
        recorder,
        clock,
        autoscaler_config,
        deployment_config,
        accepted: Sound::default(),
        contests: DashMap::new(),
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

/// Where a worker gets its keys.
struct Source {
    kind: &'static str,
    queue: Queue<Key>,
    /// The one lane that it serves; all, the fastest first, if there is none.
    only: Option<Lane>,
}

async fn worker<F, W>(source: Source, cx: Arc<Context>, shutdown: CancellationToken, work: W)
where
    W: Fn(Arc<Context>, Key, Lane) -> F,
    F: Future<Output = Result<(), Error>>,
{
    let Source { kind, queue, only } = source;
    loop {
        // What is under way is never cut off: only the wait for the next key ends with the process.
        let item = tokio::select! {
            item = queue.next_in(only) => item,
            () = shutdown.cancelled() => return,
        };
        let pass = AssertUnwindSafe(work(cx.clone(), item.key().clone(), item.lane())).catch_unwind();
        match tokio::time::timeout(RECONCILE_TIMEOUT, pass).await {
            Ok(Ok(Ok(()))) => drop(item),
            Ok(Ok(Err(error))) => {
                // What goes wrong for a moment is no news: objects of one manifest come and go in any order.
                let is_brief = item.failing_for() < QUIET;
                if is_brief || error.is_conflict() || error.is_early() || error.is_told() {
                    tracing::debug!(kind, key = %item.key(), %error, "will be tried again");
                } else {
                    tracing::warn!(kind, key = %item.key(), %error, "could not be reconciled; will be tried again");
                }
                item.retry();
            }
            Ok(Err(_)) => {
                tracing::error!(kind, key = %item.key(), "a reconcile has panicked; will be tried again");
                item.retry();
            }
            Err(_) => {
                let seconds = RECONCILE_TIMEOUT.as_secs();
                tracing::warn!(kind, key = %item.key(), seconds, "a reconcile took too long; will be tried again");
                item.retry();
            }
        }
    }
}
