//! Which Services and hosts PodAutoscalers name, turned around: from a Service or a host to those that name it.
//!
//! A host belongs to the oldest PodAutoscaler that names it (of two born in the same second, the first by namespace and
//! name), so when the owner gives one up, the next in line hears of it.

use common::RevisionKey as Key;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// What one PodAutoscaler names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// When it was created, in seconds since the epoch.
    pub(crate) created: i64,
    /// Its public Service.
    pub(crate) service: Option<Key>,
    /// Further hosts it asks for, lower case.
    pub(crate) hosts: Vec<String>,
}

/// The reverse of [`Named`], for all of them.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    inner: RwLock<Inner>,
}

/// In order, each once; of nearly all there is one.
type Few<T> = SmallVec<[T; 1]>;

#[derive(Debug, Default)]
struct Inner {
    named: HashMap<Key, Named>,
    by_service: HashMap<Key, Few<Key>>,
    by_host: HashMap<String, Few<(i64, Key)>>,
}

impl Claims {
    /// Takes in what a PodAutoscaler names now; returns the others whose share of a host may have changed.
    pub(crate) fn apply(&self, autoscaler: &Key, named: Option<Named>) -> BTreeSet<Key> {
        let mut inner = self.inner.write();
        let mut concerned = BTreeSet::new();
        if inner.named.get(autoscaler) == named.as_ref() {
            return concerned;
        }
        if let Some(old) = inner.named.remove(autoscaler) {
            if let Some(service) = &old.service {
                remove(&mut inner.by_service, service, autoscaler);
            }
            for host in &old.hosts {
                remove(&mut inner.by_host, host, &(old.created, autoscaler.clone()));
                concerned.extend(inner.by_host.get(host).into_iter().flatten().map(|(_, key)| key.clone()));
            }
        }
        if let Some(new) = named {
            if let Some(service) = &new.service {
                insert(inner.by_service.entry(service.clone()).or_default(), autoscaler.clone());
            }
            for host in &new.hosts {
                let claimants = inner.by_host.entry(host.clone()).or_default();
                insert(claimants, (new.created, autoscaler.clone()));
                concerned.extend(claimants.iter().map(|(_, key)| key.clone()));
            }
            inner.named.insert(autoscaler.clone(), new);
        }
        concerned.remove(autoscaler);
        concerned
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
    if let Err(index) = set.binary_search(&value) {
        set.insert(index, value);
    }
}

fn remove<K: Eq + Hash, V: Ord>(map: &mut HashMap<K, Few<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        if let Ok(index) = set.binary_search(value) {
            set.remove(index);
        }
        if set.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(created: i64, hosts: &[&str]) -> Option<Named> {
        Some(Named { created, hosts: hosts.iter().map(|h| (*h).to_owned()).collect(), ..Named::default() })
    }

    #[test]
    fn a_host_belongs_to_the_oldest_and_passes_on_when_it_goes() {
        let claims = Claims::default();
        let (old, young) = (Key::new("ns", "old"), Key::new("ns", "a-young"));
        assert!(claims.apply(&young, hosts(20, &["x.example.com"])).is_empty());
        assert_eq!(claims.owner_of_host("x.example.com"), Some(young.clone()));
        assert_eq!(claims.apply(&old, hosts(10, &["x.example.com"])), [young.clone()].into());
        assert_eq!(claims.owner_of_host("x.example.com"), Some(old.clone()));
        assert!(claims.apply(&old, hosts(10, &["x.example.com"])).is_empty(), "no change concerns nobody");
        assert_eq!(claims.apply(&old, None), [young.clone()].into(), "the next in line must hear of it");
        assert_eq!(claims.owner_of_host("x.example.com"), Some(young.clone()));
        claims.apply(&young, None);
        assert_eq!(claims.owner_of_host("x.example.com"), None);
    }

    #[test]
    fn services_lead_back() {
        let claims = Claims::default();
        let (a, b, service) = (Key::new("ns", "a"), Key::new("ns", "b"), Key::new("ns", "s"));
        let named = Named { service: Some(service.clone()), ..Named::default() };
        claims.apply(&a, Some(named.clone()));
        claims.apply(&b, Some(named));
        assert_eq!(claims.of_service(&service), vec![a.clone(), b.clone()]);
        claims.apply(&a, Some(Named::default()));
        assert_eq!(claims.of_service(&service), vec![b]);
    }
}
