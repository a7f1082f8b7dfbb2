//! Which revisions are this process's: a hash names the bucket, a lease names its owner.
//!
//! A key's bucket never changes in the life of a process, so it is hashed once and remembered: every stat and every write
//! asks. What is remembered is bounded, since keys come over the wire: [`KNOWN_MAX`] of them, none longer than Kubernetes
//! allows; beyond that everything is forgotten and hashed anew.

use crate::scale::Leadership;
use common::RevisionKey;
use common::ownership::{Holder, owner};
use common_runtime::lease::Ownership;
use dashmap::DashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Keys whose buckets are remembered.
pub const KNOWN_MAX: usize = 65_536;
/// Bytes of the longest key that Kubernetes allows: a namespace of 63, a name of 253.
const KEY_MAX: usize = 63 + 253;

/// The buckets and who holds them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Names in byte order, as the leases'.
    names: Arc<[String]>,
    /// Buckets of keys that were asked for.
    known: Arc<DashMap<RevisionKey, usize>>,
    ownership: Ownership,
}

/// Whose a revision is, at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This process's.
    Us,
    /// Another one's.
    Other(Holder),
    /// Nobody's: between two holders.
    Nobody,
}

impl Shares {
    /// Buckets of these names, in the order in which `ownership` counts them.
    pub fn new(names: Vec<String>, ownership: Ownership) -> Self {
        Self { names: names.into(), known: Arc::default(), ownership }
    }

    /// Whose the revision is.
    pub fn owner(&self, key: &RevisionKey) -> Owner {
        self.bucket(key).map_or(Owner::Nobody, |bucket| self.owner_of_bucket(bucket))
    }

    /// Everybody else who holds a bucket, each once.
    pub fn others(&self) -> Vec<Holder> {
        let mut others = Vec::new();
        for bucket in 0..self.names.len() {
            if let Owner::Other(holder) = self.owner_of_bucket(bucket)
                && !others.contains(&holder)
            {
                others.push(holder);
            }
        }
        others
    }

    /// Names of the buckets that a holder has.
    pub fn buckets_of(&self, holder: &Holder) -> Vec<&str> {
        let theirs = |(bucket, _): &(usize, &String)| self.ownership.holder(*bucket).as_ref() == Some(holder);
        self.names.iter().enumerate().filter(theirs).map(|(_, name)| name.as_str()).collect()
    }

    /// Names of the buckets that this process holds.
    pub fn ours(&self) -> Vec<&str> {
        let held = |(bucket, _): &(usize, &String)| self.ownership.owns(*bucket);
        self.names.iter().enumerate().filter(held).map(|(_, name)| name.as_str()).collect()
    }

    /// Whether this process holds the bucket of this name.
    pub fn owns_bucket(&self, name: &str) -> bool {
        self.names.iter().position(|known| known == name).is_some_and(|bucket| self.ownership.owns(bucket))
    }

    fn owner_of_bucket(&self, bucket: usize) -> Owner {
        if self.ownership.owns(bucket) {
            return Owner::Us;
        }
        self.ownership.holder(bucket).map_or(Owner::Nobody, Owner::Other)
    }

    fn bucket(&self, key: &RevisionKey) -> Option<usize> {
        if self.names.len() == 1 {
            return Some(0); // Owns everything, unhashed.
        }
        if let Some(bucket) = self.known.get(key) {
            return Some(*bucket);
        }
        let name = owner(&self.names, &key.to_string())?;
        let bucket = self.names.iter().position(|known| known == name)?;
        if key.namespace().len() + key.name().len() <= KEY_MAX {
            if self.known.len() >= KNOWN_MAX {
                self.known.clear();
            }
            self.known.insert(key.clone(), bucket);
        }
        Some(bucket)
    }
}

impl Leadership for Shares {
    fn owns(&self, key: &RevisionKey) -> bool {
        self.bucket(key).is_some_and(|bucket| self.ownership.owns(bucket))
    }

    fn may_write(&self, key: &RevisionKey) -> bool {
        self.bucket(key).is_some_and(|bucket| self.ownership.may_write(bucket))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.ownership.changes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::ownership::bucket_names;

    /// Goal: what is remembered is what the hash says, whoever holds the bucket, and is bounded whatever comes.
    #[test]
    fn a_bucket_is_remembered_and_memory_is_bounded() {
        let names = bucket_names(4);
        let (assign, ownership) = Ownership::by_hand(4);
        let shares = Shares::new(names.clone(), ownership);
        let me = Holder { pod_name: "as-0".into(), pod_ip: [127, 0, 0, 1].into() };
        for n in 0..1000 {
            let key = RevisionKey::new("ns", format!("hello-{n:05}"));
            let expected = names.iter().position(|name| Some(name.as_str()) == owner(&names, &key.to_string()));
            assert_eq!((shares.bucket(&key), shares.bucket(&key)), (expected, expected));
            assert_eq!(shares.known.get(&key).map(|bucket| *bucket), expected);
        }
        let key = RevisionKey::new("ns", "hello-00000");
        assert_eq!(shares.owner(&key), Owner::Nobody);
        (0..4).for_each(|bucket| assign.set(bucket, Some(me.clone()), true));
        assert_eq!(shares.owner(&key), Owner::Us, "who holds it is not remembered");

        let long = RevisionKey::new("ns", "x".repeat(1000));
        assert!(shares.bucket(&long).is_some() && !shares.known.contains_key(&long));
        for n in 0..KNOWN_MAX {
            shares.known.insert(RevisionKey::new("hostile", n.to_string()), 0);
        }
        assert!(shares.bucket(&RevisionKey::new("ns", "one-more")).is_some());
        assert_eq!(shares.known.len(), 1);
    }
}
