//! Services' own addresses, looked up at the API server: for Services that somebody else names.
//!
//! DNS follows a Service of type ExternalName to whatever its owner writes, and gives of a headless one what stands in
//! its EndpointSlices. Whom NetworkPolicies let through to pods of others would so be led to them. The cluster IP is
//! what the API server has given to the Service, and leads where it does for each of the Service's clients.
//!
//! A Service that is not there, has no such TCP port, is of type ExternalName or has no cluster IP is not found, and so
//! is a name that is none of a Service. Any other error means that nobody could be asked.
//!
//! Nothing is kept: each question costs a request to the API server, a list for the reason that [`super::endpoints`]
//! gives.

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
    /// For the cluster that `client` speaks to, of that domain (`cluster.local`).
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
            let message = format!("{host:?} names no Service with a cluster IP and TCP port {port}");
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

/// The Service's cluster IPs, the primary one first, at a TCP port of its own.
fn addresses(service: &Service, port: u16) -> Vec<SocketAddr> {
    let Some(spec) = &service.spec else { return Vec::new() };
    if spec.type_.as_deref() == Some("ExternalName") || name_of_port(service, port).is_none() {
        return Vec::new();
    }
    let said = spec.cluster_ip.iter().chain(spec.cluster_ips.iter().flatten());
    // `None`, of a headless one, is no address.
    let parsed = said.filter_map(|ip| Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, port)));
    let mut addresses: Vec<_> = parsed.collect();
    addresses.dedup(); // The first of all is the primary one, again.
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use std::convert::Infallible;

    const NAME: &str = "sorry.ns.svc.cluster.local.";

    /// An API server that has this Service `sorry` in `ns`, or answers with an error.
    fn resolver(spec: Result<Option<Value>, u16>) -> ClusterIps {
        let server = tower::service_fn(move |request: Request<Body>| {
            let asked = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            assert!(asked.contains("/namespaces/ns/services?&fieldSelector=metadata.name%3Dsorry"), "{asked}");
            let (status, answer) = match &spec {
                Ok(spec) => {
                    let items: Vec<_> = spec.iter().map(|spec| json!({"spec": spec})).collect();
                    (200, json!({"metadata": {}, "items": items}))
                }
                Err(code) => (*code, json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"})),
            };
            let body = Body::from(answer.to_string().into_bytes());
            std::future::ready(Ok::<_, Infallible>(Response::builder().status(status).body(body).expect("a response")))
        });
        ClusterIps::new(Client::new(server, "default"), "cluster.local")
    }

    async fn error_of(spec: Option<Value>, name: &str, port: u16) -> Option<io::ErrorKind> {
        resolver(Ok(spec)).resolve(name, port).await.err().map(|error| error.kind())
    }

    /// Goal: a Service leads to the address that the API server has given to it, and to none that its owner says.
    #[tokio::test]
    async fn a_service_leads_to_its_own_address_or_nowhere() {
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
            assert_eq!(error_of(Some(spec.clone()), NAME, 80).await, not_found, "{spec}");
        }
        for port in [53, 8080] {
            assert_eq!(error_of(Some(fit.clone()), NAME, port).await, not_found, "{port}");
        }
        for name in [NAME, "localhost", "10.0.0.1", "www.example.com"] {
            assert_eq!(error_of(None, name, 80).await, not_found, "{name}");
        }
    }

    /// Goal: who has not been answered is told from who has been told that there is none.
    #[tokio::test]
    async fn an_api_server_that_fails_has_not_said_that_there_is_none() {
        for code in [403, 429, 500, 503] {
            let found = resolver(Err(code)).resolve(NAME, 80).await;
            assert_eq!(found.map_err(|error| error.kind()), Err(io::ErrorKind::Other), "{code}");
        }
    }
}
