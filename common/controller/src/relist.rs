//! The one way to relist: what was known before and is missing from a new full list is gone.
//!
//! A watch that breaks starts over with a full list, and what was deleted meanwhile is simply not in it.

use std::collections::HashSet;
use std::hash::Hash;

/// The names that a list under way has shown so far.
#[derive(Clone, Debug)]
pub struct Relist<N> {
    /// None: no list is under way.
    listed: Option<HashSet<N>>,
}

impl<N> Default for Relist<N> {
    fn default() -> Self {
        Self { listed: None }
    }
}

impl<N: Eq + Hash + Clone> Relist<N> {
    /// A full list begins.
    pub fn begin(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// An object of that name exists; matters while a list is under way.
    pub fn saw(&mut self, name: &N) {
        if let Some(listed) = &mut self.listed {
            listed.insert(name.clone());
        }
    }

    /// The list is complete: those of the known names that it lacks.
    pub fn end<'a>(&mut self, known: impl Iterator<Item = &'a N>) -> Vec<N>
    where
        N: 'a,
    {
        let Some(listed) = self.listed.take() else { return Vec::new() };
        known.filter(|name| !listed.contains(name)).cloned().collect()
    }
}
