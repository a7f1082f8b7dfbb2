//! Status of a PodAutoscaler, and the operations that change it. Types, reasons and messages are upstream's.
//!
//! While the `Active` condition is absent, the revision is activating, but for an unknown time, so no timeout applies.

use crate::condition::Condition;
use crate::condition_set::{HasConditions, has_conditions};
use crate::{PodAutoscaler, PodAutoscalerStatus, Reachability};
use common::time::Timestamp;

/// Condition: the revision takes traffic.
pub const ACTIVE: &str = "Active";
/// Condition: the initial scale was reached once. This is never revoked.
pub const SCALE_TARGET_INITIALIZED: &str = "ScaleTargetInitialized";
/// Condition: the ServerlessService is ready.
pub const SKS_READY: &str = "SKSReady";

/// Reason: the ServerlessService is not ready.
pub const NOT_READY: &str = "NotReady";
/// Reason: a required object name is taken by an object with another owner.
pub const NOT_OWNED: &str = "NotOwned";
/// Reason: an object could not be created.
pub const FAILED_CREATE: &str = "FailedCreate";
/// Message while the ServerlessService has not named its private Service yet.
pub const NO_PRIVATE_SERVICE_NAME: &str = "No Private Service Name";

has_conditions!(PodAutoscalerStatus: [ACTIVE, SCALE_TARGET_INITIALIZED, SKS_READY]);

impl PodAutoscaler {
    /// Reports whether a route may lead to the revision. False only if it is known that no route does.
    pub fn is_reachable(&self) -> bool {
        self.spec.reachability != Reachability::Unreachable
    }
}

impl PodAutoscalerStatus {
    /// Reports whether the revision takes traffic.
    pub fn is_active(&self) -> bool {
        self.condition(ACTIVE).is_some_and(Condition::is_true)
    }

    /// Reports whether the initial scale was reached once.
    pub fn is_scale_target_initialized(&self) -> bool {
        self.condition(SCALE_TARGET_INITIALIZED).is_some_and(Condition::is_true)
    }

    /// Records that the revision takes no traffic, or cannot work.
    pub fn mark_failed(&mut self, reason: &str, message: &str, now: Timestamp) {
        self.manage(now).mark_false(ACTIVE, reason, message);
    }

    /// Records that a required object name is taken by an object with another owner.
    pub fn mark_not_owned(&mut self, kind: &str, name: &str, now: Timestamp) {
        self.mark_failed(NOT_OWNED, &format!("There is an existing {kind} {name:?} that we do not own."), now);
    }

    /// Records that the ServerlessService is not ready, with its message.
    pub fn mark_sks_not_ready(&mut self, message: &str, now: Timestamp) {
        self.manage(now).mark_unknown(SKS_READY, NOT_READY, message);
    }

    /// Records the scales. An unknown desired scale (`None`) keeps the last known one, or becomes -1 if there is none.
    pub fn set_scales(&mut self, desired: Option<i32>, ready: i32) {
        self.actual_scale = Some(ready);
        self.desired_scale = Some(match (desired, self.desired_scale) {
            (Some(desired), _) => desired,
            (None, Some(before)) if before >= 0 => before,
            (None, _) => -1,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::{FALSE, READY, TRUE, UNKNOWN};
    use crate::condition_set::tests::at;
    use std::time::Duration;

    #[test]
    fn activity_has_three_states_with_an_age() {
        let mut status = PodAutoscalerStatus::default();
        assert_eq!(status.status_for(ACTIVE, UNKNOWN, at(0)), None, "the age of an absent condition is unknown");
        status.begin(1, at(0));
        status.manage(at(1)).mark_unknown(ACTIVE, "Queued", "");
        assert_eq!(status.status_for(ACTIVE, UNKNOWN, at(11)), Some(Duration::from_secs(10)));
        assert_eq!((status.status_for(ACTIVE, TRUE, at(11)), status.status_for(ACTIVE, FALSE, at(11))), (None, None));
        status.manage(at(20)).mark_true(ACTIVE);
        assert!(status.is_active() && status.status_for(ACTIVE, TRUE, at(25)) == Some(Duration::from_secs(5)));
        status.mark_failed("TimedOut", "", at(30));
        assert_eq!(status.status_for(ACTIVE, FALSE, at(31)), Some(Duration::from_secs(1)));
        status.mark_failed("NoTraffic", "", at(40));
        assert_eq!(status.status_for(ACTIVE, FALSE, at(45)), Some(Duration::from_secs(5)), "a new reason resets it");
    }

    #[test]
    fn reasons_and_messages_match_upstream() {
        let mut status = PodAutoscalerStatus::default();
        status.begin(1, at(0));
        status.mark_not_owned("Metric", "hello", at(1));
        let active = status.condition(ACTIVE).cloned().unwrap_or_default();
        assert_eq!(active.message, "There is an existing Metric \"hello\" that we do not own.");
        let ready = status.condition(READY).cloned().unwrap_or_default();
        assert_eq!((ready.status, ready.reason), (FALSE.into(), NOT_OWNED.into()));
        status.mark_sks_not_ready(NO_PRIVATE_SERVICE_NAME, at(1));
        assert_eq!(status.condition(SKS_READY).map(|sks| sks.reason.as_str()), Some(NOT_READY));
    }

    #[test]
    fn an_unknown_desired_scale_keeps_the_last_known_one() {
        let rows = [
            (None, Some(1), 1),
            (Some(1), Some(1), 1),
            (Some(2), None, 2),
            (None, None, -1),
            (Some(-1), None, -1),
            (Some(0), None, 0),
        ];
        for (before, desired, after) in rows {
            let mut status = PodAutoscalerStatus { desired_scale: before, ..PodAutoscalerStatus::default() };
            status.set_scales(desired, 2);
            assert_eq!((status.desired_scale, status.actual_scale), (Some(after), Some(2)), "{before:?} {desired:?}");
        }
    }

    /// Goal: both names are serialized even if empty, because the schema requires them.
    #[test]
    fn empty_service_names_are_serialized() {
        let json = serde_json::to_value(PodAutoscalerStatus::default()).expect("serializable");
        assert_eq!(json, serde_json::json!({"serviceName": "", "metricsServiceName": ""}));
    }
}
