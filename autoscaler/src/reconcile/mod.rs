//! Reconcilers: the workloads of a front end, and the front end's own controllers.
//!
//! ```text
//! front end's watches ─▶ index ─▶ queue ─▶ workers ─▶ engine ─▶ /scale; path, status: the front end
//! targets ─▶ stores ──────┘        ▲ │
//! decisions, pods ─▶ requests ─────┘ └──────────────▶ the front end's own
//! ```
//!
//! Each controller has one [work queue](common_controller::WorkQueue), fed by watches and by requests of decisions,
//! measurements and pods ([`crate::scale::Requests`]), and a few workers. Only the owner of a workload acts on it, and
//! checks its lease before each write. The controllers share [`Parts`], and each keeps those that it uses.
//!
//! # Priorities
//!
//! A decision is an urgent key. Its reconcile only scales ([`Controller::scale_only`]) and leaves the rest to one of
//! normal priority. Some workers serve only urgent keys, and writes that wake a sleeping service are sent before all
//! others ([`common_controller::WriteLimiter`]). So no request waits for other writes, not even for those of an earlier
//! reconcile of the same workload.
//!
//! A failed reconcile is retried after a back-off. A panic is logged and retried likewise, so no object can stop the
//! others.

#[cfg(test)]
mod tests;

use crate::cluster::error::Error;
use crate::engine::Controller;
use crate::engine::front_end::FrontEnd;
use crate::engine::parts::Parts;
use common::RevisionKey as Key;
use common_api::ZeroScaler;
use common_api::zeroscaler::ZeroScalerStatus;
use common_controller::{Priority, WorkQueue, Workers};
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Workers for each controller. A worker mostly waits for the API server or the write limiter, so there are many more
/// than cores.
const WORKERS: usize = 16;
/// Workers reserved for urgent keys: at least this many workloads can be scaled at the same time.
const URGENT_WORKERS: usize = 32;

pub(crate) trait Watches: Send + Sync + 'static {
    /// Starts to fill the stores of `parts` and the front end's own stores, until shutdown. Waits until each kind has
    /// been listed once, and prepares targets as soon as the named targets are known.
    fn follow<'a>(&'a self, parts: &'a Parts) -> BoxFuture<'a, ()>;
}

/// All objects that request a scale, for display.
pub(crate) trait Objects: Send + Sync + 'static {
    /// Returns all known keys, whichever process owns them.
    fn keys(&self) -> Vec<Key>;

    /// Returns a number that changes with the object; none: it does not exist.
    fn version(&self, key: &Key) -> Option<u64>;

    /// Returns the present state of an object.
    fn view(&self, key: &Key) -> Option<ObjectView>;
}

/// State of an object, for display.
#[derive(Clone, Debug)]
pub(crate) struct ObjectView {
    pub(crate) object: Arc<ZeroScaler>,
    /// Its status: the next one to be written, if this process owns it; else the last written one.
    pub(crate) status: ZeroScalerStatus,
    /// Time at which its state (awake, asleep or in transition) began, RFC 3339.
    pub(crate) since: Option<String>,
}

/// All reconcilers of a process, as built by its front end.
pub(crate) struct Reconcilers {
    parts: Parts,
    watches: Arc<dyn Watches>,
    workers: Vec<BoxFuture<'static, ()>>,
    /// Objects for display, if there are any.
    pub(crate) displayed: Option<Arc<dyn Objects>>,
}

impl Reconcilers {
    /// Creates reconcilers from `parts` for objects of `kind`, which `front_end` reads and `watches` follow.
    pub(crate) fn new(
        parts: Parts,
        watches: Arc<dyn Watches>,
        kind: &'static str,
        front_end: Arc<impl FrontEnd>,
    ) -> Self {
        let (engine, queue) = (Arc::new(Controller::new(&parts, front_end)), parts.writes.decisions.clone());
        let mut all = Self { parts, watches, workers: Vec::new(), displayed: None };
        let scale = move |key, priority| {
            let engine = engine.clone();
            async move { engine.work(key, priority).await }
        };
        let urgent = Workers { kind, queue: queue.clone(), only: Some(Priority::Urgent) };
        all.add(URGENT_WORKERS, urgent, scale.clone());
        all.add(WORKERS, Workers { kind, queue, only: None }, scale);
        all
    }

    /// Adds a controller that only one front end has. `kind` names its objects in the log.
    pub(crate) fn with<C, R>(
        mut self,
        kind: &'static str,
        queue: WorkQueue<Key>,
        controller: C,
        reconcile: impl Fn(Arc<C>, Key) -> R + Clone + Send + Sync + 'static,
    ) -> Self
    where
        C: Send + Sync + 'static,
        R: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let controller = Arc::new(controller);
        let pass = move |key, _| reconcile(controller.clone(), key);
        self.add(WORKERS, Workers { kind, queue, only: None }, pass);
        self
    }

    fn add<R>(
        &mut self,
        count: usize,
        workers: Workers<Key>,
        pass: impl Fn(Key, Priority) -> R + Clone + Send + Sync + 'static,
    ) where
        R: Future<Output = Result<(), Error>> + Send + 'static,
    {
        for _ in 0..count {
            self.workers.push(Box::pin(workers.clone().work(self.parts.shutdown.clone(), pass.clone())));
        }
    }

    /// Reconciles until shutdown, then until running reconciles have ended. The only consumer of the request queue.
    /// `listed` is cancelled as soon as all objects have been listed once, or at shutdown.
    pub(crate) async fn run(self, listed: &CancellationToken) {
        let Self { parts, watches, workers, displayed: _ } = self;
        parts.shutdown.run_until_cancelled(watches.follow(&parts)).await;
        listed.cancel();
        let mut tasks: JoinSet<()> = workers.into_iter().collect();
        tasks.spawn(follow_requests(parts.clone()));
        tasks.spawn(reconcile_all(parts));
        while tasks.join_next().await.is_some() {}
    }
}

/// Forwards the requests of decisions and pods to the reconcilers.
async fn follow_requests(parts: Parts) {
    while let Some(item) = parts.shutdown.run_until_cancelled(parts.ports.requests.next()).await {
        parts.stores.index.reconcile_now(item.key());
        drop(item);
        tokio::task::yield_now().await; // Gives other tasks a turn, however many requests there are.
    }
}

/// Requeues everything when configuration or ownership changes.
async fn reconcile_all(parts: Parts) {
    let (mut autoscaler, mut deployment) = (parts.configs.autoscaler.clone(), parts.configs.deployment.clone());
    let mut leadership = parts.ports.leadership.changes();
    loop {
        tokio::select! {
            Ok(()) = autoscaler.changed() => {}
            Ok(()) = deployment.changed() => {}
            Ok(()) = leadership.changed() => {}
            () = parts.shutdown.cancelled() => return,
        }
        parts.stores.index.reconcile_all();
    }
}
