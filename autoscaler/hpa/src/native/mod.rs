//! HorizontalPodAutoscaler controller that replaces Kubernetes' own: it reconciles each object once every sync period.
//!
//! Kubernetes' own controller must be disabled (`--controllers=*,-horizontal-pod-autoscaler-controller` of its
//! controller manager). While it is active, this controller does nothing ([`foreign_manager`]).
//!
//! # Cadence
//!
//! An object's key is queued one sync period after the object appears or changes, and one period after each reconcile,
//! whatever its result: no backoff, no jitter, no speed-up after an edit. A second request for a queued key can only
//! make it earlier. At most one worker handles an object at a time.
//!
//! # Memory
//!
//! Recommendations and changes of an object are kept between reconciles under its UID. An object that was deleted and
//! created again starts without them; upstream's may inherit them. They are lost at a restart, and dropped while
//! another process or manager acts on the object.
//!
//! The selectors of all objects must be known, so that no two act on the same pods. Therefore one process does all the
//! work, and others stand by. A process that loses the lead ends its metrics and explanations of all objects.
//!
//! # Differences from upstream
//!
//! - Nothing is done if another manager writes the status ([`foreign_manager`]). This is reported once in the log, in
//!   `zeroscale_hpa_foreign_manager`, and in the explanation.
//! - `desired_replicas` and the history end with the object or the lease; the former also if another manager writes the
//!   status.
//! - If the API server throttles (429 or 5xx with Retry-After), a write waits for the next reconcile, and so does a
//!   read with a delay of more than a second; upstream repeats them after the delay.
//! - An event about a failure is not repeated within five minutes while its text is the same; upstream's recorder
//!   counts equal events.
//! - A reconcile that panics is counted and repeated after a period. Its worker continues.

mod controller;
mod evaluate;
mod foreign_manager;
mod series;
#[cfg(test)]
mod tests;

use super::explain::Explanations;
use super::options::ControllerOptions;
use common_controller::{Alone, Leadership};
use common_runtime::clock::Clock;
use common_runtime::telemetry::Metrics;
use controller::Controller;
use futures::FutureExt;
use kube::Client;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Dependencies of the controller.
#[derive(Clone)]
pub struct Wiring {
    /// Client of the API server.
    pub client: Client,
    /// Options from flags.
    pub options: ControllerOptions,
    /// Decides whether this process acts.
    pub leadership: Arc<dyn Leadership>,
    /// Cancelled once all objects and pods have been listed: until then a leader could do nothing.
    pub listed: CancellationToken,
    /// Registry of metrics.
    pub metrics: Metrics,
    /// Destination of the explanations.
    pub explanations: Arc<Explanations>,
    /// Wall clock.
    pub clock: Clock,
}

impl Wiring {
    /// Builds the dependencies of a single process with private metrics and explanations.
    pub fn alone(client: Client, options: ControllerOptions) -> Self {
        let (listed, metrics, explanations) = (CancellationToken::new(), Metrics::default(), Arc::default());
        Self { client, options, leadership: Arc::new(Alone), listed, metrics, explanations, clock: Clock::system() }
    }
}

/// Runs until `shutdown`, and then until all reconciles in flight have ended.
pub async fn run(wiring: Wiring, shutdown: CancellationToken) {
    let controller = Arc::new(Controller::new(wiring));
    if !controller.follow(&shutdown).await {
        return;
    }
    controller.wiring.listed.cancel();
    let mut tasks = JoinSet::new();
    tasks.spawn(follow_leadership(controller.clone(), shutdown.clone()));
    for _ in 0..controller.wiring.options.concurrent_syncs.get() {
        tasks.spawn(work(controller.clone(), shutdown.clone()));
    }
    while tasks.join_next().await.is_some() {}
}

/// Drops the state of lost objects when leadership changes.
async fn follow_leadership(controller: Arc<Controller>, shutdown: CancellationToken) {
    let mut changes = controller.wiring.leadership.changes();
    while let Some(Ok(())) = shutdown.run_until_cancelled(changes.changed()).await {
        controller.queue_lost();
    }
}

async fn work(controller: Arc<Controller>, shutdown: CancellationToken) {
    // A reconcile in flight is never cut off: only the wait for the next key ends at shutdown.
    while let Some(item) = shutdown.run_until_cancelled(controller.queue.next()).await {
        let pass = AssertUnwindSafe(controller.reconcile(item.key())).catch_unwind();
        let again = pass.await.unwrap_or_else(|_| {
            tracing::error!(hpa = %item.key(), "a reconcile has panicked and will be repeated");
            controller.series.panics.inc();
            true
        });
        if again {
            controller.queue.add_after(item.key().clone(), controller.wiring.options.sync_period);
        }
        drop(item);
        tokio::task::yield_now().await; // A reconcile may complete without waiting, so other tasks get a turn here.
    }
}
