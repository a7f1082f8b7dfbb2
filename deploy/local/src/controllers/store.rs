//! The last known objects of one kind, fed by a watch and by the answers to our own writes.
//!
//! A controller that creates a pod and decides again before the watch has told of it would create a second one.
//! So the answer to every write goes in here at once, and the watch confirms it later. Two rules keep both sources
//! from contradicting each other:
//!
//! - the higher resourceVersion wins, and an equal one changes nothing (versions of one kind are comparable, which
//!   Kubernetes guarantees since 1.35);
//! - a uid that has been seen to go never comes back, whichever source is late. The last [`GONE_MAX`] are remembered.
//!
//! After a broken watch everything is listed anew; what was not listed is gone, except what we wrote since the listing
//! began.

use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// Uids of deleted objects that are remembered. A uid matters only between an answer and the watch event for the
/// same deletion, which is milliseconds; 4096 deletions of one kind do not happen in that time.
const GONE_MAX: usize = 4096;

/// Namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    /// The namespace; empty for cluster-wide objects.
    pub(crate) namespace: String,
    /// The name.
    pub(crate) name: String,
}

impl ObjectKey {
    /// A key from its two parts.
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of `object`.
    pub(crate) fn of<K: Resource>(object: &K) -> Self {
        Self::new(object.meta().namespace.clone().unwrap_or_default(), object.meta().name.clone().unwrap_or_default())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What happened to one object.
#[derive(Debug)]
pub(crate) struct Change<K> {
    /// Before; absent if it is new.
    pub(crate) old: Option<Arc<K>>,
    /// Now; absent if it is gone.
    pub(crate) new: Option<Arc<K>>,
}

/// The last known objects of one kind.
#[derive(Debug)]
pub(crate) struct Store<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    gone: HashSet<String>,
    gone_order: VecDeque<String>,
    /// Keys met since a listing began; absent while none is under way.
    listed: Option<HashSet<ObjectKey>>,
    synced: bool,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            gone: HashSet::new(),
            gone_order: VecDeque::new(),
            listed: None,
            synced: false,
        }
    }
}

impl<K: Resource> Store<K> {
    /// Whether a first listing is complete.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced
    }

    /// The object of that key.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    /// All objects of a namespace, by name.
    pub(crate) fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
        let from = ObjectKey::new(namespace, "");
        self.objects
            .range((Bound::Included(from), Bound::Unbounded))
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, object)| object)
    }

    /// All objects.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// Takes in what the watch says.
    pub(crate) fn apply_event(&mut self, event: Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Init => {
                self.listed = Some(HashSet::new());
                Vec::new()
            }
            Event::InitApply(object) | Event::Apply(object) => self.written(object).into_iter().collect(),
            Event::Delete(object) => {
                let uid = object.meta().uid.clone().unwrap_or_default();
                self.removed(&ObjectKey::of(&object), &uid).into_iter().collect()
            }
            Event::InitDone => {
                self.synced = true;
                let Some(listed) = self.listed.take() else { return Vec::new() };
                let missing: Vec<_> = self.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
                missing
                    .iter()
                    .filter_map(|key| self.objects.remove(key))
                    .map(|old| Change { old: Some(old), new: None })
                    .collect()
            }
        }
    }

    /// Takes in an object from the watch or from the answer to a write.
    pub(crate) fn written(&mut self, object: K) -> Option<Change<K>> {
        let key = ObjectKey::of(&object);
        if object.meta().uid.as_ref().is_some_and(|uid| self.gone.contains(uid)) {
            return None;
        }
        if let Some(listed) = &mut self.listed {
            listed.insert(key.clone());
        }
        let old = self.objects.get(&key).cloned();
        if let Some(old) = &old
            && old.meta().uid == object.meta().uid
            && version(old.as_ref()) >= version(&object)
        {
            return None;
        }
        let new = Arc::new(object);
        self.objects.insert(key, new.clone());
        Some(Change { old, new: Some(new) })
    }

    /// Takes in that the object with that key and uid no longer exists.
    pub(crate) fn removed(&mut self, key: &ObjectKey, uid: &str) -> Option<Change<K>> {
        if !uid.is_empty() && self.gone.insert(uid.to_owned()) {
            self.gone_order.push_back(uid.to_owned());
            if self.gone_order.len() > GONE_MAX
                && let Some(oldest) = self.gone_order.pop_front()
            {
                self.gone.remove(&oldest);
            }
        }
        let held = self.objects.get(key)?;
        if held.meta().uid.as_deref().unwrap_or_default() != uid {
            return None; // A successor of the same name is already known.
        }
        self.objects.remove(key).map(|old| Change { old: Some(old), new: None })
    }
}

/// The resourceVersion as a number; 0 where there is none, so that anything replaces it.
fn version<K: Resource>(object: &K) -> u64 {
    object.resource_version().and_then(|v| v.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("ns".into());
        object.metadata.name = Some(name.into());
        object.metadata.uid = Some(uid.into());
        object.metadata.resource_version = Some(version.to_string());
        object
    }

    fn names(store: &Store<ConfigMap>) -> Vec<String> {
        store.all().map(|o| o.name_any()).collect()
    }

    /// Goal: the answer to a write and the watch may come in either order. Method: both orders, same end.
    #[test]
    fn a_late_event_never_undoes_a_newer_answer() {
        let mut store = Store::default();
        assert!(store.written(object("a", "u1", 7)).is_some());
        assert!(store.apply_event(Event::Apply(object("a", "u1", 5))).is_empty(), "an older version changes nothing");
        assert!(store.apply_event(Event::Apply(object("a", "u1", 7))).is_empty(), "an equal version changes nothing");
        assert_eq!(store.apply_event(Event::Apply(object("a", "u1", 9))).len(), 1);
    }

    /// Goal: an object that is gone stays gone, though the answer to its creation arrives last.
    #[test]
    fn a_deleted_uid_never_comes_back() {
        let mut store = Store::default();
        assert!(store.apply_event(Event::Delete(object("a", "u1", 6))).is_empty());
        assert!(store.written(object("a", "u1", 5)).is_none());
        assert_eq!(names(&store), Vec::<String>::new());
        assert!(store.written(object("a", "u2", 8)).is_some(), "a successor of the same name is another object");
        assert!(store.removed(&ObjectKey::new("ns", "a"), "u1").is_none(), "its predecessor's end does not concern it");
        assert_eq!(names(&store), ["a"]);
    }

    /// Goal: a listing replaces everything but what was written while it ran.
    #[test]
    fn a_listing_drops_what_it_does_not_name() {
        let mut store = Store::default();
        store.written(object("old", "u1", 1));
        store.written(object("kept", "u2", 2));
        store.apply_event(Event::Init);
        store.apply_event(Event::InitApply(object("kept", "u2", 2)));
        store.written(object("ours", "u3", 9));
        let changes = store.apply_event(Event::InitDone);
        assert_eq!(changes.len(), 1);
        assert_eq!(names(&store), ["kept", "ours"]);
        assert!(store.is_synced());
    }
}
