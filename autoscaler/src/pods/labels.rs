//! Index of labels by hash, and selectors of pods.

use common::labels::{Labels, Selector, have_all};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Returns the hash of each label, in order of their names.
pub(super) fn hashes(labels: &Labels, namespace: &str) -> impl Iterator<Item = LabelHash> {
    labels.iter().map(move |(name, value)| LabelHash::new(namespace, name, value))
}

/// Hash of a namespace and a label. A match by hash must be verified.
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

/// Selector of a revision's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodSelector {
    /// All of these labels.
    Labels(Labels),
    /// Selector with expressions.
    Expressions(Selector),
}

impl Default for PodSelector {
    /// Selects nothing.
    fn default() -> Self {
        Self::Labels(Labels::new())
    }
}

impl PodSelector {
    /// Returns whether the selector is not empty and matches `labels`.
    pub(super) fn selects(&self, labels: &Labels) -> bool {
        match self {
            Self::Labels(wanted) => !wanted.is_empty() && have_all(labels, wanted),
            Self::Expressions(selector) => selector.matches(labels),
        }
    }

    /// Returns the hashes under which it may be indexed. Each of them leads to all of its pods: one of its labels, or
    /// the whole namespace. Empty: it selects nothing.
    pub(super) fn hashes(&self, namespace: &str) -> Vec<LabelHash> {
        match self {
            Self::Labels(wanted) => hashes(wanted, namespace).collect(),
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
    fn a_selector_asks_for_all_of_its_labels() {
        let pod = labels(&[("app", "a"), ("tier", "web"), ("none", "")]);
        let selects = |pairs| PodSelector::Labels(labels(pairs)).selects(&pod);
        assert!(selects(&[("app", "a")]) && selects(&[("app", "a"), ("none", "")]));
        for wrong in [&[("app", "aa")][..], &[("app", "a"), ("tier", "db")], &[]] {
            assert!(!selects(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_label_has_a_hash_in_each_namespace() {
        let hashes = |namespace, pairs| hashes(&labels(pairs), namespace).collect::<Vec<_>>();
        let both = hashes("ns", &[("app", "a"), ("tier", "web")]);
        assert_eq!(hashes("ns", &[("app", "a")]), both[..1]);
        assert_ne!(hashes("other", &[("app", "a")]), both[..1]);
        let selector = |pairs| PodSelector::Labels(labels(pairs)).hashes("ns");
        assert_eq!(selector(&[("app", "a"), ("tier", "web")]), both, "any of them leads to its pods");
        assert_eq!(selector(&[]), [], "it selects nothing");
    }
}
