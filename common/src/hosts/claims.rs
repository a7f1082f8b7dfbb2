//! Decides which workload gets which host.
//!
//! A workload keeps its host while the same object (by uid) claims it, whatever other workloads claim. So a host that
//! is added to an old object later is not taken from another workload. A free host goes to the oldest object that
//! claims it; among objects created in the same second, to the first by namespace and name. The API server sets age and
//! uid, so no tenant can change them.
//!
//! # Edge cases
//!
//! - An object whose hosts cannot be parsed claims the hosts that it has, so a typing error gives up no host.
//! - A namespace that is unknown, or whose confinement cannot be parsed, may claim nothing.

use super::ledger::{Grant, Grants};
use super::reserved::{Covered, covered};
use crate::RevisionKey;
use crate::host::HostPattern;
use std::collections::BTreeMap;

/// Hosts that one workload claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The object's uid.
    pub uid: String,
    /// Creation time, in seconds since the epoch.
    pub created: i64,
    /// Claimed hosts; `None` if they cannot be parsed.
    pub hosts: Option<Vec<HostPattern>>,
}

impl Claim {
    /// Reports whether the workload claims any host. Hosts that cannot be parsed count as a claim.
    pub fn asks(&self) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| !hosts.is_empty())
    }
}

/// Hosts that a namespace may claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// Every host that is not reserved.
    Free,
    /// Unreserved hosts that match one of these patterns.
    To(Vec<HostPattern>),
}

impl Confinement {
    /// Parses the annotation [`HOSTS`](crate::annotations::HOSTS) of a Namespace: comma-separated patterns. If none of
    /// them can be parsed, the namespace may claim nothing.
    pub fn read(annotation: Option<&str>) -> Self {
        match annotation {
            None => Self::Free,
            Some(list) => {
                let patterns = list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(HostPattern::parse);
                Self::To(patterns.flatten().collect())
            }
        }
    }

    fn allows(&self, host: &HostPattern) -> bool {
        let covers = |allowed: &HostPattern| match (host, allowed) {
            (HostPattern::Exact(name), allowed) => allowed.matches(name),
            (HostPattern::Wildcard(domain), HostPattern::Wildcard(_)) => allowed == host || allowed.matches(domain),
            (HostPattern::Wildcard(_), HostPattern::Exact(_)) => false,
        };
        match self {
            Self::Free => true,
            Self::To(patterns) => patterns.iter().any(covers),
        }
    }
}

/// Cluster-wide facts about hosts.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// DNS domain of the cluster, such as `cluster.local`.
    pub cluster_domain: &'a str,
    /// All namespaces and their confinement.
    pub namespaces: &'a BTreeMap<String, Confinement>,
}

impl Rules<'_> {
    /// Returns the reason why `namespace` may not claim `host`, or `None` if it may.
    pub fn refuse(&self, namespace: &str, host: &HostPattern) -> Option<String> {
        let confinement = self.namespaces.get(namespace);
        let is_other = |owner: &str| owner != namespace;
        let reserved = |owner: &str| Some(format!("it is the name of a Service in namespace {owner:?}"));
        let rule = match covered(host, self.cluster_domain) {
            Covered::Unclaimable(rule) => rule,
            Covered::Address => "it is an IP address, which is not a valid host",
            Covered::OfNamespace(owner) if is_other(owner) => return reserved(owner),
            Covered::OfNamespaceIfAny(owner) if is_other(owner) && self.namespaces.contains_key(owner) => {
                return reserved(owner);
            }
            _ => match confinement {
                None => "the namespace is not known yet",
                Some(confinement) if confinement.allows(host) => return None,
                Some(_) => "the annotation zeroscale.dev/hosts of the Namespace does not allow it",
            },
        };
        Some(rule.to_owned())
    }
}

/// All granted hosts, by namespace.
pub type Ledger = BTreeMap<String, Grants>;

/// Assigns hosts to the workloads that claim them; `held` is the previous assignment.
pub fn settle<'a>(
    claims: impl IntoIterator<Item = (&'a RevisionKey, &'a Claim)>,
    held: &Ledger,
    rules: Rules<'_>,
) -> Ledger {
    /// Lower is better: not the current holder, creation time, key.
    type Rank<'a> = (bool, i64, &'a RevisionKey);
    let mut best: BTreeMap<String, (Rank<'a>, &'a Claim)> = BTreeMap::new();
    for (key, claim) in claims {
        let grant = held.get(key.namespace()).and_then(|grants| grants.get(key.name()));
        let has = grant.filter(|grant| grant.uid == claim.uid).map_or(&[][..], |grant| grant.hosts.as_slice());
        let former: Vec<HostPattern>;
        let requested = match &claim.hosts {
            Some(hosts) => hosts,
            None => {
                former = has.iter().filter_map(|host| HostPattern::parse(host)).collect();
                &former
            }
        };
        for host in requested.iter().filter(|host| rules.refuse(key.namespace(), host).is_none()) {
            let host = host.to_string();
            let rank = (!has.contains(&host), claim.created, key);
            match best.get(&host) {
                Some((better, _)) if *better <= rank => {}
                _ => {
                    best.insert(host, (rank, claim));
                }
            }
        }
    }
    let mut ledger = Ledger::new();
    for (host, ((_, _, key), claim)) in best {
        let grants = ledger.entry(key.namespace().to_owned()).or_default();
        let grant = Grant { uid: claim.uid.clone(), hosts: Vec::new() };
        grants.entry(key.name().to_owned()).or_insert(grant).hosts.push(host);
    }
    ledger
}
