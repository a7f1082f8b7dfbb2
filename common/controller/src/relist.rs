//! Relisting: a known object that is missing from a new full list was deleted.
//!
//! A broken watch starts over with a full list, and objects that were deleted meanwhile are simply not in it.

use std::collections::HashSet;
use std::hash::Hash;

/// Names that a list in progress has contained so far.
#[derive(Clone, Debug)]
pub struct Relist<N> {
    /// `None` if no list is in progress.
    listed: Option<HashSet<N>>,
}

impl<N> Default for Relist<N> {
    fn default() -> Self {
        Self { listed: None }
    }
}

impl<N: Eq + Hash + Clone> Relist<N> {
    /// Begins a full list.
    pub fn begin(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// Records that an object of this name exists; matters only during a list.
    pub fn record_existing(&mut self, name: &N) {
        if let Some(listed) = &mut self.listed {
            listed.insert(name.clone());
        }
    }

    /// Completes the list and returns the known names that it lacks.
    pub fn end<'a>(&mut self, known: impl Iterator<Item = &'a N>) -> Vec<N>
    where
        N: 'a,
    {
        let Some(listed) = self.listed.take() else { return Vec::new() };
        known.filter(|name| !listed.contains(name)).cloned().collect()
    }
}
