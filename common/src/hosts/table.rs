//! From a host to whom it means.
//!
//! 1. A Service's own name: the Service of that namespace.
//! 2. Else a claim: the exact one, else the longest wildcard. A claim of what is reserved for another namespace is no
//!    claim, whoever wrote it down.
//! 3. A bare name: a Service of the caller's namespace.
//!
//! A host that is written plainly (lower case, no port) takes two lookups at most and no allocation, unless a wildcard is
//! meant. `T` is whom a host means.

use super::reserved::{Covered, covered};
use crate::host::{self, HostPattern};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// All hosts of one moment.
#[derive(Clone, Debug)]
pub struct HostTable<T, S = RandomState> {
    cluster_domain: String,
    /// `.svc.DOMAIN`.
    suffix: String,
    /// `NAME.NS`.
    services: HashMap<Box<str>, T, S>,
    /// Names and `*.domain`.
    claims: HashMap<Box<str>, T, S>,
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
        let words = |named: &Named<'a, T>| host::is_label(named.service) && host::is_label(named.namespace);
        for Named { namespace, service, means } in services.into_iter().filter(words) {
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
        table
    }

    /// One without hosts.
    pub fn empty(cluster_domain: &str) -> Self {
        let (cluster_domain, suffix) = (cluster_domain.to_owned(), format!(".svc.{cluster_domain}"));
        Self { cluster_domain, suffix, services: HashMap::default(), claims: HashMap::default() }
    }

    /// Whom `host` means, as a caller wrote it; `caller` tells the caller's namespace, if it is known.
    pub fn get<N: AsRef<str>>(&self, host: &str, caller: impl FnOnce() -> Option<N>) -> Option<&T> {
        if let Some(found) = self.plain(host) {
            return Some(found);
        }
        let host = host::normalize(host)?;
        self.plain(&host).or_else(|| match host::service_name(&host, &self.cluster_domain) {
            Some(service) if service.namespace.is_none() => self.service(service.name, caller()?.as_ref()),
            _ => self.resolve(&host),
        })
    }

    /// Whom a host means that is written as it stands in the table, or is a Service's own name.
    fn plain(&self, host: &str) -> Option<&T> {
        let own = match host.strip_suffix(self.suffix.as_str()).or_else(|| host.strip_suffix(".svc")) {
            Some(own) => Some(own),
            None => (!host::ends_with_number(host)).then_some(host),
        };
        own.and_then(|own| self.services.get(own)).or_else(|| self.claims.get(host))
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
