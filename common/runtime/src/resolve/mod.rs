//! From a host name to addresses: a port with adapters, so that the planes run where there is no cluster DNS.
//!
//! | adapter | asks |
//! |---|---|
//! | [`Dns`] | the system, which in a cluster asks the cluster's DNS |
//! | [`Endpoints`] | the API server, for the endpoints of the Service that the name means |
//! | [`ClusterIps`] | the API server, for the Service's own address |
//! | [`DnsElseApi`] | the first, and the second where that has no answer |
//!
//! A process chooses among the first two by `ZEROSCALE_RESOLVER`, see [`from_env`]. The third takes the place of one
//! that [follows names](Resolve::follows_names), where the owner of a Service must not say whom we send to.

mod cluster_ips;
mod dns_else_api;
mod endpoints;

pub use cluster_ips::ClusterIps;
pub use dns_else_api::DnsElseApi;
pub use endpoints::Endpoints;

use crate::environment::EnvironmentError;
use futures::future::BoxFuture;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Looks up where a host may be reached.
pub trait Resolve: Send + Sync + 'static {
    /// Addresses of `host:port`, best first.
    ///
    /// # Errors
    /// The host is not known, or nobody could be asked. `NotFound` and `ConnectionRefused` of a Service are the API
    /// server's own word: there is none with that port, or nothing is ready behind it.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;

    /// Whether a Service's name may lead to any other, as that of an ExternalName does in DNS.
    fn follows_names(&self) -> bool {
        true
    }
}

/// The system's own resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dns;

impl Resolve for Dns {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// The resolver that `ZEROSCALE_RESOLVER` names: `dns`, the default, or `endpoints`. `get` reads variables.
///
/// # Errors
/// It names neither.
pub fn from_env(
    get: impl Fn(&str) -> Option<String>,
    client: kube::Client,
    cluster_domain: &str,
) -> Result<Arc<dyn Resolve>, EnvironmentError> {
    match get("ZEROSCALE_RESOLVER").as_deref() {
        None | Some("" | "dns") => Ok(Arc::new(Dns)),
        Some("endpoints") => Ok(Arc::new(Endpoints::new(client, cluster_domain))),
        Some(other) => Err(EnvironmentError::new("ZEROSCALE_RESOLVER", other, "must be `dns` or `endpoints`")),
    }
}

/// Service and namespace that `host` means in a cluster of that domain: `NAME.NS`, `NAME.NS.svc` or
/// `NAME.NS.svc.DOMAIN`, with or without the last dot. Addresses and other names mean none.
pub fn service_of<'a>(host: &'a str, cluster_domain: &str) -> Option<(&'a str, &'a str)> {
    if host.parse::<IpAddr>().is_ok() {
        return None;
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    let host = host.strip_suffix(cluster_domain).and_then(|h| h.strip_suffix('.')).unwrap_or(host);
    let host = host.strip_suffix(".svc").unwrap_or(host);
    let (name, namespace) = host.split_once('.')?;
    (!name.is_empty() && !namespace.is_empty() && !namespace.contains('.')).then_some((name, namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_meant_in_every_form_of_its_name() {
        for host in ["a.ns", "a.ns.svc", "a.ns.svc.abc.com", "a.ns.svc.abc.com."] {
            assert_eq!(service_of(host, "abc.com"), Some(("a", "ns")), "{host}");
        }
        for host in ["127.0.0.1", "::1", "localhost", "a.ns.svc.cluster.local", "www.example.com", ".ns", "a."] {
            assert_eq!(service_of(host, "abc.com"), None, "{host}");
        }
    }
}
