//! Statuses and events of Knative's PodAutoscalers as they are written: those of one way merged into one.
//!
//! While a revision wakes or is scaled, each pass has something new to say: pods are wanted, one is there, its Service
//! leads to it. Each status makes Knative's controller write a Revision, each event is a write of ours, and all of that
//! when the API server has pods to start. So what is new waits until the way is over, [`MERGED_WITHIN`] at most, and the
//! change of replicas is said with it.
//!
//! Whatever ends a way is written at once, and so is what somebody may wait for ([`patience`]). That a revision has
//! become inactive is such an end: its grace period counts from that write.
//!
//! Nothing is lost: a pass makes the status from what is known and from the one that was written last, so whoever comes
//! later, this process or the next leader, writes it. Until then a pass finds the revision inactive that is waking,
//! which changes no decision: only one that wants no pods asks, and none does so soon after a wake.

use crate::reconcile::records::{Scaled, Subjects};
use common::RevisionKey as Key;
use common_api::condition::Condition;
use common_api::condition::READY;
use common_api::condition_set::HasConditions;
use common_api::{PodAutoscaler, PodAutoscalerStatus};
use common_controller::{Severity, Statuses, WorkQueue, WriteError, key_of};
use dashmap::DashMap;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What is said within this time of each other is one write.
const MERGED_WITHIN: Duration = Duration::from_secs(2);

/// Writes them to the API server.
pub(crate) struct MergedStatuses {
    objects: Arc<dyn Subjects>,
    passes: WorkQueue<Key>,
    unsaid: DashMap<Key, Unsaid>,
}

/// What one has to say and has not said yet.
#[derive(Default)]
struct Unsaid {
    /// Since when its status says something new.
    since: Option<Instant>,
    scaled: Option<Scaled>,
}

impl MergedStatuses {
    /// Writes to `objects`, and has another pass made over what has waited long enough.
    pub(crate) fn new(objects: Arc<dyn Subjects>, passes: WorkQueue<Key>) -> Self {
        Self { objects, passes, unsaid: DashMap::new() }
    }

    /// How much longer a status waits that says something new and has `patience`.
    fn left(&self, key: &Key, patience: Duration) -> Duration {
        if patience.is_zero() {
            return Duration::ZERO;
        }
        let mut unsaid = self.unsaid.entry(key.clone()).or_default();
        patience.saturating_sub(unsaid.since.get_or_insert_with(Instant::now).elapsed())
    }
}

impl Statuses<PodAutoscaler> for MergedStatuses {
    fn write<'a>(
        &'a self,
        read: &'a Arc<PodAutoscaler>,
        status: PodAutoscalerStatus,
    ) -> BoxFuture<'a, Result<(), WriteError>> {
        let key = key_of(&**read);
        let left = self.left(&key, patience(read.status.as_ref(), &status));
        if !left.is_zero() {
            self.passes.add_after(key, left);
            return ready(Ok(())).boxed();
        }
        async move {
            self.objects.write(read, status).await?;
            let unsaid = self.unsaid.remove(&key).map(|(_, unsaid)| unsaid);
            if let Some(scaled) = unsaid.and_then(|unsaid| unsaid.scaled) {
                self.objects.scaled(read, scaled);
            }
            Ok(())
        }
        .boxed()
    }

    fn complain(&self, object: &PodAutoscaler, reason: &str, message: String) {
        self.objects.complain(object, reason, message);
    }
}

impl Subjects for MergedStatuses {
    fn say(&self, object: &PodAutoscaler, severity: Severity, reason: &str, message: String) {
        self.objects.say(object, severity, reason, message);
    }

    /// Is said with the status.
    fn scaled(&self, object: &PodAutoscaler, scaled: Scaled) {
        let mut unsaid = self.unsaid.entry(key_of(object)).or_default();
        let from = unsaid.scaled.as_ref().map_or(scaled.from, |earlier| earlier.from);
        unsaid.scaled = Some(Scaled { from, ..scaled });
    }

    fn merge<'a>(
        &'a self,
        object: &'a Arc<PodAutoscaler>,
        patch: Value,
        doing: &'a str,
    ) -> BoxFuture<'a, Result<Arc<PodAutoscaler>, WriteError>> {
        self.objects.merge(object, patch, doing)
    }

    fn forget(&self, revision: &Key) {
        self.unsaid.remove(revision);
    }
}

/// How long `wanted` may wait, where `written` was written last.
fn patience(written: Option<&PodAutoscalerStatus>, wanted: &PodAutoscalerStatus) -> Duration {
    let Some(written) = written else { return Duration::ZERO };
    let fixed = |status: &PodAutoscalerStatus| {
        (status.observed_generation, status.service_name.clone(), status.metrics_service_name.clone())
    };
    if written == wanted || fixed(written) != fixed(wanted) {
        return Duration::ZERO; // Nothing new, or something that Knative's controller goes on with.
    }
    let ready = wanted.condition(READY);
    let is_on_its_way = ready.is_none_or(Condition::is_unknown);
    let says = |status: &PodAutoscalerStatus| {
        let said = status.conditions.iter().map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone()));
        said.collect::<Vec<_>>()
    };
    let pods_are = says(written) == says(wanted) && wanted.actual_scale != wanted.desired_scale;
    if is_on_its_way || pods_are { MERGED_WITHIN } else { Duration::ZERO }
}
