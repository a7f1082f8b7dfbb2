//! Conditions (meta/v1) of a ZeroScaler: one of each type, sorted by type.
//!
//! `lastTransitionTime` changes only with the status of a condition. Reason, message and generation may change without
//! it.

use common::text::printable_line;
use common::time::Timestamp;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff;

/// Configured and served; also True while asleep. `kubectl wait`, Helm and GitOps tools use this condition.
pub const READY: &str = "Ready";
/// True: awake. False: asleep. Unknown: in transition.
pub const ACTIVE: &str = "Active";
/// Target and Service are taken over.
pub const ADOPTED: &str = "Adopted";
/// Every host of the spec leads to this workload.
pub const HOSTS_OWNED: &str = "HostsOwned";
/// Every port of the Service has its own number on the activators.
pub const PORTS_ALLOCATED: &str = "PortsAllocated";
/// Every metric of the spec can be read.
pub const METRICS_MEASURED: &str = "MetricsMeasured";
/// The Service of `wake.fallback` was found and can respond.
pub const ANSWERS_RESOLVED: &str = "AnswersResolved";
/// False while the workload sleeps and clients of a port send nothing: they may expect its server to speak first.
pub const PROTOCOLS_DETECTED: &str = "ProtocolsDetected";
/// False while another writer keeps changing the replicas; otherwise absent.
pub const SCALED_BY: &str = "ScaledBy";
/// False while the target's selector also matches pods of other owners; otherwise absent.
pub const PODS_OWNED: &str = "PodsOwned";
/// The activators follow the NetworkPolicies that select the workload's pods. Present only while a policy selects them.
/// On the shared ports, activators refuse requests to such a workload.
pub const GUARDED: &str = "Guarded";
/// All condition types.
pub const TYPES: [&str; 11] = [
    READY,
    ACTIVE,
    ADOPTED,
    HOSTS_OWNED,
    METRICS_MEASURED,
    PORTS_ALLOCATED,
    ANSWERS_RESOLVED,
    PROTOCOLS_DETECTED,
    SCALED_BY,
    PODS_OWNED,
    GUARDED,
];

/// Longest message of a condition that an API server accepts, by its own conventions.
const MESSAGE_LENGTH_MAX: usize = 32_768;

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// Not known, or not known yet.
    Unknown,
}

impl ConditionStatus {
    /// Returns the status as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Returns the condition of a type, if there is one.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Reports whether the condition of a type has this status.
pub fn is(conditions: &[Condition], type_: &str, status: ConditionStatus) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == status.as_str())
}

/// New content of a condition.
#[derive(Clone, Copy, Debug)]
pub struct ConditionValue<'a> {
    /// Status of the condition.
    pub status: ConditionStatus,
    /// Reason as one word, for programs; not empty.
    pub reason: &'a str,
    /// Description for people; may be empty.
    pub message: &'a str,
}

/// Sets a condition; its transition time changes only with its status. Returns true if anything but the generation
/// changed.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    new: ConditionValue<'_>,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let message = printable_line(new.message);
    let message = &message[..message.floor_char_boundary(MESSAGE_LENGTH_MAX)];
    if let Some(condition) = conditions.iter_mut().find(|condition| condition.type_ == type_) {
        let moved = condition.status != new.status.as_str();
        let changed = moved || condition.reason != new.reason || condition.message != message;
        if moved {
            condition.status = new.status.as_str().to_owned();
            condition.last_transition_time = time(now);
        }
        if changed {
            condition.reason = new.reason.to_owned();
            condition.message = message.to_owned();
        }
        condition.observed_generation = generation;
        return changed;
    }
    conditions.push(Condition {
        type_: type_.to_owned(),
        status: new.status.as_str().to_owned(),
        reason: new.reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: time(now),
        observed_generation: generation,
    });
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    true
}

/// Removes a condition that does not apply (any longer). Returns true if it existed.
pub fn clear(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

/// Converts a time to the API's form, in whole seconds.
pub fn time(now: Timestamp) -> Time {
    Time(jiff::Timestamp::from_second(now.as_secs()).unwrap_or(jiff::Timestamp::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAKE: ConditionValue<'static> =
        ConditionValue { status: ConditionStatus::True, reason: "Awake", message: "" };

    #[test]
    fn the_transition_time_is_that_of_the_last_change_of_status() {
        let at = Timestamp::from_secs;
        let mut all = Vec::new();
        assert!(set(&mut all, READY, AWAKE, Some(1), at(10)));
        assert!(set(&mut all, ACTIVE, AWAKE, Some(1), at(10)));
        assert!(!set(&mut all, READY, AWAKE, Some(2), at(20)), "nothing but the generation changed");
        assert!(set(&mut all, READY, ConditionValue { reason: "Other", message: "why", ..AWAKE }, Some(2), at(30)));
        let ready = find(&all, READY).expect("set");
        assert_eq!((&*ready.reason, &*ready.message, ready.observed_generation), ("Other", "why", Some(2)));
        assert_eq!(ready.last_transition_time, time(at(10)));
        assert!(set(&mut all, READY, ConditionValue { status: ConditionStatus::False, ..AWAKE }, Some(2), at(40)));
        assert_eq!(find(&all, READY).map(|ready| ready.last_transition_time.clone()), Some(time(at(40))));
        assert!(is(&all, READY, ConditionStatus::False) && is(&all, ACTIVE, ConditionStatus::True));
        let types: Vec<&str> = all.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, [ACTIVE, READY], "sorted");
        assert!(clear(&mut all, ACTIVE) && !clear(&mut all, ACTIVE));
    }

    #[test]
    fn a_message_that_is_too_long_is_cut_between_characters() {
        let mut all = Vec::new();
        let message = "é".repeat(MESSAGE_LENGTH_MAX);
        set(&mut all, READY, ConditionValue { message: &message, ..AWAKE }, None, Timestamp::from_secs(0));
        assert_eq!(all[0].message.len(), MESSAGE_LENGTH_MAX);
    }
}
