//! What PodAutoscalers refer to, turned around: from a target, a Service or a host to those that name it.
//!
//! A host belongs to the oldest PodAutoscaler that names it (of two born in the same second, the first by namespace and
//! name), so when the owner gives one up, the next in line hears of it.

use common::RevisionKey as Key;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use super::targets::TargetKey;

/// What one PodAutoscaler refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refers {
    /// When it was created, in seconds since the epoch.
    pub(crate) created: i64,
    /// Its target, if the reference can be used.
    pub(crate) target: Option<TargetKey>,
    /// Its public Service.
    pub(crate) service: Option<Key>,
    /// Further hosts it asks for, lower case.
    pub(crate) hosts: Vec<String>,
}

/// The reverse of [`Refers`], for all of them.
#[derive(Debug, Default)]
pub(crate) struct Links {
    inner: RwLock<Inner>,
}

/// In order, each once; of nearly all there is one.
type Few<T> = SmallVec<[T; 1]>;

#[derive(Debug, Default)]
struct Inner {
    refers: HashMap<Key, Refers>,
    by_target: HashMap<TargetKey, Few<Key>>,
    by_service: HashMap<Key, Few<Key>>,
    by_host: HashMap<String, Few<(i64, Key)>>,
}

impl Links {
    /// Takes in what a PodAutoscaler refers to now; returns the others whose share of a host may have changed.
    pub(crate) fn apply(&self, autoscaler: &Key, refers: Option<Refers>) -> BTreeSet<Key> {
        let mut inner = self.inner.write();
        let mut concerned = BTreeSet::new();
        if inner.refers.get(autoscaler) == refers.as_ref() {
            return concerned;
        }
        if let Some(old) = inner.refers.remove(autoscaler) {
            if let Some(target) = &old.target {
                remove(&mut inner.by_target, target, autoscaler);
            }
            if let Some(service) = &old.service {
                remove(&mut inner.by_service, service, autoscaler);
            }
            for host in &old.hosts {
                remove(&mut inner.by_host, host, &(old.created, autoscaler.clone()));
                concerned.extend(inner.by_host.get(host).into_iter().flatten().map(|(_, key)| key.clone()));
            }
        }
        if let Some(new) = refers {
            if let Some(target) = &new.target {
                insert(inner.by_target.entry(target.clone()).or_default(), autoscaler.clone());
            }
            if let Some(service) = &new.service {
                insert(inner.by_service.entry(service.clone()).or_default(), autoscaler.clone());
            }
            for host in &new.hosts {
                let claimants = inner.by_host.entry(host.clone()).or_default();
                insert(claimants, (new.created, autoscaler.clone()));
                concerned.extend(claimants.iter().map(|(_, key)| key.clone()));
            }
            inner.refers.insert(autoscaler.clone(), new);
        }
        concerned.remove(autoscaler);
        concerned
    }

    /// Those that scale this target.
    pub(crate) fn of_target(&self, target: &TargetKey) -> Vec<Key> {
        self.inner.read().by_target.get(target).into_iter().flatten().cloned().collect()
    }

    /// Those whose public Service has this name.
    pub(crate) fn of_service(&self, service: &Key) -> Vec<Key> {
        self.inner.read().by_service.get(service).into_iter().flatten().cloned().collect()
    }

    /// The owner of a host.
    pub(crate) fn owner_of_host(&self, host: &str) -> Option<Key> {
        self.inner.read().by_host.get(host)?.first().map(|(_, key)| key.clone())
    }
}

fn insert<V: Ord>(set: &mut Few<V>, value: V) {
    if let Err(place) = set.binary_search(&value) {
        set.insert(place, value);
    }
}

fn remove<K: Eq + Hash, V: Ord>(map: &mut HashMap<K, Few<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        if let Ok(place) = set.binary_search(value) {
            set.remove(place);
        }
        if set.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(created: i64, hosts: &[&str]) -> Option<Refers> {
        Some(Refers { created, hosts: hosts.iter().map(|h| (*h).to_owned()).collect(), ..Refers::default() })
    }

    #[test]
    fn a_host_belongs_to_the_oldest_and_passes_on_when_it_goes() {
        let links = Links::default();
        let (old, young) = (Key::new("ns", "old"), Key::new("ns", "a-young"));
        assert!(links.apply(&young, hosts(20, &["x.example.com"])).is_empty());
        assert_eq!(links.owner_of_host("x.example.com"), Some(young.clone()));
        assert_eq!(links.apply(&old, hosts(10, &["x.example.com"])), [young.clone()].into());
        assert_eq!(links.owner_of_host("x.example.com"), Some(old.clone()));
        assert!(links.apply(&old, hosts(10, &["x.example.com"])).is_empty(), "no change concerns nobody");
        assert_eq!(links.apply(&old, None), [young.clone()].into(), "the next in line must hear of it");
        assert_eq!(links.owner_of_host("x.example.com"), Some(young.clone()));
        links.apply(&young, None);
        assert_eq!(links.owner_of_host("x.example.com"), None);
    }

    #[test]
    fn targets_and_services_lead_back() {
        let links = Links::default();
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        let target =
            TargetKey { api_version: "apps/v1".into(), kind: "Deployment".into(), object: Key::new("ns", "d") };
        let service = Key::new("ns", "s");
        let refers = Refers { target: Some(target.clone()), service: Some(service.clone()), ..Refers::default() };
        links.apply(&a, Some(refers.clone()));
        links.apply(&b, Some(refers));
        assert_eq!(
            (links.of_target(&target), links.of_service(&service)),
            (vec![a.clone(), b.clone()], vec![a.clone(), b])
        );
        links.apply(&a, Some(Refers::default()));
        assert_eq!(links.of_target(&target).len(), 1);
    }
}
