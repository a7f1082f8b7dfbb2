//! Which workload has which host, of those that ask for it.
//!
//! Whoever has a host keeps it for as long as the same object (by uid) asks for it, whoever else asks: so an old object
//! whose owner writes a host into it later takes nothing from anybody. A host that nobody has goes to the oldest object
//! that asks; of two that were made in the same second to the first by namespace and name. Age and uid are the API
//! server's words, which no owner can change.
//!
//! # Odd cases
//!
//! - An object whose hosts cannot be read asks for those that it has: a typing error gives nothing away.
//! - A namespace that is not known, or whose confinement cannot be read, may claim nothing.

use super::ledger::{Grant, Grants};
use super::reserved::{Covered, covered};
use crate::RevisionKey;
use crate::host::HostPattern;
use std::collections::BTreeMap;
use std::fmt;

/// What one workload asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The object's uid.
    pub uid: String,
    /// When it was made, in seconds since the epoch.
    pub created: i64,
    /// Its hosts; none: they cannot be read.
    pub hosts: Option<Vec<HostPattern>>,
}

impl Claim {
    /// Whether it asks for anything.
    pub fn asks(&self) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| !hosts.is_empty())
    }
}

/// What a namespace may claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// Whatever is not reserved.
    Free,
    /// Of that, what one of these matches.
    To(Vec<HostPattern>),
}

impl Confinement {
    /// From the annotation [`HOSTS`](crate::annotations::HOSTS) of a Namespace: patterns, separated by commas. None of
    /// them can be read: nothing may be claimed.
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

/// What the cluster says of hosts.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Such as `cluster.local`.
    pub cluster_domain: &'a str,
    /// All namespaces.
    pub namespaces: &'a BTreeMap<String, Confinement>,
}

/// Why a namespace may not claim a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody may.
    Nobodys(&'static str),
    /// It is a name of another namespace's Services.
    Reserved(String),
    /// The namespace is confined to other hosts.
    Confined,
    /// The namespace is not known, or not yet.
    Unknown,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobodys(rule) => f.write_str(rule),
            Self::Reserved(namespace) => write!(f, "it is a name of namespace {namespace:?}"),
            Self::Confined => write!(f, "annotation zeroscale.dev/hosts of the Namespace does not allow it"),
            Self::Unknown => write!(f, "the namespace is not known yet"),
        }
    }
}

impl Rules<'_> {
    /// Why `namespace` may not claim `host`, if so.
    pub fn refuse(&self, namespace: &str, host: &HostPattern) -> Option<Refusal> {
        let confinement = self.namespaces.get(namespace);
        let others = |owner: &str| owner != namespace;
        match covered(host, self.cluster_domain) {
            Covered::Nobodys(rule) => Some(Refusal::Nobodys(rule)),
            Covered::Address => Some(Refusal::Nobodys("an address is no host")),
            Covered::OfNamespace(owner) if others(owner) => Some(Refusal::Reserved(owner.to_owned())),
            Covered::OfNamespaceIfAny(owner) if others(owner) && self.namespaces.contains_key(owner) => {
                Some(Refusal::Reserved(owner.to_owned()))
            }
            _ => match confinement {
                None => Some(Refusal::Unknown),
                Some(confinement) => (!confinement.allows(host)).then_some(Refusal::Confined),
            },
        }
    }
}

/// Who has what, by namespace.
pub type Ledger = BTreeMap<String, Grants>;

/// Who has what from now on, of those that claim; `held`: who had what until now.
pub fn settle<'a>(
    claims: impl IntoIterator<Item = (&'a RevisionKey, &'a Claim)>,
    held: &Ledger,
    rules: Rules<'_>,
) -> Ledger {
    /// Less is better: not the holder, age, name.
    type Rank<'a> = (bool, i64, &'a RevisionKey);
    let mut best: BTreeMap<String, (Rank<'a>, &'a Claim)> = BTreeMap::new();
    for (key, claim) in claims {
        let grant = held.get(key.namespace()).and_then(|grants| grants.get(key.name()));
        let has = grant.filter(|grant| grant.uid == claim.uid).map_or(&[][..], |grant| grant.hosts.as_slice());
        let kept: Vec<HostPattern>;
        let asked = match &claim.hosts {
            Some(hosts) => hosts,
            None => {
                kept = has.iter().filter_map(|host| HostPattern::parse(host)).collect();
                &kept
            }
        };
        for host in asked.iter().filter(|host| rules.refuse(key.namespace(), host).is_none()) {
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
