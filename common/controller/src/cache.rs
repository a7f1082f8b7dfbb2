//! Last known objects of one kind, without a lock and without its own watch.
//!
//! [`Cache::take`] applies one event of a watch and returns the changes. After a broken watch everything is listed
//! again, and objects missing from the list are removed ([`crate::relist`]).
//!
//! # Responses to our own writes
//!
//! A controller that creates a pod and decides again before the watch reports that pod would create a second one. So a
//! cache [with responses](Cache::with_responses) also accepts the response to each write, which the watch confirms
//! later. Two rules keep both sources consistent:
//!
//! - A response counts only if its resourceVersion is higher than the cached one. Afterwards the watch changes nothing
//!   until it reaches that version. Versions of one kind are comparable, which Kubernetes guarantees since 1.35.
//! - A deleted uid never returns, whichever source is late. The last [`DELETED_MAX`] deleted uids are remembered.
//!
//! Objects from responses that arrived since a listing began do not count as missing from it.

use crate::ObjectKey;
use crate::relist::Relist;
use crate::store::key_of;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

/// Number of uids of deleted objects that are remembered. A uid matters only between a response and the watch event for
/// the same deletion, which is milliseconds. 4096 objects of one kind are not deleted in that time.
const DELETED_MAX: usize = 4096;

/// Change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<V> {
    /// Key of the object.
    pub key: ObjectKey,
    /// Previous value; `None` if the object is new.
    pub old: Option<V>,
    /// Current value; `None` if the object was deleted.
    pub new: Option<V>,
}

/// Last known objects of one kind, by namespace and name. `V` is the cached form of an object and cheap to clone.
#[derive(Debug)]
pub struct Cache<V> {
    entries: BTreeMap<ObjectKey, Versioned<V>>,
    /// `None` if only the watch feeds the cache.
    responses: Option<Responses<V>>,
    relist: Relist<ObjectKey>,
    synced: bool,
}

#[derive(Debug)]
struct Versioned<V> {
    version: u64,
    value: V,
}

#[derive(Debug)]
struct Responses<V> {
    uid: fn(&V) -> Option<&str>,
    /// Keys of responses that the watch has not confirmed yet.
    unconfirmed: HashSet<ObjectKey>,
    deleted: HashSet<String>,
    deletion_order: VecDeque<String>,
}

impl<V> Default for Cache<V> {
    /// Creates a cache that only the watch feeds.
    fn default() -> Self {
        Self { entries: BTreeMap::new(), responses: None, relist: Relist::default(), synced: false }
    }
}

impl<V: Clone> Cache<V> {
    /// Reports whether a first listing is complete.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Returns the object with this key.
    pub fn get(&self, key: &ObjectKey) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Returns the resourceVersion of the object with this key.
    pub(crate) fn version(&self, key: &ObjectKey) -> Option<u64> {
        self.entries.get(key).map(|entry| entry.version)
    }

    /// Returns all keys.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.entries.keys()
    }

    /// Returns all objects.
    pub fn all(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|entry| &entry.value)
    }

    /// Returns all keys of a namespace, in order.
    pub fn keys_within<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        self.entries_within(namespace).map(|(key, _)| key)
    }

    /// Returns all objects of a namespace, by name.
    pub fn within<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a V> {
        self.entries_within(namespace).map(|(_, entry)| &entry.value)
    }

    /// Returns the entries of a namespace, which are adjacent: keys are ordered by namespace first.
    fn entries_within<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a ObjectKey, &'a Versioned<V>)> {
        let from = self.entries.range(ObjectKey::new(namespace, "")..);
        from.take_while(move |(key, _)| key.namespace() == namespace)
    }

    /// Applies one event of the watch. `convert` makes the cached form of an object; it is not called for a version
    /// that is already cached.
    pub fn take<K: Resource>(&mut self, event: Event<K>, convert: impl FnOnce(K) -> V) -> Vec<Change<V>> {
        match event {
            Event::Init => {
                self.relist.begin();
                Vec::new()
            }
            Event::InitApply(object) | Event::Apply(object) => {
                let (key, version, uid) = (key_of(&object), version_of(&object), object.uid());
                self.record_existing(&key);
                if !self.is_new_version(&key, version, uid.as_deref()) {
                    return Vec::new();
                }
                vec![self.put(key, version, convert(object))]
            }
            Event::Delete(object) => self.remove_uid(&key_of(&object), object.uid().as_deref()).into_iter().collect(),
            Event::InitDone => {
                self.synced = true;
                let missing = self.relist.end(self.entries.keys());
                missing.iter().filter_map(|key| self.remove_missing(key)).collect()
            }
        }
    }

    /// Records that the watch has reported an object, which is therefore not missing from the listing in progress.
    pub(crate) fn record_existing(&mut self, key: &ObjectKey) {
        self.relist.record_existing(key);
    }

    /// Reports whether exactly this version is cached.
    pub(crate) fn holds(&self, key: &ObjectKey, version: u64) -> bool {
        version != 0 && self.version(key) == Some(version)
    }

    /// Reports whether an event of the watch contains anything new.
    fn is_new_version(&mut self, key: &ObjectKey, version: u64, uid: Option<&str>) -> bool {
        if let Some(responses) = &mut self.responses {
            if uid.is_some_and(|uid| responses.deleted.contains(uid)) {
                return false;
            }
            if let Some(entry) = self.entries.get(key)
                && responses.unconfirmed.contains(key)
            {
                if (responses.uid)(&entry.value) == uid && version < entry.version {
                    return false;
                }
                responses.unconfirmed.remove(key);
            }
        }
        !self.holds(key, version)
    }

    /// Rebuilds the tree with full nodes: inserting in key order leaves them half empty.
    pub(crate) fn pack_densely(&mut self) {
        self.entries = std::mem::take(&mut self.entries).into_iter().collect();
    }

    /// Removes the object with this key and uid; an object with another uid stays.
    fn remove_uid(&mut self, key: &ObjectKey, uid: Option<&str>) -> Option<Change<V>> {
        if let Some(responses) = &mut self.responses {
            responses.remember_deletion(uid);
            if (responses.uid)(&self.entries.get(key)?.value) != uid {
                return None;
            }
        }
        self.remove(key)
    }

    /// Removes an object that a complete listing lacks. If the watch has reported it before, its uid is remembered as
    /// deleted. An object known only from a response may be newer than the list.
    fn remove_missing(&mut self, key: &ObjectKey) -> Option<Change<V>> {
        if let (Some(responses), Some(entry)) = (&mut self.responses, self.entries.get(key))
            && !responses.unconfirmed.contains(key)
        {
            responses.remember_deletion((responses.uid)(&entry.value));
        }
        self.remove(key)
    }

    /// Inserts an object, whatever is cached.
    pub(crate) fn put(&mut self, key: ObjectKey, version: u64, value: V) -> Change<V> {
        let old = self.entries.insert(key.clone(), Versioned { version, value: value.clone() });
        Change { key, old: old.map(|old| old.value), new: Some(value) }
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Change<V>> {
        if let Some(responses) = &mut self.responses {
            responses.unconfirmed.remove(key);
        }
        let old = self.entries.remove(key)?;
        Some(Change { key: key.clone(), old: Some(old.value), new: None })
    }
}

impl<K: Resource> Cache<Arc<K>> {
    /// Creates a cache that the watch and responses feed.
    pub fn with_responses() -> Self {
        let responses = Responses {
            uid: |object: &Arc<K>| object.meta().uid.as_deref(),
            unconfirmed: HashSet::new(),
            deleted: HashSet::new(),
            deletion_order: VecDeque::new(),
        };
        Self { responses: Some(responses), ..Self::default() }
    }

    /// Applies the response to a write, which contains the current object. Nothing changes if it is already known or
    /// deleted.
    pub fn apply_response(&mut self, object: K) -> Option<Change<Arc<K>>> {
        let (key, version) = (key_of(&object), version_of(&object));
        let uid = object.meta().uid.as_deref();
        let responses = self.responses.as_mut()?;
        if uid.is_some_and(|uid| responses.deleted.contains(uid)) {
            return None;
        }
        self.relist.record_existing(&key);
        if let Some(known) = self.entries.get(&key)
            && (responses.uid)(&known.value) == uid
            && known.version >= version
        {
            return None;
        }
        responses.unconfirmed.insert(key.clone());
        Some(self.put(key, version, Arc::new(object)))
    }

    /// Applies the response to a deletion: removes the object with this key and uid.
    pub fn apply_deletion(&mut self, key: &ObjectKey, uid: &str) -> Option<Change<Arc<K>>> {
        self.remove_uid(key, Some(uid))
    }
}

impl<V> Responses<V> {
    fn remember_deletion(&mut self, uid: Option<&str>) {
        let Some(uid) = uid.filter(|uid| !self.deleted.contains(*uid)) else { return };
        self.deleted.insert(uid.to_owned());
        self.deletion_order.push_back(uid.to_owned());
        if self.deletion_order.len() > DELETED_MAX
            && let Some(oldest) = self.deletion_order.pop_front()
        {
            self.deleted.remove(&oldest);
        }
    }
}

/// Returns the resourceVersion as a number. Kubernetes promises since 1.35 that versions of one kind are increasing
/// numbers; any other version is never newer.
pub fn version_of<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().map_or(0, number)
}

/// Parses the text of a resourceVersion as [`version_of`] does.
pub(crate) fn number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::object;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn take(cache: &mut Cache<Arc<ConfigMap>>, event: Event<ConfigMap>) -> Vec<Change<Arc<ConfigMap>>> {
        cache.take(event, Arc::new)
    }

    fn names(cache: &Cache<Arc<ConfigMap>>) -> Vec<String> {
        cache.all().map(|o| o.name_any()).collect()
    }

    /// Goal: the response to a write and the watch event may come in either order. Method: both orders, same result.
    #[test]
    fn a_late_event_never_undoes_a_newer_response() {
        let mut cache = Cache::with_responses();
        assert!(cache.apply_response(object("a", "u1", 7)).is_some());
        let older = take(&mut cache, Event::Apply(object("a", "u1", 5)));
        assert!(older.is_empty(), "an older version changes nothing");
        let equal = take(&mut cache, Event::Apply(object("a", "u1", 7)));
        assert!(equal.is_empty(), "an equal version changes nothing");
        assert_eq!(take(&mut cache, Event::Apply(object("a", "u1", 9))).len(), 1);
        assert!(cache.apply_response(object("a", "u1", 8)).is_none(), "the watch is ahead of this response");
    }

    /// Goal: a deleted object stays deleted, even if the response to its creation arrives last.
    #[test]
    fn a_deleted_uid_never_returns() {
        let mut cache = Cache::with_responses();
        assert!(take(&mut cache, Event::Delete(object("a", "u1", 6))).is_empty());
        assert!(cache.apply_response(object("a", "u1", 5)).is_none());
        assert_eq!(names(&cache), Vec::<String>::new());
        assert!(cache.apply_response(object("a", "u2", 8)).is_some(), "a successor of the same name is another object");
        let key = ObjectKey::new("ns", "a");
        assert!(cache.apply_deletion(&key, "u1").is_none(), "deleting its predecessor leaves it");
        assert_eq!(names(&cache), ["a"]);
    }

    /// Goal: a listing replaces everything except objects that were written while it ran.
    #[test]
    fn a_listing_removes_objects_that_it_lacks() {
        let mut cache = Cache::with_responses();
        cache.apply_response(object("old", "u1", 1));
        cache.apply_response(object("kept", "u2", 2));
        take(&mut cache, Event::Init);
        take(&mut cache, Event::InitApply(object("kept", "u2", 2)));
        cache.apply_response(object("ours", "u3", 9));
        let changes = take(&mut cache, Event::InitDone);
        assert_eq!(changes.len(), 1);
        assert_eq!(names(&cache), ["kept", "ours"]);
        assert!(cache.is_synced());
    }

    /// Goal: an object that a listing lacks stays deleted, even if the response to a write of it arrives last. The
    /// watch may still report an object whose response arrived after the list was made and before it was received.
    #[test]
    fn a_uid_that_a_listing_lacks_never_returns() {
        let mut cache = Cache::with_responses();
        take(&mut cache, Event::Apply(object("gone", "u1", 5)));
        cache.apply_response(object("new", "u2", 9));
        take(&mut cache, Event::Init);
        assert_eq!(take(&mut cache, Event::InitDone).len(), 2);
        assert!(cache.apply_response(object("gone", "u1", 6)).is_none(), "it was deleted");
        take(&mut cache, Event::Apply(object("new", "u2", 9)));
        assert_eq!(names(&cache), ["new"]);
    }

    /// Goal: a namespace's objects are found completely, without those of namespaces whose name has the same prefix.
    #[test]
    fn a_namespace_is_found_without_its_neighbors() {
        let mut cache = Cache::default();
        let keys = [("a", "x"), ("ns", "b"), ("ns", "a"), ("ns-2", "a"), ("ns.2", "a"), ("z", "a")];
        for (value, (namespace, name)) in (0..).zip(keys) {
            cache.put(ObjectKey::new(namespace, name), 1, value);
        }
        let found: Vec<_> = cache.keys_within("ns").cloned().collect();
        assert_eq!(found, [ObjectKey::new("ns", "a"), ObjectKey::new("ns", "b")]);
        assert_eq!(cache.within("ns").copied().collect::<Vec<u32>>(), [2, 1], "in the same order");
        assert_eq!(cache.keys_within("n").count(), 0);
    }

    /// Goal: a restored API server starts over, with lower versions.
    #[test]
    fn a_cache_without_responses_follows_the_watch_to_an_older_version() {
        let mut cache = Cache::default();
        take(&mut cache, Event::Apply(object("a", "u1", 7)));
        assert!(take(&mut cache, Event::Apply(object("a", "u1", 7))).is_empty(), "nothing new");
        assert_eq!(take(&mut cache, Event::Apply(object("a", "u1", 5))).len(), 1);
        assert_eq!(take(&mut cache, Event::Delete(object("a", "u1", 8))).len(), 1);
    }
}
