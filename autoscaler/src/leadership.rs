//! Which revisions are this process's: a hash names the bucket, a lease names its owner.

use crate::scale::Leadership;
use common::RevisionKey;
use common::ownership::{Holder, owner};
use common_runtime::lease::Ownership;
use tokio::sync::watch;

/// The buckets and who holds them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Names in byte order, as the leases'.
    names: std::sync::Arc<[String]>,
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
        Self { names: names.into(), ownership }
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
        let name = owner(&self.names, &key.to_string())?;
        self.names.iter().position(|known| known == name)
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
