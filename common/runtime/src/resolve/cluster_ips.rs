//! Resolves Services to their cluster IPs through the API server, for Services that another party names.
//!
//! DNS follows a Service of type ExternalName to any name that its owner writes, and a headless one to the addresses in
//! its EndpointSlices. So an owner could direct clients that NetworkPolicies admit to other pods to those pods. The API
//! server assigns the cluster IP, which leads to the same place for every client of the Service.
//!
//! The error is `NotFound` for a Service that does not exist, has no such TCP port, is of type ExternalName or has no
//! cluster IP, and for any name that is not a Service's. Any other error means that the API server could not be asked.
//!
//! Nothing is cached: each lookup costs a request to the API server. The request is a list for the reason given in
//! [`super::endpoints`].

use super::endpoints::{find, name_of_port};
use super::{Resolve, service_of};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Resolves names of Services to their cluster IPs, and no other names.
#[derive(Clone)]
pub struct ClusterIps {
    client: Client,
    cluster_domain: String,
}

impl ClusterIps {
    /// Creates a resolver for the cluster of `client` with this domain (`cluster.local`).
    pub fn new(client: Client, cluster_domain: impl Into<String>) -> Self {
        Self { client, cluster_domain: cluster_domain.into() }
    }

    async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let service = match service_of(host, &self.cluster_domain) {
            Some((name, namespace)) => find(&self.client, namespace, name).await?,
            None => None,
        };
        let addresses = service.map(|service| addresses(&service, port)).unwrap_or_default();
        if addresses.is_empty() {
            let message = format!("no Service with a cluster IP and TCP port {port} has the name {host:?}");
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        Ok(addresses)
    }
}

impl Resolve for ClusterIps {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(self.look_up(host, port))
    }

    fn follows_names(&self) -> bool {
        false
    }
}

/// Returns the Service's cluster IPs, the primary one first, with one of its TCP ports.
fn addresses(service: &Service, port: u16) -> Vec<SocketAddr> {
    let Some(spec) = &service.spec else { return Vec::new() };
    if spec.type_.as_deref() == Some("ExternalName") || name_of_port(service, port).is_none() {
        return Vec::new();
    }
    let listed = spec.cluster_ip.iter().chain(spec.cluster_ips.iter().flatten());
    // `None`, the value of a headless Service, is not an address.
    let parsed = listed.filter_map(|ip| Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, port)));
    let mut addresses: Vec<_> = parsed.collect();
    addresses.dedup(); // The list repeats the primary one.
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{failure, mock_api};
    use serde_json::{Value, json};

    const NAME: &str = "sorry.ns.svc.cluster.local.";

    /// Returns a resolver whose API server has the Service `sorry` in `ns` with this spec, or responds with an error.
    fn resolver(spec: Result<Option<Value>, u16>) -> ClusterIps {
        let server = mock_api(move |request| {
            let query = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            assert!(query.contains("/namespaces/ns/services?&fieldSelector=metadata.name%3Dsorry"), "{query}");
            match &spec {
                Ok(spec) => {
                    let items: Vec<_> = spec.iter().map(|spec| json!({"spec": spec})).collect();
                    Some((200, json!({"metadata": {}, "items": items})))
                }
                Err(code) => failure(*code),
            }
        });
        ClusterIps::new(server, "cluster.local")
    }

    async fn error_of(spec: Result<Option<Value>, u16>, name: &str, port: u16) -> Option<io::ErrorKind> {
        resolver(spec).resolve(name, port).await.err().map(|error| error.kind())
    }

    /// Goal: a Service resolves to the address assigned by the API server, and to none that its owner chooses. An error
    /// of the API server is distinct from a Service that does not exist.
    #[tokio::test]
    async fn a_service_resolves_only_to_its_cluster_ips() {
        let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}, {"port": 53, "protocol": "UDP"}]);
        let fit = json!({"type": "ClusterIP", "clusterIP": "10.0.0.9", "ports": ports});
        let both = json!({"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9", "fd00::9"], "ports": ports});
        for (spec, expected) in [(fit.clone(), "10.0.0.9:80"), (both, "10.0.0.9:80 [fd00::9]:80")] {
            let found = resolver(Ok(Some(spec))).resolve(NAME, 80).await.expect(expected);
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), expected);
        }
        let not_found = Some(io::ErrorKind::NotFound);
        let unfit = [
            json!({"type": "ExternalName", "externalName": "db.other.svc.cluster.local", "ports": ports}),
            json!({"type": "ExternalName", "externalName": "a", "clusterIP": "10.0.0.9", "ports": ports}),
            json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": ports}),
            json!({"clusterIP": "", "ports": ports}),
            json!({"ports": ports}),
            json!({"clusterIP": "10.0.0.9"}),
        ];
        for spec in unfit {
            assert_eq!(error_of(Ok(Some(spec.clone())), NAME, 80).await, not_found, "{spec}");
        }
        for port in [53, 8080] {
            assert_eq!(error_of(Ok(Some(fit.clone())), NAME, port).await, not_found, "{port}");
        }
        for name in [NAME, "localhost", "10.0.0.1", "www.example.com"] {
            assert_eq!(error_of(Ok(None), name, 80).await, not_found, "{name}");
        }
        for code in [403, 429, 500, 503] {
            assert_eq!(error_of(Err(code), NAME, 80).await, Some(io::ErrorKind::Other), "{code}");
        }
    }
}
