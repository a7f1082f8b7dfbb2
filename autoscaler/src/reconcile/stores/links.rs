//! What PodAutoscalers scale, turned around: from a target to those that name it.

use super::target_key::{TargetKey, TargetResource};
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
    /// How many name a target of it.
    resources: HashMap<TargetResource, usize>,
}

impl Links {
    /// Takes in what a PodAutoscaler scales now; none: it has gone. Returns what it scales no longer.
    pub(crate) fn apply(&self, autoscaler: &Key, target: Option<TargetKey>) -> Option<TargetKey> {
        let mut inner = self.inner.write();
        if inner.targets.get(autoscaler) == target.as_ref() {
            return None;
        }
        let old = inner.targets.remove(autoscaler);
        if let Some(old) = &old {
            inner.unlink(autoscaler, old);
        }
        if let Some(target) = target {
            *inner.resources.entry(target.resource.clone()).or_default() += 1;
            let keys = inner.by_target.entry(target.clone()).or_default();
            if let Err(index) = keys.binary_search(autoscaler) {
                keys.insert(index, autoscaler.clone());
            }
            inner.targets.insert(autoscaler.clone(), target);
        }
        old
    }

    /// Those that scale this target.
    pub(crate) fn of_target(&self, target: &TargetKey) -> Vec<Key> {
        self.inner.read().by_target.get(target).into_iter().flatten().cloned().collect()
    }

    /// Those that scale a target of this resource.
    pub(crate) fn of_resource(&self, resource: &TargetResource) -> Vec<Key> {
        let inner = self.inner.read();
        let naming = inner.targets.iter().filter(|(_, target)| target.resource == *resource);
        naming.map(|(autoscaler, _)| autoscaler.clone()).collect()
    }

    /// Whether anybody scales a target of this resource.
    pub(crate) fn is_named(&self, resource: &TargetResource) -> bool {
        self.inner.read().resources.contains_key(resource)
    }
}

impl Inner {
    fn unlink(&mut self, autoscaler: &Key, old: &TargetKey) {
        if let Some(keys) = self.by_target.get_mut(old) {
            keys.retain(|key| key != autoscaler);
            if keys.is_empty() {
                self.by_target.remove(old);
            }
        }
        if let Some(users) = self.resources.get_mut(&old.resource) {
            *users -= 1;
            if *users == 0 {
                self.resources.remove(&old.resource);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: &str, name: &str) -> TargetKey {
        TargetKey { resource: TargetResource::of("apps/v1", kind), object: Key::new("ns", name) }
    }

    #[test]
    fn targets_lead_back() {
        let links = Links::default();
        let (a, b, target) = (Key::new("ns", "a"), Key::new("ns", "b"), target("Deployment", "d"));
        links.apply(&b, Some(target.clone()));
        links.apply(&a, Some(target.clone()));
        assert_eq!(links.of_target(&target), vec![a.clone(), b.clone()]);
        assert_eq!(links.apply(&a, Some(target.clone())), None, "nothing has changed");
        assert_eq!(links.apply(&a, None), Some(target.clone()));
        assert_eq!(links.of_target(&target), vec![b]);
    }

    #[test]
    fn a_resource_is_named_from_the_first_user_to_the_last() {
        let links = Links::default();
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        let (one, other, elsewhere) =
            (target("Deployment", "d"), target("deployment", "e"), target("StatefulSet", "d"));
        links.apply(&a, Some(one.clone()));
        links.apply(&a, Some(one.clone()));
        links.apply(&b, Some(other));
        let mut naming = links.of_resource(&one.resource);
        naming.sort();
        assert_eq!(naming, [a.clone(), b.clone()]);
        links.apply(&a, Some(elsewhere.clone()));
        assert!(links.is_named(&one.resource) && links.is_named(&elsewhere.resource));
        links.apply(&b, None);
        assert!(!links.is_named(&one.resource) && links.of_resource(&one.resource).is_empty());
        links.apply(&a, None);
        assert!(!links.is_named(&elsewhere.resource));
    }
}
