//! Hashes of labels, by which pods and selectors are indexed.

use crate::scale::PodSet;
use common::labels::{Labels, have_all};
use common::names::REVISION;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Returns the hash of each label, in order of their names.
pub(super) fn hashes(labels: &Labels, namespace: &str) -> impl Iterator<Item = LabelHash> {
    labels.iter().map(move |(name, value)| LabelHash::new(namespace, name, value))
}

/// Hash of a namespace and a label. Different labels may have the same hash, so a match must be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LabelHash(u64);

impl LabelHash {
    fn new(namespace: &str, name: &str, value: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (namespace, name, value).hash(&mut hasher);
        Self(hasher.finish())
    }

    /// Returns the hash of a namespace alone, which no label has.
    pub(super) fn of_all(namespace: &str) -> Self {
        Self::new(namespace, "", "")
    }
}

impl PodSet {
    /// Returns whether pods with these labels belong to the set.
    pub(super) fn selects(&self, labels: &Labels) -> bool {
        match self {
            Self::Revision(name) => labels.get(REVISION) == Some(name),
            Self::Selector(wanted) => !wanted.is_empty() && have_all(labels, wanted),
            Self::Expressions(selector) => selector.matches(labels),
        }
    }

    /// Returns the hashes under which it may be indexed. Each of them leads to all of its pods: one of its labels, or
    /// the whole namespace. Empty: it selects nothing.
    pub(super) fn hashes(&self, namespace: &str) -> Vec<LabelHash> {
        match self {
            Self::Revision(name) => vec![LabelHash::new(namespace, REVISION, name)],
            Self::Selector(wanted) => hashes(wanted, namespace).collect(),
            Self::Expressions(_) => vec![LabelHash::of_all(namespace)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_selector_requires_all_of_its_labels() {
        let pod = labels(&[("app", "a"), ("tier", "web"), ("none", "")]);
        let selects = |pairs| PodSet::Selector(labels(pairs)).selects(&pod);
        assert!(selects(&[("app", "a")]) && selects(&[("app", "a"), ("none", "")]));
        for wrong in [&[("app", "aa")][..], &[("app", "a"), ("tier", "db")], &[]] {
            assert!(!selects(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn label_hashes_differ_between_namespaces() {
        let hashes = |namespace, pairs| hashes(&labels(pairs), namespace).collect::<Vec<_>>();
        let both = hashes("ns", &[("app", "a"), ("tier", "web")]);
        assert_eq!(hashes("ns", &[("app", "a")]), both[..1]);
        assert_ne!(hashes("other", &[("app", "a")]), both[..1]);
        let selector = |pairs| PodSet::Selector(labels(pairs)).hashes("ns");
        assert_eq!(selector(&[("app", "a"), ("tier", "web")]), both, "any of them leads to its pods");
        assert_eq!(selector(&[]), [], "it selects nothing");
    }
}
