//! Schedules the evaluations of revisions: every two seconds, at a phase of its own.
//!
//! One [`Wheel`] drives all deciders of a process. The phase of a revision is a hash of its key, so thousands of
//! evaluations spread evenly over the period and keep their order. There is no task or timer per revision. The shell
//! sleeps until [`Wheel::next_due`], takes the keys from [`Wheel::due`], and evaluates them.
//!
//! # Edge cases
//!
//! - The first tick comes at the next phase of the revision: within two seconds of the insertion (in Knative: after
//!   exactly two).
//! - A shell that was late evaluates each revision once, not once for each missed period.
//!
//! The wheel has one entry per key, so its size is proportional to the number of revisions.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// Time between two evaluations of a revision.
pub const TICK: Duration = Duration::from_secs(2);
/// Number of phases that evaluations are spread over: one every 10 ms.
const PHASES: usize = 200;
/// Time between two phases.
const STEP: Duration = Duration::from_millis(10);

const _: () = assert!(STEP.as_millis() * PHASES as u128 == TICK.as_millis());

/// Timer wheel. See the [module](self).
#[derive(Debug)]
pub struct Wheel<K> {
    phases: Vec<Vec<K>>,
    /// Time of phase 0 of round 0.
    epoch: Instant,
    /// First step since the epoch that has not been taken yet.
    next_step: u64,
}

impl<K: Clone + Eq + Hash> Wheel<K> {
    /// Creates an empty wheel that starts at `now`.
    pub fn new(now: Instant) -> Self {
        Self { phases: vec![Vec::new(); PHASES], epoch: now, next_step: 0 }
    }

    /// Adds a revision. Does nothing if it is already there.
    pub fn insert(&mut self, key: K) {
        let phase = &mut self.phases[phase(&key)];
        if !phase.contains(&key) {
            phase.push(key);
        }
    }

    /// Removes a revision, if it is there.
    pub fn remove(&mut self, key: &K) {
        self.phases[phase(key)].retain(|other| other != key);
    }

    /// Returns the time at which the next revision is due, or `None` if the wheel is empty.
    pub fn next_due(&self) -> Option<Instant> {
        let mut steps = (0..PHASES as u64).map(|ahead| self.next_step + ahead);
        steps.find(|step| !self.phases[phase_of_step(*step)].is_empty()).map(|step| self.time_of(step))
    }

    /// Takes the phases that are due at `now`, oldest first: the time of each phase and its revisions. Each revision is
    /// taken once, however late the call.
    pub fn due(&mut self, now: Instant) -> Vec<(Instant, Vec<K>)> {
        let end = self.step_of(now).saturating_add(1);
        let steps = self.next_step.max(end.saturating_sub(PHASES as u64))..end;
        self.next_step = self.next_step.max(end);
        let phases = steps.map(|step| (self.time_of(step), self.phases[phase_of_step(step)].clone()));
        phases.filter(|(_, keys)| !keys.is_empty()).collect()
    }

    /// Returns the last step that is not after `now`.
    fn step_of(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.epoch);
        u64::try_from(elapsed.as_nanos() / STEP.as_nanos()).unwrap_or(u64::MAX)
    }

    fn time_of(&self, step: u64) -> Instant {
        self.epoch + Duration::from_millis(step.saturating_mul(STEP.as_millis() as u64))
    }
}

fn phase_of_step(step: u64) -> usize {
    (step % PHASES as u64) as usize
}

/// Returns the phase of a key. It is the same in every process, so that an instance that takes over keeps the rhythm.
fn phase(key: &impl Hash) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() % PHASES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::tests::epoch;
    use std::collections::HashMap;

    fn due(wheel: &mut Wheel<u32>, now: Instant) -> Vec<u32> {
        wheel.due(now).into_iter().flat_map(|(_, keys)| keys).collect()
    }

    fn wheel(keys: u32) -> (Wheel<u32>, Instant) {
        let epoch = epoch();
        let mut wheel = Wheel::new(epoch);
        (0..keys).for_each(|key| wheel.insert(key));
        (wheel, epoch)
    }

    #[test]
    fn every_revision_ticks_once_in_each_period_at_its_own_phase() {
        let (mut wheel, epoch) = wheel(10_000);
        let mut first = HashMap::new();
        let mut most = 0;
        for round in 0..3 {
            for step in 0..200 {
                let at = round * 2000 + step * 10;
                let keys = due(&mut wheel, epoch + Duration::from_millis(at));
                most = most.max(keys.len());
                for key in keys {
                    if round == 0 {
                        assert!(first.insert(key, at).is_none(), "{key} twice in a period");
                    } else {
                        assert_eq!(first[&key] + round * 2000, at, "the phase of {key}");
                    }
                }
            }
        }
        assert_eq!(first.len(), 10_000);
        assert!(most < 100, "10 000 revisions over 200 phases, and {most} at once");
    }

    #[test]
    fn the_shell_sleeps_exactly_until_the_next_phase_in_use() {
        let (mut wheel, epoch) = wheel(1);
        wheel.due(epoch); // If the revision has phase 0, this makes its next tick lie ahead, too.
        let first = wheel.next_due().expect("one revision");
        assert_eq!(due(&mut wheel, first - Duration::from_nanos(1)), [0; 0], "just before");
        assert_eq!(wheel.next_due(), Some(first));
        assert_eq!(due(&mut wheel, first), [0]);
        assert_eq!(wheel.next_due(), Some(first + TICK));
        assert_eq!(due(&mut wheel, first), [0; 0], "taken once");
        wheel.remove(&0);
        assert_eq!(wheel.next_due(), None);
    }

    #[test]
    fn a_late_shell_evaluates_each_revision_once() {
        let (mut wheel, epoch) = wheel(50);
        let mut keys = due(&mut wheel, epoch + 10 * TICK);
        keys.sort_unstable();
        assert_eq!(keys, (0..50).collect::<Vec<_>>());
        assert!(wheel.next_due().is_some_and(|next| next > epoch + 10 * TICK), "no backlog is left");
    }

    /// Goal: each used phase is taken with its time and no other phase is, so that the shell knows how late it is.
    #[test]
    fn phases_are_taken_with_their_times() {
        let (mut wheel, epoch) = wheel(1);
        wheel.due(epoch); // If the revision has phase 0, this makes its next tick lie ahead, too.
        let first = wheel.next_due().expect("one revision");
        let behind = Duration::from_millis(35);
        assert_eq!(wheel.due(first + behind), [(first, vec![0])], "four steps, one of them used");
        assert_eq!(wheel.due(first + behind), [], "taken");
        assert_eq!(wheel.due(first + 2 * TICK + behind), [(first + 2 * TICK, vec![0])], "once, for the last period");
    }

    #[test]
    fn a_removed_revision_does_not_tick_and_one_added_twice_ticks_once() {
        let (mut wheel, epoch) = wheel(2);
        wheel.remove(&0);
        wheel.remove(&7);
        assert_eq!(due(&mut wheel, epoch + TICK), [1]);
        wheel.insert(0);
        wheel.insert(0);
        assert_eq!(due(&mut wheel, epoch + 2 * TICK).len(), 2);
    }

    #[test]
    fn no_phase_is_taken_twice_if_the_clock_goes_back() {
        let (mut wheel, epoch) = wheel(20);
        assert_eq!(due(&mut wheel, epoch + TICK).len(), 20);
        assert_eq!(due(&mut wheel, epoch), [0; 0]);
        assert_eq!(due(&mut wheel, epoch + TICK), [0; 0]);
    }
}
