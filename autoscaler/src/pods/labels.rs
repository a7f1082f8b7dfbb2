//! Labels in one block of memory: thousands of pods have several each, and a map of strings takes a hundred times what
//! it holds. They match as [`common::labels::have_all`] says, but for a selector that asks for nothing.

use common::labels::{Labels, Selector};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Labels of a pod, or those that a selector asks for, as lines `NAME=VALUE`; neither can hold a line's end or an
/// equals sign in its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PackedLabels(Box<str>);

impl PackedLabels {
    /// Of a map.
    pub(super) fn new(labels: &BTreeMap<String, String>) -> Self {
        let mut lines = String::with_capacity(labels.iter().map(|(name, value)| name.len() + value.len() + 2).sum());
        for (name, value) in labels {
            lines.extend([name, "=", value, "\n"]);
        }
        Self(lines.into())
    }

    /// Whether these are a selector that asks for something, and `labels` have all of it.
    pub(super) fn select(&self, labels: &Self) -> bool {
        !self.0.is_empty() && self.lines().all(|wanted| labels.lines().any(|line| line == wanted))
    }

    /// The hash of each of them, in order of their names.
    pub(super) fn hashes(&self, namespace: &str) -> impl Iterator<Item = LabelHash> {
        self.lines().map(move |line| LabelHash::of(namespace, line))
    }

    /// As a map again.
    fn unpacked(&self) -> Labels {
        let pairs = self.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.lines()
    }
}

/// A namespace and a label, by their hash: what is found there must be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LabelHash(u64);

impl LabelHash {
    fn of(namespace: &str, line: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (namespace, line).hash(&mut hasher);
        Self(hasher.finish())
    }

    /// That of a namespace alone, which no label has.
    pub(super) fn of_all(namespace: &str) -> Self {
        Self::of(namespace, "")
    }
}

/// What a revision asks of its pods' labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodSelector {
    /// All of these.
    Labels(PackedLabels),
    /// Whatever it says.
    Expressions(Selector),
}

impl PodSelector {
    /// Whether it asks for something, and `labels` have it.
    pub(super) fn selects(&self, labels: &PackedLabels) -> bool {
        match self {
            Self::Labels(wanted) => wanted.select(labels),
            Self::Expressions(selector) => selector.matches(&labels.unpacked()),
        }
    }

    /// Where it may stand, since each of these leads to all of its pods: its labels, or all of the namespace. None: it
    /// selects nothing.
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
