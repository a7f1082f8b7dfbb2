//! The store: every object in memory, one version counter for all, and a bounded history for each resource.
//!
//! A write goes through [`Store::commit`], which checks what the writer expected, gives the object its version and
//! appends to the history of its table. Watchers never hold a queue here: the history is a shared ring, each watcher
//! keeps a cursor and reads at its own pace, and one that has fallen off the ring is told so. A writer therefore
//! never waits for a reader. Keys are `namespace/name`, or `name` for cluster-wide objects, so that a table is in the
//! order in which lists are answered.
//!
//! Who owns whom, for the collector, is kept in [`graph`].
//!
//! Not here: persistence. The cluster's state ends with the process.

mod graph;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

/// Where an object lives: its table and its key there.
pub(crate) type StoreKey = (Arc<str>, String);

/// The first version handed out is one more than this, so that no small number is ever a version in the history.
const ORIGIN: u64 = 1000;

/// One state of an object, without `apiVersion` and `kind`; immutable once made.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) value: Value,
    /// Its resourceVersion; 0 if it was never stored.
    pub(crate) version: u64,
    json: OnceLock<Bytes>,
}

impl Object {
    /// Wraps a value that is not, or not yet, stored.
    pub(crate) fn new(value: Value, version: u64) -> Arc<Self> {
        Arc::new(Object { value, version, json: OnceLock::new() })
    }

    /// The value as JSON text, made once for all readers.
    pub(crate) fn json(&self) -> &Bytes {
        self.json.get_or_init(|| Bytes::from(self.value.to_string()))
    }

    /// A text field, or the empty string.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        super::fields::text(&self.value, pointer)
    }
}

/// One entry of a table's history.
#[derive(Debug)]
pub(crate) struct Change {
    /// The version this change made.
    pub(crate) version: u64,
    /// The object's key in its table.
    pub(crate) key: String,
    /// The state before; none if the object is new.
    pub(crate) previous: Option<Arc<Object>>,
    /// The state after, or the last state of an object that is gone.
    pub(crate) object: Arc<Object>,
    /// Whether the object is gone.
    pub(crate) deleted: bool,
}

#[derive(Debug)]
struct Table {
    objects: BTreeMap<String, Arc<Object>>,
    log: VecDeque<Arc<Change>>,
    /// Changes up to and including this version are forgotten.
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

/// What a writer believes about the object it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// There is none.
    Absent,
    /// It has this version.
    Version(u64),
}

/// What a writer wants.
#[derive(Debug)]
pub(crate) enum Write {
    /// Store this state.
    Put(Value),
    /// Remove the object; this is its last state.
    Delete(Value),
}

/// Why a write did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clash {
    /// The object is not as expected.
    Changed,
    /// Its namespace does not exist.
    NamespaceMissing,
    /// Its namespace is being deleted.
    NamespaceTerminating,
}

/// Which objects a page is of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    /// Their keys begin so.
    pub(crate) prefix: &'a str,
    /// They come after this one.
    pub(crate) after: Option<&'a str>,
    /// At most so many.
    pub(crate) most: usize,
}

/// A page.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// In order of their keys.
    pub(crate) objects: Vec<Arc<Object>>,
    /// So many come after them.
    pub(crate) remaining: usize,
    /// The version at which all of that was so.
    pub(crate) version: u64,
}

/// The history does not reach back to the version asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lapsed;

/// The objects of a cluster.
#[derive(Debug)]
pub(crate) struct Store {
    inner: Mutex<Inner>,
    history: usize,
    work: Notify,
}

/// The table that holds namespaces.
pub(crate) const NAMESPACES: &str = "/namespaces";

impl Store {
    /// An empty store that remembers `history` changes of each table.
    pub(crate) fn new(history: usize) -> Self {
        let inner = Inner { version: ORIGIN, ..Inner::default() };
        Store { inner: Mutex::new(inner), history: history.max(1), work: Notify::new() }
    }

    /// The version of the latest write.
    pub(crate) fn version(&self) -> u64 {
        self.inner.lock().version
    }

    pub(crate) fn get(&self, table: &str, key: &str) -> Option<Arc<Object>> {
        self.inner.lock().tables.get(table)?.objects.get(key).cloned()
    }

    /// The objects of a table whose keys begin with `prefix`, in order, and the version at which they were so.
    pub(crate) fn list(&self, table: &str, prefix: &str) -> (Vec<Arc<Object>>, u64) {
        let inner = self.inner.lock();
        let objects = match inner.tables.get(table) {
            Some(table) => scan(&table.objects, prefix, None).map(|(_, object)| object.clone()).collect(),
            None => Vec::new(),
        };
        (objects, inner.version)
    }

    /// A page of what [`Store::list`] lists, as it is, or as it was at an earlier version.
    pub(crate) fn page(&self, table: &str, span: &Span<'_>, at: Option<u64>) -> Result<Listed, Lapsed> {
        let inner = self.inner.lock();
        let version = at.unwrap_or(inner.version);
        let Some(table) = inner.tables.get(table) else { return Ok(Listed { version, ..Listed::default() }) };
        if version < table.floor {
            return Err(Lapsed);
        }
        // What has changed since, as it was then.
        let mut former: BTreeMap<&str, Option<&Arc<Object>>> = BTreeMap::new();
        for change in table.log.iter().rev().take_while(|change| change.version > version) {
            former.insert(&change.key, change.previous.as_ref());
        }
        let now = scan(&table.objects, span.prefix, span.after).map(|(key, object)| (key.as_str(), object));
        let now = now.filter(|(key, _)| !former.contains_key(key));
        let then = former.iter().filter_map(|(key, object)| Some((*key, (*object)?)));
        let then = then.filter(|(key, _)| key.starts_with(span.prefix) && span.after.is_none_or(|after| *key > after));
        // Both are in order: the first of all are among the first of each.
        let mut objects = BTreeMap::new();
        let count = first(span.most, now, &mut objects) + first(span.most, then, &mut objects);
        let objects: Vec<_> = objects.into_values().take(span.most).cloned().collect();
        Ok(Listed { remaining: count - objects.len(), objects, version })
    }

    /// Changes of a table after `cursor`, at most `limit` of them, and the version up to which the reader is then
    /// informed. Fails when changes after `cursor` are forgotten.
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

    /// Wakes readers of a table when it changes.
    pub(crate) fn changed(&self, table: &Arc<str>) -> Arc<Notify> {
        let mut inner = self.inner.lock();
        inner.table(table).changed.clone()
    }

    /// Writes one object. `namespace` is the one that must exist for a new object.
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

    /// Forgets all changes so far, also to those who have seen every one of them: whoever watches is to list again.
    pub(crate) fn forget(&self) {
        let mut inner = self.inner.lock();
        inner.version += 1;
        let floor = inner.version;
        for table in inner.tables.values_mut() {
            (table.floor, table.log) = (floor, VecDeque::new());
            table.changed.notify_waiters();
        }
    }

    /// Makes a table whose history begins now. Tables that nobody opens have one that begins with the store.
    pub(crate) fn open_table(&self, name: &Arc<str>) {
        let mut inner = self.inner.lock();
        let floor = inner.version;
        inner.tables.entry(name.clone()).or_insert_with(|| Table::new(floor));
    }

    /// Forgets a table, with its history: its resource is gone.
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

/// Adds the first of some to `objects`, at most `most`. Returns how many there are.
fn first<'a, T>(most: usize, all: impl Iterator<Item = (&'a str, T)>, objects: &mut BTreeMap<&'a str, T>) -> usize {
    let mut count = 0;
    for (key, object) in all {
        if count < most {
            objects.insert(key, object);
        }
        count += 1;
    }
    count
}

fn scan<'a>(
    objects: &'a BTreeMap<String, Arc<Object>>,
    prefix: &'a str,
    after: Option<&str>,
) -> impl Iterator<Item = (&'a String, &'a Arc<Object>)> {
    let first = match after.filter(|after| *after >= prefix) {
        Some(after) => Bound::Excluded(after),
        None => Bound::Included(prefix),
    };
    let range = objects.range::<str, _>((first, Bound::Unbounded));
    range.take_while(move |(key, _)| key.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    /// Goal: pages of any length, put together, are the list of the version of the first, whatever is written meanwhile;
    /// each says how many follow.
    #[test]
    fn pages_are_the_list_as_it_was_at_the_first() {
        let (store, table) = (Store::new(1000), Arc::<str>::from("/things"));
        store.open_table(&table);
        let mut random = StdRng::seed_from_u64(1);
        let mut write = || {
            let key = format!("{}/{}", random.random_range(0..3), random.random_range(0..9));
            let have = store.get(&table, &key);
            let expect = have.as_ref().map_or(Expect::Absent, |have| Expect::Version(have.version));
            let value = serde_json::json!({"metadata": {"name": key}});
            let write =
                if have.is_some() && random.random_bool(0.5) { Write::Delete(value) } else { Write::Put(value) };
            store.commit(&table, &key, expect, write, None).expect("as expected");
        };
        (0..30).for_each(|_| write());
        for (most, prefix) in [(1, ""), (2, "1/"), (3, ""), (4, "1/"), (100, "")] {
            let (expected, version) = store.list(&table, prefix);
            let (mut found, mut at, mut after) = (Vec::new(), None, None::<String>);
            loop {
                let span = Span { prefix, after: after.as_deref(), most };
                let page = store.page(&table, &span, at).expect("all is remembered");
                assert_eq!(
                    (page.version, found.len() + page.objects.len() + page.remaining),
                    (version, expected.len())
                );
                assert!(page.objects.len() <= most);
                found.extend(page.objects);
                if page.remaining == 0 {
                    break;
                }
                (at, after) = (Some(version), found.last().map(|object| object.text("/metadata/name").to_owned()));
                write();
            }
            let versions = |objects: &[Arc<Object>]| objects.iter().map(|object| object.version).collect::<Vec<_>>();
            assert_eq!(versions(&found), versions(&expected), "{most} at once of {prefix:?}");
        }
    }
}
