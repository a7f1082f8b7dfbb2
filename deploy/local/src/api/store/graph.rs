//! Graph of owners, for the collector.
//!
//! It has two indexes: objects by uid, and dependents by the uid of their owner. Objects for the collector are in a
//! set, which is bounded by the number of objects.

use std::sync::Arc;

use super::super::fields::items;
use super::{Inner, NAMESPACES, Object, Store, StoreKey, scan};

impl Store {
    /// Waits for objects to examine, and takes all of them.
    pub(crate) async fn work(&self) -> Vec<StoreKey> {
        loop {
            let work: Vec<StoreKey> = std::mem::take(&mut self.inner.lock().work).into_iter().collect();
            if !work.is_empty() {
                return work;
            }
            self.work.notified().await;
        }
    }

    /// Queues an object for the collector.
    pub(crate) fn examine(&self, at: StoreKey) {
        self.inner.lock().work.insert(at);
        self.work.notify_one();
    }

    /// Returns the object with this uid.
    pub(crate) fn owner(&self, uid: &str) -> Option<(StoreKey, Arc<Object>)> {
        let inner = self.inner.lock();
        let at = inner.by_uid.get(uid)?.clone();
        let object = inner.tables.get(&at.0)?.objects.get(&at.1)?.clone();
        Some((at, object))
    }

    /// Returns the objects that have this uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<StoreKey> {
        self.inner.lock().dependents.get(uid).map(|set| set.iter().cloned().collect()).unwrap_or_default()
    }

    /// Returns the keys in a namespace, in all tables.
    pub(crate) fn contents(&self, namespace: &str) -> Vec<StoreKey> {
        let prefix = format!("{namespace}/");
        let inner = self.inner.lock();
        let mut keys = Vec::new();
        for (name, table) in &inner.tables {
            keys.extend(scan(&table.objects, &prefix).map(|(key, _)| (name.clone(), key.clone())));
        }
        keys
    }
}

impl Inner {
    /// Updates the indexes, and queues objects that the collector must examine.
    pub(super) fn index(
        &mut self,
        table: &Arc<str>,
        key: &str,
        previous: Option<&Object>,
        object: &Object,
        deleted: bool,
    ) {
        let at: StoreKey = (table.clone(), key.to_string());
        let old = previous.map(owners).unwrap_or_default();
        let new = if deleted { Vec::new() } else { owners(object) };
        for uid in old.iter().filter(|uid| !new.contains(uid)) {
            if let Some(set) = self.dependents.get_mut(*uid) {
                set.remove(&at);
                if set.is_empty() {
                    self.dependents.remove(*uid);
                }
            }
            self.examine_owner(uid);
        }
        for uid in new.iter().filter(|uid| !old.contains(uid)) {
            self.dependents.entry(uid.to_string()).or_default().insert(at.clone());
            if self.by_uid.get(*uid).is_none_or(|owner| self.is_leaving(owner)) {
                self.work.insert(at.clone());
            }
        }
        let uid = object.text("/metadata/uid").to_string();
        if deleted {
            let dependents = self.dependents.get(&uid).into_iter().flatten().cloned();
            self.work.extend(dependents);
            self.by_uid.remove(&uid);
            if let Some((namespace, _)) = key.split_once('/') {
                let owner: StoreKey = (NAMESPACES.into(), namespace.to_string());
                if self.is_leaving(&owner) {
                    self.work.insert(owner);
                }
            }
            if let Some(definition) = super::super::crd::definition_of(table)
                && self.is_leaving(&definition)
            {
                self.work.insert(definition);
            }
            return;
        }
        self.by_uid.insert(uid, at.clone());
        if !object.text("/metadata/deletionTimestamp").is_empty() {
            self.work.insert(at);
        }
    }

    fn is_leaving(&self, at: &StoreKey) -> bool {
        let object = self.tables.get(&at.0).and_then(|table| table.objects.get(&at.1));
        object.is_some_and(|object| !object.text("/metadata/deletionTimestamp").is_empty())
    }

    fn examine_owner(&mut self, uid: &str) {
        if let Some(owner) = self.by_uid.get(uid).cloned()
            && self.is_leaving(&owner)
        {
            self.work.insert(owner);
        }
    }
}

/// Returns the uids of an object's owners.
fn owners(object: &Object) -> Vec<&str> {
    let references = items(&object.value, "/metadata/ownerReferences").iter();
    references.filter_map(|reference| reference.get("uid")?.as_str()).collect()
}
