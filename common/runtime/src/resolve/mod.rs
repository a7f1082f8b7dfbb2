//! Resolves host names to addresses: a trait with several implementations, so that planes can run without a cluster
//! DNS.
//!
//! | implementation | source |
//! |---|---|
//! | [`Dns`] | the system, which in a cluster asks the cluster's DNS |
//! | [`Endpoints`] | the API server, for the endpoints of a Service |
//! | [`ClusterIps`] | the API server, for the cluster IP of a Service |
//! | [`DnsElseApi`] | DNS, and the API server if DNS fails or is slow |
//!
//! `ZEROSCALE_RESOLVER` selects one of the first two, see [`from_env`]. [`ClusterIps`] replaces a resolver that
//! [follows names](Resolve::follows_names), if the owner of a Service must not choose the destination.

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

/// Resolves a host.
pub trait Resolve: Send + Sync + 'static {
    /// Returns the addresses of `host:port`, best first. Fails if the host is unknown or no source could be asked.
    /// `NotFound` and `ConnectionRefused` for a Service come from the API server: there is no such Service with that
    /// port, or it has no ready endpoint.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;

    /// Reports whether a Service's name may resolve to any other name, as that of an ExternalName does in DNS.
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

/// Returns the resolver that `ZEROSCALE_RESOLVER` names: `dns`, the default, or `endpoints`. `get` reads variables.
/// Fails for any other value.
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

/// Returns the Service and namespace that `host` names in a cluster of that domain: `NAME.NS`, `NAME.NS.svc` or
/// `NAME.NS.svc.DOMAIN`, with or without the last dot. Returns `None` for addresses and other names.
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
    fn every_form_of_a_services_name_is_recognized() {
        for host in ["a.ns", "a.ns.svc", "a.ns.svc.abc.com", "a.ns.svc.abc.com."] {
            assert_eq!(service_of(host, "abc.com"), Some(("a", "ns")), "{host}");
        }
        for host in ["127.0.0.1", "::1", "localhost", "a.ns.svc.cluster.local", "www.example.com", ".ns", "a."] {
            assert_eq!(service_of(host, "abc.com"), None, "{host}");
        }
    }
}
