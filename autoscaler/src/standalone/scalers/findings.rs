//! In-memory findings of the reconciles about a ZeroScaler. Its status is derived from them ([`super::status`]), and a
//! new owner reads them back from the status.

use crate::engine::front_end::ReconcileOutcome;
use crate::engine::workload::{NotReady, Previous};
use crate::standalone::reasons::{NO_TRAFFIC, NOT_ADOPTED, PAUSED, QUEUED, TARGET_NOT_FOUND, TIMED_OUT};
use autoscaler_core::active::{Active, ActiveCondition};
use common::time::Timestamp;
use common_api::zeroscaler::conditions::{self as written, ConditionStatus};
use common_api::zeroscaler::{RequestStatus, SleepState, ZeroScalerStatus};
use std::borrow::Cow;

/// Reason of the condition while awake.
const AWAKE: &str = "Awake";

/// Findings about one ZeroScaler.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Findings {
    /// Generation that the last reconcile read.
    pub(crate) generation: Option<i64>,
    /// Activity of the workload, if known.
    pub(crate) activity: Option<Activity>,
    /// Set if the initial scale was reached.
    pub(crate) is_initialized: bool,
    /// Desired number of pods, if it was ever known.
    pub(crate) desired: Option<i32>,
    /// First served public Service in precedence; empty if none is served.
    pub(crate) service: String,
    /// Reason why no change, or no new version, is applied.
    pub(crate) refused: Option<Finding>,
    /// Hosts that the ZeroScaler claims and does not have.
    pub(crate) lost_hosts: Option<Finding>,
    /// Metric that cannot be measured.
    pub(crate) unmeasured: Option<Finding>,
    /// Rejected patch that adds pods.
    pub(crate) rejected_scale_up: Option<Finding>,
    /// Another writer that keeps changing the replicas.
    pub(crate) contest: Option<Finding>,
    /// Foreign pods that the target's selector matches.
    pub(crate) foreign_pods: Option<Finding>,
    /// Set if scaling and routing changes are suspended.
    pub(crate) paused: bool,
    /// Result of the last requested wake or sleep.
    pub(crate) request: Option<RequestStatus>,
}

/// Fault to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Machine-readable word.
    pub(crate) reason: Cow<'static, str>,
    /// Sentence for users.
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}

impl From<NotReady> for Finding {
    fn from(why: NotReady) -> Self {
        Self::new(why.reason, why.message)
    }
}

/// Activity of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Activity {
    pub(crate) condition: ActiveCondition,
    /// Start of the activity, in whole seconds.
    pub(crate) since: Timestamp,
}

impl Activity {
    /// Returns true if the workload is awake.
    pub(crate) fn is_awake(self) -> bool {
        self.condition == ActiveCondition::Active
    }

    /// Returns true if the workload is asleep or falling asleep.
    pub(crate) fn is_asleep(self) -> bool {
        matches!(self.condition, ActiveCondition::NoTraffic | ActiveCondition::TimedOut)
    }

    /// Returns status, reason and message of its condition.
    pub(crate) fn condition_parts(self) -> (ConditionStatus, &'static str, &'static str) {
        match self.condition {
            ActiveCondition::Active => (ConditionStatus::True, AWAKE, ""),
            ActiveCondition::Queued => (
                ConditionStatus::Unknown,
                QUEUED,
                "Requests to the target are being buffered as resources are provisioned.",
            ),
            ActiveCondition::NoTraffic => (ConditionStatus::False, NO_TRAFFIC, "The target is not receiving traffic."),
            ActiveCondition::TimedOut => (
                ConditionStatus::False,
                TIMED_OUT,
                "No pod became ready in time after a scale from zero. Check the pods: kubectl describe pod shows their events",
            ),
        }
    }
}

impl Findings {
    /// Returns true if the workload is known to be awake.
    pub(crate) fn is_awake(&self) -> bool {
        self.activity.is_some_and(Activity::is_awake)
    }

    /// Returns the findings of the last reconcile in the form of the rules.
    pub(crate) fn previous(&self, now: Timestamp) -> Previous {
        let age = self.activity.map(|activity| now.saturating_since(activity.since)).unwrap_or_default();
        let is_given_up = self.activity.is_some_and(|activity| activity.condition == ActiveCondition::TimedOut);
        Previous {
            active: match self.activity {
                None => Active::Absent,
                Some(activity) if activity.is_awake() => Active::True(age),
                Some(activity) if activity.is_asleep() => Active::False(age),
                Some(_) => Active::Unknown(age),
            },
            given_up_for: is_given_up.then_some(age),
            has_scale: self.desired.is_some(),
        }
    }

    /// Applies the result of a reconcile.
    pub(crate) fn conclude(&mut self, outcome: &ReconcileOutcome, now: Timestamp) {
        self.desired = outcome.desired.or(self.desired);
        self.is_initialized |= outcome.initialized;
        let is_new = |condition: &ActiveCondition| self.activity.is_none_or(|before| before.condition != *condition);
        if let Some(condition) = outcome.activity.filter(is_new) {
            self.activity = Some(Activity { condition, since: Timestamp::from_secs(now.as_secs()) });
        }
    }

    /// Records the reconciled generation. Limits the start of the activity to now: after a clock was set back it may
    /// lie in the future, and the age would stay zero.
    pub(crate) fn finish(&mut self, generation: Option<i64>, now: Timestamp) {
        self.generation = generation;
        if let Some(activity) = &mut self.activity {
            activity.since = activity.since.min(Timestamp::from_secs(now.as_secs()));
        }
    }

    /// Reads the findings back from a status that this or another process wrote.
    pub(crate) fn read(status: &ZeroScalerStatus) -> Self {
        // Active is also written as False if the target is missing. That says nothing about activity.
        let active = written::find(&status.conditions, written::ACTIVE).filter(|it| it.reason != TARGET_NOT_FOUND);
        let activity = active.and_then(|active| {
            let condition = match (active.status.as_str(), active.reason.as_str()) {
                ("True", _) => ActiveCondition::Active,
                ("False", TIMED_OUT) => ActiveCondition::TimedOut,
                ("False", _) => ActiveCondition::NoTraffic,
                (_, reason) if reason == QUEUED || status.state == SleepState::Waking => ActiveCondition::Queued,
                _ => return None,
            };
            Some(Activity { condition, since: Timestamp::from_secs(active.last_transition_time.0.as_second()) })
        });
        let is_fault = |reason: &str| status.fault.as_ref().is_some_and(|fault| fault.reason == reason);
        // If a wake was given up, Ready and Active are False with the same reason. This is activity, not a refusal.
        let is_activity = |reason: &str| {
            active.is_some_and(|active| active.status == "False" && active.reason == reason)
                && !NOT_ADOPTED.contains(&reason)
        };
        let refused = written::find(&status.conditions, written::READY)
            .filter(|ready| ready.status == "False" && !is_fault(&ready.reason) && !is_activity(&ready.reason))
            .map(|ready| Finding { reason: ready.reason.clone().into(), message: ready.message.clone() });
        let fault = |type_: &str| {
            let found = written::find(&status.conditions, type_).filter(|found| found.status == "False")?;
            Some(Finding { reason: found.reason.clone().into(), message: found.message.clone() })
        };
        Self {
            generation: status.observed_generation,
            activity,
            // A workload that was awake once has reached its initial scale.
            is_initialized: status.last_wake.is_some()
                || !matches!(status.state, SleepState::Unknown | SleepState::Waking),
            desired: status.desired,
            service: status.service.clone().unwrap_or_default(),
            refused,
            // These hold until the first reconcile, so a restart neither ends a warning nor repeats its event.
            lost_hosts: fault(written::HOSTS_OWNED),
            unmeasured: fault(written::METRICS_MEASURED),
            rejected_scale_up: None,
            contest: fault(written::SCALED_BY),
            foreign_pods: fault(written::PODS_OWNED),
            paused: active.is_some_and(|active| active.reason == PAUSED),
            request: status.request.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_api::zeroscaler::conditions::ConditionValue;
    use std::time::Duration;

    fn status(active: (ConditionStatus, &str), ready: (ConditionStatus, &str), state: SleepState) -> ZeroScalerStatus {
        let mut status = ZeroScalerStatus { state, ..ZeroScalerStatus::default() };
        for (type_, (is, reason)) in [(written::ACTIVE, active), (written::READY, ready)] {
            let condition = ConditionValue { status: is, reason, message: "why" };
            written::set(&mut status.conditions, type_, condition, Some(1), Timestamp::from_secs(100));
        }
        status
    }

    #[test]
    fn a_status_is_read_back() {
        use ConditionStatus::{False, True, Unknown};
        let (awake, missing, conflict) = ((True, "Awake"), (False, TARGET_NOT_FOUND), "HostConflict");
        let rows = [
            (awake, (True, "Served"), SleepState::Awake, Some(ActiveCondition::Active), None, true),
            ((False, "NoTraffic"), (True, "Served"), SleepState::Asleep, Some(ActiveCondition::NoTraffic), None, true),
            ((False, TIMED_OUT), (False, TIMED_OUT), SleepState::Asleep, Some(ActiveCondition::TimedOut), None, true),
            ((Unknown, QUEUED), (True, "Served"), SleepState::Waking, Some(ActiveCondition::Queued), None, false),
            ((Unknown, "Paused"), (True, "Served"), SleepState::Waking, Some(ActiveCondition::Queued), None, false),
            ((Unknown, "Waking"), (False, "Invalid"), SleepState::Unknown, None, Some("Invalid"), false),
            (missing, missing, SleepState::Unknown, None, Some(TARGET_NOT_FOUND), false),
            (awake, (False, conflict), SleepState::Awake, Some(ActiveCondition::Active), Some(conflict), true),
        ];
        for (active, ready, state, is, refused, is_initialized) in rows {
            let found = Findings::read(&status(active, ready, state));
            let found = (
                found.activity.map(|activity| activity.condition),
                found.refused.as_ref().map(|refused| &*refused.reason).map(str::to_owned),
                found.is_initialized,
            );
            assert_eq!(found, (is, refused.map(str::to_owned), is_initialized), "{active:?} {ready:?} {state:?}");
        }
    }

    #[test]
    fn warnings_are_read_back() {
        let (no, yes) = (ConditionStatus::False, ConditionStatus::True);
        let mut status = status((ConditionStatus::Unknown, PAUSED), (yes, "Served"), SleepState::Awake);
        let types = [written::HOSTS_OWNED, written::METRICS_MEASURED, written::SCALED_BY, written::PODS_OWNED];
        for (type_, is) in types.into_iter().zip([no, yes, no, no]) {
            let condition = ConditionValue { status: is, reason: type_, message: "why" };
            written::set(&mut status.conditions, type_, condition, Some(1), Timestamp::from_secs(100));
        }
        let found = Findings::read(&status);
        let wrong = [&found.lost_hosts, &found.unmeasured, &found.contest, &found.foreign_pods];
        let reasons = wrong.map(|wrong| wrong.as_ref().map(|wrong| &*wrong.reason));
        let [hosts, _, scaled, pods] = types;
        assert_eq!((reasons, found.paused), ([Some(hosts), None, Some(scaled), Some(pods)], true));
    }

    /// Goal: the age of an activity counts from its start, and a clock that is set back does not stop it from aging.
    #[test]
    fn activity_age_counts_from_its_start() {
        let at = Timestamp::from_secs;
        let concluded =
            |activity| ReconcileOutcome { desired: Some(0), ready: 0, initialized: true, activity, step: None };
        let mut findings = Findings::default();
        assert_eq!(findings.previous(at(0)).active, Active::Absent);
        for (is, now) in [(Some(ActiveCondition::NoTraffic), 10), (Some(ActiveCondition::NoTraffic), 20), (None, 30)] {
            findings.conclude(&concluded(is), at(now));
        }
        assert_eq!(findings.previous(at(40)).active, Active::False(Duration::from_secs(30)));
        findings.finish(Some(1), at(4));
        assert_eq!(findings.previous(at(9)).active, Active::False(Duration::from_secs(5)));
        findings.conclude(&concluded(Some(ActiveCondition::TimedOut)), at(10));
        assert_eq!(findings.previous(at(12)).given_up_for, Some(Duration::from_secs(2)));
    }
}
