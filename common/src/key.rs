//! The identity of a revision: the unit of scaling.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Names one revision, which is also the name of its PodAutoscaler. One allocation, and cheap to clone: a process has
/// many, and many of each. Ordered by namespace, then by name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RevisionKey {
    /// `namespace/name`; no namespace has a `/`.
    text: Arc<str>,
}

impl RevisionKey {
    /// A key from its two parts.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self { text: [namespace.as_ref(), "/", name.as_ref()].concat().into() }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.parts().0
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        self.parts().1
    }

    /// `namespace/name`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn parts(&self) -> (&str, &str) {
        self.text.split_once('/').unwrap_or_default() // It always has one.
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

/// `namespace/name`, the form that ownership hashing uses.
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

    #[test]
    fn a_key_is_its_two_parts() {
        let key = RevisionKey::new("ns", "app");
        assert_eq!((key.namespace(), key.name(), key.as_str()), ("ns", "app", "ns/app"));
        let cluster_wide = RevisionKey::new("", "app");
        assert_eq!((cluster_wide.namespace(), cluster_wide.name()), ("", "app"));
    }

    /// Goal: all of a namespace stand together, also where another's name sorts before the `/`.
    #[test]
    fn keys_are_ordered_by_namespace_first() {
        let sorted = [("", "z"), ("a", "y"), ("a", "z"), ("a-b", "a"), ("a.b", "a"), ("b", "a")];
        let keys = sorted.map(|(namespace, name)| RevisionKey::new(namespace, name));
        let mut again = keys.clone();
        again.reverse();
        again.sort();
        assert_eq!(again, keys);
    }
}
