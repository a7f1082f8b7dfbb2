//! What PodAutoscalers scale, turned around: from a target to those that name it.

use super::targets::TargetKey;
use common::RevisionKey as Key;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::HashMap;

/// The targets of all PodAutoscalers.
#[derive(Debug, Default)]
pub(crate) struct Links {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    targets: HashMap<Key, TargetKey>,
    /// In order, each once; of nearly all there is one.
    by_target: HashMap<TargetKey, SmallVec<[Key; 1]>>,
}

impl Links {
    /// Takes in what a PodAutoscaler scales now; none: nothing, or the reference cannot be used.
    pub(crate) fn apply(&self, autoscaler: &Key, target: Option<TargetKey>) {
        let mut inner = self.inner.write();
        if inner.targets.get(autoscaler) == target.as_ref() {
            return;
        }
        if let Some(old) = inner.targets.remove(autoscaler)
            && let Some(keys) = inner.by_target.get_mut(&old)
        {
            keys.retain(|key| key != autoscaler);
            if keys.is_empty() {
                inner.by_target.remove(&old);
            }
        }
        if let Some(target) = target {
            let keys = inner.by_target.entry(target.clone()).or_default();
            if let Err(index) = keys.binary_search(autoscaler) {
                keys.insert(index, autoscaler.clone());
            }
            inner.targets.insert(autoscaler.clone(), target);
        }
    }

    /// Those that scale this target.
    pub(crate) fn of_target(&self, target: &TargetKey) -> Vec<Key> {
        self.inner.read().by_target.get(target).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_lead_back() {
        let links = Links::default();
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        let target =
            TargetKey { api_version: "apps/v1".into(), kind: "Deployment".into(), object: Key::new("ns", "d") };
        links.apply(&b, Some(target.clone()));
        links.apply(&a, Some(target.clone()));
        assert_eq!(links.of_target(&target), vec![a.clone(), b.clone()]);
        links.apply(&a, None);
        assert_eq!(links.of_target(&target), vec![b]);
    }
}
