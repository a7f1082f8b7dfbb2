//! Resolves a host to its owner.
//!
//! 1. A Service's own name means the Service of that namespace.
//! 2. Otherwise a claim applies: the exact name, else the longest wildcard. Recorded claims of names that are reserved
//!    for another namespace are ignored.
//! 3. A bare name means a Service in the caller's namespace.
//!
//! A plain host (lower case, no port) takes at most two lookups and no allocation, unless it matches a wildcard. `T`
//! identifies the owner.

use super::reserved::{Covered, covered};
use crate::host::{self, HostPattern};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// All hosts at one point in time.
#[derive(Clone, Debug)]
pub struct HostTable<T, S = RandomState> {
    cluster_domain: String,
    /// The suffix `.svc.DOMAIN`.
    suffix: String,
    /// Owners by `NAME.NS`.
    services: HashMap<Box<str>, T, S>,
    /// Owners by name or `*.domain`.
    claims: HashMap<Box<str>, T, S>,
}

impl<T: Clone, S: BuildHasher + Default> HostTable<T, S> {
    /// Builds a table. `services`: namespace and name of each Service, and the owner to which its names resolve.
    /// `claims`: the workload's namespace, the host that was granted to it, and the owner to which the host resolves. If
    /// an entry occurs twice, the first counts.
    pub fn new<'a>(
        cluster_domain: &str,
        services: impl IntoIterator<Item = (&'a str, &'a str, T)>,
        claims: impl IntoIterator<Item = (&'a str, &'a HostPattern, T)>,
    ) -> Self {
        let mut table = Self::empty(cluster_domain);
        let has_valid_name = |(namespace, name, _): &(&str, &str, T)| host::is_label(name) && host::is_label(namespace);
        for (namespace, service, owner) in services.into_iter().filter(has_valid_name) {
            table.services.entry(service_key(service, namespace).into()).or_insert(owner);
        }
        for (namespace, host, owner) in claims {
            let is_allowed = match covered(host, cluster_domain) {
                Covered::Free | Covered::OfNamespaceIfAny(_) | Covered::Address => true,
                Covered::OfNamespace(only) => only == namespace,
                Covered::Unclaimable(_) => false,
            };
            if is_allowed {
                table.claims.entry(host.to_string().into()).or_insert(owner);
            }
        }
        table
    }

    /// Creates a table without hosts.
    pub fn empty(cluster_domain: &str) -> Self {
        let (cluster_domain, suffix) = (cluster_domain.to_owned(), format!(".svc.{cluster_domain}"));
        Self { cluster_domain, suffix, services: HashMap::default(), claims: HashMap::default() }
    }

    /// Returns the owner of `host`, which may be as a client wrote it. `caller` returns the caller's namespace, if
    /// known.
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

    /// Returns the owner of a host that is spelled as in the table or is a Service's own name.
    fn plain(&self, host: &str) -> Option<&T> {
        let own = match host.strip_suffix(self.suffix.as_str()).or_else(|| host.strip_suffix(".svc")) {
            Some(own) => Some(own),
            None => (!host::ends_with_number(host)).then_some(host),
        };
        own.and_then(|own| self.services.get(own)).or_else(|| self.claims.get(host))
    }

    /// Returns the owner of a normalized host with a dot.
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
