//! Objects of one watched kind in memory: the API server's latest state, and our own recent writes.
//!
//! One watch feeds a [`Store`]; any task reads it. The store calls its listener for each change, one at a time and in
//! order, after it has stored the change. So a task that the listener wakes reads this change or a later one.
//!
//! # Our own writes
//!
//! The response to a write contains the object's new version before the watch reports it. [`Store::offer`] shows that
//! version to readers at once, until the watch has caught up or [`OFFER_HOLDS`] has passed. So a reconcile that follows
//! a write neither repeats nor reverts it. If the watch has already reported the object's deletion, the response is not
//! shown: the versions of deleted objects are remembered for as long as a response may be late.
//!
//! # Relists
//!
//! After a broken watch the whole kind is listed again; objects missing from the list are reported as deleted
//! ([`Cache`]).
//!
//! # Packing
//!
//! A store of a kind with thousands of objects packs them ([`crate::packed`]). Packing is invisible to readers.
//!
//! # Not here
//!
//! Trimming: [`Store`] holds whatever form its watch makes of an object, for instance only some of its data.

use crate::ObjectKey;
use crate::cache::{Cache, number, version_of};
use crate::packed::Stored;
use common_runtime::namespaces::Reach;
use common_runtime::watching::{self, Watched};
use futures::StreamExt;
use kube::Resource;
use kube::runtime::watcher;
use parking_lot::RwLock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Longest time for which the response to a write may be ahead of the watch.
const OFFER_HOLDS: Duration = Duration::from_secs(5);

type Listener<T> = Box<dyn Fn(&ObjectKey, Option<&Arc<T>>, Option<&Arc<T>>) + Send + Sync>;

/// Known objects of one kind, by namespace and name.
pub struct Store<T> {
    inner: RwLock<Inner<T>>,
    /// Makes the stored form of an object.
    to_stored: fn(Arc<T>) -> Stored<T>,
    listener: Listener<T>,
    synced: watch::Sender<bool>,
    failure: RwLock<Option<String>>,
}

struct Inner<T> {
    watched: Cache<Stored<T>>,
    offered: HashMap<ObjectKey, Offer<T>>,
    deletions: Deletions,
}

struct Offer<T> {
    version: u64,
    value: Arc<T>,
    until: Instant,
}

/// Recently deleted objects: the last version of each, and the time until which it is remembered.
#[derive(Default)]
struct Deletions(VecDeque<(Instant, ObjectKey, u64)>);

impl Deletions {
    /// Records a deletion at this version or a later one.
    fn record(&mut self, key: &ObjectKey, version: u64, now: Instant) {
        self.forget_until(now);
        self.0.push_back((now + OFFER_HOLDS, key.clone(), version));
    }

    /// Reports whether this version of an object existed before its deletion.
    fn covers(&mut self, key: &ObjectKey, version: u64, now: Instant) -> bool {
        self.forget_until(now);
        self.0.iter().any(|(_, deleted, last)| deleted == key && version <= *last)
    }

    fn forget_until(&mut self, now: Instant) {
        while self.0.pop_front_if(|(until, ..)| *until <= now).is_some() {}
        if self.0.is_empty() {
            self.0 = VecDeque::new(); // Releases the capacity that a burst has needed.
        }
    }
}

impl<T: Send + Sync + 'static> Store<T> {
    /// Creates an empty store; `listener` gets each key with its previous and its new value.
    pub fn new(listener: impl Fn(&ObjectKey, Option<&Arc<T>>, Option<&Arc<T>>) + Send + Sync + 'static) -> Self {
        let inner = Inner { watched: Cache::default(), offered: HashMap::new(), deletions: Deletions::default() };
        Self {
            inner: RwLock::new(inner),
            to_stored: Stored::Whole,
            listener: Box::new(listener),
            synced: watch::channel(false).0,
            failure: RwLock::new(None),
        }
    }

    /// Creates an empty store that packs its objects.
    pub fn packing(listener: impl Fn(&ObjectKey, Option<&Arc<T>>, Option<&Arc<T>>) + Send + Sync + 'static) -> Self
    where
        T: Serialize + DeserializeOwned,
    {
        Self { to_stored: Stored::pack, ..Self::new(listener) }
    }

    /// Returns the object, if it exists.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        let stored = {
            let inner = self.inner.read();
            let ahead = |offer: &&Offer<T>| inner.watched.version(key).is_none_or(|watched| watched < offer.version);
            match inner.offered.get(key).filter(|offer| Instant::now() < offer.until).filter(ahead) {
                Some(offer) => return Some(offer.value.clone()),
                None => inner.watched.get(key)?.clone(),
            }
        };
        stored.unpack()
    }

    /// Reports whether the watch knows an object with this key.
    pub fn holds(&self, key: &ObjectKey) -> bool {
        self.inner.read().watched.get(key).is_some()
    }

    /// Returns the version that the watch knows, as a comparable number, or `None` if there is no such object.
    pub fn version(&self, key: &ObjectKey) -> Option<u64> {
        self.inner.read().watched.version(key)
    }

    /// Returns all keys that the watch knows.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.inner.read().watched.keys().cloned().collect()
    }

    /// Returns all keys of a namespace that the watch knows, in order of their names.
    pub fn keys_within(&self, namespace: &str) -> Vec<ObjectKey> {
        self.inner.read().watched.keys_within(namespace).cloned().collect()
    }

    /// Returns all objects of a namespace that the watch knows, in order of their names.
    pub fn within(&self, namespace: &str) -> Vec<Arc<T>> {
        self.inner.read().watched.within(namespace).filter_map(Stored::unpack).collect()
    }

    /// Shows the response to our own write until the watch has caught up, unless it already has. `version` is the
    /// response's resourceVersion.
    pub fn offer(&self, key: &ObjectKey, version: &str, value: T) {
        let mut inner = self.inner.write();
        let now = Instant::now();
        inner.offered.retain(|_, offer| now < offer.until);
        let version = number(version);
        if inner.watched.version(key).is_some_and(|watched| watched >= version) {
            inner.offered.remove(key);
            return; // No reader would see it, and nothing would remove it.
        }
        if inner.deletions.covers(key, version, now) {
            return; // The deletion would not be reported again.
        }
        inner.offered.insert(key.clone(), Offer { version, value: Arc::new(value), until: now + OFFER_HOLDS });
    }

    /// Removes an offer after we have deleted the object.
    pub fn withdraw(&self, key: &ObjectKey) {
        self.inner.write().offered.remove(key);
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        let _ = self.synced.subscribe().wait_for(|done| *done).await;
    }

    /// Reports whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns the current failure of the watch, if any.
    pub fn failure(&self) -> Option<String> {
        self.failure.read().clone()
    }

    /// Records a failure of the watch, until the next list is complete. For feeders other than [`Self::follow`].
    pub fn failed(&self, why: String) {
        *self.failure.write() = Some(why);
    }

    /// Records that the list is complete. For feeders other than [`Self::follow`].
    pub fn listed(&self) {
        *self.failure.write() = None;
        self.inner.write().watched.pack_densely();
        self.synced.send_replace(true);
    }

    /// Applies one version of an object, or its deletion, and calls the listener. For tests and for feeders other than
    /// [`Self::follow`].
    pub fn apply(&self, key: &ObjectKey, version: &str, value: Option<T>) {
        let new = value.map(Arc::new);
        let stored = new.clone().map(self.to_stored);
        let old = {
            let mut inner = self.inner.write();
            let change = match stored {
                Some(stored) => Some(inner.watched.put(key.clone(), number(version), stored)),
                None => {
                    let last = inner.watched.version(key);
                    inner.deletions.record(key, last.unwrap_or_default(), Instant::now());
                    inner.watched.remove(key)
                }
            };
            inner.drop_reached_offer(key);
            change.and_then(|change| change.old)
        };
        if old.is_some() || new.is_some() {
            (self.listener)(key, old.and_then(|old| old.unpack()).as_ref(), new.as_ref());
        }
    }

    /// Applies one event of the watch and calls the listener for each change. `convert` makes the stored form of an
    /// object. Only one task may feed a store.
    pub fn take<K: Resource>(&self, event: watcher::Event<K>, convert: impl FnOnce(K) -> T) {
        match event {
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => self.take_version(object, convert),
            event => {
                let listed = matches!(event, watcher::Event::InitDone);
                let changes = {
                    let mut inner = self.inner.write();
                    if let watcher::Event::Delete(object) = &event {
                        let key = key_of(object);
                        inner.offered.remove(&key);
                        inner.deletions.record(&key, version_of(object), Instant::now());
                    }
                    // These events contain no objects to store.
                    let changes = inner.watched.take(event, |object| (self.to_stored)(Arc::new(convert(object))));
                    changes.iter().for_each(|change| inner.drop_reached_offer(&change.key));
                    changes
                };
                for change in changes {
                    let old = change.old.and_then(|old| old.unpack());
                    (self.listener)(&change.key, old.as_ref(), None);
                }
                if listed {
                    self.listed();
                }
            }
        }
    }

    /// Applies one version of an object. Converting and packing it takes some ten microseconds and happens before the
    /// lock is taken, so readers do not wait for it.
    fn take_version<K: Resource>(&self, object: K, convert: impl FnOnce(K) -> T) {
        let (key, version) = (key_of(&object), version_of(&object));
        if self.inner.read().watched.holds(&key, version) {
            self.inner.write().watched.record_existing(&key);
            return;
        }
        let new = Arc::new(convert(object));
        let stored = (self.to_stored)(new.clone());
        let change = {
            let mut inner = self.inner.write();
            inner.watched.record_existing(&key);
            let change = inner.watched.put(key, version, stored);
            inner.drop_reached_offer(&change.key);
            change
        };
        let old = change.old.and_then(|old| old.unpack());
        (self.listener)(&change.key, old.as_ref(), Some(&new));
    }

    /// Follows `reach` forever. `convert` makes the stored form of an object.
    ///
    /// Cancel safe: dropping it stops the watch and keeps the known objects.
    pub async fn follow<K: Watched>(
        &self,
        reach: impl Into<Reach<K>>,
        config: watcher::Config,
        convert: impl Fn(K) -> T + Send + Sync,
    ) {
        let mut events = watching::attempts(reach, config);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.take(event, &convert),
                Err(error) => self.failed(error.to_string()),
            }
        }
    }
}

impl<T> Inner<T> {
    /// Removes an offer that the watch has reached, or whose object is deleted.
    fn drop_reached_offer(&mut self, key: &ObjectKey) {
        let watched = self.watched.version(key);
        if self.offered.get(key).is_some_and(|offer| watched.is_none_or(|version| offer.version <= version)) {
            self.offered.remove(key);
            if self.offered.is_empty() {
                self.offered = HashMap::new(); // Releases the capacity that the start has needed.
            }
        }
    }
}

impl<K: Watched + Sync> Store<K> {
    /// Shows an object from the response to a write, without its managed fields.
    pub fn offer_object(&self, written: &K) {
        let version = written.meta().resource_version.clone().unwrap_or_default();
        self.offer(&key_of(written), &version, trimmed(written.clone()));
    }

    /// Follows `reach` in its own task, until `shutdown`. Objects are stored without their managed fields, which are
    /// the larger half of many objects. Replacing an object without them leaves them unchanged.
    pub fn spawn(self: &Arc<Self>, reach: impl Into<Reach<K>>, shutdown: &CancellationToken) {
        let (store, reach, shutdown) = (self.clone(), reach.into(), shutdown.clone());
        tokio::spawn(async move {
            shutdown.run_until_cancelled(store.follow(reach, watcher::Config::default(), trimmed)).await;
        });
    }
}

/// Removes the managed fields of an object, which no code here reads.
pub fn trimmed<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

/// Returns namespace and name of an object.
pub fn key_of<K: Resource>(object: &K) -> ObjectKey {
    let meta = object.meta();
    ObjectKey::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::object;
    use k8s_openapi::api::core::v1::ConfigMap;
    use parking_lot::Mutex;

    type Log = Arc<Mutex<Vec<(String, Option<u32>, Option<u32>)>>>;

    fn store() -> (Store<u32>, Log) {
        let log = Log::default();
        let written = log.clone();
        let store = Store::new(move |key: &ObjectKey, old: Option<&Arc<u32>>, new: Option<&Arc<u32>>| {
            written.lock().push((key.to_string(), old.map(|n| **n), new.map(|n| **n)));
        });
        (store, log)
    }

    #[tokio::test(start_paused = true)]
    async fn an_own_write_is_visible_until_the_watch_has_caught_up_or_for_a_while() {
        let (store, key) = (store().0, ObjectKey::new("ns", "a"));
        store.apply(&key, "5", Some(5));
        store.offer(&key, "7", 7);
        assert_eq!(store.get(&key).as_deref(), Some(&7));
        store.apply(&key, "6", Some(6)); // Another writer was first.
        assert_eq!(store.get(&key).as_deref(), Some(&7));
        store.apply(&key, "8", Some(8));
        assert_eq!(store.get(&key).as_deref(), Some(&8), "the watch has caught up");
        store.offer(&key, "9", 9);
        store.apply(&key, "", None);
        assert_eq!(store.get(&key), None, "a deletion beats an offer");
        let never_reported = ObjectKey::new("ns", "b");
        store.offer(&never_reported, "7", 7);
        assert_eq!(store.get(&never_reported).as_deref(), Some(&7));
        tokio::time::advance(OFFER_HOLDS).await;
        assert_eq!(store.get(&never_reported), None);
    }

    /// Goal: readers do not wait while an object is converted and packed. A stored version is not converted again, and
    /// a list that contains it keeps it.
    #[test]
    fn readers_do_not_wait_for_an_object_to_be_packed() {
        let store = Arc::new(Store::<u32>::packing(|_, _, _| {}));
        let (key, mut converted) = (ObjectKey::new("ns", "a"), Vec::new());
        for version in [1, 1, 2] {
            let before = store.get(&key);
            store.take(watcher::Event::Init::<ConfigMap>, |_| unreachable!());
            store.take(watcher::Event::InitApply(object("a", "", version)), |_| {
                assert!(store.inner.try_read().is_some(), "readers wait");
                assert_eq!(store.get(&key), before);
                converted.push(version);
                7
            });
            store.take(watcher::Event::InitDone::<ConfigMap>, |_| unreachable!());
            assert_eq!(store.get(&key).as_deref(), Some(&7));
        }
        assert_eq!(converted, [1, 2]);
    }

    /// Goal: a late response to a write is not shown after the watch has reported the object's deletion; the response
    /// for a new object of the same name is shown.
    #[tokio::test(start_paused = true)]
    async fn a_response_for_a_deleted_object_is_not_shown() {
        let (store, key) = (store().0, ObjectKey::new("ns", "a"));
        store.apply(&key, "5", Some(5));
        store.take(watcher::Event::Delete(object("a", "", 8)), |_| unreachable!());
        store.offer(&key, "7", 7);
        assert_eq!(store.get(&key), None);
        store.offer(&key, "9", 9);
        assert_eq!(store.get(&key).as_deref(), Some(&9), "a new object of the same name");
        store.apply(&key, "10", Some(10));
        store.apply(&key, "", None); // The feeder does not know the version at deletion.
        store.offer(&key, "10", 10);
        assert_eq!(store.get(&key), None);
        tokio::time::advance(OFFER_HOLDS).await;
        store.offer(&key, "11", 11);
        assert_eq!(store.inner.read().deletions.0.len(), 0, "forgotten after a while");
    }

    /// Goal: a late response is not stored, because nothing would remove it.
    #[tokio::test(start_paused = true)]
    async fn a_response_that_the_watch_has_reached_is_not_stored() {
        let (store, key) = (store().0, ObjectKey::new("ns", "a"));
        for (watched, answered, offers) in [("5", "7", 1), ("7", "7", 0), ("8", "7", 0)] {
            store.apply(&key, watched, Some(1));
            store.offer(&key, answered, 2);
            assert_eq!(store.inner.read().offered.len(), offers, "watched {watched}, answered {answered}");
        }
    }

    #[test]
    fn a_list_reports_missing_objects_as_deleted() {
        let (store, log) = store();
        let (a, b) = (ObjectKey::new("ns", "a"), ObjectKey::new("ns", "b"));
        store.apply(&a, "1", Some(1));
        store.apply(&b, "2", Some(2));
        assert!(!store.is_synced());
        let convert = |_: ConfigMap| -> u32 { panic!("a stored version is not converted again") };
        store.take(watcher::Event::Init, convert);
        store.take(watcher::Event::InitApply(object("b", "", 2)), convert);
        store.take(watcher::Event::InitDone, convert);
        assert!(store.is_synced());
        let expected = [("ns/a", None, Some(1)), ("ns/b", None, Some(2)), ("ns/a", Some(1), None)];
        assert_eq!(*log.lock(), expected.map(|(key, old, new)| (key.to_owned(), old, new)));
    }
}
