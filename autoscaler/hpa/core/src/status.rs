//! `status` of an autoscaler, and its events.
//!
//! A reconcile that has read the scale rebuilds the status. A reconcile that could not read it changes only one
//! condition. The status is written only if it differs from the stored one. A failed metric leaves an empty entry in
//! its place.
//!
//! Conditions keep the order in which they were first set. The time of a condition changes only with its status; reason
//! and message are always the latest.

use common::time::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscalerCondition as Condition, HorizontalPodAutoscalerStatus, MetricValueStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff;

use super::quantity::{Format, to_api};

/// Condition: the scale can be read and written.
pub const ABLE_TO_SCALE: &str = "AbleToScale";
/// Condition: metrics are available, and scaling is not disabled.
pub const SCALING_ACTIVE: &str = "ScalingActive";
/// Condition: a limit changed the recommendation.
pub const SCALING_LIMITED: &str = "ScalingLimited";
/// Condition: this controller, and no other writer, scaled to zero.
pub const SCALED_TO_ZERO: &str = "ScaledToZero";

/// Sets a condition: updates it in place, or appends it to the list.
pub fn set(
    status: &mut HorizontalPodAutoscalerStatus,
    kind: &str,
    is_true: bool,
    reason: &str,
    message: String,
    now: Timestamp,
) {
    let list = status.conditions.get_or_insert_default();
    let index = list.iter().position(|condition| condition.type_ == kind).unwrap_or_else(|| {
        list.push(Condition { type_: kind.to_owned(), ..Condition::default() });
        list.len() - 1
    });
    let (condition, status) = (&mut list[index], if is_true { "True" } else { "False" });
    if condition.status != status {
        status.clone_into(&mut condition.status);
        condition.last_transition_time = Some(time(now));
    }
    condition.reason = Some(reason.to_owned());
    condition.message = Some(message);
}

/// Reports whether a condition of this type is True.
pub fn is_true(status: &HorizontalPodAutoscalerStatus, kind: &str) -> bool {
    status.conditions.iter().flatten().any(|condition| condition.type_ == kind && condition.status == "True")
}

/// Converts to a time of the API.
pub fn time(at: Timestamp) -> Time {
    // Every 64-bit number of nanoseconds is in the range of `jiff::Timestamp`.
    Time(jiff::Timestamp::from_nanosecond(at.as_nanos().into()).unwrap_or_default())
}

/// Converts from a time of the API.
pub fn timestamp(time: &Time) -> Timestamp {
    Timestamp::from_nanos(i64::try_from(time.0.as_nanosecond()).unwrap_or(i64::MAX))
}

/// Returns a measured total in thousandths.
pub fn total(value: i64) -> MetricValueStatus {
    MetricValueStatus { value: Some(to_api(value, Format::Decimal)), ..MetricValueStatus::default() }
}

/// Returns a measured average in thousandths: memory in powers of 1024, other resources in powers of 1000.
pub fn average(value: i64, resource: Option<&str>) -> MetricValueStatus {
    let format = if resource == Some("memory") { Format::Binary } else { Format::Decimal };
    MetricValueStatus { average_value: Some(to_api(value, format)), ..MetricValueStatus::default() }
}

/// Event about the autoscaler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Set for type Warning; otherwise the type is Normal.
    pub warning: bool,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Message for users.
    pub message: String,
}

impl Event {
    /// Returns an event of type Normal.
    pub fn normal(reason: &'static str, message: String) -> Self {
        Self { warning: false, reason, message }
    }

    /// Returns an event of type Warning.
    pub fn warning(reason: &'static str, message: String) -> Self {
        Self { warning: true, reason, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_changed_status_changes_the_time_of_a_condition() {
        let (early, late) = (Timestamp::from_secs(1), Timestamp::from_secs(2));
        let mut status = HorizontalPodAutoscalerStatus::default();
        let mut change = |kind, is_true, reason: &str, now| {
            set(&mut status, kind, is_true, reason, reason.to_lowercase(), now);
            status.clone()
        };
        change(ABLE_TO_SCALE, true, "A", early);
        change(SCALING_ACTIVE, true, "B", early);
        let list = change(ABLE_TO_SCALE, true, "C", late).conditions.expect("conditions");
        assert_eq!((list[0].reason.as_deref(), list[0].message.as_deref()), (Some("C"), Some("c")));
        assert_eq!(list[0].last_transition_time, Some(time(early)));
        let status = change(ABLE_TO_SCALE, false, "D", late);
        let list = status.conditions.as_deref().expect("conditions");
        assert_eq!((list.len(), &list[0].last_transition_time), (2, &Some(time(late))));
        assert!(!is_true(&status, ABLE_TO_SCALE) && is_true(&status, SCALING_ACTIVE));
    }

    #[test]
    fn a_time_is_converted_both_ways() {
        for nanos in [0, 1_700_000_000_123_456_789, -5, i64::MAX, i64::MIN] {
            assert_eq!(timestamp(&time(Timestamp::from_nanos(nanos))).as_nanos(), nanos);
        }
    }

    #[test]
    fn only_memory_is_formatted_in_powers_of_1024() {
        let text = |resource| average(1_024_000, resource).average_value.map(|value| value.0);
        assert_eq!(text(Some("memory")).as_deref(), Some("1Ki"));
        assert_eq!((text(Some("cpu")).as_deref(), text(None).as_deref()), (Some("1024"), Some("1024")));
    }
}
