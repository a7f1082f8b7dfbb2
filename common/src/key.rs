//! The identity of a revision: the unit of scaling.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Identifies one revision; its PodAutoscaler has the same name. A key is one shared allocation, so clones are cheap: a
/// process holds many keys and many copies of each. Keys are ordered by namespace, then by name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RevisionKey {
    /// `namespace/name`; a namespace never contains `/`.
    text: Arc<str>,
}

impl RevisionKey {
    /// Creates a key from a namespace and a name.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self { text: [namespace.as_ref(), "/", name.as_ref()].concat().into() }
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        self.parts().0
    }

    /// Returns the name within the namespace.
    pub fn name(&self) -> &str {
        self.parts().1
    }

    /// Returns `namespace/name`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns `namespace/name` in the allocation that all clones share.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    fn parts(&self) -> (&str, &str) {
        self.text.split_once('/').unwrap_or_default() // The text always contains a `/`.
    }
}

impl Ord for RevisionKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for RevisionKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Formats the key as `namespace/name`, the form that ownership hashing uses.
impl fmt::Display for RevisionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for RevisionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: keys of one namespace are adjacent, even if another namespace's name sorts before the `/`. A key is its
    /// two parts.
    #[test]
    fn keys_are_ordered_by_namespace_first() {
        let sorted = [("", "z"), ("a", "y"), ("a", "z"), ("a-b", "a"), ("a.b", "a"), ("b", "a")];
        let keys = sorted.map(|(namespace, name)| RevisionKey::new(namespace, name));
        let mut again = keys.clone();
        again.reverse();
        again.sort();
        assert_eq!(again, keys);
        assert_eq!(keys.each_ref().map(|key| (key.namespace(), key.name())), sorted);
        assert_eq!(keys[1].as_str(), "a/y");
    }
}
