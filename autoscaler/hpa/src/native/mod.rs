//! The HorizontalPodAutoscaler controller in place of Kubernetes' own: one pass over each object every sync period.
//!
//! Kubernetes' own is to be switched off (`--controllers=*,-horizontal-pod-autoscaler-controller` of its controller
//! manager); as long as it is not, nothing is done here ([`foreign_manager`]).
//!
//! # Cadence
//!
//! An object's key is queued one sync period after the object appears or changes, and again one period after each pass,
//! however that went: no back-off, no jitter, no hurry after an edit. A second request for a queued key can only make
//! it earlier. One object is in the hands of one worker at most.
//!
//! # Memory
//!
//! Recommendations and changes of an object are kept from one pass to the next, under its UID: an object that was
//! deleted and made again starts afresh, where upstream's may inherit. A restart forgets them, and so does a time in
//! which another process or manager acts on the object. Selectors are known of all objects, so that no two act on the
//! same pods; hence one process does all the work, and others stand by. One that leads no more says nothing of any
//! object: its series and explanations end.
//!
//! # Where we differ from upstream
//!
//! - Nothing is done where another manager writes the status ([`foreign_manager`]); said once in the log, in
//!   `zeroscale_hpa_foreign_manager`, and in the explanation.
//! - `desired_replicas` and the history go when the object goes, or the lease; the former also where another manager
//!   writes the status.
//! - Where the API server throttles (429 or 5xx with Retry-After), the scale's write is repeated as upstream's is, but
//!   within 10 s. A read that is to wait for longer than a second, and the status's write, wait for the next pass;
//!   upstream repeats these as well.
//! - An event about a failure is not written again within five minutes while its text is the same; upstream's recorder
//!   counts equal ones together.
//! - A pass that panics is counted and comes again after a period, and takes no worker with it.

mod controller;
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

/// What the controller runs with.
#[derive(Clone)]
pub struct Wiring {
    /// The API server.
    pub client: Client,
    /// Flags.
    pub options: ControllerOptions,
    /// Whether this process is the one that acts.
    pub leadership: Arc<dyn Leadership>,
    /// Cancelled as soon as all objects and pods have been listed once: until then nothing can be done as a leader.
    pub listed: CancellationToken,
    /// Where to register metrics.
    pub metrics: Metrics,
    /// Where passes are told.
    pub explanations: Arc<Explanations>,
    /// Wall-clock time.
    pub clock: Clock,
}

impl Wiring {
    /// For a process that is alone, and keeps metrics and explanations to itself.
    pub fn alone(client: Client, options: ControllerOptions) -> Self {
        let (listed, metrics, explanations) = (CancellationToken::new(), Metrics::default(), Arc::default());
        Self { client, options, leadership: Arc::new(Alone), listed, metrics, explanations, clock: Clock::system() }
    }
}

/// Runs until `shutdown`, and then until what is under way has come to its end.
pub async fn run(wiring: Wiring, shutdown: CancellationToken) {
    let (workers, listed) = (wiring.options.concurrent_syncs, wiring.listed.clone());
    let controller = Arc::new(Controller::new(wiring));
    if !controller.follow(&shutdown).await {
        return;
    }
    listed.cancel();
    let mut tasks = JoinSet::new();
    tasks.spawn(follow_leadership(controller.clone(), shutdown.clone()));
    for _ in 0..workers {
        tasks.spawn(work(controller.clone(), shutdown.clone()));
    }
    while tasks.join_next().await.is_some() {}
}

/// Gives up what was lost as soon as leadership changes.
async fn follow_leadership(controller: Arc<Controller>, shutdown: CancellationToken) {
    let mut changes = controller.leadership.changes();
    while let Some(Ok(())) = shutdown.run_until_cancelled(changes.changed()).await {
        controller.look_at_lost();
    }
}

async fn work(controller: Arc<Controller>, shutdown: CancellationToken) {
    loop {
        // What is under way is never cut off: only the wait for the next key ends with the process.
        let item = tokio::select! {
            item = controller.queue.next() => item,
            () = shutdown.cancelled() => return,
        };
        let pass = AssertUnwindSafe(controller.reconcile(item.key())).catch_unwind();
        let again = pass.await.unwrap_or_else(|_| {
            tracing::error!(hpa = %item.key(), "a pass has panicked; will be tried again");
            controller.series.panicked();
            true
        });
        if again {
            controller.queue.add_after(item.key().clone(), controller.options.sync_period);
        }
        drop(item);
        tokio::task::yield_now().await; // A pass need not have waited, and others have waited for it.
    }
}
