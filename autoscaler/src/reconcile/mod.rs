//! Reconcilers: the workloads of a front end, and what it looks at besides.
//!
//! ```text
//! front end's watches ─▶ index ─▶ queue ─▶ workers ─▶ engine ─▶ /scale; path, status: the front end
//! targets ─▶ stores ──────┘        ▲ │
//! decisions, pods ─▶ requests ─────┘ └──────────────▶ the front end's own
//! ```
//!
//! Each controller has one [work queue](common_controller::WorkQueue), fed by watches and by requests of decisions,
//! measurements and pods ([`crate::scale::Requests`]), and a few workers. Only the leader of a workload acts on it, and it
//! looks at its lease before each write. The controllers share [`Parts`], and each holds those of them that it uses.
//!
//! # What goes first
//!
//! A decision is an urgent key, whose passes only scale ([`Controller::hurry`]) and leave all else to a pass with
//! normal priority. Some workers serve nothing but urgent keys, and of all writes those that wake a sleeping service are
//! sent first ([`common_controller::WriteLimiter`]): whatever else there is to write, no request is held for it, not
//! even for what an earlier pass over the same workload still has to write.
//!
//! A reconcile that fails comes back after a back-off; one that panics is logged and comes back likewise, so no object
//! can stop the others.

pub(crate) mod shown;

#[cfg(test)]
mod tests;

use crate::cluster::error::Error;
use crate::cluster::watches::Watches;
use crate::engine::Controller;
use crate::engine::front_end::FrontEnd;
use crate::engine::parts::Parts;
use common::RevisionKey as Key;
use common_controller::{Priority, WorkQueue, Workers};
use futures::future::BoxFuture;
use shown::Objects;
use std::iter;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Workers for each controller. A worker spends its time waiting for the API server or for its turn, so many more than
/// cores.
const WORKERS: usize = 16;
/// Workers that scale and do nothing else: as many services wake at the same time.
const URGENT_WORKERS: usize = 32;

/// A controller that only one front end has.
pub(crate) struct OwnController {
    /// The kind of objects, for the log.
    pub(crate) kind: &'static str,
    pub(crate) queue: WorkQueue<Key>,
    pub(crate) pass: Pass,
}

/// One pass over the object with a key.
pub(crate) type Pass = Arc<dyn Fn(Key, Priority) -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

/// Wraps a controller into its passes.
pub(crate) fn passes<C, R>(
    controller: C,
    reconcile: impl Fn(Arc<C>, Key, Priority) -> R + Send + Sync + 'static,
) -> Pass
where
    C: Send + Sync + 'static,
    R: Future<Output = Result<(), Error>> + Send + 'static,
{
    let controller = Arc::new(controller);
    Arc::new(move |key, priority| Box::pin(reconcile(controller.clone(), key, priority)))
}

/// All reconcilers of a process, as its front end has put them together.
pub(crate) struct Reconcilers {
    parts: Parts,
    watches: Arc<dyn Watches>,
    /// Kind of the objects that ask for a scale.
    kind: &'static str,
    scale: Pass,
    own: Vec<OwnController>,
    shown: Option<Arc<dyn Objects>>,
}

impl Reconcilers {
    /// Reconcilers of `parts` for objects of `kind`, which `front_end` reads and `watches` follow, and `own` besides.
    pub(crate) fn new(
        parts: Parts,
        watches: Arc<dyn Watches>,
        (kind, front_end): (&'static str, Arc<impl FrontEnd>),
        own: Vec<OwnController>,
    ) -> Self {
        let engine = Controller::new(&parts, front_end);
        let scale = passes(engine, |engine, key, priority| async move { engine.work(key, priority).await });
        Self { parts, watches, kind, scale, own, shown: None }
    }

    /// The same, with what is shown of the objects.
    pub(crate) fn showing(self, objects: Arc<dyn Objects>) -> Self {
        Self { shown: Some(objects), ..self }
    }

    /// What is shown of the objects; none: nothing.
    pub(crate) fn shown(&self) -> Option<Arc<dyn Objects>> {
        self.shown.clone()
    }

    /// Reconciles until `shutdown`, and then until what is under way has come to its end. The one consumer of the feed.
    /// `listed` is cancelled as soon as all objects have been listed once.
    pub(crate) async fn run(self, listed: &CancellationToken, shutdown: CancellationToken) {
        let Self { parts, watches, kind, scale, own, shown: _ } = self;
        tokio::select! {
            () = watches.follow(&parts.stores, &parts.writes.client, &shutdown) => {}
            () = shutdown.cancelled() => {}
        }
        listed.cancel();
        let mut tasks = JoinSet::new();
        let scaler = |only| Workers { kind, queue: parts.writes.decisions.clone(), only };
        for _ in 0..URGENT_WORKERS {
            tasks.spawn(work(scaler(Some(Priority::Urgent)), scale.clone(), shutdown.clone()));
        }
        let own =
            own.into_iter().map(|OwnController { kind, queue, pass }| (Workers { kind, queue, only: None }, pass));
        for (workers, pass) in iter::chain([(scaler(None), scale)], own) {
            for _ in 0..WORKERS {
                tasks.spawn(work(workers.clone(), pass.clone(), shutdown.clone()));
            }
        }
        let parts = Arc::new(parts);
        tasks.spawn(follow_requests(parts.clone(), shutdown.clone()));
        tasks.spawn(reconcile_all(parts, shutdown));
        while tasks.join_next().await.is_some() {}
    }
}

async fn work(workers: Workers<Key>, pass: Pass, shutdown: CancellationToken) {
    workers.work(shutdown, move |key, priority| pass(key, priority)).await;
}

/// Hands on what decisions and pods ask for.
async fn follow_requests(parts: Arc<Parts>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            item = parts.ports.requests.next() => parts.stores.index.reconcile_now(item.key()),
            () = shutdown.cancelled() => return,
        }
        tokio::task::yield_now().await; // Others have their turns, however many there are.
    }
}

/// Looks at everything again when configuration or leadership change.
async fn reconcile_all(parts: Arc<Parts>, shutdown: CancellationToken) {
    let (mut autoscaler, mut deployment) = (parts.configs.autoscaler.clone(), parts.configs.deployment.clone());
    let mut leadership = parts.ports.leadership.changes();
    loop {
        tokio::select! {
            () = changed(&mut autoscaler) => {}
            () = changed(&mut deployment) => {}
            () = changed(&mut leadership) => {}
            () = shutdown.cancelled() => return,
        }
        parts.stores.index.reconcile_all();
    }
}

/// Waits for a change; for ever, if whoever could make one is gone.
async fn changed<T>(value: &mut watch::Receiver<T>) {
    if value.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
