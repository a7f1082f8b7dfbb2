//! Looks at the metrics of revisions that ask for it, and makes one wish of metrics and load.
//!
//! ```text
//! reconciler ── follow ──▶ one task for each revision with pods: every period, pods and metrics ─▶ Measured ── requests ──▶
//!            ── answer ──▶ autoscaler_core::engine::blend (load, Measured, memory) ─▶ wish
//! ```
//!
//! The reconciler owns the pace of decisions: a look only leaves its findings and puts the key on the feed. Nothing is
//! looked at while a revision has no pods, since its load alone can wake it, so a sleeping one costs nothing here. What
//! was found and remembered goes with the revision's loop, when it is gone or somebody else's.
//!
//! # Not here
//!
//! The rules (`autoscaler_core::engine`), the metrics APIs ([`hpa::sources`]), and writing.

mod look;
#[cfg(test)]
mod tests;

use crate::scale::{Pods, Requests};
use autoscaler_core::engine::blend::{Answer, Blend, Input, Measured};
use autoscaler_core::engine::plan::{PERIOD, Plan};
use common::RevisionKey as Key;
use common_runtime::clock::Clock;
use dashmap::DashMap;
use hpa::sources::{Mapper, MetricSource, RestMetrics};
use hpa_core::spec::Behavior;
use kube::Client;
use look::Look;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio_util::task::AbortOnDropHandle;

/// All revisions that ask for metrics.
pub(crate) struct Engine {
    sources: Sources,
    revisions: DashMap<Key, Revision>,
}

/// What looks are made with.
#[derive(Clone)]
struct Sources {
    client: Client,
    metrics: Arc<dyn MetricSource>,
    /// Knows which pods with the same labels belong to other workloads.
    pods: Arc<dyn Pods>,
    clock: Clock,
    requests: Requests,
}

/// One revision.
#[derive(Default)]
struct Revision {
    state: Arc<Mutex<State>>,
    looking: Option<Looking>,
}

/// What is known of it.
#[derive(Default)]
struct State {
    blend: Blend,
    measured: Option<Measured>,
    /// Replicas of its target.
    replicas: i32,
}

/// A task that looks, and at what.
struct Looking {
    subject: Subject,
    _task: AbortOnDropHandle<()>,
}

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// Metrics and behavior.
    pub(crate) plan: Arc<Plan>,
    /// The target's pods, as a selector.
    pub(crate) selector: String,
}

impl Engine {
    /// Asks the API server's metrics APIs.
    pub(crate) fn new(client: Client, clock: Clock, pods: Arc<dyn Pods>, requests: Requests) -> Self {
        let mapper = Arc::new(Mapper::new(client.clone()));
        let metrics = Arc::new(RestMetrics::new(client.clone(), mapper, PERIOD));
        Self { sources: Sources { client, metrics, pods, clock, requests }, revisions: DashMap::new() }
    }

    /// Looks at `subject` from now on, while there are replicas.
    pub(crate) fn follow(&self, key: &Key, subject: Subject, replicas: i32) {
        let mut revision = self.revisions.entry(key.clone()).or_default();
        let idle = replicas <= 0 || subject.plan.metrics.is_empty();
        let same = revision.looking.as_ref().is_some_and(|looking| looking.subject == subject);
        {
            let mut state = revision.state.lock();
            state.replicas = replicas;
            if subject.plan.metrics.is_empty() {
                state.measured = Some(Measured::default()); // Nothing is all there is to find.
            } else if idle || !same {
                state.measured = None;
            }
        }
        if idle {
            revision.looking = None;
        } else if !same {
            let look = Look::new(key.clone(), subject.clone(), self.sources.clone(), revision.state.clone());
            let _task = AbortOnDropHandle::new(tokio::spawn(look.run()));
            revision.looking = Some(Looking { subject, _task });
        }
    }

    /// One wish of all that is known; `input` lacks only what was measured. None for a revision that is not followed.
    pub(crate) fn answer(&self, key: &Key, input: &Input<'_>) -> Option<Answer> {
        let revision = self.revisions.get(key)?;
        let state = &mut *revision.state.lock();
        Some(state.blend.answer(&Input { measured: state.measured.as_ref(), ..*input }))
    }

    /// Why a metric fails, if one does: a reason and words for the status.
    pub(crate) fn failure(&self, key: &Key) -> Option<(&'static str, String)> {
        let revision = self.revisions.get(key)?;
        let state = revision.state.lock();
        state.measured.as_ref()?.why.clone()
    }

    /// Replicas were changed, and the API server has agreed.
    pub(crate) fn scaled(&self, key: &Key, behavior: Option<&Behavior>, from: i32, to: i32) {
        if let Some(revision) = self.revisions.get(key) {
            revision.state.lock().blend.scaled(behavior, from, to, self.sources.clock.now());
        }
    }

    /// Looks no more, and forgets what was found. Unknown keys are ignored.
    pub(crate) fn forget(&self, key: &Key) {
        self.revisions.remove(key);
    }
}
