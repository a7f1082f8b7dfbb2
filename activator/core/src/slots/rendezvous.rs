//! Which activator grants a pod's slots: the one that scores highest for it (rendezvous hashing).
//!
//! When an activator comes or goes, the grantor changes for those pods alone that become or were its own. The score of
//! one activator for one pod depends on nothing else, so two activators that know different lists still agree on which of
//! the two of them comes first.

use std::hash::Hasher;

use fnv::FnvHasher;

use super::Peer;
use crate::destination::Destination;

/// How much `peer` is the one for `pod`. The peer's name breaks ties.
pub(super) fn score<'a>(peer: &'a Peer, pod: &Destination) -> (u64, &'a Peer) {
    let mut hasher = FnvHasher::default();
    [peer.as_str(), "/", pod.as_str()].iter().for_each(|text| hasher.write(text.as_bytes()));
    let hash = hasher.finish();
    // FNV leaves names that differ in the last byte alone in one corner; the finalizer of SplitMix64 spreads them.
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31), peer)
}

/// The one of `members` that grants `pod`'s slots. None without members.
pub fn grantor<'a>(pod: &Destination, members: impl IntoIterator<Item = &'a Peer>) -> Option<&'a Peer> {
    members.into_iter().max_by_key(|peer| score(peer, pod))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn peers(n: u8) -> Vec<Peer> {
        (1..=n).map(|n| Peer::from(format!("10.1.0.{n}").as_str())).collect()
    }

    fn pod(n: u16) -> Destination {
        let [high, low] = n.to_be_bytes();
        std::net::SocketAddr::from(([10, 0, high, low], 8012)).into()
    }

    #[test]
    fn nobody_grants_without_members() {
        assert_eq!(grantor(&pod(1), []), None);
    }

    /// Goal: each of five grants a fifth of many pods, within a quarter of it.
    #[test]
    fn pods_are_spread() {
        let members = peers(5);
        let mut counts = [0; 5];
        for n in 0..5000 {
            let grantor = grantor(&pod(n), &members).expect("there are members");
            counts[members.iter().position(|peer| peer == grantor).expect("one of them")] += 1;
        }
        assert!(counts.iter().all(|count| (750..1250).contains(count)), "{counts:?}");
    }

    /// Goal: who leaves takes no pod from anybody who stays, and order does not matter.
    #[test]
    fn one_that_leaves_moves_its_own_pods_alone() {
        let all = peers(4);
        let fewer: Vec<&Peer> = all[..3].iter().rev().collect();
        for n in 0..500 {
            let (before, after) = (grantor(&pod(n), &all), grantor(&pod(n), fewer.iter().copied()));
            assert!(before == after || before == Some(&all[3]), "pod {n}: {before:?}, {after:?}");
        }
    }
}
