//! Resolution of Service names without DNS.

use super::table::ServiceTable;
use common_runtime::resolve::{Dns, Resolve, service_of};
use futures::future::BoxFuture;
use std::future::ready;
use std::io;
use std::net::SocketAddr;

/// Resolves `NAME.NS`, `NAME.NS.svc` and `NAME.NS.svc.DOMAIN` by a [`ServiceTable`], and everything else by the system.
///
/// The returned addresses include the port to use, which may differ from the requested one.
#[derive(Clone, Debug)]
pub struct ServiceResolver {
    table: ServiceTable,
    cluster_domain: String,
}

impl ServiceResolver {
    /// Creates a resolver for the Services in `table`, in a cluster with this domain (`cluster.local`).
    pub fn new(table: ServiceTable, cluster_domain: impl Into<String>) -> Self {
        Self { table, cluster_domain: cluster_domain.into() }
    }
}

impl Resolve for ServiceResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let Some((name, namespace)) = service_of(host, &self.cluster_domain) else { return Dns.resolve(host, port) };
        let (kind, message) = match self.table.addresses(namespace, name, port) {
            Some(addresses) if !addresses.is_empty() => return Box::pin(ready(Ok(addresses))),
            Some(_) => (
                io::ErrorKind::ConnectionRefused,
                format!("Service {namespace}/{name} has no ready endpoint for port {port}"),
            ),
            None => (
                io::ErrorKind::NotFound,
                format!("{host:?} cannot be resolved: there is no Service {namespace}/{name} with port {port}"),
            ),
        };
        Box::pin(ready(Err(io::Error::new(kind, message))))
    }

    fn follows_names(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_controller::ObjectKey;

    #[tokio::test]
    async fn names_of_services_are_resolved_in_every_form() {
        let table = ServiceTable::default();
        let address: SocketAddr = "127.1.128.9:4000".parse().expect("an address");
        table.replace([((ObjectKey::new("ns", "a"), 80), vec![address])].into_iter());
        let resolver = ServiceResolver::new(table, "cluster.local");
        for host in ["a.ns", "a.ns.svc", "a.ns.svc.cluster.local", "a.ns.svc.cluster.local."] {
            assert_eq!(resolver.resolve(host, 80).await.expect("known"), [address], "{host}");
        }
        for (host, port) in [("a.ns", 81), ("b.ns", 80), ("a.other.svc", 80)] {
            let kind = resolver.resolve(host, port).await.map_err(|e| e.kind());
            assert_eq!(kind, Err(io::ErrorKind::NotFound), "{host}:{port}");
        }
        let literal = resolver.resolve("127.0.0.1", 5).await.expect("an address");
        assert_eq!(literal, ["127.0.0.1:5".parse().expect("an address")]);
    }
}
