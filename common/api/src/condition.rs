//! Knative's conditions, and lists of them.
//!
//! A list is kept sorted by type, in byte order. `lastTransitionTime` is the time at which any other field of the
//! condition last changed, including reason and message, not only its status. The API server stores whole seconds.
//! Between the first mark and the end of one reconciler pass the time is finer, so that the order of marks is known
//! (see [`crate::condition_set`]).

use common::time::Timestamp;
use k8s_openapi::jiff;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Type of the condition that summarizes the others.
pub const READY: &str = "Ready";
/// Status: the condition holds.
pub const TRUE: &str = "True";
/// Status: the condition does not hold.
pub const FALSE: &str = "False";
/// Status: not known, or not known yet.
pub const UNKNOWN: &str = "Unknown";
/// Severity of conditions that do not count towards [`READY`].
pub const SEVERITY_INFO: &str = "Info";

/// One observed aspect of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type, such as `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status: `True`, `False` or `Unknown`.
    pub status: String,
    /// Severity. Empty: an error if the status is False. `Warning` and `Info`: does not count towards `Ready`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub severity: String,
    /// Time at which any other field last changed (RFC 3339, whole seconds).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// Reason as one word, for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Description for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Condition {
    /// Reports whether the status is True.
    pub fn is_true(&self) -> bool {
        self.status == TRUE
    }

    /// Reports whether the status is False.
    pub fn is_false(&self) -> bool {
        self.status == FALSE
    }

    /// Reports whether the status is Unknown or missing.
    pub fn is_unknown(&self) -> bool {
        !self.is_true() && !self.is_false()
    }

    /// Returns the time of the last change. An absent or unreadable time counts as the earliest possible time.
    pub fn changed_at(&self) -> Timestamp {
        self.last_transition_time.as_deref().and_then(from_rfc3339).unwrap_or(Timestamp::from_nanos(i64::MIN))
    }

    /// Returns the time since the last change, counted from the whole second that is stored.
    pub fn unchanged_for(&self, now: Timestamp) -> Duration {
        now.saturating_since(Timestamp::from_secs(self.changed_at().as_secs()))
    }

    /// Reports whether both are equal apart from their times.
    pub fn equals_except_time(&self, other: &Self) -> bool {
        (&self.type_, &self.status, &self.severity, &self.reason, &self.message)
            == (&other.type_, &other.status, &other.severity, &other.reason, &other.message)
    }
}

/// Returns the condition of a type, if there is one.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Sets the transition times with which conditions are written. If nothing else changed, the condition keeps the time
/// that was read; otherwise it gets `now` in whole seconds. So a change that is reverted within one pass leaves no
/// trace.
///
/// A time in the future was written by a clock that has been set back since, or by another clock that is ahead. It
/// becomes `now`. Otherwise the condition would not age until then, and actions that wait for its age would be delayed.
pub fn settle(conditions: &mut [Condition], read: &[Condition], now: Timestamp) {
    let is_past = |before: &Condition| before.changed_at().as_secs() <= now.as_secs();
    for condition in conditions {
        condition.last_transition_time = match find(read, &condition.type_) {
            Some(before) if before.equals_except_time(condition) && is_past(before) => {
                before.last_transition_time.clone()
            }
            _ => Some(to_rfc3339(Timestamp::from_secs(now.as_secs()))),
        };
    }
}

/// Formats a time as RFC 3339 in UTC, with a fraction only if necessary.
pub fn to_rfc3339(time: Timestamp) -> String {
    // jiff can represent every time of 64 bits of nanoseconds.
    jiff::Timestamp::from_nanosecond(i128::from(time.as_nanos())).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

/// Parses RFC 3339. Returns `None` if the text is malformed or beyond 64 bits of nanoseconds (before 1677, after 2262).
pub fn from_rfc3339(text: &str) -> Option<Timestamp> {
    let time: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(time.as_nanosecond()).ok().map(Timestamp::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(status: &str, reason: &str, time: Option<&str>) -> Condition {
        Condition {
            type_: "Active".into(),
            status: status.into(),
            reason: reason.into(),
            last_transition_time: time.map(Into::into),
            ..Condition::default()
        }
    }

    #[test]
    fn times_are_written_in_utc_and_read_in_any_zone_and_a_missing_one_counts_as_old() {
        let time = Timestamp::from_secs(1_700_000_000);
        assert_eq!(to_rfc3339(time), "2023-11-14T22:13:20Z");
        assert_eq!(from_rfc3339("2023-11-14T22:13:20Z"), Some(time));
        assert_eq!(from_rfc3339("2023-11-14T23:13:20+01:00"), Some(time));
        for text in ["", "yesterday", "0001-01-01T00:00:00Z"] {
            assert_eq!(from_rfc3339(text), None, "{text}");
        }
        assert!(condition(FALSE, "", None).unchanged_for(time) > Duration::from_secs(3600 * 24 * 365 * 100));
        assert_eq!(condition(FALSE, "", Some("2023-11-14T22:13:10Z")).unchanged_for(time), Duration::from_secs(10));
        assert_eq!(condition(FALSE, "", Some("2023-11-14T22:13:30Z")).unchanged_for(time), Duration::ZERO);
    }

    /// Goal: an unchanged condition keeps its time, unless that is in the future because a clock was set back.
    #[test]
    fn an_unchanged_condition_keeps_its_past_time() {
        let (old, ahead, now_text) = ("2023-01-01T00:00:00Z", "2023-11-14T23:13:20Z", "2023-11-14T22:13:20Z");
        let rows = [
            (old, "", 0, old),
            (old, "Because", 0, now_text),
            (ahead, "", 0, now_text),
            (now_text, "", 0, now_text), // The current second is not in the future.
            (now_text, "", 60, now_text),
        ];
        for (time, reason, later, expected) in rows {
            let now = Timestamp::from_nanos(1_700_000_000_900_000_000) + Duration::from_secs(later);
            // A changed condition has no time yet.
            let read = reason.is_empty().then_some("2023-11-14T22:13:20.9Z");
            let mut new = [condition(TRUE, reason, read)];
            settle(&mut new, &[condition(TRUE, "", Some(time))], now);
            assert_eq!(new, [condition(TRUE, reason, Some(expected))], "{time} {reason:?} {later}");
        }
    }
}
