//! Index of targets in both directions: from a workload to its targets, and from a target to its workloads.

use super::target_key::{TargetKey, TargetResource};
use common::RevisionKey as Key;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::HashMap;

/// Targets of one workload, usually one.
pub(crate) type Named = SmallVec<[TargetKey; 1]>;

/// Targets of all workloads.
#[derive(Debug, Default)]
pub(crate) struct Links {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    targets: HashMap<Key, Named>,
    /// Workloads of each target, sorted and without duplicates; usually one.
    by_target: HashMap<TargetKey, SmallVec<[Key; 1]>>,
    /// Number of references to targets of each resource.
    resources: HashMap<TargetResource, usize>,
}

impl Links {
    /// Replaces the targets of a workload, without duplicates; empty: it is gone. Returns the targets that it no
    /// longer has.
    pub(crate) fn apply(&self, autoscaler: &Key, targets: Named) -> Named {
        let mut inner = self.inner.write();
        let mut left = inner.targets.remove(autoscaler).unwrap_or_default();
        for target in targets.iter().filter(|target| !left.contains(target)) {
            inner.link(autoscaler, target);
        }
        left.retain(|target| !targets.contains(target));
        for target in &left {
            inner.unlink(autoscaler, target);
        }
        if !targets.is_empty() {
            inner.targets.insert(autoscaler.clone(), targets);
        }
        left
    }

    /// Returns the workloads that scale this target.
    pub(crate) fn of_target(&self, target: &TargetKey) -> Vec<Key> {
        self.inner.read().by_target.get(target).into_iter().flatten().cloned().collect()
    }

    /// Returns the workloads that scale a target of this resource.
    pub(crate) fn of_resource(&self, resource: &TargetResource) -> Vec<Key> {
        let inner = self.inner.read();
        let names = |targets: &Named| targets.iter().any(|target| target.resource == *resource);
        let naming = inner.targets.iter().filter(|(_, targets)| names(targets));
        naming.map(|(autoscaler, _)| autoscaler.clone()).collect()
    }

    /// Returns all resources of which a target is scaled.
    pub(crate) fn resources(&self) -> Vec<TargetResource> {
        self.inner.read().resources.keys().cloned().collect()
    }

    /// Returns whether a target of this resource is scaled.
    pub(crate) fn is_named(&self, resource: &TargetResource) -> bool {
        self.inner.read().resources.contains_key(resource)
    }
}

impl Inner {
    fn link(&mut self, autoscaler: &Key, target: &TargetKey) {
        *self.resources.entry(target.resource.clone()).or_default() += 1;
        let keys = self.by_target.entry(target.clone()).or_default();
        if let Err(index) = keys.binary_search(autoscaler) {
            keys.insert(index, autoscaler.clone());
        }
    }

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
    use smallvec::smallvec;
    use std::slice;

    fn target(kind: &str, name: &str) -> TargetKey {
        TargetKey { resource: TargetResource::of("apps/v1", kind), object: Key::new("ns", name) }
    }

    #[test]
    fn targets_lead_back() {
        let links = Links::default();
        let (a, b, target) = (Key::new("ns", "a"), Key::new("ns", "b"), target("Deployment", "d"));
        links.apply(&b, smallvec![target.clone()]);
        links.apply(&a, smallvec![target.clone()]);
        assert_eq!(links.of_target(&target), vec![a.clone(), b.clone()]);
        assert!(links.apply(&a, smallvec![target.clone()]).is_empty(), "nothing has changed");
        let other = self::target("Deployment", "e");
        assert!(links.apply(&a, smallvec![other.clone(), target.clone()]).is_empty(), "one more");
        assert_eq!((links.of_target(&other), links.of_target(&target)), (vec![a.clone()], vec![a.clone(), b.clone()]));
        assert_eq!(links.apply(&a, smallvec![other.clone()]).as_slice(), slice::from_ref(&target));
        assert_eq!(links.apply(&a, smallvec![]).as_slice(), slice::from_ref(&other));
        assert_eq!(links.of_target(&target), vec![b]);
    }

    #[test]
    fn a_resource_is_named_from_the_first_user_to_the_last() {
        let links = Links::default();
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        let (one, other, elsewhere) =
            (target("Deployment", "d"), target("deployment", "e"), target("StatefulSet", "d"));
        links.apply(&a, smallvec![one.clone()]);
        links.apply(&a, smallvec![one.clone()]);
        links.apply(&b, smallvec![other]);
        let mut naming = links.of_resource(&one.resource);
        naming.sort();
        assert_eq!(naming, [a.clone(), b.clone()]);
        links.apply(&a, smallvec![elsewhere.clone()]);
        assert!(links.is_named(&one.resource) && links.is_named(&elsewhere.resource));
        links.apply(&b, smallvec![]);
        assert!(!links.is_named(&one.resource) && links.of_resource(&one.resource).is_empty());
        links.apply(&a, smallvec![]);
        assert!(!links.is_named(&elsewhere.resource));
    }
}
