//! Which objects are this process's: a hash names the bucket, a lease names its owner; among the members of a
//! StatefulSet an ordinal does.
//!
//! A key's bucket never changes in the life of a process, so it is hashed once and remembered: every stat and every
//! write asks. What is remembered is bounded, since keys come over the wire: [`KNOWN_MAX`] of them, none longer than
//! Kubernetes allows; beyond that everything is forgotten and hashed anew.

use crate::Leadership;
use common::RevisionKey;
use common::ownership::{self, Holder, owner};
use common_runtime::lease::{Ownership, WriteGuard};
use dashmap::DashMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

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
    holders: Holders,
    /// What this process writes on leases, if others can tell from it where it is.
    me: Option<Holder>,
}

/// Who has which bucket.
#[derive(Clone, Debug)]
enum Holders {
    /// Whoever holds its lease.
    Leases(Ownership),
    /// The member of the StatefulSet with its index; ours, if there is one for us.
    Members { ours: Option<usize> },
}

/// Another autoscaler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Instance {
    /// By what it has written on a lease.
    Leased(Holder),
    /// By the name of its bucket, which is its URL.
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

/// Whose a revision is, at this moment.
pub type Owner = ownership::Owner<Instance>;

impl Shares {
    /// Buckets of these names, in the order in which `ownership` counts them.
    pub fn new(names: Vec<String>, ownership: Ownership) -> Self {
        Self { names: names.into(), known: Arc::default(), holders: Holders::Leases(ownership), me: None }
    }

    /// Buckets of these names, in byte order, each of the member of a StatefulSet with its index; this process is
    /// member `ordinal`.
    pub fn members(names: Vec<String>, ordinal: usize) -> Self {
        let ours = (ordinal < names.len()).then_some(ordinal);
        Self { names: names.into(), known: Arc::default(), holders: Holders::Members { ours }, me: None }
    }

    /// The same, of a process that writes this on its leases.
    pub fn known_as(self, me: Holder) -> Self {
        Self { me: Some(me), ..self }
    }

    /// What this process writes on its leases.
    pub fn me(&self) -> Option<&Holder> {
        self.me.as_ref()
    }

    /// Returns the name by which other members of a StatefulSet know this process; none: it is no such member.
    pub fn member(&self) -> Option<&str> {
        match &self.holders {
            Holders::Members { ours } => ours.and_then(|ours| self.names.get(ours)).map(String::as_str),
            Holders::Leases(_) => None,
        }
    }

    /// Whose the revision is.
    pub fn owner(&self, key: &RevisionKey) -> Owner {
        self.bucket(key).map_or(Owner::Nobody, |bucket| self.owner_of_bucket(bucket))
    }

    /// Everybody else who holds a bucket, each once.
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

    /// Whether every bucket has an owner that is known to be one.
    pub fn are_settled(&self) -> bool {
        (0..self.names.len()).all(|bucket| self.owner_of_bucket(bucket) != Owner::Nobody)
    }

    /// Names of the buckets whose leases somebody holds.
    pub fn buckets_of(&self, holder: &Holder) -> Vec<&str> {
        let Holders::Leases(ownership) = &self.holders else { return Vec::new() };
        let theirs = |(bucket, _): &(usize, &String)| ownership.holder(*bucket).as_ref() == Some(holder);
        self.names.iter().enumerate().filter(theirs).map(|(_, name)| name.as_str()).collect()
    }

    /// Names of the buckets that this process holds.
    pub fn ours(&self) -> Vec<&str> {
        let held = |(bucket, _): &(usize, &String)| self.has(*bucket);
        self.names.iter().enumerate().filter(held).map(|(_, name)| name.as_str()).collect()
    }

    /// Names of all buckets, each with whether this process holds it.
    pub fn all(&self) -> Vec<(String, bool)> {
        self.names.iter().enumerate().map(|(bucket, name)| (name.clone(), self.has(bucket))).collect()
    }

    /// Names of all buckets, each with whether anybody is seen to hold it: this process, or another, of whatever make. Of
    /// members of a StatefulSet nobody sees the others.
    pub fn held(&self) -> Vec<(String, bool)> {
        let is_held = |bucket| match self.holders {
            Holders::Leases(_) => self.owner_of_bucket(bucket) != Owner::Nobody,
            Holders::Members { .. } => self.has(bucket),
        };
        self.names.iter().enumerate().map(|(bucket, name)| (name.clone(), is_held(bucket))).collect()
    }

    /// Whether this process holds the bucket of this name.
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
            // A lease in our name that is not ours any more is being given away.
            Holders::Leases(ownership) => {
                ownership.holder(bucket).filter(|holder| Some(holder) != self.me.as_ref()).map(Instance::Leased)
            }
            Holders::Members { .. } => self.names.get(bucket).cloned().map(Instance::Member),
        };
        instance.map_or(Owner::Nobody, Owner::Other)
    }

    /// Whether this process holds the bucket.
    fn has(&self, bucket: usize) -> bool {
        match &self.holders {
            Holders::Leases(ownership) => ownership.owns(bucket),
            Holders::Members { ours } => *ours == Some(bucket),
        }
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
        self.bucket(key).is_some_and(|bucket| self.has(bucket))
    }

    fn begin_write(&self, key: &RevisionKey) -> Option<WriteGuard> {
        self.begin_write_in(self.bucket(key)?)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        match &self.holders {
            Holders::Leases(ownership) => ownership.changes(),
            Holders::Members { .. } => watch::channel(0).1, // The same for ever.
        }
    }
}

/// Says when the map of the leases is edited: it is read at the start alone, so an edit has no effect before the next
/// one.
pub async fn tell_of_edits<T>(map: String, mut content: watch::Receiver<Arc<T>>, until: CancellationToken) {
    edits(&mut content, &until, || {
        tracing::warn!(
            config_map = map,
            "edited; leases go on as they are, and the edit counts from the next start on"
        );
    })
    .await;
}

/// Calls `tell` for each edit, until `until`.
async fn edits<T>(content: &mut watch::Receiver<Arc<T>>, until: &CancellationToken, mut tell: impl FnMut()) {
    content.borrow_and_update();
    while let Some(Ok(())) = until.run_until_cancelled(content.changed()).await {
        tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::ownership::bucket_names;

    /// Goal: each key has exactly one owner among the members, all agree on it, and one beyond the buckets owns
    /// nothing.
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
        (0..3).for_each(|bucket| assign.set(bucket, Some(me.clone()), true));
        assert!(!shares.are_settled(), "one bucket has no owner");
        assert_eq!(
            shares.held().into_iter().map(|(_, is_held)| is_held).collect::<Vec<_>>(),
            [true, true, true, false]
        );
        assign.set(3, Some(me.clone()), true);
        assert!(shares.are_settled());
        assert_eq!(shares.owner(&key), Owner::Us, "who holds it is not remembered");

        let long = RevisionKey::new("ns", "x".repeat(1000));
        assert!(shares.bucket(&long).is_some() && !shares.known.contains_key(&long));
        for n in 0..KNOWN_MAX {
            shares.known.insert(RevisionKey::new("hostile", n.to_string()), 0);
        }
        assert!(shares.bucket(&RevisionKey::new("ns", "one-more")).is_some());
        assert_eq!(shares.known.len(), 1);
    }

    /// Goal: each edit is told, and what the map said at the start is none.
    #[tokio::test]
    async fn edits_of_the_map_are_told() {
        let (map, content) = watch::channel(Arc::new(0));
        map.send_replace(Arc::new(1));
        let (until, (told, mut heard)) = (CancellationToken::new(), tokio::sync::mpsc::unbounded_channel());
        let (mut followed, ended) = (map.subscribe(), until.clone());
        drop(content);
        let following = tokio::spawn(async move {
            edits(&mut followed, &ended, || told.send(()).expect("the test listens")).await;
        });
        tokio::task::yield_now().await;
        for _ in 0..2 {
            map.send_modify(|content| *content = Arc::new(**content + 1));
            heard.recv().await.expect("told");
        }
        until.cancel();
        following.await.expect("ends");
        assert!(heard.try_recv().is_err(), "no more than there were");
    }
}
