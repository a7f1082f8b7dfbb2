//! Computes the pods that this activator uses, and the resulting capacity.
//!
//! # Assignment
//!
//! With a container concurrency, activators divide the pods: L pods sorted by text, A activators, own index i.
//!
//! | case | assigned |
//! |---|---|
//! | index unknown, A = 1, or L <= 1 | all |
//! | A > L | the pod at i mod L |
//! | A <= L | q = L / A pods from position i q on; of the last r = L mod A pods also the i-th, if i < r |
//!
//! # Capacity
//!
//! The container concurrency times the assigned pods. Behind a cluster IP no pod is assigned: the capacity is the
//! container concurrency times the ready pods, divided by the activators, but at least 1 if there is a pod. Without a
//! container concurrency the capacity is unlimited as soon as there is a pod.
//!
//! Both match Knative exactly, including edge cases, because activators of both kinds may share a revision.

use std::ops::Range;

use crate::own_index::Activators;

/// Returns the positions of this activator's share of `len` sorted pods, in order.
pub fn assign(len: usize, activators: Activators) -> impl Iterator<Item = usize> {
    let (adjacent, extra) = match activators {
        Activators::Known { index, count } if len > 1 && count > 1 => share(len, index as usize, count as usize),
        _ => (0..len, None),
    };
    adjacent.chain(extra)
}

/// Returns the adjacent positions of the activator at `index`, and one of the leftover positions at the end, if it has
/// one.
fn share(len: usize, index: usize, count: usize) -> (Range<usize>, Option<usize>) {
    if count > len {
        let own = index % len;
        return (own..own + 1, None);
    }
    let (size, leftover) = (len / count, len % count);
    let first_leftover = len - leftover;
    (index * size..(index + 1) * size, (index < leftover).then(|| first_leftover + index))
}

/// Inputs of Knative's formula for the capacity of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityInputs {
    /// Number of requests that one pod may run at once; 0 means no limit.
    pub container_concurrency: u32,
    /// Number of known pods. Knative passes -1 if only the number of activators has changed.
    pub backends: i64,
    /// Number of pods assigned to this activator; 0 behind a cluster IP.
    pub assigned: u32,
    /// Number of activators that share the revision; 0 if unknown.
    pub activators: u32,
}

/// Result of [`capacity`] that stands for "unlimited": 2^31 - 1.
pub const UNLIMITED_CAPACITY: i64 = i32::MAX as i64;

/// Returns the same number as Knative's formula: [`UNLIMITED_CAPACITY`] for no limit, and a negative number for no
/// assigned pods and -1 backends. [`Throttler`](super::Throttler) never depends on either value: it derives a closed or
/// unlimited breaker from the pods themselves.
pub fn capacity(inputs: CapacityInputs) -> i64 {
    let concurrency = i64::from(inputs.container_concurrency);
    let mut total = if inputs.assigned > 0 {
        concurrency.saturating_mul(i64::from(inputs.assigned))
    } else {
        match concurrency.saturating_mul(inputs.backends) {
            total if total > 0 => (total / i64::from(inputs.activators.max(1))).max(1),
            total => total,
        }
    };
    if inputs.backends > 0 && (concurrency == 0 || total > UNLIMITED_CAPACITY) {
        total = UNLIMITED_CAPACITY;
    }
    total
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assigned(len: usize, index: u32, count: u32) -> Vec<usize> {
        assign(len, Activators::Known { index, count }).collect()
    }

    proptest! {
        /// Goal: with enough pods, each pod belongs to exactly one activator, and shares differ by at most one.
        #[test]
        fn shares_are_a_partition(len in 2usize..300, count in 1u32..40) {
            prop_assume!(count as usize <= len);
            let shares: Vec<Vec<usize>> = (0..count).map(|index| assigned(len, index, count)).collect();
            let mut all: Vec<usize> = shares.iter().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..len).collect::<Vec<_>>());
            let sizes = shares.iter().map(Vec::len);
            prop_assert!(sizes.clone().max().unwrap_or(0) - sizes.min().unwrap_or(0) <= 1);
        }
    }
}
