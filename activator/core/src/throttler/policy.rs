//! How a pod is chosen among the assigned ones. Only the container concurrency decides which way (Knative's rule), unless
//! several activators keep one limit together: then it is round robin.
//!
//! | container concurrency | policy | effect |
//! |---|---|---|
//! | none | the less loaded of two random ones | spreads, at constant cost |
//! | 1 to 3 | the first with a free slot, in address order | clumps, so that the last pods stay idle and can go |
//! | 4 and more | round robin over those with a free slot | spreads |
//!
//! A client that has a pod of its own ([`Policy::pick_own`]) gets that one, as long as it has room.
//!
//! The last two never exceed the container concurrency, and answer `None` when all are full. An empty list answers
//! `None`, never panics (Knative's first does).
//!
//! Scans do not lock. One that finds all full while slots are free was overtaken by another request that took a slot
//! it had not reached yet, while one behind it became free; the caller looks again.

use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand::{Rng, RngExt};

use super::pod::{PodTracker, Slot};

/// Requests that one pod may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerConcurrency {
    /// No limit.
    Unlimited,
    /// So many.
    Limited(NonZeroU32),
}

impl ContainerConcurrency {
    /// From the field's number, where 0 means no limit.
    pub fn from_number(n: u32) -> Self {
        NonZeroU32::new(n).map_or(Self::Unlimited, Self::Limited)
    }

    /// Back to the number.
    pub fn to_number(self) -> u32 {
        match self {
            Self::Unlimited => 0,
            Self::Limited(n) => n.get(),
        }
    }
}

/// A way to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    ChoiceOfTwo,
    FirstAvailable { limit: u32 },
    RoundRobin { limit: u32 },
}

/// The largest container concurrency whose requests go to the first available pod.
const FIRST_AVAILABLE_MAX: u32 = 3;

impl Policy {
    pub(super) fn of(concurrency: ContainerConcurrency) -> Self {
        match concurrency {
            ContainerConcurrency::Unlimited => Self::ChoiceOfTwo,
            ContainerConcurrency::Limited(limit) if limit.get() <= FIRST_AVAILABLE_MAX => {
                Self::FirstAvailable { limit: limit.get() }
            }
            ContainerConcurrency::Limited(limit) => Self::RoundRobin { limit: limit.get() },
        }
    }

    /// Where activators keep one limit together, each pod has its turn, whatever the limit.
    pub(super) fn in_turn(concurrency: ContainerConcurrency) -> Self {
        match concurrency {
            ContainerConcurrency::Unlimited => Self::ChoiceOfTwo,
            ContainerConcurrency::Limited(limit) => Self::RoundRobin { limit: limit.get() },
        }
    }

    /// Chooses among `pods` and takes a slot. `cursor` is round robin's, one for each revision.
    pub(super) fn pick<R: Rng + ?Sized>(
        self,
        pods: &[Arc<PodTracker>],
        cursor: &AtomicUsize,
        rng: &mut R,
    ) -> Option<Slot> {
        match self {
            Self::ChoiceOfTwo => choice_of_two(pods, rng),
            Self::FirstAvailable { limit } => pods.iter().find_map(|pod| pod.try_reserve(limit)),
            Self::RoundRobin { limit } => round_robin(pods, limit, cursor),
        }
    }
}

impl Policy {
    /// Chooses a client's own pod, the next one if that is full, and takes a slot. By rendezvous hashing: whoever knows the
    /// same pods chooses the same one, and a pod that comes or goes moves only the clients that are its own.
    pub(super) fn pick_own(self, pods: &[Arc<PodTracker>], client: IpAddr) -> Option<Slot> {
        let weight = |pod: &&Arc<PodTracker>| {
            let mut hasher = DefaultHasher::new();
            (client.to_canonical(), pod.destination.address().ip()).hash(&mut hasher);
            Reverse(hasher.finish())
        };
        match self {
            Self::ChoiceOfTwo => pods.iter().min_by_key(weight).map(|pod| pod.reserve()),
            Self::FirstAvailable { limit } | Self::RoundRobin { limit } => {
                let mut ranked: Vec<_> = pods.iter().collect();
                ranked.sort_by_cached_key(weight);
                ranked.into_iter().find_map(|pod| pod.try_reserve(limit))
            }
        }
    }
}

fn choice_of_two<R: Rng + ?Sized>(pods: &[Arc<PodTracker>], rng: &mut R) -> Option<Slot> {
    let (one, other) = match pods {
        [] => return None,
        [only] => return Some(only.reserve()),
        [one, other] => (one, other),
        _ => {
            let one = rng.random_range(0..pods.len());
            let other = rng.random_range(0..pods.len() - 1);
            (&pods[one], &pods[if other < one { other } else { other + 1 }])
        }
    };
    let first = match one.in_flight().cmp(&other.in_flight()) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Greater => false,
        std::cmp::Ordering::Equal => rng.random(),
    };
    Some(if first { one } else { other }.reserve())
}

/// The cursor is moved before the scan, so that two requests at once start at different pods, and put behind the pod
/// that was taken after it.
fn round_robin(pods: &[Arc<PodTracker>], limit: u32, cursor: &AtomicUsize) -> Option<Slot> {
    let start = cursor
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |at| Some(if at < pods.len() { at + 1 } else { 1 }))
        .map_or(0, |at| if at < pods.len() { at } else { 0 });
    for position in (start..pods.len()).chain(0..start.min(pods.len())) {
        if let Some(slot) = pods[position].try_reserve(limit) {
            if position != start {
                cursor.store(position + 1, Ordering::Release);
            }
            return Some(slot);
        }
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Weak;

    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    fn pods(n: u8) -> Vec<Arc<PodTracker>> {
        (0..n).map(|i| PodTracker::new(std::net::SocketAddr::from(([10, 0, 0, i], 8012)).into(), Weak::new())).collect()
    }

    /// Picks on one fixed policy and cursor, and says which position was taken.
    struct Picker {
        policy: Policy,
        cursor: AtomicUsize,
        rng: SmallRng,
        all: Vec<Arc<PodTracker>>,
        held: Vec<Option<Slot>>,
    }

    impl Picker {
        fn new(container_concurrency: u32, n: u8) -> Self {
            let policy = Policy::of(ContainerConcurrency::from_number(container_concurrency));
            let rng = SmallRng::seed_from_u64(1);
            Self { policy, cursor: AtomicUsize::new(0), rng, all: pods(n), held: Vec::new() }
        }

        /// Like `new`, but round robin whatever the limit.
        fn round_robin(limit: u32, n: u8) -> Self {
            Self { policy: Policy::RoundRobin { limit }, ..Self::new(limit, n) }
        }

        fn pick_among(&mut self, n: usize) -> Option<usize> {
            let slot = self.policy.pick(&self.all[..n], &self.cursor, &mut self.rng)?;
            let position = self.all.iter().position(|pod| Arc::ptr_eq(pod, &slot.pod));
            self.held.push(Some(slot));
            position
        }

        fn pick(&mut self) -> Option<usize> {
            self.pick_among(self.all.len())
        }

        fn release(&mut self, pick: usize) {
            self.held[pick] = None;
        }
    }

    /// Goal: a client stays with its pod in whichever order pods are known, leaves it only if that is full or gone, and clients
    /// are spread.
    #[test]
    fn a_client_has_a_pod_of_its_own() {
        let all = pods(5);
        let own = |policy: Policy, pods: &[Arc<PodTracker>], n: u8| {
            policy.pick_own(pods, IpAddr::from([192, 0, 2, n])).map(|slot| slot.pod.destination.clone())
        };
        let (free, mut reversed) = (Policy::ChoiceOfTwo, all.clone());
        reversed.reverse();
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..100 {
            let first = own(free, &all, n).expect("a pod");
            assert_eq!(own(free, &reversed, n), Some(first.clone()), "client {n}");
            let others: Vec<_> = all.iter().filter(|pod| pod.destination != first).cloned().collect();
            let next = own(free, &others, n).expect("another");
            let one_less: Vec<_> = all.iter().filter(|pod| pod.destination != next).cloned().collect();
            assert_eq!(own(free, &one_less, n), Some(first.clone()), "another pod's end moves nobody else");
            let limited = Policy::RoundRobin { limit: 1 };
            let held = limited.pick_own(&all, IpAddr::from([192, 0, 2, n])).expect("a slot");
            assert_eq!(
                (held.pod.destination.clone(), own(limited, &all, n)),
                (first.clone(), Some(next)),
                "its own is full"
            );
            seen.insert(first.address());
        }
        assert_eq!((seen.len(), own(free, &[], 1)), (5, None));
    }

    #[test]
    fn an_empty_list_picks_nobody() {
        for container_concurrency in [0, 1, 3, 4, 100] {
            assert_eq!(Picker::new(container_concurrency, 0).pick(), None);
        }
    }

    /// Up to three places on each pod.
    #[test]
    fn small_limits_fill_the_first_pod_first() {
        let mut picker = Picker::new(1, 2);
        assert_eq!([picker.pick(), picker.pick(), picker.pick()], [Some(0), Some(1), None]);
        let mut picker = Picker::new(3, 5);
        assert_eq!([picker.pick(), picker.pick(), picker.pick(), picker.pick()], [0, 0, 0, 1].map(Some));
        let mut picker = Picker::new(1, 1);
        assert_eq!([picker.pick(), picker.pick()], [Some(0), None]);
    }

    /// More than three places on each pod.
    #[test]
    fn larger_limits_take_turns() {
        let mut picker = Picker::new(5, 3);
        let picks: [_; 8] = std::array::from_fn(|_| picker.pick());
        assert_eq!(picks, [0, 1, 2, 0, 1, 2, 0, 1].map(Some));
    }

    #[test]
    fn a_turn_goes_on_behind_the_pod_that_was_taken() {
        let mut picker = Picker::round_robin(1, 4);
        let _busy = [picker.all[0].reserve(), picker.all[1].reserve()];
        assert_eq!([picker.pick(), picker.pick(), picker.pick()], [Some(2), Some(3), None]);
        picker.release(0);
        picker.release(1);
        assert_eq!([picker.pick(), picker.pick()], [Some(2), Some(3)]);

        let mut picker = Picker::round_robin(2, 3);
        let _busy = [picker.all[0].reserve(), picker.all[0].reserve()];
        assert_eq!([picker.pick(), picker.pick(), picker.pick()], [1, 2, 1].map(Some));
    }

    #[test]
    fn round_robin_survives_a_list_cut_under_its_cursor() {
        let mut picker = Picker::round_robin(1, 3);
        assert_eq!([picker.pick(), picker.pick()], [0, 1].map(Some));
        assert_eq!(picker.pick_among(1), None, "the only pod left is full");
        assert_eq!([picker.pick(), picker.pick()], [Some(2), None]);
        picker.release(2);
        assert_eq!(picker.pick(), Some(2));

        let mut picker = Picker::round_robin(2, 3);
        assert_eq!([picker.pick(), picker.pick()], [0, 1].map(Some));
        assert_eq!(picker.pick_among(1), Some(0));
        assert_eq!([picker.pick(), picker.pick(), picker.pick()], [1, 2, 2].map(Some));
    }

    /// No limit, one pod and two.
    #[test]
    fn choice_of_two_prefers_the_less_loaded() {
        let mut picker = Picker::new(0, 1);
        assert_eq!([picker.pick(), picker.pick()], [Some(0), Some(0)]);
        assert_eq!(picker.all[0].in_flight(), 2);
        picker.release(1);
        assert_eq!(picker.all[0].in_flight(), 1, "the weight is given back");

        let mut picker = Picker::new(0, 2);
        let (first, second) = (picker.pick(), picker.pick());
        assert_ne!(first, second);
        picker.release(1);
        assert_eq!(picker.pick(), second);
    }

    /// Goal: it is a choice between two, so the only busy pod never wins it.
    #[test]
    fn choice_of_two_never_meets_one_pod_twice() {
        for n in [2, 3, 5] {
            for busy in 0..n {
                let mut picker = Picker::new(0, n);
                let _load = picker.all[usize::from(busy)].reserve();
                for pick in 0..100 {
                    assert_ne!(picker.pick(), Some(usize::from(busy)), "of {n}");
                    picker.release(pick);
                }
            }
        }
    }

    /// A hundred picks, all released.
    #[test]
    fn choice_of_two_reaches_every_pod() {
        for n in [2, 3, 7] {
            let mut picker = Picker::new(0, n);
            let mut seen = std::collections::BTreeSet::new();
            for pick in 0..100 {
                seen.extend(picker.pick());
                picker.release(pick);
            }
            assert_eq!(seen.len(), usize::from(n), "of {n} idle pods each is picked some time");
        }
    }
}
