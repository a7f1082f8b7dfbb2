//! Which namespace calls from an address: what a bare `NAME` needs.
//!
//! An address is known for as long as a revision lists it. It belongs to a namespace only if all that list it are of that
//! namespace: for the moment in which a former pod's listing and its successor's both have it, and wherever somebody
//! lists what is not his, it is nobody's, so a bare name leads nowhere rather than to a stranger.
//!
//! Not here: which revisions may list addresses at all. Pods that have their node's may not.

use common::RevisionKey;
use dashmap::DashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// Addresses of pods. Read by requests, written by one task.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    /// Who lists an address; nearly always one.
    revisions: DashMap<IpAddr, SmallVec<[RevisionKey; 1]>>,
    /// What each revision lists.
    listed: Mutex<HashMap<RevisionKey, BTreeSet<IpAddr>>>,
}

impl Callers {
    /// These are all addresses of a revision's pods.
    pub(crate) fn set(&self, revision: &RevisionKey, addresses: BTreeSet<IpAddr>) {
        let mut listed = self.listed.lock();
        let none = BTreeSet::new();
        let former = listed.get(revision).unwrap_or(&none);
        for gone in former.difference(&addresses) {
            let is_nobodys = self.revisions.get_mut(gone).is_some_and(|mut revisions| {
                revisions.retain(|other| other != revision);
                revisions.is_empty()
            });
            if is_nobodys {
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

    /// The namespace of whoever calls from `address`, if there is just one.
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

    /// Goal: whichever order listings come in, an address is its present pod's as soon as the former one's listing is
    /// without it, and nobody's before.
    #[test]
    fn a_late_listing_of_a_former_revision_erases_nothing() {
        for (case, listings, expected) in [
            ("one pod", &[("a", "x", &[1u8, 2][..])][..], Some("a")),
            ("two revisions of one namespace", &[("a", "x", &[1]), ("a", "y", &[1])], Some("a")),
            ("reused, told late by the former", &[("a", "x", &[1]), ("b", "y", &[1]), ("a", "x", &[])], Some("b")),
            ("reused, told early", &[("a", "x", &[1]), ("a", "x", &[]), ("b", "y", &[1])], Some("b")),
            ("listed by two namespaces", &[("a", "x", &[1]), ("b", "y", &[1, 2])], None),
            ("told twice", &[("a", "x", &[1]), ("a", "x", &[1]), ("a", "x", &[2])], None),
            ("deleted", &[("a", "x", &[1]), ("a", "x", &[])], None),
        ] {
            let callers = callers(listings);
            assert_eq!(callers.namespace([10, 0, 0, 1].into()).as_deref(), expected, "{case}");
        }
        let gone = callers(&[("a", "x", &[1, 2]), ("b", "y", &[2]), ("b", "y", &[]), ("a", "x", &[])]);
        assert!(gone.revisions.is_empty() && gone.listed.lock().is_empty(), "nothing is kept");
    }
}
