//! Evaluates the metrics of revisions that request them, and blends them with the load.
//!
//! ```text
//! reconciler ── follow ──▶ one task for each revision with pods: every period, pods and metrics ─▶ Measured ── requests ──▶
//!            ── blend ───▶ autoscaler_core::engine::blend (load, Measured, memory) ─▶ recommendation
//! ```
//!
//! Only the reconciler decides: an evaluation stores its result and queues the key. A revision without pods is not
//! evaluated, because only its load can wake it, so a sleeping one costs nothing here. Results and memory are discarded
//! with the revision's loop, when the revision is gone or owned by another process.
//!
//! # Not here
//!
//! The rules (`autoscaler_core::engine`), the metrics APIs ([`hpa::sources`]), and writing.

mod evaluation;
#[cfg(test)]
pub(crate) mod tests;

use crate::scale::{Pods, Requests};
use autoscaler_core::engine::blend::{Blend, BlendedScale, Input, Measured};
use autoscaler_core::engine::plan::{PERIOD, Plan};
use common::RevisionKey as Key;
use common_runtime::clock::Clock;
use dashmap::DashMap;
use evaluation::Evaluation;
use hpa::sources::{Mapper, RestMetrics};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior as Behavior;
use kube::Client;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio_util::task::AbortOnDropHandle;

/// Evaluator of all revisions that request metrics.
pub(crate) struct Engine {
    sources: Sources,
    revisions: DashMap<Key, Revision>,
}

/// Dependencies of an evaluation.
#[derive(Clone)]
struct Sources {
    client: Client,
    metrics: Arc<RestMetrics>,
    /// Index of pods, which knows the selected pods of other workloads.
    pods: Arc<dyn Pods>,
    clock: Clock,
    requests: Requests,
}

#[derive(Default)]
struct Revision {
    state: Arc<Mutex<MeasurementState>>,
    evaluation: Option<(Subject, AbortOnDropHandle<()>)>,
}

/// Results and memory of a revision.
#[derive(Default)]
struct MeasurementState {
    blend: Blend,
    measured: Option<Measured>,
    replicas: i32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Subject {
    /// Metrics and scaling behavior.
    pub(crate) plan: Arc<Plan>,
    pub(crate) selector: String,
}

impl Engine {
    /// Creates an evaluator that queries the API server's metrics APIs.
    pub(crate) fn new(client: Client, clock: Clock, pods: Arc<dyn Pods>, requests: Requests) -> Self {
        let mapper = Arc::new(Mapper::new(client.clone()));
        let metrics = Arc::new(RestMetrics::new(client.clone(), mapper, PERIOD));
        Self { sources: Sources { client, metrics, pods, clock, requests }, revisions: DashMap::new() }
    }

    /// Evaluates `subject` from now on, while there are replicas.
    pub(crate) fn follow(&self, key: &Key, subject: Subject, replicas: i32) {
        let mut revision = self.revisions.entry(key.clone()).or_default();
        let idle = replicas <= 0 || subject.plan.metrics.is_empty();
        let same = revision.evaluation.as_ref().is_some_and(|(evaluated, _)| *evaluated == subject);
        {
            let mut state = revision.state.lock();
            state.replicas = replicas;
            if subject.plan.metrics.is_empty() {
                state.measured = Some(Measured::default()); // No metrics, so the empty result is complete.
            } else if idle || !same {
                state.measured = None;
            }
        }
        if idle {
            revision.evaluation = None;
        } else if !same {
            let new = Evaluation::new(key.clone(), subject.clone(), self.sources.clone(), revision.state.clone());
            revision.evaluation = Some((subject, AbortOnDropHandle::new(tokio::spawn(new.run()))));
        }
    }

    /// Blends everything known; `input` lacks only the measurements. Returns none for a revision that is not followed.
    pub(crate) fn blend(&self, key: &Key, input: &Input<'_>) -> Option<BlendedScale> {
        let revision = self.revisions.get(key)?;
        let state = &mut *revision.state.lock();
        Some(state.blend.combine(&Input { measured: state.measured.as_ref(), ..*input }))
    }

    /// Returns why a metric fails, if one does: a reason and a message for the status.
    pub(crate) fn failure(&self, key: &Key) -> Option<(&'static str, String)> {
        let revision = self.revisions.get(key)?;
        let state = revision.state.lock();
        state.measured.as_ref()?.first_failure.clone()
    }

    /// Records an accepted change of replicas.
    pub(crate) fn scaled(&self, key: &Key, behavior: Option<&Behavior>, from: i32, to: i32) {
        if let Some(revision) = self.revisions.get(key) {
            revision.state.lock().blend.scaled(behavior, from, to, self.sources.clock.now());
        }
    }

    /// Stops the evaluation and discards its results. Ignores unknown keys.
    pub(crate) fn forget(&self, key: &Key) {
        self.revisions.remove(key);
    }
}
