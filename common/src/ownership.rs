//! Hashes a target to one or more of a set of names.
//!
//! The hash makes two choices: the bucket (a lease, held by one autoscaler) that owns a revision, and the activators
//! that carry a revision's traffic. Both must match upstream's choices, because replicas of both systems may run side
//! by side.
//!
//! # The rule
//!
//! Names are placed on a circle of 2048 slots, separately for each target. A name's slot is FNV-1a 64 of `name +
//! target`, modulo 2048. If the slot is taken, the hash so far is appended in hexadecimal to the hashed text until a
//! slot is free. Names are placed in byte order, so the result does not depend on the order of the input.
//!
//! The search starts at an angle that is a hash of the target and picks the first name at or after it, wrapping around.
//! Each further search starts one step later; the step is another hash of the target. If the name found is already
//! picked, the next unpicked name is taken.
//!
//! # Edge cases
//!
//! - Without names there is no owner. A single name owns everything.
//! - A request for at least as many names as exist returns all of them, in byte order.
//! - With more than 2048 names, upstream never returns. Here the circle grows to the next power of two that leaves half
//!   the slots free. A name still without a slot after 65 536 rehashes takes the next free slot.

use fnv::FnvHasher;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher;
use std::net::IpAddr;

/// Slots on the circle, unless there are more names.
const SLOTS: usize = 2048;
/// Maximum number of rehashes of one name. On a full circle the last free slot takes 2048 on average; far more means a
/// cycle.
const REHASHES_MAX: u32 = 1 << 16;
/// Salt appended to a target to hash the start of its search. `STEP_SALT` does the same for its steps.
const START_SALT: &str = "start-angle-salt";
const STEP_SALT: &str = "step-angle-salt";

/// Prefix of bucket names, and so of the host names of their owners.
const BUCKET_PREFIX: &str = "autoscaler-bucket";

/// Current owner of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner<I> {
    /// This instance owns the revision.
    Us,
    /// Another instance owns the revision.
    Other(I),
    /// No instance owns the revision: its lease is between two holders.
    Nobody,
}

/// Returns the bucket that owns `key` (`namespace/name` of a revision), or `None` without buckets.
pub fn owner<'a, S: AsRef<str>>(buckets: &'a [S], key: &str) -> Option<&'a str> {
    match buckets {
        [] => None,
        [only] => Some(only.as_ref()), // The default, and on the path of every stat: no hashing.
        _ => pick(&sorted(buckets), 1, key).first().copied(),
    }
}

/// Returns `n` of `from` for `target`, in the order of picking. If there are no more than `n`, returns all in byte
/// order. Repeated names count once.
pub fn subset<'a, S: AsRef<str>>(from: &'a [S], n: usize, target: &str) -> Vec<&'a str> {
    let names = sorted(from);
    if n >= names.len() { names } else { pick(&names, n, target) }
}

/// Returns the names of all buckets; the lease, the Service and the EndpointSlice of a bucket have its name.
pub fn bucket_names(count: u32) -> Vec<String> {
    (0..count).map(|index| format!("{BUCKET_PREFIX}-{index:02}-of-{count:02}")).collect()
}

/// Returns the bucket that a `Host` header addresses, or `None` for any other host, such as an address or a Service
/// name. The bucket need not exist: a port without a domain before it, for example, yields a name that no bucket has.
pub fn bucket_of_host(host: &str) -> Option<&str> {
    host.starts_with(BUCKET_PREFIX).then(|| host.split('.').next().unwrap_or(host))
}

/// Identity of a lease holder: `<POD_NAME>_<POD_IP>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The holder's pod.
    pub pod_name: String,
    /// The pod's address.
    pub pod_ip: IpAddr,
}

impl Holder {
    /// Parses an identity. Returns `None` unless an address follows the first `_`.
    pub fn parse(identity: &str) -> Option<Self> {
        let (pod_name, pod_ip) = identity.split_once('_')?;
        Some(Self { pod_name: pod_name.to_owned(), pod_ip: pod_ip.parse().ok()? })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.pod_name, self.pod_ip)
    }
}

fn sorted<S: AsRef<str>>(names: &[S]) -> Vec<&str> {
    let mut names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Picks `n` of the sorted `names`; there must be more than `n`.
fn pick<'a>(names: &[&'a str], n: usize, target: &str) -> Vec<&'a str> {
    let size = if names.len() <= SLOTS { SLOTS } else { (names.len() * 2).next_power_of_two() };
    let size = size as u64;
    let angle_of = |salt: &str| fnv1a(FnvHasher::default(), &[target, salt]) % size;
    let (mut angle, step) = (angle_of(START_SALT), angle_of(STEP_SALT));
    let ring: Vec<(u64, &str)> = place(names, target, size).into_iter().collect();
    let mut picked = vec![false; ring.len()];
    let mut picks = Vec::with_capacity(n);
    for _ in 0..n {
        let first = ring.partition_point(|(slot, _)| *slot < angle);
        let free = (first..ring.len()).chain(0..first).find(|&index| !picked[index]);
        if let Some(index) = free {
            picked[index] = true;
            picks.push(ring[index].1);
        }
        angle = (angle + step) % size;
    }
    picks
}

/// Places each name in a slot.
fn place<'a>(names: &[&'a str], target: &str, size: u64) -> BTreeMap<u64, &'a str> {
    let mut ring = BTreeMap::new();
    for name in names {
        let mut hash = fnv1a(FnvHasher::default(), &[name, target]);
        let mut rehashes = 0;
        while ring.contains_key(&(hash % size)) {
            rehashes += 1;
            // FNV-1a can continue from a hash: hashing only the appended text equals hashing the whole text.
            hash = if rehashes < REHASHES_MAX {
                fnv1a(FnvHasher::with_key(hash), &[&format!("{hash:x}")])
            } else {
                hash.wrapping_add(1)
            };
        }
        ring.insert(hash % size, *name);
    }
    ring
}

fn fnv1a(mut hasher: FnvHasher, texts: &[&str]) -> u64 {
    texts.iter().for_each(|text| hasher.write(text.as_bytes()));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Goal: cases that the recorded vectors (kind `bucket_owner`) lack. Hashes of b-8 and b-174 share a slot.
    #[test]
    fn colliding_buckets_are_placed_as_upstream_does() {
        assert_eq!(owner(&["b-8", "b-174"], "ns/rev"), Some("b-8"));
        assert_eq!(owner(&["b-8", "b-174"], "x/y"), Some("b-174"));
        // The first hash has a leading zero, which upstream does not print.
        assert_eq!(owner(&["b-8", "b-174"], "ns/rev1501"), Some("b-174"));
        // Slots 1398 and 1527, start 1527.
        assert_eq!(owner(&bucket_names(2), "ns/rev464"), Some("autoscaler-bucket-01-of-02"));
        assert_eq!(owner::<String>(&[], "a/b"), None);
    }

    #[test]
    fn subsets_are_picked_in_upstreams_order() {
        let two_nets: Vec<String> =
            (1..=2).flat_map(|net| (1..=4).map(move |host| format!("10.1.{net}.{host}"))).collect();
        let picks = subset(&two_nets, 5, "to-proxy-with-subset");
        assert_eq!(picks, ["10.1.2.4", "10.1.2.3", "10.1.1.1", "10.1.2.2", "10.1.1.4"]);
        let ten: Vec<String> = (1..=10).map(|host| format!("10.0.0.{host}")).collect();
        assert_eq!(subset(&ten, 3, "hello-00001"), ["10.0.0.8", "10.0.0.4", "10.0.0.6"]);
        assert_eq!(subset(&ten, 2, "hello-00002"), ["10.0.0.10", "10.0.0.6"]);
        // Two of these share slot 211; in byte order `.120` takes it first.
        assert_eq!(subset(&["10.0.0.1", "10.0.0.3", "10.0.0.120"], 2, "hello-00001"), ["10.0.0.3", "10.0.0.120"]);
        assert_eq!(subset(&["b", "a", "b"], 5, "x"), ["a", "b"]);
        assert!(subset(&["b", "a"], 0, "x").is_empty());
    }

    #[test]
    fn picking_ends_for_any_number_of_names() {
        for count in [2048, 2049, 5000] {
            let names: Vec<String> = (0..count).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
            let mut picks = subset(&names, count - 1, "many");
            picks.sort_unstable();
            picks.dedup();
            assert_eq!(picks.len(), count - 1);
        }
    }

    #[test]
    fn bucket_names_hosts_and_holder_identities_match_upstream() {
        assert_eq!(bucket_names(1), ["autoscaler-bucket-00-of-01"]);
        assert_eq!(bucket_names(11)[10], "autoscaler-bucket-10-of-11");
        assert!(bucket_names(0).is_empty());
        assert_eq!(bucket_of_host("autoscaler-bucket-00-of-03.ns.svc:8080"), Some("autoscaler-bucket-00-of-03"));
        assert_eq!(bucket_of_host("autoscaler-bucket-non-exits"), Some("autoscaler-bucket-non-exits"));
        assert_eq!(bucket_of_host("autoscaler.ns"), None);
        let holder = Holder::parse("as_1.2.3.4").expect("valid");
        assert_eq!((holder.pod_name.as_str(), holder.to_string().as_str()), ("as", "as_1.2.3.4"));
        assert_eq!(Holder::parse("as_fd00::1").map(|h| h.pod_ip.is_ipv6()), Some(true));
        for identity in ["1.2.3.4", "as_", "as_b_1.2.3.4", ""] {
            assert_eq!(Holder::parse(identity), None, "{identity}");
        }
    }

    proptest! {
        /// Goal: processes that know the same names make the same choice, whatever the order in which they learned
        /// them.
        #[test]
        fn choices_do_not_depend_on_order(
            names in prop::collection::hash_set("[a-z0-9.]{1,12}", 1..40), n in 0_usize..45, target in ".{0,20}",
        ) {
            let mut names: Vec<String> = names.into_iter().collect();
            let chosen: Vec<String> = subset(&names, n, &target).into_iter().map(Into::into).collect();
            let owner_before = owner(&names, &target).map(str::to_owned);
            names.reverse();
            prop_assert_eq!(&chosen, &subset(&names, n, &target));
            prop_assert_eq!(owner_before.as_deref(), owner(&names, &target));
            prop_assert_eq!(chosen.len(), n.min(names.len()));
            if n == 1 && names.len() > 1 {
                prop_assert_eq!(chosen.first().map(String::as_str), owner(&names, &target), "one rule for both");
            }
        }
    }
}
