//! Store: all objects in memory, one version counter, and a bounded history for each resource.
//!
//! [`Store::commit`] is the only write. It checks the writer's expectation, gives the object its version, and appends
//! to the history of its table. Watchers have no queue: the history is a shared ring, and each watcher has a cursor and
//! reads at its own pace. A watcher whose cursor has left the ring gets an error. So a writer never waits for a reader.
//! Keys are `namespace/name`, or `name` for cluster-scoped objects, so tables have the order of lists.
//!
//! Limits: there is no persistence. The state of the cluster ends with the process.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::fields::{items, text};

/// Table and key of an object.
pub(crate) type StoreKey = (Arc<str>, String);

/// Version of an empty store. It is not 0, so that small numbers are versions before the history.
const ORIGIN: u64 = 1000;

/// A state of an object, without `apiVersion` and `kind`. It is immutable.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) value: Value,
    /// resourceVersion; 0 if it was never stored.
    pub(crate) version: u64,
}

impl Object {
    /// Wraps a value that is not stored, or not yet.
    pub(crate) fn new(value: Value, version: u64) -> Arc<Self> {
        Arc::new(Object { value, version })
    }

    /// Returns a text field, or the empty string.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        text(&self.value, pointer)
    }

    pub(crate) fn is_terminating(&self) -> bool {
        !self.text("/metadata/deletionTimestamp").is_empty()
    }

    pub(crate) fn owners(&self) -> &[Value] {
        items(&self.value, "/metadata/ownerReferences")
    }
}

/// Entry in the history of a table.
#[derive(Debug)]
pub(crate) struct Change {
    /// Key of the object in its table.
    pub(crate) key: String,
    /// State before the change; `None` for a new object.
    pub(crate) previous: Option<Arc<Object>>,
    /// State after the change, or the last state of a deleted object. Its version is that of the change.
    pub(crate) object: Arc<Object>,
    /// True if the object was deleted.
    pub(crate) deleted: bool,
}

#[derive(Debug)]
struct Table {
    objects: BTreeMap<String, Arc<Object>>,
    log: VecDeque<Arc<Change>>,
    /// Last version that is no longer in the history.
    floor: u64,
    changed: watch::Sender<()>,
}

impl Table {
    fn new(floor: u64) -> Self {
        Table { objects: BTreeMap::new(), log: VecDeque::new(), floor, changed: watch::Sender::default() }
    }
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    tables: HashMap<Arc<str>, Table>,
}

/// Reason of a failed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clash {
    /// The object is not as expected.
    Changed,
    /// The namespace does not exist.
    NamespaceMissing,
    /// The namespace is being deleted.
    NamespaceTerminating,
}

/// Objects of a cluster.
#[derive(Debug)]
pub(crate) struct Store {
    inner: Mutex<Inner>,
    history: usize,
    collection: Notify,
}

pub(crate) const NAMESPACES: &str = "/namespaces";
pub(crate) const PODS: &str = "/pods";

impl Store {
    /// Creates an empty store with a history of `history` changes per table.
    pub(crate) fn new(history: usize) -> Self {
        let inner = Inner { version: ORIGIN, ..Inner::default() };
        Store { inner: Mutex::new(inner), history: history.max(1), collection: Notify::new() }
    }

    /// Returns the version of the latest write.
    pub(crate) fn version(&self) -> u64 {
        self.inner.lock().version
    }

    pub(crate) fn get(&self, table: &str, key: &str) -> Option<Arc<Object>> {
        self.inner.lock().tables.get(table)?.objects.get(key).cloned()
    }

    /// Returns the objects of a table whose keys begin with `prefix`, in order, and their version.
    pub(crate) fn list(&self, table: &str, prefix: &str) -> (Vec<Arc<Object>>, u64) {
        let inner = self.inner.lock();
        let objects = inner.tables.get(table).map(|table| {
            let range = table.objects.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
            range.take_while(|(key, _)| key.starts_with(prefix)).map(|(_, object)| object.clone()).collect()
        });
        (objects.unwrap_or_default(), inner.version)
    }

    /// Returns at most `limit` changes of a table after `cursor`, and the version that the reader then has.
    /// Returns `None` if changes after `cursor` are no longer in the history.
    pub(crate) fn since(&self, table: &str, cursor: u64, limit: usize) -> Option<(Vec<Arc<Change>>, u64)> {
        let inner = self.inner.lock();
        let table = inner.tables.get(table).filter(|table| cursor >= table.floor)?;
        let start = table.log.partition_point(|change| change.object.version <= cursor);
        let changes: Vec<_> = table.log.range(start..).take(limit).cloned().collect();
        let reached = match changes.last() {
            Some(last) if changes.len() == limit => last.object.version,
            _ => inner.version,
        };
        Some((changes, reached))
    }

    /// Returns a receiver that is notified of changes of a table, and of its end.
    pub(crate) fn changed(&self, table: &Arc<str>) -> watch::Receiver<()> {
        self.inner.lock().table(table).changed.subscribe()
    }

    /// Stores a state of an object, or deletes the object if `value` is `None`. `expect` is its current version, or
    /// `None` if it must not exist; then `namespace` must exist.
    pub(crate) fn commit(
        &self,
        table: &Arc<str>,
        key: &str,
        expect: Option<u64>,
        value: Option<Value>,
        namespace: Option<&str>,
    ) -> Result<Arc<Object>, Clash> {
        let mut inner = self.inner.lock();
        if let (None, Some(namespace)) = (expect, namespace) {
            match inner.tables.get(NAMESPACES).and_then(|table| table.objects.get(namespace)) {
                None => return Err(Clash::NamespaceMissing),
                Some(found) if found.is_terminating() => return Err(Clash::NamespaceTerminating),
                Some(_) => {}
            }
        }
        let previous = inner.table(table).objects.get(key).cloned();
        if previous.as_ref().map(|previous| previous.version) != expect {
            return Err(Clash::Changed);
        }
        inner.version += 1;
        let version = inner.version;
        let deleted = value.is_none();
        let last = || previous.as_ref().map(|previous| previous.value.clone()).unwrap_or_default();
        let mut value = value.unwrap_or_else(last);
        value["metadata"]["resourceVersion"] = version.to_string().into();
        let object = Object::new(value, version);
        let has_new_owners = object.owners() != previous.as_ref().map(|previous| previous.owners()).unwrap_or_default();
        let table = inner.table(table);
        match deleted {
            true => drop(table.objects.remove(key)),
            false => drop(table.objects.insert(key.to_string(), object.clone())),
        }
        let change = Change { key: key.to_string(), previous, object: object.clone(), deleted };
        table.log.push_back(Arc::new(change));
        while table.log.len() > self.history {
            table.floor = table.log.pop_front().map_or(table.floor, |forgotten| forgotten.object.version);
        }
        table.changed.send_replace(());
        drop(inner);
        if deleted || has_new_owners || object.is_terminating() {
            self.request_collection();
        }
        Ok(object)
    }

    pub(crate) fn request_collection(&self) {
        self.collection.notify_one();
    }

    /// Waits until a pass of the collector is requested, by a change or otherwise.
    pub(crate) async fn collection_requested(&self) {
        self.collection.notified().await;
    }

    /// Returns all objects at one version.
    pub(crate) fn snapshot(&self) -> Vec<(StoreKey, Arc<Object>)> {
        let inner = self.inner.lock();
        let tables = inner.tables.iter();
        let entries = tables.flat_map(|(name, table)| {
            table.objects.iter().map(|(key, object)| ((name.clone(), key.clone()), object.clone()))
        });
        entries.collect()
    }

    /// Drops the history even for watchers that have read all of it: every watcher must list again.
    pub(crate) fn forget(&self) {
        let mut inner = self.inner.lock();
        inner.version += 1;
        let floor = inner.version;
        for table in inner.tables.values_mut() {
            (table.floor, table.log) = (floor, VecDeque::new());
            table.changed.send_replace(());
        }
    }

    /// Creates a table whose history begins now. The history of other tables begins with the store.
    pub(crate) fn open_table(&self, name: &Arc<str>) {
        let mut inner = self.inner.lock();
        let floor = inner.version;
        inner.tables.entry(name.clone()).or_insert_with(|| Table::new(floor));
    }

    /// Removes a table and its history, since its resource is gone.
    pub(crate) fn drop_table(&self, table: &str) {
        self.inner.lock().tables.remove(table);
    }
}

impl Inner {
    fn table(&mut self, name: &Arc<str>) -> &mut Table {
        self.tables.entry(name.clone()).or_insert_with(|| Table::new(ORIGIN))
    }
}
