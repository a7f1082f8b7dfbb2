//! Writes statuses and events of Knative's PodAutoscalers, with one status for each change of the scale.
//!
//! While a revision wakes or scales, each reconcile has a new state to report: pods are wanted, one is ready, its
//! Service leads to it. Each status makes Knative's controller write a Revision, and each event is one more write,
//! just when the API server has pods to start. A new status is therefore delayed until the transition is over, at most
//! by [`MERGED_WITHIN`], and the event about replicas is written with it.
//!
//! The status that ends a wake waits likewise if other wakes are in progress. If fifty services are called at once,
//! the API server and Knative's controller first handle their starts. All other final states are written at once, and
//! so is everything that a user or controller may wait for ([`status_delay`]). A status that reports a revision
//! inactive is written at once because the grace period counts from that write.
//!
//! Nothing is lost. A reconcile derives the status from the present state and the last written status, so a later
//! reconcile, of this process or the next owner, writes it. Until then the last written status of a waking revision
//! still says inactive. This changes no decision, because only a decision for zero pods uses it, and none follows so
//! soon after a wake.

use crate::engine::scaler::Scaled;
use common::RevisionKey as Key;
use common_api::condition::Condition;
use common_api::condition::READY;
use common_api::condition_set::HasConditions;
use common_api::podautoscaler_status::ACTIVE;
use common_api::{PodAutoscaler, PodAutoscalerStatus};
use common_controller::{Severity, Statuses, WorkQueue, WriteError, Written, key_of};
use dashmap::DashMap;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time within which new statuses are merged into one write.
pub(crate) const MERGED_WITHIN: Duration = Duration::from_secs(2);

/// Component name of PodAutoscalers' events.
pub(super) const COMPONENT: &str = "podautoscaler-controller";

/// Writer of the status of one reconcile, which may be delayed, and of the event about replicas with it.
pub(super) struct MergedStatus<'a> {
    pub(super) written: Written<'a, PodAutoscaler>,
    pub(super) delays: &'a StatusDelays,
}

impl Statuses<PodAutoscaler> for MergedStatus<'_> {
    fn write<'a>(
        &'a self,
        read: &'a Arc<PodAutoscaler>,
        status: PodAutoscalerStatus,
    ) -> BoxFuture<'a, Result<(), WriteError>> {
        async move {
            if self.delays.must_wait(read, &status) {
                return Ok(());
            }
            self.written.write(read, status).await?;
            if let Some(scaled) = self.delays.take_scaled(&key_of(&**read)) {
                let (recorder, text) = (self.written.recorder, scaled.to_string());
                recorder.record(COMPONENT, &**read, Severity::Normal, Scaled::REASON, text);
            }
            Ok(())
        }
        .boxed()
    }

    fn report_error(&self, object: &PodAutoscaler, reason: &str, message: String) {
        self.written.report_error(object, reason, message);
    }
}

/// Delays of statuses, and the unreported changes of replicas.
pub(crate) struct StatusDelays {
    passes: WorkQueue<Key>,
    merged_within: Duration,
    unreported: DashMap<Key, Unreported>,
    /// Start time of each wake in progress.
    wakes: DashMap<Key, Instant>,
}

/// Permitted delay of a new status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusDelay {
    /// No delay.
    None,
    /// While other revisions wake.
    OthersWake,
    /// Until the revision's own transition is over.
    InTransition,
}

/// Unreported changes of one object.
#[derive(Default)]
struct Unreported {
    /// Time at which its status began to differ from the written one.
    since: Option<Instant>,
    scaled: Option<Scaled>,
}

impl StatusDelays {
    /// Creates an empty set. Statuses that have waited for `merged_within` are requeued in `passes`.
    pub(crate) fn new(passes: WorkQueue<Key>, merged_within: Duration) -> Self {
        Self { passes, merged_within, unreported: DashMap::new(), wakes: DashMap::new() }
    }

    /// Records a change of replicas, which is reported with the next status.
    pub(super) fn scaled(&self, object: &PodAutoscaler, scaled: Scaled) {
        match (scaled.from, scaled.to) {
            (0, 1..) => drop(self.wakes.insert(key_of(object), Instant::now())),
            (_, 0) => drop(self.wakes.remove(&key_of(object))),
            _ => {}
        }
        let mut unreported = self.unreported.entry(key_of(object)).or_default();
        unreported.scaled = Some(scaled.after(unreported.scaled.as_ref()));
    }

    /// Returns whether a new status must wait. It is then requeued for the end of its delay.
    fn must_wait(&self, read: &PodAutoscaler, status: &PodAutoscalerStatus) -> bool {
        let key = key_of(read);
        if status.condition(ACTIVE).is_some_and(Condition::is_true) {
            self.wakes.remove(&key);
        }
        let left = self.left(&key, status_delay(read.status.as_ref(), status));
        if !left.is_zero() {
            self.passes.add_after(key, left);
        }
        !left.is_zero()
    }

    /// Returns the change of replicas to report with a status that was written.
    fn take_scaled(&self, key: &Key) -> Option<Scaled> {
        self.unreported.remove(key)?.1.scaled
    }

    /// Discards the unreported changes of an object that is gone or owned by another process.
    pub(super) fn forget(&self, key: &Key) {
        self.unreported.remove(key);
        self.wakes.remove(key);
    }

    /// Returns the remaining delay of a new status with this delay.
    fn left(&self, key: &Key, status_delay: StatusDelay) -> Duration {
        if status_delay == StatusDelay::None || self.merged_within.is_zero() {
            return Duration::ZERO;
        }
        let since = *self.unreported.entry(key.clone()).or_default().since.get_or_insert_with(Instant::now);
        let left = self.merged_within.saturating_sub(since.elapsed());
        if status_delay != StatusDelay::OthersWake {
            return left;
        }
        self.wakes.retain(|_, begun| begun.elapsed() < MERGED_WITHIN);
        let wakes = self.wakes.iter().map(|begun| MERGED_WITHIN.saturating_sub(begun.elapsed()));
        left.min(wakes.max().unwrap_or_default())
    }
}

/// Returns the permitted delay of `wanted`, if `written` is the last written status.
fn status_delay(written: Option<&PodAutoscalerStatus>, wanted: &PodAutoscalerStatus) -> StatusDelay {
    let Some(written) = written else { return StatusDelay::None };
    let fixed = |status: &PodAutoscalerStatus| {
        (status.observed_generation, status.service_name.clone(), status.metrics_service_name.clone())
    };
    if written == wanted || fixed(written) != fixed(wanted) {
        return StatusDelay::None; // Nothing new, or something that Knative's controller needs to proceed.
    }
    let ready = wanted.condition(READY);
    let is_waking = ready.is_none_or(Condition::is_unknown);
    let states = |status: &PodAutoscalerStatus| {
        let states = status.conditions.iter().map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone()));
        states.collect::<Vec<_>>()
    };
    let is_scaling = states(written) == states(wanted) && wanted.actual_scale != wanted.desired_scale;
    let is_active = |status: &PodAutoscalerStatus| status.condition(ACTIVE).is_some_and(Condition::is_true);
    match () {
        () if is_waking || is_scaling => StatusDelay::InTransition,
        () if is_active(wanted) && !is_active(written) => StatusDelay::OthersWake,
        () => StatusDelay::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(active: &str, actual: i32, desired: i32) -> PodAutoscalerStatus {
        let conditions = ["Active", "Ready"].map(|kind| json!({"type": kind, "status": active}));
        let status = json!({"conditions": conditions, "actualScale": actual, "desiredScale": desired});
        serde_json::from_value(status).expect("a status")
    }

    /// Returns a sleeping revision.
    fn asleep(name: &str) -> PodAutoscaler {
        let object = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"scaleTargetRef": {}, "protocolType": "http1"}});
        let object: PodAutoscaler = serde_json::from_value(object).expect("a PodAutoscaler");
        PodAutoscaler { status: Some(status("False", 0, 0)), ..object }
    }

    fn scaled(from: i32, to: i32) -> Scaled {
        Scaled { kind: "Deployment".into(), name: "d".into(), from, to, why: "the load asks for it".into() }
    }

    struct Fixture {
        delays: StatusDelays,
        passes: WorkQueue<Key>,
        /// Statuses that do not wait, by name and activity.
        written: parking_lot::Mutex<Vec<(String, bool)>>,
    }

    impl Fixture {
        fn new() -> Self {
            let passes = WorkQueue::new();
            let delays = StatusDelays::new(passes.clone(), MERGED_WITHIN);
            Self { delays, passes, written: parking_lot::Mutex::default() }
        }

        fn write(&self, object: &PodAutoscaler, status: &PodAutoscalerStatus) {
            if !self.delays.must_wait(object, status) {
                let is_active = status.condition(ACTIVE).is_some_and(Condition::is_true);
                self.written.lock().push((key_of(object).name().to_owned(), is_active));
                self.delays.take_scaled(&key_of(object));
            }
        }

        fn up(&self, object: &PodAutoscaler) {
            self.write(object, &status("True", 1, 1));
        }

        fn take_reports(&self) -> Vec<(String, bool)> {
            std::mem::take(&mut *self.written.lock())
        }

        /// Returns the next requeued key, and its delay.
        async fn next(&self) -> (String, u128) {
            let begun = Instant::now();
            let next = self.passes.next().await;
            (next.key().name().to_owned(), begun.elapsed().as_millis())
        }
    }

    fn active(name: &str) -> Vec<(String, bool)> {
        vec![(name.to_owned(), true)]
    }

    /// Goal: the status of an active revision is not written while others wake. The last one waits for no other.
    #[tokio::test(start_paused = true)]
    async fn an_active_status_waits_while_other_revisions_wake() {
        let f = Fixture::new();
        let [a, b, c] = ["a", "b", "c"].map(asleep);
        for object in [&a, &b, &c] {
            f.delays.scaled(object, scaled(0, 1));
        }
        tokio::time::advance(Duration::from_millis(500)).await;
        f.up(&a);
        f.up(&b);
        assert_eq!((f.take_reports(), f.passes.depth()), (vec![], 0));
        f.up(&c);
        assert_eq!(f.take_reports(), active("c"), "no other revision wakes");
        f.up(&a);
        assert_eq!(f.take_reports(), active("a"), "with its next pass");
        let (first, second) = (f.next().await, f.next().await);
        assert_eq!((first.1, second.1), (1_500, 0), "both are requeued for when the last wake is two seconds old");
        f.up(&b);
        assert_eq!(f.take_reports(), active("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_wake_delays_other_statuses_by_two_seconds_at_most() {
        for given_up in [false, true] {
            let f = Fixture::new();
            let [a, slow] = ["a", "slow"].map(asleep);
            f.delays.scaled(&slow, scaled(0, 1));
            tokio::time::advance(Duration::from_millis(500)).await;
            f.delays.scaled(&a, scaled(0, 1));
            f.up(&a);
            if given_up {
                f.delays.scaled(&slow, scaled(1, 0));
                f.up(&a);
                assert_eq!(f.take_reports(), active("a"));
            }
            assert_eq!(f.next().await, ("a".to_owned(), 1_500));
            f.up(&a);
            assert_eq!(f.take_reports(), active("a"));
        }
    }

    /// Goal: an inactive status waits for no wake, because the grace period counts from that write.
    #[tokio::test(start_paused = true)]
    async fn an_inactive_status_is_written_at_once() {
        let f = Fixture::new();
        f.delays.scaled(&asleep("waking"), scaled(0, 1));
        let awake = PodAutoscaler { status: Some(status("True", 1, 1)), ..asleep("a") };
        f.write(&awake, &status("False", 1, 0));
        assert_eq!(f.take_reports(), [("a".to_owned(), false)]);
    }
}
