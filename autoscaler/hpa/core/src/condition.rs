//! Conditions of an autoscaler's status.
//!
//! The list keeps the order in which types were first set. The time of a condition changes only with its status; reason
//! and message are always the latest.

use common::time::Timestamp;

/// Type of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionType {
    /// The scale can be read and written.
    AbleToScale,
    /// Metrics are available, and scaling is not disabled.
    ScalingActive,
    /// A limit changed the recommendation.
    ScalingLimited,
    /// This controller, and no other writer, scaled to zero.
    ScaledToZero,
    /// Type that this controller does not set.
    Other(String),
}

impl ConditionType {
    /// Returns the name in the API.
    pub fn as_str(&self) -> &str {
        match self {
            Self::AbleToScale => "AbleToScale",
            Self::ScalingActive => "ScalingActive",
            Self::ScalingLimited => "ScalingLimited",
            Self::ScaledToZero => "ScaledToZero",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for ConditionType {
    fn from(name: &str) -> Self {
        match name {
            "AbleToScale" => Self::AbleToScale,
            "ScalingActive" => Self::ScalingActive,
            "ScalingLimited" => Self::ScalingLimited,
            "ScaledToZero" => Self::ScaledToZero,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// Condition of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Type of the condition.
    pub kind: ConditionType,
    /// Status; `None` is Unknown, which this controller never writes.
    pub status: Option<bool>,
    /// Machine-readable reason.
    pub reason: String,
    /// Message for users.
    pub message: String,
    /// Time of the last change of the status.
    pub last_transition: Option<Timestamp>,
}

/// Sets a condition, in its present place or at the end of the list.
pub fn set(
    list: &mut Vec<Condition>,
    kind: ConditionType,
    status: bool,
    reason: &str,
    message: String,
    now: Timestamp,
) {
    let place = list.iter().position(|condition| condition.kind == kind).unwrap_or_else(|| {
        let (reason, message) = (String::new(), String::new());
        list.push(Condition { kind, status: None, reason, message, last_transition: None });
        list.len() - 1
    });
    let condition = &mut list[place];
    if condition.status != Some(status) {
        condition.last_transition = Some(now);
    }
    condition.status = Some(status);
    reason.clone_into(&mut condition.reason);
    condition.message = message;
}

/// Reports whether a condition of this type is True.
pub fn is_true(list: &[Condition], kind: &ConditionType) -> bool {
    list.iter().any(|condition| condition.kind == *kind && condition.status == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_moves_with_the_status_alone() {
        let (early, late) = (Timestamp::from_secs(1), Timestamp::from_secs(2));
        let mut list = Vec::new();
        set(&mut list, ConditionType::AbleToScale, true, "A", "a".into(), early);
        set(&mut list, ConditionType::ScalingActive, true, "B", "b".into(), early);
        set(&mut list, ConditionType::AbleToScale, true, "C", "c".into(), late);
        assert_eq!((list[0].reason.as_str(), list[0].message.as_str()), ("C", "c"));
        assert_eq!(list[0].last_transition, Some(early));
        set(&mut list, ConditionType::AbleToScale, false, "D", "d".into(), late);
        assert_eq!((list.len(), list[0].last_transition), (2, Some(late)));
        assert!(!is_true(&list, &ConditionType::AbleToScale) && is_true(&list, &ConditionType::ScalingActive));
    }

    #[test]
    fn a_type_is_its_name() {
        for (name, kind) in [
            ("AbleToScale", ConditionType::AbleToScale),
            ("ScalingActive", ConditionType::ScalingActive),
            ("ScalingLimited", ConditionType::ScalingLimited),
            ("ScaledToZero", ConditionType::ScaledToZero),
            ("Paused", ConditionType::Other("Paused".into())),
        ] {
            assert_eq!((ConditionType::from(name), kind.as_str()), (kind.clone(), name));
        }
    }
}
