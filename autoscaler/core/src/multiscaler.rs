//! Schedules the evaluations of revisions: every two seconds, at a phase of its own, and at once after a poke.
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
//! - A poke does not move the phase. Two pokes before the evaluation count as one, and a poke of an unknown revision is
//!   ignored. Pokes are taken in order of arrival, before ticks.
//!
//! The wheel has one entry per key, so its size is proportional to the number of revisions.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
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
    /// Keys in the wheel, and true for those that were poked.
    keys: HashMap<K, bool>,
    /// Poked keys in order of arrival.
    poked: Vec<K>,
    /// Time of phase 0 of round 0.
    epoch: Instant,
    /// First step since the epoch that has not been taken yet.
    next_step: u64,
}

impl<K: Clone + Eq + Hash> Wheel<K> {
    /// Creates an empty wheel that starts at `now`.
    pub fn new(now: Instant) -> Self {
        let phases = std::iter::repeat_with(Vec::new).take(PHASES).collect();
        Self { phases, keys: HashMap::new(), poked: Vec::new(), epoch: now, next_step: 0 }
    }

    /// Adds a revision. Does nothing if it is already there.
    pub fn insert(&mut self, key: K) {
        if !self.keys.contains_key(&key) {
            self.phases[phase(&key)].push(key.clone());
            self.keys.insert(key, false);
        }
    }

    /// Removes a revision. Returns true if it was there.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some(poked) = self.keys.remove(key) else { return false };
        self.phases[phase(key)].retain(|other| other != key);
        if poked {
            self.poked.retain(|other| other != key);
        }
        true
    }

    /// Makes a revision due at once. Returns true if the shell must check for due revisions: the key is known and was
    /// not poked before.
    pub fn poke(&mut self, key: &K) -> bool {
        match self.keys.get_mut(key) {
            Some(poked) if !*poked => {
                *poked = true;
                self.poked.push(key.clone());
                true
            }
            _ => false,
        }
    }

    /// Returns the time at which the next revision is due, or `None` if the wheel is empty. The time is `now` or
    /// earlier if a revision is already due.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        if !self.poked.is_empty() {
            return Some(now);
        }
        (0..PHASES as u64)
            .map(|ahead| self.next_step + ahead)
            .find(|step| !self.phases[phase_of_step(*step)].is_empty())
            .map(|step| self.time_of(step))
    }

    /// Returns the due times of the ticks that [`Wheel::due`] would take at `now`: one for each phase with revisions in
    /// it, oldest first. The lateness of an evaluation is its distance from that time.
    pub fn phases_due(&self, now: Instant) -> impl Iterator<Item = Instant> + '_ {
        let steps = self.steps_due(now).filter(|step| !self.phases[phase_of_step(*step)].is_empty());
        steps.map(|step| self.time_of(step))
    }

    /// Appends everything that is due at `now` to `due`: pokes first, each revision once.
    pub fn due(&mut self, now: Instant, due: &mut Vec<K>) {
        let steps = self.steps_due(now);
        let end = steps.end;
        due.extend(self.poked.iter().cloned());
        for step in steps {
            let ticks = self.phases[phase_of_step(step)].iter();
            due.extend(ticks.filter(|key| self.poked.is_empty() || self.keys.get(key) == Some(&false)).cloned());
        }
        self.next_step = self.next_step.max(end);
        for key in self.poked.drain(..) {
            if let Some(poked) = self.keys.get_mut(&key) {
                *poked = false;
            }
        }
    }

    /// Returns the number of revisions.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns true if there is no revision.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the steps up to `now` that have not been taken yet, at most the last round.
    fn steps_due(&self, now: Instant) -> Range<u64> {
        let end = self.step_of(now).saturating_add(1);
        self.next_step.max(end.saturating_sub(PHASES as u64))..end
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

    #[allow(clippy::disallowed_methods, reason = "an origin for made-up instants; nothing here waits")]
    fn epoch() -> Instant {
        Instant::now()
    }

    fn due(wheel: &mut Wheel<u32>, now: Instant) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.due(now, &mut due);
        due
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
        wheel.due(epoch, &mut Vec::new()); // If the revision has phase 0, this makes its next tick lie ahead, too.
        let first = wheel.next_due(epoch).expect("one revision");
        assert_eq!(due(&mut wheel, first - Duration::from_nanos(1)), [0; 0], "just before");
        assert_eq!(wheel.next_due(epoch), Some(first));
        assert_eq!(due(&mut wheel, first), [0]);
        assert_eq!(wheel.next_due(first), Some(first + TICK));
        assert_eq!(due(&mut wheel, first), [0; 0], "taken once");
        assert!(wheel.remove(&0));
        assert_eq!((wheel.next_due(first), wheel.is_empty()), (None, true));
    }

    #[test]
    fn a_late_shell_evaluates_each_revision_once() {
        let (mut wheel, epoch) = wheel(50);
        let mut keys = due(&mut wheel, epoch + 10 * TICK);
        keys.sort_unstable();
        assert_eq!(keys, (0..50).collect::<Vec<_>>());
        assert!(wheel.next_due(epoch).is_some_and(|next| next > epoch + 10 * TICK), "no backlog is left");
    }

    /// Goal: the lateness is known for each used phase and for no other, and not for a tick that was already taken.
    #[test]
    fn phases_are_late_by_as_much_as_the_shell() {
        let (mut wheel, epoch) = wheel(1);
        wheel.due(epoch, &mut Vec::new()); // If the revision has phase 0, this makes its next tick lie ahead, too.
        let first = wheel.next_due(epoch).expect("one revision");
        let late = |wheel: &Wheel<u32>, now| wheel.phases_due(now).map(|at| now - at).collect::<Vec<_>>();
        assert_eq!(late(&wheel, first - Duration::from_nanos(1)), []);
        let behind = Duration::from_millis(35);
        assert_eq!(late(&wheel, first + behind), [behind], "four steps, one of them used");
        assert_eq!(late(&wheel, first + TICK + behind), [behind], "what is evaluated once is late once");
        due(&mut wheel, first + behind);
        assert_eq!(late(&wheel, first + behind), [], "taken");
    }

    #[test]
    fn a_poke_is_due_at_once_and_once() {
        let (mut wheel, epoch) = wheel(2);
        wheel.due(epoch, &mut Vec::new());
        assert!(wheel.poke(&1));
        assert!(!wheel.poke(&1), "poked already");
        assert!(!wheel.poke(&7), "unknown");
        assert_eq!(wheel.next_due(epoch), Some(epoch));
        assert_eq!(due(&mut wheel, epoch), [1]);
        assert!(wheel.poke(&1), "taken, so it can be poked again");
        assert_eq!(due(&mut wheel, epoch + TICK), [1, 0], "the poke first, and no tick beside it");
    }

    #[test]
    fn what_is_removed_is_neither_ticked_nor_poked() {
        let (mut wheel, epoch) = wheel(2);
        assert!(wheel.poke(&0));
        assert!(wheel.remove(&0));
        assert!(!wheel.remove(&0), "it is gone");
        assert_eq!(due(&mut wheel, epoch + TICK), [1]);
        assert_eq!((wheel.len(), wheel.is_empty()), (1, false));
        wheel.insert(0);
        wheel.insert(0);
        assert_eq!(wheel.len(), 2);
        assert_eq!(due(&mut wheel, epoch + 2 * TICK).len(), 2);
    }

    #[test]
    fn the_clock_going_back_takes_nothing_twice() {
        let (mut wheel, epoch) = wheel(20);
        assert_eq!(due(&mut wheel, epoch + TICK).len(), 20);
        assert_eq!(due(&mut wheel, epoch), [0; 0]);
        assert_eq!(due(&mut wheel, epoch + TICK), [0; 0]);
    }
}
