//! Labels in one block of memory. Thousands of pods have several labels each, and a map of strings needs a hundred
//! times the size of its contents. Matching follows [`common::labels::have_all`], except that an empty selector
//! matches nothing.

use common::labels::{Labels, Selector};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Labels of a pod or of a selector, as lines `NAME=VALUE`. Neither part can contain a line break, nor the name an
/// equals sign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PackedLabels(Box<str>);

impl PackedLabels {
    /// Packs a map.
    pub(super) fn new(labels: &BTreeMap<String, String>) -> Self {
        let mut lines = String::with_capacity(labels.iter().map(|(name, value)| name.len() + value.len() + 2).sum());
        for (name, value) in labels {
            lines.extend([name, "=", value, "\n"]);
        }
        Self(lines.into())
    }

    /// Returns whether this selector is not empty, and `labels` contain all of it.
    pub(super) fn select(&self, labels: &Self) -> bool {
        !self.0.is_empty() && self.lines().all(|wanted| labels.lines().any(|line| line == wanted))
    }

    /// Returns the hash of each label, in order of their names.
    pub(super) fn hashes(&self, namespace: &str) -> impl Iterator<Item = LabelHash> {
        self.lines().map(move |line| LabelHash::of(namespace, line))
    }

    /// Unpacks into a map.
    fn unpacked(&self) -> Labels {
        let pairs = self.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.lines()
    }
}

/// Hash of a namespace and a label. A match by hash must be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LabelHash(u64);

impl LabelHash {
    fn of(namespace: &str, line: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (namespace, line).hash(&mut hasher);
        Self(hasher.finish())
    }

    /// Returns the hash of a namespace alone, which no label has.
    pub(super) fn of_all(namespace: &str) -> Self {
        Self::of(namespace, "")
    }
}

/// Selector of a revision's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodSelector {
    /// All of these labels.
    Labels(PackedLabels),
    /// Selector with expressions.
    Expressions(Selector),
}

impl PodSelector {
    /// Returns whether the selector is not empty and matches `labels`.
    pub(super) fn selects(&self, labels: &PackedLabels) -> bool {
        match self {
            Self::Labels(wanted) => wanted.select(labels),
            Self::Expressions(selector) => selector.matches(&labels.unpacked()),
        }
    }

    /// Returns the hashes under which it may be indexed. Each of them leads to all of its pods: one of its labels, or
    /// the whole namespace. Empty: it selects nothing.
    pub(super) fn hashes(&self, namespace: &str) -> Vec<LabelHash> {
        match self {
            Self::Labels(wanted) => wanted.hashes(namespace).collect(),
            Self::Expressions(_) => vec![LabelHash::of_all(namespace)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> PackedLabels {
        PackedLabels::new(&pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn a_selector_asks_for_whole_labels_and_for_all_of_them() {
        let pod = labels(&[("app", "a"), ("tier", "web"), ("none", "")]);
        assert!(labels(&[("app", "a")]).select(&pod) && labels(&[("app", "a"), ("none", "")]).select(&pod));
        for wrong in [&[("app", "aa")][..], &[("ap", "a")], &[("app", "a"), ("tier", "db")], &[("app", "")], &[]] {
            assert!(!labels(wrong).select(&pod), "{wrong:?}");
        }
    }

    #[test]
    fn a_label_has_a_hash_in_each_namespace() {
        let hashes = |namespace, pairs| labels(pairs).hashes(namespace).collect::<Vec<_>>();
        let both = hashes("ns", &[("app", "a"), ("tier", "web")]);
        assert_eq!(hashes("ns", &[("app", "a")]), both[..1]);
        assert_ne!(hashes("other", &[("app", "a")]), both[..1]);
        let selector = |pairs| PodSelector::Labels(labels(pairs)).hashes("ns");
        assert_eq!(selector(&[("app", "a"), ("tier", "web")]), both, "any of them leads to its pods");
        assert_eq!(selector(&[]), [], "it selects nothing");
    }
}
