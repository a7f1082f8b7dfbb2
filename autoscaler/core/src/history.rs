//! Why a revision has the scale it has: its latest decisions and what was made of them, as changes.
//!
//! Three voices share one ring, in the order in which they changed their minds: the decider, each tick; load and
//! metrics together, where metrics are looked at ([`Blended`]); and the reconciler that acts on it ([`Action`]). An
//! equal entry extends the last one of the same voice, so that an hour of calm is two entries. Equal decisions have the
//! same desired scale, rule, mode and sign of the excess burst capacity (or the same thing unknown). Equal actions want
//! the same for the same cause, and the later one has written nothing. An entry keeps the inputs of its first decision:
//! they explain the change.
//!
//! At most [`ENTRIES_MAX`] entries and [`BYTES_MAX`] bytes for each revision; the oldest go first. Nothing is allocated
//! before the first decision, and space grows by a few entries at a time.

mod action;
mod blended;
#[cfg(test)]
mod tests;
pub mod words;

pub use action::{Action, Cause, Obstacle};
pub use blended::Blended;

use std::collections::VecDeque;

use common::time::Timestamp;
use serde::Serialize;

use crate::decider::{Decision, Rule, Unknown};
use crate::engine::Answer;

/// Most entries kept for a revision.
pub const ENTRIES_MAX: usize = 64;
/// Most bytes kept for a revision.
pub const BYTES_MAX: usize = 4096;
/// The ring grows by so many entries.
const GROWTH: usize = 2;

const _: () = assert!(size_of::<Entry>() * ENTRIES_MAX + size_of::<History>() <= BYTES_MAX);

/// A run of equal decisions, or of equal actions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Time of the first, Unix seconds.
    pub since: i64,
    /// Seconds from the first to the latest.
    pub lasted_secs: u32,
    /// How many there were.
    pub decisions: u32,
    /// What was decided, or done.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What was decided or done, in few bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// What became of load and metrics.
    Blended(Blended),
    /// What the reconciler did.
    Action(Action),
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

    /// Whether `other`, which came later, says the same again, whatever it was decided from.
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

    fn voice(&self) -> Voice {
        match self {
            Self::Scale { .. } | Self::Unknown { .. } => Voice::Decider,
            Self::Blended(_) => Voice::Blend,
            Self::Action(_) => Voice::Reconciler,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    Decider,
    Blend,
    Reconciler,
}

/// The latest decisions and actions of one revision. See the [module](self).
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
        self.add(now, Outcome::of(decision))
    }

    /// Adds what the reconciler did at `now`. Whether it was a change.
    pub fn act(&mut self, now: Timestamp, action: Action) -> bool {
        self.add(now, Outcome::Action(action))
    }

    /// Adds what became of load and metrics at `now`. Whether it was a change.
    pub fn blend(&mut self, now: Timestamp, answer: &Answer) -> bool {
        Blended::of(answer).is_some_and(|blended| self.add(now, Outcome::Blended(blended)))
    }

    fn add(&mut self, now: Timestamp, outcome: Outcome) -> bool {
        let same_voice = |entry: &&mut Entry| entry.outcome.voice() == outcome.voice();
        let last = self.entries.iter_mut().rev().find(same_voice);
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

    /// The entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.entries.iter()
    }
}
