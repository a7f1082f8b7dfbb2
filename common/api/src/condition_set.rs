//! Derives `Ready` from the conditions that it depends on.
//!
//! A kind declares its dependents in order. Its reconciler works in three steps: [`HasConditions::begin`] on a copy of
//! the status that was read, then marks, then [`HasConditions::finish`] against the status that was read. All take the
//! time as an argument.
//!
//! # The rule
//!
//! - Setting a condition to its current content does nothing. Any other change replaces it and moves its transition
//!   time.
//! - Marking True: `Ready` becomes a copy of the newest unhappy condition that counts (False before Unknown); Unknown
//!   without a reason if a dependent is absent; else True.
//! - Marking Unknown: if a dependent is False, `Ready` becomes False with the new reason, unless it already is False.
//!   Otherwise `Ready` is Unknown for the same reason, if the marked condition is a dependent.
//! - Marking False: `Ready` is False for the same reason, if the marked condition is a dependent.
//! - `Ready` and its dependents count and have an empty severity. All others have severity `Info`.

use crate::condition::{Condition, FALSE, READY, SEVERITY_INFO, TRUE, UNKNOWN, find, settle, to_rfc3339};
use common::time::Timestamp;
use std::time::Duration;

/// Reason of `Ready` while a new generation has not been reconciled successfully.
pub const NEW_GENERATION: &str = "NewObservedGenFailure";
const NEW_GENERATION_MESSAGE: &str = "unsuccessfully observed a new generation";

/// A status with conditions.
pub trait HasConditions {
    /// Types on which `Ready` depends, in declaration order.
    const DEPENDENTS: &'static [&'static str];

    /// Returns the generation that the status describes, and the conditions.
    fn parts(&self) -> (Option<i64>, &[Condition]);
    /// Returns both for modification.
    fn parts_mut(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>);

    /// Returns the condition of a type, if there is one.
    fn condition(&self, type_: &str) -> Option<&Condition> {
        find(self.parts().1, type_)
    }

    /// Reports whether the status describes this generation and is ready.
    fn is_ready(&self, generation: i64) -> bool {
        self.parts().0.unwrap_or(0) == generation && self.condition(READY).is_some_and(Condition::is_true)
    }

    /// Returns the time for which a condition has had a status, or `None` if it has another status or is absent.
    fn status_for(&self, type_: &str, status: &str, now: Timestamp) -> Option<Duration> {
        self.condition(type_).filter(|condition| condition.status == status).map(|c| c.unchanged_for(now))
    }

    /// Returns a manager that marks conditions at this time.
    fn manage(&mut self, now: Timestamp) -> ConditionManager<'_> {
        ConditionManager { dependents: Self::DEPENDENTS, conditions: self.parts_mut().1, now }
    }

    /// Begins a pass: adds missing conditions, and sets `Ready` to Unknown if the generation is new.
    fn begin(&mut self, generation: i64, now: Timestamp) {
        let new = self.parts().0.unwrap_or(0) != generation;
        let mut manager = self.manage(now);
        manager.initialize();
        if new {
            manager.mark_unknown(READY, NEW_GENERATION, NEW_GENERATION_MESSAGE);
        }
    }

    /// Ends a pass, failed or not: records the generation and settles transition times against the status that was
    /// read.
    fn finish(&mut self, read: Option<&Self>, generation: i64, now: Timestamp)
    where
        Self: Sized,
    {
        let (observed_generation, conditions) = self.parts_mut();
        *observed_generation = Some(generation);
        settle(conditions, read.map_or(&[], |status| status.parts().1), now);
    }
}

/// Implements `HasConditions` for a status with the usual fields `conditions` and `observed_generation`. The list
/// names the dependents of `Ready`.
macro_rules! has_conditions {
    ($status:ty: $dependents:expr) => {
        impl HasConditions for $status {
            const DEPENDENTS: &'static [&'static str] = &$dependents;

            fn parts(&self) -> (Option<i64>, &[Condition]) {
                (self.observed_generation, &self.conditions)
            }

            fn parts_mut(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
                (&mut self.observed_generation, &mut self.conditions)
            }
        }
    };
}
pub(crate) use has_conditions;

/// Marks conditions and keeps `Ready` consistent.
#[derive(Debug)]
pub struct ConditionManager<'a> {
    dependents: &'static [&'static str],
    conditions: &'a mut Vec<Condition>,
    now: Timestamp,
}

impl ConditionManager<'_> {
    /// Adds `Ready` and its dependents if they are missing: as True if `Ready` is True, else as Unknown.
    pub fn initialize(&mut self) {
        let status = match find(self.conditions, READY) {
            Some(ready) if ready.is_true() => TRUE,
            Some(_) => UNKNOWN,
            None => {
                self.set(READY, UNKNOWN, "", "");
                UNKNOWN
            }
        };
        for dependent in self.dependents {
            if find(self.conditions, dependent).is_none() {
                self.set(dependent, status, "", "");
            }
        }
    }

    /// Marks a condition as True.
    pub fn mark_true(&mut self, type_: &str) {
        self.set(type_, TRUE, "", "");
        self.recompute();
    }

    /// Marks a condition as Unknown.
    pub fn mark_unknown(&mut self, type_: &str, reason: &str, message: &str) {
        self.set(type_, UNKNOWN, reason, message);
        let failed = self.dependents.iter().any(|type_| find(self.conditions, type_).is_some_and(Condition::is_false));
        if failed {
            if !find(self.conditions, READY).is_some_and(Condition::is_false) {
                self.set(READY, FALSE, reason, message);
            }
        } else if self.dependents.contains(&type_) {
            self.set(READY, UNKNOWN, reason, message);
        }
    }

    /// Marks a condition as False.
    pub fn mark_false(&mut self, type_: &str, reason: &str, message: &str) {
        self.set(type_, FALSE, reason, message);
        if self.dependents.contains(&type_) {
            self.set(READY, FALSE, reason, message);
        }
    }

    /// Sets one condition without changing `Ready`, for informational conditions.
    pub fn set(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let counts = type_ == READY || self.dependents.contains(&type_);
        let mut condition = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            severity: if counts { String::new() } else { SEVERITY_INFO.to_owned() },
            last_transition_time: None,
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        if find(self.conditions, type_).is_some_and(|before| before.equals_except_time(&condition)) {
            return;
        }
        // The order of marks within a pass matters: the time is at least a nanosecond after the newest condition.
        let newest = self.conditions.iter().map(Condition::changed_at).max();
        let time = newest.map_or(self.now, |newest| self.now.max(newest + Duration::from_nanos(1)));
        condition.last_transition_time = Some(to_rfc3339(time));
        self.conditions.retain(|before| before.type_ != type_);
        self.conditions.push(condition);
        self.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    }

    /// Removes an informational condition. `Ready` and its dependents stay.
    pub fn clear(&mut self, type_: &str) {
        if type_ != READY && !self.dependents.contains(&type_) {
            self.conditions.retain(|condition| condition.type_ != type_);
        }
    }

    /// Recomputes `Ready` after a condition became True.
    fn recompute(&mut self) {
        let mut counting: Vec<&Condition> =
            self.conditions.iter().filter(|c| c.severity.is_empty() && c.type_ != READY).collect();
        counting.sort_by_key(|condition| std::cmp::Reverse(condition.changed_at()));
        let unhappy =
            counting.iter().find(|c| c.is_false()).or_else(|| counting.iter().find(|c| c.is_unknown())).copied();
        match unhappy.cloned() {
            Some(condition) => self.set(READY, &condition.status, &condition.reason, &condition.message),
            None if counting.len() < self.dependents.len() => self.set(READY, UNKNOWN, "", ""),
            None => self.set(READY, TRUE, "", ""),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::PodAutoscalerStatus;
    use proptest::prelude::*;

    const ACTIVE: &str = "Active";
    const TARGET: &str = "ScaleTargetInitialized";
    const SKS: &str = "SKSReady";

    pub(crate) fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(1_700_000_000 + secs)
    }

    fn fresh() -> PodAutoscalerStatus {
        let mut status = PodAutoscalerStatus::default();
        status.begin(0, at(0));
        status
    }

    fn happy() -> PodAutoscalerStatus {
        let mut status = fresh();
        [ACTIVE, SKS, TARGET].into_iter().for_each(|type_| status.manage(at(1)).mark_true(type_));
        status
    }

    fn ready(status: &PodAutoscalerStatus) -> (&str, &str) {
        let ready = status.condition(READY).expect("always there");
        (&ready.status, &ready.reason)
    }

    #[test]
    fn a_new_status_has_sorted_unknown_conditions_and_ready_waits_for_absent_ones() {
        let status = fresh();
        let types: Vec<&str> = status.conditions.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, [ACTIVE, READY, SKS, TARGET]);
        assert!(status.conditions.iter().all(|condition| condition.is_unknown() && condition.severity.is_empty()));
        let mut happy = PodAutoscalerStatus::default();
        happy.manage(at(0)).set(READY, TRUE, "", "");
        happy.manage(at(0)).initialize();
        assert!(happy.conditions.iter().all(Condition::is_true), "a True Ready makes missing dependents True");
        let mut partial = PodAutoscalerStatus::default();
        partial.manage(at(1)).mark_true(ACTIVE);
        assert_eq!(ready(&partial), (UNKNOWN, ""));
        assert!(partial.condition(SKS).is_none());
    }

    #[test]
    fn ready_copies_the_newest_false_condition_before_unknown_ones() {
        let mut status = fresh();
        status.manage(at(1)).mark_false(ACTIVE, "NoTraffic", "idle");
        assert_eq!(ready(&status), (FALSE, "NoTraffic"));
        status.manage(at(1)).mark_unknown(SKS, "NotReady", "");
        assert_eq!(ready(&status), (FALSE, "NoTraffic"), "Ready was False already and keeps its reason");
        status.manage(at(2)).mark_false(TARGET, "Newest", "");
        status.manage(at(2)).mark_true(SKS);
        assert_eq!(ready(&status), (FALSE, "Newest"));
        status.manage(at(2)).mark_true(TARGET);
        assert_eq!(ready(&status), (FALSE, "NoTraffic"));
        status.manage(at(3)).mark_true(ACTIVE);
        assert_eq!(ready(&status), (TRUE, ""));
    }

    /// Goal: marks within one second are ordered, as with upstream's finer clock.
    #[test]
    fn marks_at_the_same_time_keep_their_order() {
        for (first, second) in [(ACTIVE, SKS), (SKS, ACTIVE)] {
            let mut status = fresh();
            status.manage(at(1)).mark_unknown(first, "First", "");
            status.manage(at(1)).mark_unknown(second, "Second", "");
            status.manage(at(1)).mark_true(TARGET);
            assert_eq!(ready(&status), (UNKNOWN, "Second"));
        }
    }

    #[test]
    fn a_new_generation_changes_ready_only() {
        let mut status = happy();
        let read = status.clone();
        status.begin(2, at(2));
        assert_eq!(ready(&status), (UNKNOWN, NEW_GENERATION));
        assert!(status.condition(ACTIVE).is_some_and(Condition::is_true));
        status.manage(at(2)).mark_true(ACTIVE);
        status.finish(Some(&read), 2, at(2));
        assert_eq!(status.conditions, read.conditions, "True, Unknown, True in one pass leaves no trace");
        assert!(status.is_ready(2) && !status.is_ready(3));

        let mut failing = fresh();
        failing.manage(at(1)).mark_false(ACTIVE, "NoTraffic", "");
        failing.begin(2, at(2));
        assert_eq!(ready(&failing), (FALSE, NEW_GENERATION), "with a dependent False it is False");
    }

    #[test]
    fn informational_conditions_do_not_affect_ready() {
        let mut status = happy();
        status.manage(at(1)).set("Note", FALSE, "Ignored", "an annotation has no effect");
        status.manage(at(1)).mark_true(ACTIVE);
        assert_eq!(ready(&status), (TRUE, ""));
        assert_eq!(status.condition("Note").map(|note| note.severity.as_str()), Some(SEVERITY_INFO));
        status.manage(at(2)).clear("Note");
        status.manage(at(2)).clear(ACTIVE);
        assert!(status.condition("Note").is_none() && status.condition(ACTIVE).is_some());
    }

    proptest! {
        /// Goal: for any sequence of marks, Ready is True if all dependents are, False if any is, else Unknown. The
        /// list is sorted, and settling it against itself changes nothing.
        #[test]
        fn ready_follows_from_its_dependents(marks in prop::collection::vec((0..4_usize, 0..3_u8, 0..3_i64), 0..30)) {
            let mut status = fresh();
            for (type_index, mark, secs) in marks {
                let type_ = [ACTIVE, TARGET, SKS, "Note"][type_index];
                let mut manager = status.manage(at(secs));
                match mark {
                    0 => manager.mark_true(type_),
                    1 => manager.mark_unknown(type_, "Why", ""),
                    _ => manager.mark_false(type_, "Why", ""),
                }
                let dependents: Vec<&Condition> =
                    status.conditions.iter().filter(|c| c.severity.is_empty() && c.type_ != READY).collect();
                let expected = if dependents.iter().any(|c| c.is_false()) {
                    FALSE
                } else if dependents.iter().all(|c| c.is_true()) {
                    TRUE
                } else {
                    UNKNOWN
                };
                prop_assert_eq!(ready(&status).0, expected);
                prop_assert!(status.conditions.is_sorted_by(|a, b| a.type_ < b.type_));
            }
            status.finish(None, 1, at(5));
            let written = status.clone();
            status.finish(Some(&written), 1, at(9));
            prop_assert_eq!(status, written);
        }
    }
}
