//! Determines which process owns an object. A hash assigns a key to a bucket, and the bucket's lease names its owner.
//! Among the members of a StatefulSet, the ordinal identifies the owner instead.

use crate::Leadership;
use common::RevisionKey;
use common::ownership::{self, Holder, owner};
use common_runtime::lease::{Ownership, WriteGuard};
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The buckets and their holders. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Names of the buckets, in the order of the leases.
    names: Arc<[String]>,
    holders: Holders,
    /// Holder identity that this process writes on leases, if other processes can reach it by that.
    me: Option<Holder>,
}

/// Source of the buckets' holders.
#[derive(Clone, Debug)]
enum Holders {
    /// The holder of each bucket's lease.
    Leases(Ownership),
    /// The StatefulSet member with the bucket's index; `ours` is this process's bucket, if any.
    Members { ours: Option<usize> },
}

/// Another autoscaler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Instance {
    /// Identified by the holder that it has written on a lease.
    Leased(Holder),
    /// Identified by the name of its bucket, which is its URL.
    Member(String),
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leased(holder) => write!(f, "{} at {}", holder.pod_name, holder.pod_ip),
            Self::Member(url) => f.write_str(url),
        }
    }
}

/// Current owner of a revision.
pub type Owner = ownership::Owner<Instance>;

impl Shares {
    /// Creates shares of buckets with these names, in the order in which `ownership` numbers them.
    pub fn new(names: Vec<String>, ownership: Ownership) -> Self {
        Self { names: names.into(), holders: Holders::Leases(ownership), me: None }
    }

    /// Creates shares of buckets with these names, in byte order. The StatefulSet member with a bucket's index owns it;
    /// this process is member `ordinal`.
    pub fn members(names: Vec<String>, ordinal: usize) -> Self {
        let ours = (ordinal < names.len()).then_some(ordinal);
        Self { names: names.into(), holders: Holders::Members { ours }, me: None }
    }

    /// Sets the holder identity that this process writes on its leases.
    pub fn known_as(self, me: Holder) -> Self {
        Self { me: Some(me), ..self }
    }

    /// Returns the holder identity that this process writes on its leases.
    pub fn me(&self) -> Option<&Holder> {
        self.me.as_ref()
    }

    /// Returns the name by which other members of a StatefulSet know this process, or `None` if it is not such a
    /// member.
    pub fn member(&self) -> Option<&str> {
        match &self.holders {
            Holders::Members { ours } => ours.and_then(|ours| self.names.get(ours)).map(String::as_str),
            Holders::Leases(_) => None,
        }
    }

    /// Returns the owner of the revision.
    pub fn owner(&self, key: &RevisionKey) -> Owner {
        self.bucket(key).map_or(Owner::Nobody, |bucket| self.owner_of_bucket(bucket))
    }

    /// Returns all other instances that hold a bucket, each once.
    pub fn others(&self) -> Vec<Instance> {
        let mut others = Vec::new();
        for bucket in 0..self.names.len() {
            if let Owner::Other(instance) = self.owner_of_bucket(bucket)
                && !others.contains(&instance)
            {
                others.push(instance);
            }
        }
        others
    }

    /// Reports whether every bucket has a known owner.
    pub fn are_settled(&self) -> bool {
        (0..self.names.len()).all(|bucket| self.owner_of_bucket(bucket) != Owner::Nobody)
    }

    /// Returns the names of the buckets whose leases `holder` holds.
    pub fn buckets_of(&self, holder: &Holder) -> Vec<&str> {
        let Holders::Leases(ownership) = &self.holders else { return Vec::new() };
        let theirs = |(bucket, _): &(usize, &String)| ownership.holder(*bucket).as_ref() == Some(holder);
        self.names.iter().enumerate().filter(theirs).map(|(_, name)| name.as_str()).collect()
    }

    /// Returns the names of the buckets that this process holds.
    pub fn ours(&self) -> Vec<&str> {
        let held = |(bucket, _): &(usize, &String)| self.has(*bucket);
        self.names.iter().enumerate().filter(held).map(|(_, name)| name.as_str()).collect()
    }

    /// Returns the names of all buckets, each with a flag that is set if this process holds it.
    pub fn held_here(&self) -> Vec<(String, bool)> {
        self.names.iter().enumerate().map(|(bucket, name)| (name.clone(), self.has(bucket))).collect()
    }

    /// Returns the names of all buckets, each with a flag that is set if it is known to be held by this process or any
    /// other. Members of a StatefulSet cannot observe each other.
    pub fn held_anywhere(&self) -> Vec<(String, bool)> {
        let is_held = |bucket| match self.holders {
            Holders::Leases(_) => self.owner_of_bucket(bucket) != Owner::Nobody,
            Holders::Members { .. } => self.has(bucket),
        };
        self.names.iter().enumerate().map(|(bucket, name)| (name.clone(), is_held(bucket))).collect()
    }

    /// Reports whether this process holds the bucket of this name.
    pub fn owns_bucket(&self, name: &str) -> bool {
        self.names.iter().position(|known| known == name).is_some_and(|bucket| self.has(bucket))
    }

    /// Begins a write for the bucket of this name itself.
    pub fn begin_bucket_write(&self, name: &str) -> Option<WriteGuard> {
        self.begin_write_in(self.names.iter().position(|known| known == name)?)
    }

    fn begin_write_in(&self, bucket: usize) -> Option<WriteGuard> {
        match &self.holders {
            Holders::Leases(ownership) => ownership.begin_write(bucket),
            Holders::Members { ours } => (*ours == Some(bucket)).then(WriteGuard::unbounded),
        }
    }

    fn owner_of_bucket(&self, bucket: usize) -> Owner {
        if self.has(bucket) {
            return Owner::Us;
        }
        let instance = match &self.holders {
            // A lease in our name that we do not hold any more is being given away.
            Holders::Leases(ownership) => {
                ownership.holder(bucket).filter(|holder| Some(holder) != self.me.as_ref()).map(Instance::Leased)
            }
            Holders::Members { .. } => self.names.get(bucket).cloned().map(Instance::Member),
        };
        instance.map_or(Owner::Nobody, Owner::Other)
    }

    /// Reports whether this process holds the bucket.
    fn has(&self, bucket: usize) -> bool {
        match &self.holders {
            Holders::Leases(ownership) => ownership.owns(bucket),
            Holders::Members { ours } => *ours == Some(bucket),
        }
    }

    fn bucket(&self, key: &RevisionKey) -> Option<usize> {
        if self.names.len() == 1 {
            return Some(0); // The only bucket owns everything; no hashing is needed.
        }
        let name = owner(&self.names, key.as_str())?;
        self.names.iter().position(|known| known == name)
    }
}

impl Leadership for Shares {
    fn owns(&self, key: &RevisionKey) -> bool {
        self.bucket(key).is_some_and(|bucket| self.has(bucket))
    }

    fn begin_write(&self, key: &RevisionKey) -> Option<WriteGuard> {
        self.begin_write_in(self.bucket(key)?)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        match &self.holders {
            Holders::Leases(ownership) => ownership.changes(),
            Holders::Members { .. } => watch::channel(0).1, // Never changes.
        }
    }
}

/// Logs a warning when the map of the leases is edited. The map is read only at the start, so an edit takes effect at
/// the next start.
pub async fn warn_on_edits<T>(map: String, mut content: watch::Receiver<Arc<T>>, until: CancellationToken) {
    on_each_edit(&mut content, &until, || {
        tracing::warn!(config_map = map, "the ConfigMap was edited; the change takes effect at the next start");
    })
    .await;
}

/// Calls `report` for each edit, until `until` is cancelled.
async fn on_each_edit<T>(content: &mut watch::Receiver<Arc<T>>, until: &CancellationToken, mut report: impl FnMut()) {
    content.borrow_and_update();
    while let Some(Ok(())) = until.run_until_cancelled(content.changed()).await {
        report();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::ownership::bucket_names;

    /// Goal: each key has exactly one owner among the members, all members agree on it, and a member beyond the buckets
    /// owns nothing.
    #[test]
    fn members_share_the_keys_by_their_ordinals() {
        let names: Vec<_> = (0..3).map(|n| format!("ws://as-{n}.as.ns.svc.cluster.local:8080")).collect();
        let members: Vec<_> = (0..4).map(|ordinal| Shares::members(names.clone(), ordinal)).collect();
        assert_eq!((members[1].ours(), members[3].ours()), (vec![names[1].as_str()], vec![]));
        assert_eq!((members[1].others().len(), members[3].others().len()), (2, 3));
        for n in 0..100 {
            let key = RevisionKey::new("ns", format!("hello-{n:05}"));
            let expected = owner(&names, &key.to_string()).expect("an owner");
            for (shares, name) in members.iter().zip(names.iter().map(Some).chain([None])) {
                let ours = name.is_some_and(|name| name == expected);
                assert_eq!((shares.owns(&key), shares.begin_write(&key).is_some()), (ours, ours));
                let other = Owner::Other(Instance::Member(expected.to_owned()));
                assert_eq!(shares.owner(&key), if ours { Owner::Us } else { other });
            }
        }
    }

    /// Goal: a key's bucket depends on its hash alone, and its owner is the present holder of that bucket.
    #[test]
    fn a_key_belongs_to_the_present_holder_of_its_bucket() {
        let names = bucket_names(4);
        let (assign, ownership) = Ownership::manual(4);
        let shares = Shares::new(names.clone(), ownership);
        let me = Holder { pod_name: "as-0".into(), pod_ip: [127, 0, 0, 1].into() };
        for n in 0..1000 {
            let key = RevisionKey::new("ns", format!("hello-{n:05}"));
            let expected = names.iter().position(|name| Some(name.as_str()) == owner(&names, &key.to_string()));
            assert_eq!(shares.bucket(&key), expected);
        }
        let key = RevisionKey::new("ns", "hello-00000");
        assert_eq!(shares.owner(&key), Owner::Nobody);
        (0..3).for_each(|bucket| assign.set(bucket, Some(me.clone()), true));
        assert!(!shares.are_settled(), "one bucket has no owner");
        let held: Vec<_> = shares.held_anywhere().into_iter().map(|(_, is_held)| is_held).collect();
        assert_eq!(held, [true, true, true, false]);
        assign.set(3, Some(me.clone()), true);
        assert!(shares.are_settled());
        assert_eq!(shares.owner(&key), Owner::Us);
    }

    /// Goal: the content at the start is not an edit.
    #[tokio::test]
    async fn each_edit_of_the_map_is_reported() {
        let (map, mut content) = watch::channel(Arc::new(0));
        map.send_replace(Arc::new(1));
        let (until, (edited, mut reports)) = (CancellationToken::new(), tokio::sync::mpsc::unbounded_channel());
        let ended = until.clone();
        let following = tokio::spawn(async move {
            on_each_edit(&mut content, &ended, || edited.send(()).expect("the test listens")).await;
        });
        tokio::task::yield_now().await;
        for _ in 0..2 {
            map.send_modify(|content| *content = Arc::new(**content + 1));
            reports.recv().await.expect("edited");
        }
        until.cancel();
        following.await.expect("ends");
        assert!(reports.try_recv().is_err(), "nothing but the edits");
    }
}
