//! History of a revision's scale: its latest decisions and their effects, stored as changes.
//!
//! Three sources share one ring, in the order of their changes: the decider at each tick; load and metrics combined, if
//! metrics are measured ([`BlendedScale`]); and the reconciler that acts on the result ([`Action`]). An equal entry
//! extends the last one of the same source, so an hour without changes is two entries. Equal decisions have the same
//! desired scale, rule, mode and sign of the excess burst capacity (or the same unknown input). Equal actions have the
//! same wanted scale and cause, and the later one has written nothing. An entry keeps the inputs of its first decision,
//! because they explain the change.
//!
//! The history of a revision has at most [`ENTRIES_MAX`] entries and [`BYTES_MAX`] bytes; the oldest entries are
//! removed first. Nothing is allocated before the first decision, and the ring grows by a few entries at a time.

mod action;
#[cfg(test)]
mod tests;
pub mod words;

pub use action::{Action, Cause, Obstacle};

use std::collections::VecDeque;
use std::mem::discriminant;

use common::time::Timestamp;
use serde::Serialize;

use crate::decider::{Decision, Rule, Unknown};
use crate::engine::BlendedScale;

/// Maximum number of entries for a revision.
pub const ENTRIES_MAX: usize = 64;
/// Maximum number of bytes for a revision.
pub const BYTES_MAX: usize = 4096;
/// Number of entries by which the ring grows.
const GROWTH: usize = 2;

const _: () = assert!(size_of::<Entry>() * ENTRIES_MAX + size_of::<History>() <= BYTES_MAX);

/// Run of equal decisions, or of equal actions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Time of the first one in Unix seconds.
    pub since: i64,
    /// Seconds from the first to the latest one.
    pub lasted_secs: u32,
    /// Number of decisions or actions in the run.
    pub decisions: u32,
    /// Decision or action.
    #[serde(flatten)]
    pub outcome: EntryOutcome,
}

/// Decision or action in few bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum EntryOutcome {
    /// Recommended number of pods.
    #[serde(rename_all = "camelCase")]
    Scale {
        /// Desired pods, before bounds.
        desired: i32,
        /// Spare requests beyond the target burst capacity.
        excess_burst_capacity: i32,
        /// Ready pods.
        ready: u32,
        /// Average over the stable window.
        stable: f32,
        /// Average over the panic window.
        panic: f32,
        /// Target value of the metric per pod.
        target: f32,
        /// True if the decider was in panic mode.
        panicking: bool,
        /// Rule that determined the result.
        rule: Rule,
    },
    /// No decision was possible.
    Unknown {
        /// Reason.
        unknown: Unknown,
    },
    /// Combined result of load and metrics.
    Blended(BlendedScale),
    /// Action of the reconciler.
    Action(Action),
}

impl EntryOutcome {
    fn from_decision(decision: &Decision) -> Self {
        match decision {
            Err(unknown) => Self::Unknown { unknown: *unknown },
            Ok(r) => Self::Scale {
                desired: r.desired,
                excess_burst_capacity: r.excess_burst_capacity,
                ready: r.inputs.ready,
                stable: r.inputs.stable as f32,
                panic: r.inputs.panic as f32,
                target: r.inputs.target as f32,
                panicking: r.panicking,
                rule: r.rule,
            },
        }
    }

    /// Returns true if the later outcome `other` is equal, whatever its inputs.
    fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unknown { unknown: a }, Self::Unknown { unknown: b }) => a == b,
            (
                Self::Scale { desired: a, excess_burst_capacity: e, panicking: p, rule: r, .. },
                Self::Scale { desired: b, excess_burst_capacity: f, panicking: q, rule: s, .. },
            ) => a == b && (*e >= 0) == (*f >= 0) && p == q && r == s,
            (Self::Blended(a), Self::Blended(b)) => a.is_confirmed_by(b),
            (Self::Action(a), Self::Action(b)) => a.is_confirmed_by(b),
            _ => false,
        }
    }

    /// Returns true if both outcomes come from the same source.
    fn is_from_source_of(&self, other: &Self) -> bool {
        let is_decision = |outcome: &Self| matches!(outcome, Self::Scale { .. } | Self::Unknown { .. });
        discriminant(self) == discriminant(other) || (is_decision(self) && is_decision(other))
    }
}

/// Latest decisions and actions of one revision. See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct History {
    entries: VecDeque<Entry>,
}

impl History {
    /// Adds a decision made at `now`. Returns true if it is a change.
    pub fn record(&mut self, now: Timestamp, decision: &Decision) -> bool {
        self.add(now, EntryOutcome::from_decision(decision))
    }

    /// Adds an action of the reconciler at `now`. Returns true if it is a change.
    pub fn act(&mut self, now: Timestamp, action: Action) -> bool {
        self.add(now, EntryOutcome::Action(action))
    }

    /// Adds the combined result of load and metrics at `now`, unless the desired scale is unknown. Returns true if it is
    /// a change.
    pub fn blend(&mut self, now: Timestamp, blended: &BlendedScale) -> bool {
        blended.desired.is_some() && self.add(now, EntryOutcome::Blended(blended.clone()))
    }

    fn add(&mut self, now: Timestamp, outcome: EntryOutcome) -> bool {
        let last = self.entries.iter_mut().rev().find(|entry| entry.outcome.is_from_source_of(&outcome));
        if let Some(last) = last.filter(|last| last.outcome.equals(&outcome)) {
            last.lasted_secs = u32::try_from(now.as_secs().saturating_sub(last.since)).unwrap_or(last.lasted_secs);
            last.decisions = last.decisions.saturating_add(1);
            return false;
        }
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        } else if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(GROWTH);
        }
        self.entries.push_back(Entry { since: now.as_secs(), lasted_secs: 0, decisions: 1, outcome });
        true
    }

    /// Iterates over the entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.entries.iter()
    }
}
