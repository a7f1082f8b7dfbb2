//! Store: all objects in memory, one version counter, and a bounded history for each resource.
//!
//! [`Store::commit`] is the only write. It checks the writer's expectation, gives the object its version, and appends
//! to the history of its table. Watchers have no queue: the history is a shared ring, and each watcher has a cursor and
//! reads at its own pace. A watcher whose cursor has left the ring gets an error. So a writer never waits for a reader.
//! Keys are `namespace/name`, or `name` for cluster-scoped objects, so tables have the order of lists.
//!
//! [`graph`] stores the owners of objects, for the collector.
//!
//! Limits: there is no persistence. The state of the cluster ends with the process.

mod graph;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

/// Table and key of an object.
pub(crate) type StoreKey = (Arc<str>, String);

/// Version before the first one, so that no small number is a version in the history.
const ORIGIN: u64 = 1000;

/// A state of an object, without `apiVersion` and `kind`. It is immutable.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) value: Value,
    /// resourceVersion; 0 if it was never stored.
    pub(crate) version: u64,
    json: OnceLock<Bytes>,
}

impl Object {
    /// Wraps a value that is not stored, or not yet.
    pub(crate) fn new(value: Value, version: u64) -> Arc<Self> {
        Arc::new(Object { value, version, json: OnceLock::new() })
    }

    /// Returns the value as JSON text, which is built once for all readers.
    pub(crate) fn json(&self) -> &Bytes {
        self.json.get_or_init(|| Bytes::from(self.value.to_string()))
    }

    /// Returns a text field, or the empty string.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        super::fields::text(&self.value, pointer)
    }
}

/// Entry in the history of a table.
#[derive(Debug)]
pub(crate) struct Change {
    /// Version after this change.
    pub(crate) version: u64,
    /// Key of the object in its table.
    pub(crate) key: String,
    /// State before the change; `None` for a new object.
    pub(crate) previous: Option<Arc<Object>>,
    /// State after the change, or the last state of a deleted object.
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
    changed: Arc<Notify>,
}

impl Table {
    fn new(floor: u64) -> Self {
        Table { objects: BTreeMap::new(), log: VecDeque::new(), floor, changed: Arc::new(Notify::new()) }
    }
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    tables: HashMap<Arc<str>, Table>,
    by_uid: HashMap<String, StoreKey>,
    dependents: HashMap<String, BTreeSet<StoreKey>>,
    work: BTreeSet<StoreKey>,
}

/// Expected state of an object before a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The object does not exist.
    Absent,
    /// The object has this version.
    Version(u64),
}

/// A write.
#[derive(Debug)]
pub(crate) enum Write {
    /// Stores this state.
    Put(Value),
    /// Deletes the object. The value is its last state.
    Delete(Value),
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

/// Error: the history does not reach back to the requested version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lapsed;

/// Objects of a cluster.
#[derive(Debug)]
pub(crate) struct Store {
    inner: Mutex<Inner>,
    history: usize,
    work: Notify,
}

/// Table of namespaces.
pub(crate) const NAMESPACES: &str = "/namespaces";

impl Store {
    /// Creates an empty store with a history of `history` changes per table.
    pub(crate) fn new(history: usize) -> Self {
        let inner = Inner { version: ORIGIN, ..Inner::default() };
        Store { inner: Mutex::new(inner), history: history.max(1), work: Notify::new() }
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
        let objects = match inner.tables.get(table) {
            Some(table) => scan(&table.objects, prefix).map(|(_, object)| object.clone()).collect(),
            None => Vec::new(),
        };
        (objects, inner.version)
    }

    /// Returns at most `limit` changes of a table after `cursor`, and the version that the reader has then reached.
    /// Fails if changes after `cursor` are no longer in the history.
    pub(crate) fn since(&self, table: &str, cursor: u64, limit: usize) -> Result<(Vec<Arc<Change>>, u64), Lapsed> {
        let inner = self.inner.lock();
        let Some(table) = inner.tables.get(table) else { return Err(Lapsed) };
        if cursor < table.floor {
            return Err(Lapsed);
        }
        let start = table.log.partition_point(|change| change.version <= cursor);
        let changes: Vec<_> = table.log.range(start..).take(limit).cloned().collect();
        let informed = match changes.last() {
            Some(last) if changes.len() == limit => last.version,
            _ => inner.version,
        };
        Ok((changes, informed))
    }

    /// Returns the notifier for changes of a table.
    pub(crate) fn changed(&self, table: &Arc<str>) -> Arc<Notify> {
        let mut inner = self.inner.lock();
        inner.table(table).changed.clone()
    }

    /// Writes one object. `namespace` must exist if the object is new.
    pub(crate) fn commit(
        &self,
        table: &Arc<str>,
        key: &str,
        expect: Expect,
        write: Write,
        namespace: Option<&str>,
    ) -> Result<Arc<Object>, Clash> {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        if let (Expect::Absent, Some(namespace)) = (expect, namespace) {
            let found = inner.tables.get(NAMESPACES).and_then(|table| table.objects.get(namespace));
            match found {
                None => return Err(Clash::NamespaceMissing),
                Some(found) if !found.text("/metadata/deletionTimestamp").is_empty() => {
                    return Err(Clash::NamespaceTerminating);
                }
                Some(_) => {}
            }
        }
        let previous = inner.table(table).objects.get(key).cloned();
        let expected = match (expect, &previous) {
            (Expect::Absent, None) => true,
            (Expect::Version(version), Some(previous)) => previous.version == version,
            _ => false,
        };
        if !expected {
            return Err(Clash::Changed);
        }
        inner.version += 1;
        let version = inner.version;
        let (mut value, deleted) = match write {
            Write::Put(value) => (value, false),
            Write::Delete(value) => (value, true),
        };
        value["metadata"]["resourceVersion"] = version.to_string().into();
        let object = Object::new(value, version);
        inner.index(table, key, previous.as_deref(), &object, deleted);
        let history = self.history;
        let changed = {
            let table = inner.table(table);
            match deleted {
                true => drop(table.objects.remove(key)),
                false => drop(table.objects.insert(key.to_string(), object.clone())),
            }
            let change = Change { version, key: key.to_string(), previous, object: object.clone(), deleted };
            table.log.push_back(Arc::new(change));
            while table.log.len() > history {
                table.floor = table.log.pop_front().map_or(table.floor, |forgotten| forgotten.version);
            }
            table.changed.clone()
        };
        let work = !inner.work.is_empty();
        drop(guard);
        changed.notify_waiters();
        if work {
            self.work.notify_one();
        }
        Ok(object)
    }

    /// Drops the history even for watchers that have read all of it: every watcher must list again.
    pub(crate) fn forget(&self) {
        let mut inner = self.inner.lock();
        inner.version += 1;
        let floor = inner.version;
        for table in inner.tables.values_mut() {
            (table.floor, table.log) = (floor, VecDeque::new());
            table.changed.notify_waiters();
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
        let dropped = self.inner.lock().tables.remove(table);
        if let Some(dropped) = dropped {
            dropped.changed.notify_waiters();
        }
    }
}

impl Inner {
    fn table(&mut self, name: &Arc<str>) -> &mut Table {
        self.tables.entry(name.clone()).or_insert_with(|| Table::new(ORIGIN))
    }
}

fn scan<'a>(
    objects: &'a BTreeMap<String, Arc<Object>>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a String, &'a Arc<Object>)> {
    let range = objects.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
    range.take_while(move |(key, _)| key.starts_with(prefix))
}
