//! Namespaces of callers, by address. Needed to resolve a bare `NAME`.
//!
//! An address is known while a revision lists it. It belongs to a namespace only if all revisions that list it are in
//! that namespace. Otherwise its namespace is unknown, so that a bare name finds nothing rather than a stranger's
//! workload. This happens for the moment in which both the former and the new owner list a reused address, and if a
//! tenant lists foreign addresses.
//!
//! Not here: the decision which revisions may list addresses. Pods in the host network may not.

use common::RevisionKey;
use dashmap::DashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// Addresses of pods. Read by requests, written by one task.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    /// Revisions that list an address; nearly always one.
    revisions: DashMap<IpAddr, SmallVec<[RevisionKey; 1]>>,
    /// Addresses that each revision lists.
    listed: Mutex<HashMap<RevisionKey, BTreeSet<IpAddr>>>,
}

impl Callers {
    pub(crate) fn set(&self, revision: &RevisionKey, addresses: BTreeSet<IpAddr>) {
        let mut listed = self.listed.lock();
        let none = BTreeSet::new();
        let former = listed.get(revision).unwrap_or(&none);
        for gone in former.difference(&addresses) {
            let is_unlisted = self.revisions.get_mut(gone).is_some_and(|mut revisions| {
                revisions.retain(|other| other != revision);
                revisions.is_empty()
            });
            if is_unlisted {
                self.revisions.remove(gone);
            }
        }
        for new in addresses.difference(former) {
            self.revisions.entry(*new).or_default().push(revision.clone());
        }
        if addresses.is_empty() {
            listed.remove(revision);
        } else {
            listed.insert(revision.clone(), addresses);
        }
    }

    /// Returns the namespace of the caller at `address`, if it is unique.
    pub(crate) fn namespace(&self, address: IpAddr) -> Option<Box<str>> {
        let revisions = self.revisions.get(&address)?;
        let (first, rest) = revisions.split_first()?;
        rest.iter().all(|other| other.namespace() == first.namespace()).then(|| first.namespace().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callers(listings: &[(&str, &str, &[u8])]) -> Callers {
        let callers = Callers::default();
        for (namespace, name, hosts) in listings {
            let addresses = hosts.iter().map(|host| IpAddr::from([10, 0, 0, *host])).collect();
            callers.set(&RevisionKey::new(*namespace, *name), addresses);
        }
        callers
    }

    /// Goal: in any order of listings, an address belongs to its present pod as soon as the former one's listing lacks
    /// it, and to no namespace before.
    #[test]
    fn a_late_listing_of_a_former_revision_erases_nothing() {
        for (case, listings, expected) in [
            ("one pod", &[("a", "x", &[1u8, 2][..])][..], Some("a")),
            ("two revisions of one namespace", &[("a", "x", &[1]), ("a", "y", &[1])], Some("a")),
            ("reused, removed late by the former", &[("a", "x", &[1]), ("b", "y", &[1]), ("a", "x", &[])], Some("b")),
            ("reused, removed early", &[("a", "x", &[1]), ("a", "x", &[]), ("b", "y", &[1])], Some("b")),
            ("listed by two namespaces", &[("a", "x", &[1]), ("b", "y", &[1, 2])], None),
            ("listed twice", &[("a", "x", &[1]), ("a", "x", &[1]), ("a", "x", &[2])], None),
            ("deleted", &[("a", "x", &[1]), ("a", "x", &[])], None),
        ] {
            let callers = callers(listings);
            assert_eq!(callers.namespace([10, 0, 0, 1].into()).as_deref(), expected, "{case}");
        }
        let gone = callers(&[("a", "x", &[1, 2]), ("b", "y", &[2]), ("b", "y", &[]), ("a", "x", &[])]);
        assert!(gone.revisions.is_empty() && gone.listed.lock().is_empty(), "nothing is kept");
    }
}
