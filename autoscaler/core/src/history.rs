//! Why a revision has the scale it has: its latest decisions, as changes.
//!
//! An equal decision extends the last entry, so that an hour of calm is one entry. Equal means: the same desired scale, rule, mode and
//! sign of the excess burst capacity (or the same thing unknown). An entry keeps the inputs of its first decision: they
//! explain the change.
//!
//! At most [`ENTRIES_MAX`] entries and [`BYTES_MAX`] bytes for each revision; the oldest go first. Nothing is allocated
//! before the first decision, and space grows by a few entries at a time.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use common::time::Timestamp;
use serde::Serialize;

use crate::decider::{Decision, Rule, Unknown};

/// Most entries kept for a revision.
pub const ENTRIES_MAX: usize = 64;
/// Most bytes kept for a revision.
pub const BYTES_MAX: usize = 4096;
/// The ring grows by so many entries.
const GROWTH: usize = 4;

const _: () = assert!(size_of::<Entry>() * ENTRIES_MAX + size_of::<History>() <= BYTES_MAX);

/// A run of equal decisions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Time of the first, Unix seconds.
    pub since: i64,
    /// Seconds from the first to the latest.
    pub lasted_secs: u32,
    /// How many there were.
    pub decisions: u32,
    /// What was decided.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What was decided, in few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// So many pods.
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
        /// What one pod should see.
        target: f32,
        /// Whether the decider panicked.
        panicking: bool,
        /// The rule that had the last word.
        rule: Rule,
    },
    /// Nothing could be decided.
    Unknown {
        /// Why.
        unknown: Unknown,
    },
}

impl Outcome {
    fn of(decision: &Decision) -> Self {
        match decision {
            Decision::Unknown(unknown) => Self::Unknown { unknown: *unknown },
            Decision::Scale(r) => Self::Scale {
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

    /// Whether this decides the same as `other`, whatever it was decided from.
    fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unknown { unknown: a }, Self::Unknown { unknown: b }) => a == b,
            (
                Self::Scale { desired: a, excess_burst_capacity: e, panicking: p, rule: r, .. },
                Self::Scale { desired: b, excess_burst_capacity: f, panicking: q, rule: s, .. },
            ) => a == b && (*e >= 0) == (*f >= 0) && p == q && r == s,
            _ => false,
        }
    }
}

/// The latest decisions of one revision. See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct History {
    entries: VecDeque<Entry>,
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a decision, made at `now`. Whether it was a change.
    pub fn record(&mut self, now: Timestamp, decision: &Decision) -> bool {
        let outcome = Outcome::of(decision);
        if let Some(last) = self.entries.back_mut().filter(|last| last.outcome.equals(&outcome)) {
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

    /// The entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.entries.iter()
    }
}
