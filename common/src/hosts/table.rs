//! From a host to whom it means.
//!
//! 1. A Service's own name: the Service of that namespace.
//! 2. Else a claim: the exact one, else the longest wildcard. A claim of what is reserved for another namespace is no
//!    claim, whoever wrote it down.
//! 3. A bare name: a Service of the caller's namespace.
//!
//! Whatever can be settled beforehand is: a host that is written plainly (lower case, no port) takes one lookup and no
//! allocation. `T` is whom a host means.

use super::reserved::{Covered, covered};
use crate::host::{self, HostPattern};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// All hosts of one moment.
#[derive(Clone, Debug)]
pub struct HostTable<T, S = RandomState> {
    cluster_domain: String,
    /// Everything that can be looked up without further thought.
    plain: HashMap<Box<str>, T, S>,
    /// `NAME.NS`.
    services: HashMap<Box<str>, T>,
    /// Names and `*.domain`.
    claims: HashMap<Box<str>, T>,
}

/// A Service that has names of its own.
#[derive(Clone, Debug)]
pub struct Named<'a, T> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub service: &'a str,
    /// Whom its names mean.
    pub means: T,
}

/// A host that a workload has.
#[derive(Clone, Debug)]
pub struct Claimed<'a, T> {
    /// The workload's namespace.
    pub namespace: &'a str,
    /// The host.
    pub host: &'a HostPattern,
    /// Whom it means.
    pub means: T,
}

impl<T: Clone, S: BuildHasher + Default> HostTable<T, S> {
    /// Of these. Where one thing stands twice, the first counts.
    pub fn new<'a>(
        cluster_domain: &str,
        services: impl IntoIterator<Item = Named<'a, T>>,
        claims: impl IntoIterator<Item = Claimed<'a, T>>,
    ) -> Self {
        let mut table = Self::empty(cluster_domain);
        for Named { namespace, service, means } in services {
            table.services.entry(service_key(service, namespace).into()).or_insert(means);
        }
        for Claimed { namespace, host, means } in claims {
            let may = match covered(host, cluster_domain) {
                Covered::Free | Covered::OfNamespaceIfAny(_) | Covered::Address => true,
                Covered::OfNamespace(owner) => owner == namespace,
                Covered::Nobodys(_) => false,
            };
            if may {
                table.claims.entry(host.to_string().into()).or_insert(means);
            }
        }
        let spellings = table.services.keys().flat_map(|service| {
            [service.to_string(), format!("{service}.svc"), format!("{service}.svc.{cluster_domain}")]
        });
        let names = table.claims.keys().filter(|host| !host.starts_with('*')).map(ToString::to_string);
        let plain =
            spellings.chain(names).filter_map(|host| Some((host.as_str().into(), table.resolve(&host)?.clone())));
        let plain = plain.collect();
        Self { plain, ..table }
    }

    /// One without hosts.
    pub fn empty(cluster_domain: &str) -> Self {
        let cluster_domain = cluster_domain.to_owned();
        Self { cluster_domain, plain: HashMap::default(), services: HashMap::new(), claims: HashMap::new() }
    }

    /// Whom `host` means, as a caller wrote it; `caller` tells the caller's namespace, if it is known.
    pub fn get<N: AsRef<str>>(&self, host: &str, caller: impl FnOnce() -> Option<N>) -> Option<&T> {
        if let Some(found) = self.plain.get(host) {
            return Some(found);
        }
        let host = host::normalize(host)?;
        self.plain.get(host.as_str()).or_else(|| match host::service_name(&host, &self.cluster_domain) {
            Some(service) if service.namespace.is_none() => self.service(service.name, caller()?.as_ref()),
            _ => self.resolve(&host),
        })
    }

    /// Whom a normalized host with a dot means.
    fn resolve(&self, host: &str) -> Option<&T> {
        let service = host::service_name(host, &self.cluster_domain);
        let own = service.and_then(|service| self.service(service.name, service.namespace?));
        own.or_else(|| host::lookup_keys(host).find_map(|key| self.claims.get(key.as_str())))
    }

    fn service(&self, name: &str, namespace: &str) -> Option<&T> {
        self.services.get(service_key(name, namespace).as_str())
    }
}

fn service_key(name: &str, namespace: &str) -> String {
    format!("{name}.{namespace}")
}
