//! Map of a key to several values, for reverse indexes.

use smallvec::SmallVec;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Values of each key, sorted and without duplicates. Nearly all keys have one value.
#[derive(Debug)]
pub(crate) struct MultiMap<K, V>(HashMap<K, SmallVec<[V; 1]>>);

impl<K, V> Default for MultiMap<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V: Ord + Clone> MultiMap<K, V> {
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> &[V]
    where
        K: Borrow<Q>,
    {
        self.0.get(key).map_or(&[], |values| values)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        let values = self.0.entry(key).or_default();
        if let Err(index) = values.binary_search(&value) {
            values.insert(index, value);
        }
    }

    pub(crate) fn remove(&mut self, key: &K, value: &V) {
        let Some(values) = self.0.get_mut(key) else { return };
        values.retain(|other| other != value);
        if values.is_empty() {
            self.0.remove(key);
        }
    }

    /// Moves a value from one key to another; `None`: it has no key.
    pub(crate) fn relocate(&mut self, value: &V, before: Option<&K>, after: Option<K>) {
        if before == after.as_ref() {
            return;
        }
        if let Some(before) = before {
            self.remove(before, value);
        }
        if let Some(after) = after {
            self.insert(after, value.clone());
        }
    }

    /// Reports whether no key has a value.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
