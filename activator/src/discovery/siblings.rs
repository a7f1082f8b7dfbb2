//! Activators of this install: the endpoints of `activator-service` in the system namespace, ready or not.
//!
//! A terminating activator counts as not ready: it takes no new requests, but finishes those it has.

use super::Activators;
use common::names;
use common_controller::changes::{Change, watch};
use common_controller::key_of;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use std::collections::BTreeMap;
use std::future::ready;
use std::net::{IpAddr, SocketAddr};

/// Service port that sessions use.
const PORT: &str = "http";

/// Addresses, each with its readiness.
type Addresses = Vec<(SocketAddr, bool)>;

/// Returns a stream of all activators from EndpointSlices, with an item per change.
pub(super) fn of_slices(client: Client, namespace: &str) -> BoxStream<'static, Activators> {
    let selector = format!("kubernetes.io/service-name={}", names::ACTIVATOR_SERVICE);
    let config = watcher::Config::default().labels(&selector);
    let unions = unions(watch(Api::<EndpointSlice>::namespaced(client, namespace), config), slice);
    unions.map(|all| Activators { all, includes_terminating: true }).boxed()
}

/// Returns the same stream from Endpoints, for installs that may read nothing else. Endpoints omit terminating
/// activators.
pub(super) fn of_endpoints(client: Client, namespace: &str) -> BoxStream<'static, Activators> {
    let config = watcher::Config::default().fields(&format!("metadata.name={}", names::ACTIVATOR_SERVICE));
    let unions = unions(watch(Api::<Endpoints>::namespaced(client, namespace), config), endpoints);
    unions.map(|all| Activators { all, includes_terminating: false }).boxed()
}

/// Streams the union of all objects, once they are listed and after each later change.
fn unions<K: Resource + Send + 'static>(
    changes: impl Stream<Item = Change<K>> + Send + 'static,
    addresses: impl Fn(&K) -> Addresses + Send + 'static,
) -> impl Stream<Item = Addresses> + Send {
    let (mut known, mut is_listed) = (BTreeMap::new(), false);
    changes.filter_map(move |change| {
        match change {
            Change::Applied(object) => _ = known.insert(key_of(&object), addresses(&object)),
            Change::Gone(key) => _ = known.remove(&key),
            Change::Listed => is_listed = true,
        }
        let mut union = BTreeMap::new();
        for (address, is_ready) in known.values().flatten() {
            *union.entry(*address).or_insert(false) |= *is_ready;
        }
        ready(is_listed.then(|| union.into_iter().collect()))
    })
}

fn slice(slice: &EndpointSlice) -> Addresses {
    let port = slice.ports.iter().flatten().find(|port| port.name.as_deref() == Some(PORT)).and_then(|port| port.port);
    let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else { return Vec::new() };
    let all = slice.endpoints.iter().flatten().flat_map(|endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let is_ready = conditions.ready.unwrap_or(true) && !conditions.terminating.unwrap_or(false);
        endpoint.addresses.iter().filter_map(move |address| Some((address.parse::<IpAddr>().ok()?, is_ready)))
    });
    all.map(|(address, is_ready)| (SocketAddr::new(address, port), is_ready)).collect()
}

fn endpoints(endpoints: &Endpoints) -> Addresses {
    let of_subset = |subset: &k8s_openapi::api::core::v1::EndpointSubset| {
        let port = subset.ports.iter().flatten().find(|port| port.name.as_deref() == Some(PORT))?;
        let port = u16::try_from(port.port).ok()?;
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let all = ready.chain(subset.not_ready_addresses.iter().flatten().map(|address| (address, false)));
        let parsed = all.filter_map(|(address, is_ready)| Some((address.ip.parse::<IpAddr>().ok()?, is_ready)));
        Some(parsed.map(|(ip, is_ready)| (SocketAddr::new(ip, port), is_ready)).collect::<Vec<_>>())
    };
    endpoints.subsets.iter().flatten().filter_map(of_subset).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_controller::Changes;
    use futures::FutureExt;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    fn row(address: &str, is_ready: bool) -> (SocketAddr, bool) {
        (address.parse().expect("an address"), is_ready)
    }

    /// Goal: a terminating activator is included as not ready until it is deleted.
    #[test]
    fn the_union_is_sent_after_each_list_and_change() {
        let one = |name: &str, address: &str, conditions: serde_json::Value| -> EndpointSlice {
            serde_json::from_value(json!({
                "metadata": {"name": name}, "addressType": "IPv4",
                "ports": [{"name": "http", "port": 8012}, {"name": "http2", "port": 8013}],
                "endpoints": [{"addresses": [address], "conditions": conditions}],
            }))
            .expect("a slice")
        };
        let leaving = json!({"ready": false, "serving": true, "terminating": true});
        let events = vec![
            Event::Init,
            Event::InitApply(one("a", "10.0.0.1", json!({"ready": true}))),
            Event::InitApply(one("b", "10.0.0.2", json!({}))),
            Event::InitDone,
            Event::Apply(one("b", "10.0.0.2", leaving)),
            Event::Delete(one("a", "10.0.0.1", json!({}))),
        ];
        let mut changes = Changes::default();
        let changes: Vec<_> = events.into_iter().flat_map(|event| changes.take(event)).collect();
        let unions: Vec<Addresses> =
            unions(futures::stream::iter(changes), slice).collect().now_or_never().expect("all of it at once");
        let (a, b) = (row("10.0.0.1:8012", true), "10.0.0.2:8012");
        assert_eq!(unions, [vec![a, row(b, true)], vec![a, row(b, false)], vec![row(b, false)]]);
    }

    #[test]
    fn endpoints_are_read_like_slices() {
        let object: Endpoints = serde_json::from_value(json!({
            "metadata": {"name": "activator-service"},
            "subsets": [{
                "addresses": [{"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "10.0.0.2"}],
                "ports": [{"name": "http", "port": 8012}, {"name": "http2", "port": 8013}],
            }],
        }))
        .expect("endpoints");
        assert_eq!(endpoints(&object), [row("10.0.0.1:8012", true), row("10.0.0.2:8012", false)]);
    }
}
