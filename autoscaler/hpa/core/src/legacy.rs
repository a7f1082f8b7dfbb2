//! Stabilization and limits without `spec.behavior`.
//!
//! The largest recommendation of the last window (age up to and including its length), the new one among them, counts.
//! It may grow to twice the current replicas, or 4 if that is more, in one reconciliation, and may shrink at once to
//! `minReplicas`; there is no limit in time in either direction.
//!
//! # Odd case, kept
//!
//! The stabilized recommendation may exceed the current replicas: a high recommendation that was limited at the time
//! goes on pushing the scale up for the whole window, though the metrics ask for less by now. Event texts then say "All
//! metrics below target" while the target grows. A behavior never does this ([`super::behavior`]).

use std::time::Duration;

use common::time::Timestamp;

use super::decision::{Decision, Demand, Limit, Stabilization};
use super::memory::{Memory, Recommendation};

/// Replicas that may be reached at once, however few there are.
const FREE_REPLICAS: i32 = 4;

/// Decides, and remembers the proposal.
pub fn decide(memory: &mut Memory, demand: &Demand, window: Duration, now: Timestamp) -> Decision {
    let stabilized = stabilize(memory, demand.proposed, window, now);
    let stabilization = if stabilized == demand.proposed { Stabilization::Ready } else { Stabilization::Down };
    let (replicas, limit) = bound(&Demand { proposed: stabilized, ..*demand });
    Decision { replicas, stabilized, stabilization, limit }
}

/// How far one reconciliation may grow: twice the replicas, at least 4.
pub fn scale_up_limit(current: i32) -> i32 {
    current.saturating_mul(2).max(FREE_REPLICAS)
}

fn stabilize(memory: &mut Memory, proposed: i32, window: Duration, now: Timestamp) -> i32 {
    let is_old = |recommendation: &Recommendation| recommendation.at < now - window;
    let recent = memory.recommendations.iter().filter(|r| !is_old(r)).map(|r| r.replicas);
    let stabilized = recent.fold(proposed, i32::max);
    memory.recommend(Recommendation { replicas: proposed, at: now }, is_old);
    stabilized
}

fn bound(demand: &Demand) -> (i32, Limit) {
    let rate = scale_up_limit(demand.current);
    let (most, limit) = if demand.max > rate { (rate, Limit::ScaleUp) } else { (demand.max, Limit::TooMany) };
    if demand.proposed < demand.min {
        (demand.min, Limit::TooFew)
    } else if demand.proposed > most {
        (most, limit)
    } else {
        (demand.proposed, Limit::WithinRange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
    const WINDOW: Duration = Duration::from_secs(300);

    fn memory(history: &[(i32, u64)]) -> Memory {
        let recommendation =
            |&(replicas, age): &(i32, u64)| Recommendation { replicas, at: NOW - Duration::from_secs(age) };
        Memory { recommendations: history.iter().map(recommendation).collect(), ..Memory::default() }
    }

    #[test]
    fn bounds_limit_what_is_proposed() {
        for (current, proposed, min, max, replicas, limit) in [
            (5, 7, 3, 8, 7, Limit::WithinRange),
            (3, 1, 2, 8, 2, Limit::TooFew),
            (1, 0, 0, 10, 0, Limit::WithinRange),
            (20, 1000, 1, 10, 10, Limit::TooMany),
            (3, 1000, 1, 2000, 6, Limit::ScaleUp),
            (0, 1000, 0, 2000, 4, Limit::ScaleUp),
            (i32::MAX, i32::MAX, 1, i32::MAX, i32::MAX, Limit::WithinRange),
        ] {
            assert_eq!(bound(&Demand { current, proposed, min, max }), (replicas, limit), "{current} to {proposed}");
        }
    }

    #[test]
    fn recommendations_of_the_window_hold() {
        for (history, proposed, stabilized, length) in [
            (&[][..], 5, 5, 1),
            (&[(4, 120), (5, 60)], 3, 5, 3),
            (&[(1, 120), (2, 60)], 3, 3, 3),
            (&[(10, 600), (9, 540)], 3, 3, 2),
            (&[(10, 600), (4, 60), (5, 120), (9, 540)], 3, 5, 4),
            (&[(8, 300)], 3, 8, 2),
        ] {
            let mut memory = memory(history);
            assert_eq!(stabilize(&mut memory, proposed, WINDOW, NOW), stabilized, "{history:?}");
            assert_eq!(memory.recommendations.len(), length, "{history:?}");
        }
    }

    #[test]
    fn unlimited_demand_doubles_from_four() {
        for (start, steps) in [(1, &[4, 8, 16, 32, 64, 128][..]), (3, &[6, 12, 24]), (0, &[4, 8])] {
            let mut current = start;
            for expected in steps {
                let demand = Demand { current, proposed: i32::MAX, min: 0, max: i32::MAX };
                current = decide(&mut Memory::default(), &demand, WINDOW, NOW).replicas;
                assert_eq!(current, *expected, "from {start}");
            }
        }
    }

    /// The odd case: 40 was asked for once, and 6 is now.
    #[test]
    fn a_stale_recommendation_goes_on_growing_the_target() {
        let mut memory = Memory::default();
        let demand = Demand { current: 4, proposed: 40, min: 1, max: 100 };
        assert_eq!(decide(&mut memory, &demand, WINDOW, NOW).replicas, 8);
        let later = Demand { current: 8, proposed: 6, ..demand };
        let decision = decide(&mut memory, &later, WINDOW, NOW + Duration::from_secs(15));
        assert_eq!((decision.replicas, decision.stabilization), (16, Stabilization::Down));
    }
}
