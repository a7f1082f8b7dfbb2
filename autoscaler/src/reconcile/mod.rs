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
//! checks its lease before each write. The controllers share [`Parts`], and each holds those of them that it uses.
//!
//! # Priorities
//!
//! A decision is an urgent key. Its reconcile only scales ([`Controller::scale_only`]) and leaves the rest to one of normal
//! priority. Some workers serve only urgent keys, and writes that wake a sleeping service are sent before all others
//! ([`common_controller::WriteLimiter`]). So no request waits for other writes, not even for those of an earlier
//! reconcile of the same workload.
//!
//! A failed reconcile is retried after a back-off. A panic is logged and retried likewise, so no object can stop the
//! others.

pub(crate) mod display;

#[cfg(test)]
mod tests;

use crate::cluster::error::Error;
use crate::cluster::watches::Watches;
use crate::engine::Controller;
use crate::engine::front_end::FrontEnd;
use crate::engine::parts::Parts;
use common::RevisionKey as Key;
use common_controller::{Priority, WorkQueue, Workers};
use display::Objects;
use futures::future::BoxFuture;
use std::iter;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Workers for each controller. A worker mostly waits for the API server or the write limiter, so there are many more
/// than cores.
const WORKERS: usize = 16;
/// Workers that only scale: the number of services that can wake at the same time.
const URGENT_WORKERS: usize = 32;

/// Controller that only one front end has.
pub(crate) struct OwnController {
    /// Kind of its objects, for the log.
    pub(crate) kind: &'static str,
    pub(crate) queue: WorkQueue<Key>,
    pub(crate) pass: Pass,
}

/// Reconcile of the object with a key.
pub(crate) type Pass = Arc<dyn Fn(Key, Priority) -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

/// Wraps a controller as a `Pass`.
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

/// All reconcilers of a process, as built by its front end.
pub(crate) struct Reconcilers {
    parts: Parts,
    watches: Arc<dyn Watches>,
    /// Kind of the objects that request a scale.
    kind: &'static str,
    scale: Pass,
    own: Vec<OwnController>,
    shown: Option<Arc<dyn Objects>>,
}

impl Reconcilers {
    /// Creates reconcilers from `parts` for objects of `kind`, which `front_end` reads and `watches` follow, and `own`
    /// controllers.
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

    /// Adds the objects for display.
    pub(crate) fn showing(self, objects: Arc<dyn Objects>) -> Self {
        Self { shown: Some(objects), ..self }
    }

    /// Returns the objects for display, if there are any.
    pub(crate) fn displayed_objects(&self) -> Option<Arc<dyn Objects>> {
        self.shown.clone()
    }

    /// Reconciles until `shutdown`, then until running reconciles have ended. The only consumer of the request queue.
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

/// Forwards the requests of decisions and pods to the reconcilers.
async fn follow_requests(parts: Arc<Parts>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            item = parts.ports.requests.next() => parts.stores.index.reconcile_now(item.key()),
            () = shutdown.cancelled() => return,
        }
        tokio::task::yield_now().await; // Gives other tasks a turn, however many requests there are.
    }
}

/// Requeues everything when configuration or ownership changes.
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

/// Waits for a change; for ever, if the sender is gone.
async fn changed<T>(value: &mut watch::Receiver<T>) {
    if value.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
