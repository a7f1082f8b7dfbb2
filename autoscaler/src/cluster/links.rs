//! Index of targets in both directions: from a workload to its targets, and from a target to its workloads.

use super::multi_map::MultiMap;
use super::target_key::{TargetKey, TargetResource};
use common::RevisionKey as Key;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};

/// Targets of one workload, usually one.
pub(crate) type Named = SmallVec<[TargetKey; 1]>;

/// All workloads and their targets.
#[derive(Debug, Default)]
pub(crate) struct Links {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    targets: HashMap<Key, Named>,
    by_target: MultiMap<TargetKey, Key>,
}

impl Links {
    /// Replaces the targets of a workload, without duplicates; none: the workload is gone. Returns the targets that it
    /// no longer has.
    pub(crate) fn apply(&self, workload: &Key, targets: Option<Named>) -> Named {
        let Inner { targets: all, by_target } = &mut *self.inner.write();
        let mut released = all.remove(workload).unwrap_or_default();
        for target in targets.iter().flatten() {
            by_target.insert(target.clone(), workload.clone());
        }
        released.retain(|target| !targets.iter().flatten().any(|present| present == target));
        released.iter().for_each(|target| by_target.remove(target, workload));
        if let Some(targets) = targets {
            all.insert(workload.clone(), targets);
        }
        released
    }

    pub(crate) fn knows(&self, workload: &Key) -> bool {
        self.inner.read().targets.contains_key(workload)
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.inner.read().targets.keys().cloned().collect()
    }

    /// Returns the workloads that scale this target.
    pub(crate) fn of_target(&self, target: &TargetKey) -> Vec<Key> {
        self.inner.read().by_target.get(target).to_vec()
    }

    /// Returns the workloads that scale a target of this resource.
    pub(crate) fn of_resource(&self, resource: &TargetResource) -> Vec<Key> {
        let names = |targets: &Named| targets.iter().any(|target| target.resource == *resource);
        let inner = self.inner.read();
        inner.targets.iter().filter(|(_, targets)| names(targets)).map(|(workload, _)| workload.clone()).collect()
    }

    /// Reports whether a target of this resource is scaled.
    pub(crate) fn is_named(&self, resource: &TargetResource) -> bool {
        self.inner.read().targets.values().flatten().any(|target| target.resource == *resource)
    }

    /// Returns all resources with a scaled target.
    pub(crate) fn resources(&self) -> HashSet<TargetResource> {
        self.inner.read().targets.values().flatten().map(|target| target.resource.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;
    use std::slice;

    fn target(kind: &str, name: &str) -> TargetKey {
        TargetKey { resource: TargetResource::for_kind("apps/v1", kind), object: Key::new("ns", name) }
    }

    #[test]
    fn targets_map_back_to_their_workloads() {
        let links = Links::default();
        let (a, b, target) = (Key::new("ns", "a"), Key::new("ns", "b"), target("Deployment", "d"));
        links.apply(&b, Some(smallvec![target.clone()]));
        links.apply(&a, Some(smallvec![target.clone()]));
        assert_eq!(links.of_target(&target), vec![a.clone(), b.clone()]);
        assert!(links.apply(&a, Some(smallvec![target.clone()])).is_empty(), "nothing has changed");
        let other = self::target("Deployment", "e");
        assert!(links.apply(&a, Some(smallvec![other.clone(), target.clone()])).is_empty(), "one more");
        assert_eq!((links.of_target(&other), links.of_target(&target)), (vec![a.clone()], vec![a.clone(), b.clone()]));
        assert_eq!(links.apply(&a, Some(smallvec![other.clone()])).as_slice(), slice::from_ref(&target));
        assert!(links.knows(&a));
        assert_eq!(links.apply(&a, None).as_slice(), slice::from_ref(&other));
        assert!(!links.knows(&a) && links.keys() == [b.clone()]);
        assert_eq!(links.of_target(&target), vec![b]);
    }

    #[test]
    fn a_resource_is_known_while_any_workload_names_it() {
        let links = Links::default();
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        let (one, other, elsewhere) =
            (target("Deployment", "d"), target("deployment", "e"), target("StatefulSet", "d"));
        links.apply(&a, Some(smallvec![one.clone()]));
        links.apply(&a, Some(smallvec![one.clone()]));
        links.apply(&b, Some(smallvec![other]));
        let mut workloads = links.of_resource(&one.resource);
        workloads.sort();
        assert_eq!(workloads, [a.clone(), b.clone()]);
        links.apply(&a, Some(smallvec![elsewhere.clone()]));
        assert_eq!(links.resources(), [one.resource.clone(), elsewhere.resource.clone()].into());
        links.apply(&b, None);
        assert!(!links.resources().contains(&one.resource) && links.of_resource(&one.resource).is_empty());
        links.apply(&a, None);
        assert!(links.resources().is_empty());
    }
}
