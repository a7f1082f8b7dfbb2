//! Chooses a pod among the assigned ones. The policy depends only on the container concurrency, as in Knative. The
//! exception: if several activators enforce one limit together, the policy is round robin.
//!
//! | container concurrency | policy | effect |
//! |---|---|---|
//! | none | the less loaded of two random pods | spreads, at constant cost |
//! | 1 to 3 | the first pod with a free slot, in address order | packs, so that the last pods stay idle |
//! | 4 and more | round robin over pods with a free slot | spreads |
//!
//! A client with a pod of its own ([`Policy::pick_own`]) gets that pod as long as it has room.
//!
//! The last two policies never exceed the container concurrency, and return `None` if all pods are full. An empty list
//! returns `None` and never panics (Knative's first policy does).
//!
//! Scans take no lock. A scan can find all pods full although a slot is free: another request took a slot ahead of the
//! scan, while a slot behind it became free. The caller scans again.

use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand::{Rng, RngExt};

use super::pod::{PodTracker, Slot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    ChoiceOfTwo,
    FirstAvailable { limit: u32 },
    RoundRobin { limit: u32 },
}

/// Largest container concurrency for which requests go to the first available pod.
const FIRST_AVAILABLE_MAX: u32 = 3;

impl Policy {
    /// Returns the policy for a container concurrency. With `is_shared`, several activators enforce the limit together.
    pub(super) fn for_concurrency(concurrency: u32, is_shared: bool) -> Self {
        match concurrency {
            0 => Self::ChoiceOfTwo,
            limit if limit <= FIRST_AVAILABLE_MAX && !is_shared => Self::FirstAvailable { limit },
            limit => Self::RoundRobin { limit },
        }
    }

    /// Chooses among `pods` and takes a slot. `cursor` is the round-robin cursor of the revision.
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

    /// Chooses the client's own pod, or the next one if that is full, and takes a slot. Uses rendezvous hashing:
    /// activators that know the same pods choose the same pod, and a pod that is added or removed moves only the
    /// clients assigned to it.
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

/// Chooses by round robin. The cursor moves before the scan, so that concurrent requests start at different pods. After
/// the scan it moves behind the chosen pod.
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

    /// Picks with one fixed policy and cursor, and returns the position of the chosen pod.
    struct Picker {
        policy: Policy,
        cursor: AtomicUsize,
        rng: SmallRng,
        all: Vec<Arc<PodTracker>>,
        held: Vec<Option<Slot>>,
    }

    impl Picker {
        fn new(policy: Policy, n: u8) -> Self {
            let rng = SmallRng::seed_from_u64(1);
            Self { policy, cursor: AtomicUsize::new(0), rng, all: pods(n), held: Vec::new() }
        }

        fn round_robin(limit: u32, n: u8) -> Self {
            Self::new(Policy::RoundRobin { limit }, n)
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

    /// Goal: a client stays with its pod in whatever order the pods are known, leaves it only if it is full or gone,
    /// and clients are spread over the pods.
    #[test]
    fn a_client_keeps_its_pod_while_that_has_room() {
        let all = pods(5);
        let own = |policy: Policy, pods: &[Arc<PodTracker>], n: u8| {
            policy.pick_own(pods, IpAddr::from([192, 0, 2, n])).map(|slot| slot.pod.destination.clone())
        };
        let (free, mut reversed) = (Policy::ChoiceOfTwo, all.clone());
        reversed.reverse();
        let mut picked = std::collections::BTreeSet::new();
        for n in 0..100 {
            let first = own(free, &all, n).expect("a pod");
            assert_eq!(own(free, &reversed, n), Some(first.clone()), "client {n}");
            let others: Vec<_> = all.iter().filter(|pod| pod.destination != first).cloned().collect();
            let next = own(free, &others, n).expect("another");
            let one_less: Vec<_> = all.iter().filter(|pod| pod.destination != next).cloned().collect();
            assert_eq!(own(free, &one_less, n), Some(first.clone()), "the end of another pod moves no client");
            let limited = Policy::RoundRobin { limit: 1 };
            let held = limited.pick_own(&all, IpAddr::from([192, 0, 2, n])).expect("a slot");
            assert_eq!(held.pod.destination, first);
            assert_eq!(own(limited, &all, n), Some(next), "its own pod is full");
            picked.insert(first.address());
        }
        assert_eq!((picked.len(), own(free, &[], 1)), (5, None));
    }

    #[test]
    fn round_robin_continues_after_the_chosen_pod() {
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

    /// Goal: two different pods are compared, so the only busy pod is never chosen, and each other pod some time.
    #[test]
    fn choice_of_two_compares_two_different_pods() {
        for n in [2, 3, 5] {
            for busy in 0..n {
                let mut picker = Picker::new(Policy::ChoiceOfTwo, n);
                let _load = picker.all[usize::from(busy)].reserve();
                let mut picked = std::collections::BTreeSet::new();
                for pick in 0..100 {
                    picked.extend(picker.pick());
                    picker.release(pick);
                }
                let others = (0..usize::from(n)).filter(|pod| *pod != usize::from(busy));
                assert!(picked.iter().copied().eq(others), "of {n}: {picked:?}");
            }
        }
    }
}
