//! Divides the pods of a workload into sixteen shards by address, and assigns each shard to an activator.
//!
//! One activator holds all shards as long as it can carry the workload. A workload with 2 × [`SLOTS_PER_HOLDER`] slots
//! has two holders, a workload with 4 × [`SLOTS_PER_HOLDER`] slots has four, and so on. The number is a power of two,
//! so each further step moves half of each holder's shards and no others. It depends only on the list of pods and their
//! limit, which every activator sees, so it needs no agreement.

use std::fmt;
use std::hash::Hasher;

use fnv::FnvHasher;

use super::Peer;
use crate::destination::Destination;

/// Number of shards, and the maximum number of holders of a workload.
pub const SHARD_COUNT: usize = 16;
/// Least number of slots for each holder of a divided workload. At 10 ms per request, 256 slots carry about 25 000
/// requests a second.
pub const SLOTS_PER_HOLDER: u64 = 256;

/// Set of shards of a workload.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Shards(u16);

impl Shards {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// The set of all shards.
    pub const ALL: Self = Self(u16::MAX);

    /// Returns the shard of a pod.
    pub fn of_pod(pod: &Destination) -> Self {
        Self::nth(index_of(pod))
    }

    /// Returns the shard with this number, below [`SHARD_COUNT`].
    pub fn nth(index: usize) -> Self {
        Self(1 << (index % SHARD_COUNT))
    }

    /// Decodes the number on the wire.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits as u16)
    }

    /// Returns the number on the wire.
    pub fn bits(self) -> u32 {
        u32::from(self.0)
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if all of `other` are in this set.
    pub fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Returns true if any of `other` is in this set.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns this set without `other`.
    #[must_use]
    pub fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the intersection of both sets.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shards({:04x})", self.0)
    }
}

/// Returns the number of the shard that a pod is in.
pub fn index_of(pod: &Destination) -> usize {
    (hash([pod.as_str()]) % SHARD_COUNT as u64) as usize
}

/// Returns the `count` activators that hold a workload. The first one holds the first shard.
pub fn holders<'a>(workload: &str, members: impl IntoIterator<Item = &'a Peer>, count: usize) -> Vec<Peer> {
    let mut ranked: Vec<&Peer> = members.into_iter().collect();
    ranked.sort_by_cached_key(|peer| std::cmp::Reverse(score(workload, peer)));
    ranked.truncate(count);
    ranked.into_iter().cloned().collect()
}

/// Returns an activator's score for a workload (rendezvous hashing). The activator with the highest score holds the
/// workload; the address breaks ties.
pub(super) fn score(workload: &str, peer: &Peer) -> (u64, Peer) {
    (hash([&peer.to_string(), "/", workload]), *peer)
}

/// Returns the number of holders that a workload needs with this many `pods` of this `limit`.
pub(super) fn holder_count(pods: usize, limit: u32, slots_per_holder: u64) -> usize {
    let needed = (pods as u64).saturating_mul(u64::from(limit)) / slots_per_holder.max(1);
    let most = SHARD_COUNT.min(pods).max(1);
    let needed = usize::try_from(needed).unwrap_or(most).clamp(1, most);
    1 << needed.ilog2()
}

fn hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> u64 {
    let mut hasher = FnvHasher::default();
    texts.into_iter().for_each(|text| hasher.write(text.as_bytes()));
    let hash = hasher.finish();
    // FNV hardly spreads names that differ only in the last byte; the finalizer of SplitMix64 spreads them.
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn peers(n: u8) -> Vec<Peer> {
        (1..=n).map(|n| Peer::from([10, 1, 0, n])).collect()
    }

    /// Goal: one activator holds a workload that it can carry. A larger workload has a power of two of holders, and no
    /// more holders than pods.
    #[test]
    fn the_number_of_holders_follows_the_slots() {
        let rows =
            [(0, 1, 1), (5, 1, 1), (511, 1, 1), (512, 1, 2), (1023, 1, 2), (1024, 1, 4), (1, 1000, 1), (3, 1000, 2)];
        for (pods, limit, holders) in rows {
            assert_eq!(holder_count(pods, limit, SLOTS_PER_HOLDER), holders, "{pods} pods, {limit} each");
        }
        assert_eq!(holder_count(100_000, 1000, SLOTS_PER_HOLDER), SHARD_COUNT);
    }

    /// Goal: each of five activators holds a fifth of many workloads, within a quarter of that number, and pods are
    /// spread over the shards.
    #[test]
    fn workloads_and_pods_are_spread() {
        let members = peers(5);
        let (mut counts, mut shards) = ([0; 5], [0; SHARD_COUNT]);
        for n in 0..5000_u16 {
            let first = &holders(&format!("ns/app-{n}"), &members, 1)[0];
            counts[members.iter().position(|peer| peer == first).expect("one of them")] += 1;
            let [high, low] = n.to_be_bytes();
            shards[index_of(&std::net::SocketAddr::from(([10, 0, high, low], 8012)).into())] += 1;
        }
        assert!(counts.iter().all(|count| (750..1250).contains(count)), "{counts:?}");
        assert!(shards.iter().all(|count| (230..400).contains(count)), "{shards:?}");
    }

    /// Goal: an activator that leaves moves only its own workloads, and the order of the list does not matter.
    #[test]
    fn an_activator_that_leaves_moves_only_its_own_workloads() {
        let all = peers(4);
        let fewer: Vec<&Peer> = all[..3].iter().rev().collect();
        for n in 0..500 {
            let key = format!("ns/app-{n}");
            let (before, after) = (holders(&key, &all, 1), holders(&key, fewer.iter().copied(), 1));
            assert!(before == after || before[0] == all[3], "{key}: {before:?}, {after:?}");
        }
    }
}
