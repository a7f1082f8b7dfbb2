//! Resolves names of Services through the API server, for a plane outside of any pod.
//!
//! A plane on a developer's machine, or next to `local api` and `local node`, has no cluster DNS, and often no route to
//! a ClusterIP. This resolver returns the addresses of the Service's ready endpoints, from which kube-proxy would
//! choose, in random order.
//!
//! Consequence: a call to such a name reflects the EndpointSlices, not the cluster's Service proxies, which apply a
//! change a moment later. Inside a cluster, use DNS.
//!
//! Nothing is cached: each lookup costs two requests to the API server. Lookups happen when a connection is made and
//! when the path of a revision is probed, a few times for each change of scale. Both requests are lists, since either
//! plane has the permission to list and watch Services and EndpointSlices anyway, but not to get one.
//!
//! Not here: UDP, ExternalName, and terminating endpoints.

use super::{Dns, Resolve, service_of};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use rand::seq::SliceRandom;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Resolves names of Services through the API server, and everything else by [`Dns`].
#[derive(Clone)]
pub struct Endpoints {
    client: Client,
    cluster_domain: String,
}

impl Endpoints {
    /// Creates a resolver for the cluster of `client` with this domain (`cluster.local`).
    pub fn new(client: Client, cluster_domain: impl Into<String>) -> Self {
        Self { client, cluster_domain: cluster_domain.into() }
    }

    async fn look_up(&self, name: &str, namespace: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let service = find(&self.client, namespace, name).await?;
        let Some(port_name) = service.as_ref().and_then(|service| name_of_port(service, port)) else {
            let message = format!("there is no Service {namespace}/{name} with a TCP port {port}");
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        };
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), namespace);
        let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
        let slices = slices.list(&of_service).await.map_err(io::Error::other)?;
        let mut addresses: Vec<_> = slices.iter().flat_map(|slice| ready(slice, port_name)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.shuffle(&mut rand::rng());
        if addresses.is_empty() {
            let message = format!("Service {namespace}/{name} has no ready endpoint for port {port}");
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, message));
        }
        Ok(addresses)
    }
}

impl Resolve for Endpoints {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        match service_of(host, &self.cluster_domain) {
            Some((name, namespace)) => Box::pin(self.look_up(name, namespace, port)),
            None => Dns.resolve(host, port),
        }
    }

    /// EndpointSlices contain only addresses.
    fn follows_names(&self) -> bool {
        false
    }
}

/// Returns the Service of that name, if it exists.
pub(super) async fn find(client: &Client, namespace: &str, name: &str) -> io::Result<Option<Service>> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    let services = services.list(&named).await.map_err(io::Error::other)?;
    Ok(services.items.into_iter().next())
}

/// Returns the name of the TCP port with that number; empty for an unnamed port.
pub(super) fn name_of_port(service: &Service, port: u16) -> Option<&str> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    let found = ports.iter().find(|p| p.port == i32::from(port) && p.protocol.as_deref().unwrap_or("TCP") == "TCP")?;
    Some(found.name.as_deref().unwrap_or_default())
}

/// Returns the ready endpoints of `slice` at the port with that name. An endpoint without a ready condition is ready,
/// as the API defines.
fn ready<'a>(slice: &'a EndpointSlice, port_name: &str) -> impl Iterator<Item = SocketAddr> + use<'a> {
    let port = slice.ports.iter().flatten().find(|port| port.name.as_deref().unwrap_or_default() == port_name);
    let port = port.and_then(|port| u16::try_from(port.port?).ok());
    let endpoints = slice.endpoints.iter().flatten();
    let ready = endpoints.filter(|e| e.conditions.as_ref().is_none_or(|conditions| conditions.ready.unwrap_or(true)));
    // All addresses of one endpoint lead to the same place; the API tells consumers to take the first.
    ready.filter_map(move |e| Some(SocketAddr::new(e.addresses.first()?.parse::<IpAddr>().ok()?, port?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::mock_api;
    use serde_json::json;

    /// Goal: ports are matched by name, only ready endpoints are returned, and the permissions that either plane has
    /// are sufficient. Method: an API server that serves lists only.
    #[tokio::test]
    async fn the_ready_endpoints_of_a_port_are_found_by_lists_alone() {
        let server = mock_api(|request| {
            let query = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            let list = query.split_once("/namespaces/system/").map_or("", |(_, list)| list);
            let items = if list.starts_with("services?&fieldSelector=metadata.name%3Dautoscaler") {
                json!([{"spec": {"ports": [{"port": 8080}, {"name": "http", "port": 80, "targetPort": 8012},
                                           {"name": "https", "port": 443},
                                           {"name": "dns", "port": 53, "protocol": "UDP"}]}}])
            } else if list.starts_with("endpointslices?&labelSelector=kubernetes.io%2Fservice-name%3Dautoscaler") {
                json!([{"addressType": "IPv4", "ports": [{"port": 9}, {"name": "http", "port": 8012}],
                        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                                      {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                                      {"addresses": ["10.0.0.3"]}]}])
            } else {
                panic!("{query}")
            };
            Some((200, json!({"metadata": {}, "items": items})))
        });
        let resolver = Endpoints::new(server, "cluster.local");
        for (port, expected) in [
            (8080, Ok(["10.0.0.1:9", "10.0.0.3:9"])),
            (80, Ok(["10.0.0.1:8012", "10.0.0.3:8012"])),
            (443, Err(io::ErrorKind::ConnectionRefused)),
            (53, Err(io::ErrorKind::NotFound)),
            (8012, Err(io::ErrorKind::NotFound)),
        ] {
            let mut found = resolver.resolve("autoscaler.system.svc", port).await.map_err(|error| error.kind());
            found.iter_mut().for_each(|found| found.sort_unstable());
            let parsed = |address: &str| -> SocketAddr { address.parse().expect("an address") };
            let expected = expected.map(|addresses| addresses.map(parsed).to_vec());
            assert_eq!(found, expected, "{port}");
        }
    }
}
