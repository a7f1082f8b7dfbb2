//! Reverse index of the Services and hosts that ZeroScalers name: from a Service or a host to the ZeroScalers that name
//! it.
//!
//! [`super`] decides who owns a host.

use crate::cluster::multi_map::MultiMap;
use common::RevisionKey as Key;
use common::host::HostPattern;
use common::hosts::claims::{Claim, Ledger, Rules, settle};
use common::hosts::reserved::{Covered, covered};
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::HashMap;

/// Services and hosts that one ZeroScaler names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Public Services of the ZeroScaler.
    pub(crate) services: SmallVec<[Key; 1]>,
    /// Additional hosts that the ZeroScaler claims.
    pub(crate) claim: Claim,
}

/// Reverse index of [`Named`] for all ZeroScalers.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    named: HashMap<Key, Named>,
    by_service: MultiMap<Key, Key>,
    by_host: MultiMap<String, Key>,
}

impl Claims {
    /// Records the Services and hosts that a ZeroScaler names now. Returns whether a host may get another owner.
    pub(crate) fn apply(&self, autoscaler: &Key, named: Option<Named>) -> bool {
        let mut inner = self.inner.write();
        if inner.named.get(autoscaler) == named.as_ref() {
            return false;
        }
        let old = inner.named.remove(autoscaler);
        if let Some(old) = &old {
            old.services.iter().for_each(|service| inner.by_service.remove(service, autoscaler));
            hosts(old).for_each(|host| inner.by_host.remove(&host, autoscaler));
        }
        let asks = |named: &Option<Named>| named.as_ref().map(|named| named.claim.clone()).filter(Claim::asks);
        let moves = asks(&old) != asks(&named);
        if let Some(new) = named {
            new.services.iter().for_each(|service| inner.by_service.insert(service.clone(), autoscaler.clone()));
            hosts(&new).for_each(|host| inner.by_host.insert(host, autoscaler.clone()));
            inner.named.insert(autoscaler.clone(), new);
        }
        moves
    }

    pub(crate) fn knows(&self, autoscaler: &Key) -> bool {
        self.inner.read().named.contains_key(autoscaler)
    }

    /// Returns the ZeroScalers that name this Service, or have a target of its name.
    pub(crate) fn of_service(&self, service: &Key) -> Vec<Key> {
        self.inner.read().by_service.get(service).to_vec()
    }

    pub(crate) fn of_host(&self, host: &str) -> Vec<Key> {
        self.inner.read().by_host.get(host).to_vec()
    }

    pub(crate) fn claimants(&self) -> Vec<Key> {
        let inner = self.inner.read();
        inner.named.iter().filter(|(_, named)| named.claim.asks()).map(|(key, _)| key.clone()).collect()
    }

    /// Returns the ZeroScalers whose hosts may depend on a namespace. These are the claimants of the namespace itself,
    /// and claimants of names of its Services or of unreadable hosts.
    pub(crate) fn concerned_by(&self, namespace: &str, cluster_domain: &str) -> Vec<Key> {
        let is_its = |host: &HostPattern| match covered(host, cluster_domain) {
            Covered::OfNamespace(owner) | Covered::OfNamespaceIfAny(owner) => owner == namespace,
            Covered::Free | Covered::Address | Covered::Unclaimable(_) => false,
        };
        let asks_for_its = |claim: &Claim| claim.hosts.as_ref().is_none_or(|hosts| hosts.iter().any(is_its));
        let inner = self.inner.read();
        let asking = inner.named.iter().filter(|(_, named)| named.claim.asks());
        let concerned = asking.filter(|(key, named)| key.namespace() == namespace || asks_for_its(&named.claim));
        concerned.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the owners of all hosts from now on; `held` are the owners until now.
    pub(crate) fn settle(&self, held: &Ledger, rules: Rules<'_>) -> Ledger {
        settle(self.inner.read().named.iter().map(|(key, named)| (key, &named.claim)), held, rules)
    }
}

/// Returns the hosts in the notation of the ledger.
fn hosts(named: &Named) -> impl Iterator<Item = String> {
    named.claim.hosts.iter().flatten().map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(service: &str, hosts: &[&str]) -> Option<Named> {
        let hosts = hosts.iter().filter_map(|host| HostPattern::parse(host)).collect();
        let claim = Claim { uid: "u".into(), created: 1, hosts: Some(hosts) };
        Some(Named { services: [Key::new("ns", service)].into(), claim })
    }

    #[test]
    fn services_and_hosts_lead_to_the_zeroscalers_that_name_them() {
        let claims = Claims::default();
        let (a, b, service) = (Key::new("ns", "a"), Key::new("ns", "b"), Key::new("ns", "s"));
        assert!(!claims.apply(&a, named("s", &[])), "no host is claimed");
        assert!(claims.apply(&b, named("s", &["x.example.com"])));
        assert!(!claims.apply(&b, named("s", &["x.example.com"])), "nothing has changed");
        assert_eq!(claims.of_service(&service), vec![a.clone(), b.clone()]);
        assert_eq!((claims.of_host("x.example.com"), claims.claimants()), (vec![b.clone()], vec![b.clone()]));
        assert!(!claims.apply(&a, named("t", &[])));
        assert_eq!(claims.of_service(&service), vec![b.clone()]);
        assert!(claims.apply(&b, None));
        assert!(claims.of_host("x.example.com").is_empty() && claims.claimants().is_empty());
        assert!(claims.of_service(&service).is_empty());
    }

    #[test]
    fn a_namespace_concerns_its_own_claimants_and_claimants_of_its_names() {
        let claims = Claims::default();
        let rows: [(&str, &[&str], bool); 13] = [
            ("shop/own", &["x.example.com"], true),
            ("shop/nothing", &[], false),
            ("a/free", &["x.example.com", "*.example.com"], false),
            ("a/name", &["x.example.com", "hello.shop"], true),
            ("a/name-of-another", &["hello.com"], false),
            ("a/wildcard", &["*.shop"], true),
            ("a/below-a-service", &["*.hello.shop"], false), // Not the name of a Service in any namespace.
            ("a/svc", &["hello.shop.svc"], true),
            ("a/domain", &["hello.shop.svc.cluster.local"], true),
            ("a/wildcard-of-svc", &["*.shop.svc"], true),
            ("a/wildcard-of-domain", &["*.shop.svc.cluster.local"], true),
            ("a/nobodys", &["shop", "*.svc", "10.0.0.1"], false),
            ("a-shop/alike", &["hello.a-shop", "shop.example.com"], false),
        ];
        let key = |key: &str| key.split_once('/').map(|(namespace, name)| Key::new(namespace, name)).expect("a key");
        for (name, hosts, _) in rows {
            claims.apply(&key(name), named("s", hosts));
        }
        let claim = Claim { uid: "u".into(), created: 1, hosts: None };
        claims.apply(&key("b/unreadable"), Some(Named { services: [key("b/s")].into(), claim }));
        let concerned = rows.into_iter().filter(|(.., is_concerned)| *is_concerned).map(|(name, ..)| key(name));
        let mut expected: Vec<Key> = concerned.chain([key("b/unreadable")]).collect();
        let mut found = claims.concerned_by("shop", "cluster.local");
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
}
