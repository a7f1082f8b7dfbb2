//! Memory of an autoscaler between reconciliations: recommendations and changes of the scale.
//!
//! Each new entry of a list replaces the last entry that no longer matters. The lists therefore hold about as many
//! entries as fit their windows, and are not sorted by time.
//!
//! The memory starts empty: after a restart the first recommendation is the present scale, and no earlier change counts
//! against a limit. The owner of the memory must drop it if the autoscaler is removed, or another controller acts on it
//! for a time. Otherwise its old recommendations would prevent a new [seed](Memory::seed), and a scale-down would
//! not be stabilized.

use std::time::Duration;

use common::time::Timestamp;

/// Memory of one autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Recommendations of the metrics, before stabilization and limits.
    pub recommendations: Vec<Recommendation>,
    /// Scale-ups. Kept only with a behavior.
    pub scale_ups: Vec<ScaleEvent>,
    /// Scale-downs. Kept only with a behavior.
    pub scale_downs: Vec<ScaleEvent>,
}

/// Recommendation of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recommendation {
    /// Recommended replicas.
    pub replicas: i32,
    /// Time of the recommendation.
    pub at: Timestamp,
}

/// Change of the scale by this controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleEvent {
    /// Number of added or removed replicas; never negative.
    pub change: i32,
    /// Time of the change.
    pub at: Timestamp,
    /// Set if the change was older than the longest period when a later one was stored, so that it may be replaced. Its
    /// age alone decides whether it still counts.
    pub outdated: bool,
}

impl Memory {
    /// Records the present scale as the first recommendation.
    pub fn seed(&mut self, replicas: i32, at: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push(Recommendation { replicas, at });
        }
    }

    /// Records a change of the scale. `longest` is the longest period of the policies in its direction.
    pub fn record_change(&mut self, from: i32, to: i32, at: Timestamp, longest: Duration) {
        let events = if to > from { &mut self.scale_ups } else { &mut self.scale_downs };
        for event in events.iter_mut().filter(|event| event.at < at - longest) {
            event.outdated = true;
        }
        let change = to.wrapping_sub(from).wrapping_abs();
        push_or_replace(events, ScaleEvent { change, at, outdated: false }, |event| event.outdated);
    }

    /// Returns the replicas added and removed less than `period` ago.
    pub(super) fn changes(&self, now: Timestamp, period: Duration) -> (i32, i32) {
        let sum = |events: &[ScaleEvent]| {
            let young = events.iter().filter(|event| event.at > now - period);
            young.fold(0_i32, |sum, event| sum.wrapping_add(event.change))
        };
        (sum(&self.scale_ups), sum(&self.scale_downs))
    }
}

/// Adds an entry to a list in place of the last one for which `is_old` returns true, or else at the end.
pub(super) fn push_or_replace<T>(list: &mut Vec<T>, new: T, is_old: impl Fn(&T) -> bool) {
    match list.iter().rposition(is_old) {
        Some(index) => list[index] = new,
        None => list.push(new),
    }
}
