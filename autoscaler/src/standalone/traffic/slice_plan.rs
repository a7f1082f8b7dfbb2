//! EndpointSlices of a ZeroScaler's Service: each port leads to activators on a number of its own, or to pods.
//!
//! | condition of a TCP port | destination |
//! |---|---|
//! | mode Serve (queue-proxies), and pods are ready | the pods |
//! | some activator that is ready is proven on its number | those activators |
//! | else pods are ready, and not about to go | the pods |
//! | else terminating activators are proven | those activators |
//! | else it led to activators that are not ready now | still those activators |
//! | else | the pods, not ready |
//!
//! [`autoscaler_core::ports::slices`] decides which addresses are allowed; this module turns them into objects. Ports
//! other than TCP always lead to the pods. If the pods have queue-proxies, so do all ports that do not lead to these.
//!
//! # Shape
//!
//! Port names are exactly those of the Service. Addresses whose ports lead to the same numbers share a slice of one
//! address family; usually one slice is enough. Address families that the Service does not have are left out. Slices
//! are numbered in order, those of activators first, so that a switch from pods rewrites the first slice in one update.

use super::adopt::is_controlled_by;
use super::slices::{ENDPOINTS_MAX, SERVICE_NAME, is_ready, leads_to_activators, port_of, ready};
use autoscaler_core::path_mode::PathMode;
use autoscaler_core::ports::slices::{Listed, group};
use common::names;
use common::ports::PortId;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Port of the Service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServedPort {
    /// Name, empty if it has none, and number.
    pub(crate) id: PortId,
    /// Name and number of the matching port of the workload, or its own if activators do not carry it.
    pub(crate) workload: PortId,
    /// `TCP`, `UDP` or `SCTP`.
    pub(crate) protocol: String,
    /// Protocol hint for proxies.
    pub(crate) app_protocol: Option<String>,
    /// Name in the private Service.
    pub(crate) private: String,
    /// Set if activators carry the port.
    pub(crate) is_carried: bool,
}

/// Inputs of the desired slices.
#[derive(Clone, Debug)]
pub(crate) struct Inputs<'a> {
    /// Namespace of the Service.
    pub(crate) namespace: &'a str,
    /// Name of the Service.
    pub(crate) service: &'a str,
    /// Address families of the Service; empty: any.
    pub(crate) families: &'a [String],
    /// Ports of the Service, each with the activators allowed in its slices. Includes activators that are not ready if
    /// no pod serves.
    pub(crate) ports: &'a [(ServedPort, Vec<Listed>)],
    /// Requested path.
    pub(crate) mode: PathMode,
    /// Set if the pods are about to go, so that no client is led back to them.
    pub(crate) is_asleep: bool,
    /// Slices of the private Service.
    pub(crate) private: &'a [Arc<EndpointSlice>],
    /// Slices of `activator-service`.
    pub(crate) activators: &'a [Arc<EndpointSlice>],
    /// Labels of a public slice.
    pub(crate) labels: BTreeMap<String, String>,
    /// Owner of the slices.
    pub(crate) owner: OwnerReference,
}

/// Desired slices and their effect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SlicePlan {
    /// Set if all traffic that activators carry goes to them.
    pub(crate) is_in_path: bool,
    /// Set if each carried port leads to a ready endpoint. An endpoint that was ready and has no successor counts as
    /// well.
    pub(crate) is_led: bool,
    /// Desired slices.
    pub(crate) slices: Vec<EndpointSlice>,
}

/// Reports whether pods can have the traffic: some are ready, and not about to go. `private` are the slices with the
/// pods.
pub(crate) fn pods_serve(private: &[Arc<EndpointSlice>], mode: PathMode, is_asleep: bool) -> bool {
    ready(private) > 0 && !(is_asleep && mode == PathMode::Proxy)
}

/// Applies the table above.
pub(crate) fn desired(inputs: &Inputs<'_>) -> SlicePlan {
    let pods_serve = pods_serve(inputs.private, inputs.mode, inputs.is_asleep);
    // An activator of another address family is out of reach for the Service's clients.
    let counts = |at: &&Listed| {
        inputs.families.is_empty() || inputs.families.iter().any(|family| family == family_of(at.address))
    };
    let to_activators = |listed: &[Listed]| match pods_serve {
        true => inputs.mode == PathMode::Proxy && listed.iter().filter(counts).any(|listed| listed.ready),
        false => listed.iter().filter(counts).count() > 0,
    };
    let carried = || inputs.ports.iter().filter(|(port, _)| port.is_carried);
    let led: Vec<_> = carried().filter(|(_, listed)| to_activators(listed)).collect();
    let is_in_path = led.len() == carried().count() && !led.is_empty();
    // The slices of the private Service have a newly added port only a moment later.
    let is_at_pods = |port: &ServedPort| inputs.private.iter().any(|slice| port_of(slice, &port.private).is_some());
    let is_led = |port: &ServedPort, listed: &[Listed]| match to_activators(listed) {
        true => listed.iter().filter(counts).any(|listed| listed.ready),
        false => pods_serve && is_at_pods(port),
    };
    let mut made = SliceBuilder { inputs, slices: Vec::new(), count: BTreeMap::new() };
    for slice in group(led.iter().map(|(port, listed)| (port.id.name.as_str(), listed.as_slice()))) {
        let family = slice.addresses.first().map_or("IPv4", |(address, _)| family_of(*address));
        let ports = inputs.ports.iter().filter_map(|(port, _)| {
            let number = slice.ports.get(&port.id.name).filter(|_| port.is_carried)?;
            Some(endpoint_port(port, i32::from(*number)))
        });
        let endpoints = slice.addresses.iter().map(|(address, ready)| activator(inputs.activators, *address, *ready));
        made.add(Some(names::LEADS_TO_ACTIVATORS), family, ports.collect(), endpoints.collect());
    }
    let no_pods = inputs.is_asleep && inputs.mode == PathMode::Proxy && ready(inputs.private) > 0;
    for to in [Some(names::LEADS_TO_PODS), None] {
        let of_kind = |(port, listed): &&(ServedPort, Vec<Listed>)| match to.is_some() {
            true => port.is_carried && !to_activators(listed) && !no_pods,
            false => !port.is_carried,
        };
        let mut groups: BTreeMap<String, (&str, Vec<EndpointPort>, Vec<Endpoint>)> = BTreeMap::new();
        for slice in inputs.private {
            let ports = inputs.ports.iter().filter(of_kind);
            let ports: Vec<_> =
                ports.filter_map(|(p, _)| Some(endpoint_port(p, port_of(slice, &p.private)?))).collect();
            if ports.is_empty() {
                continue;
            }
            let numbers: Vec<_> = ports.iter().map(|port| (&port.name, port.port)).collect();
            let order = format!("{} {numbers:?}", slice.address_type);
            let endpoints = slice.endpoints.iter().flatten().map(|e| Endpoint { hints: None, ..e.clone() });
            groups.entry(order).or_insert_with(|| (&slice.address_type, ports, vec![])).2.extend(endpoints);
        }
        for (family, ports, endpoints) in groups.into_values() {
            made.add(to, family, ports, endpoints);
        }
    }
    let is_led = carried().all(|(port, listed)| is_led(port, listed));
    SlicePlan { is_in_path, is_led, slices: made.slices }
}

/// Returns the name of an address family as in slices and Services.
fn family_of(address: IpAddr) -> &'static str {
    if address.is_ipv6() { "IPv6" } else { "IPv4" }
}

/// Returns the destinations of each port of a Service, by port name, in the slices of the object with this uid.
pub(crate) fn listed<'a>(
    slices: impl IntoIterator<Item = &'a EndpointSlice>,
    uid: &str,
) -> BTreeMap<String, Vec<Listed>> {
    let mut found: BTreeMap<String, Vec<Listed>> = BTreeMap::new();
    for slice in slices.into_iter().filter(|slice| leads_to_activators(slice) && is_controlled_by(&slice.metadata, uid))
    {
        for port in slice.ports.iter().flatten() {
            let Some(number) = port.port.and_then(|number| u16::try_from(number).ok()) else { continue };
            let of_port = found.entry(port.name.clone().unwrap_or_default()).or_default();
            for endpoint in slice.endpoints.iter().flatten() {
                let ready = is_ready(endpoint);
                let addresses = endpoint.addresses.iter().filter_map(|address| address.parse().ok());
                of_port.extend(addresses.map(|address| Listed { address, number, ready }));
            }
        }
    }
    found
}

/// Returns the destinations of each carried port before and after the change.
pub(crate) fn changes<'a>(
    carried: impl IntoIterator<Item = impl AsRef<str>>,
    before: &'a BTreeMap<String, Vec<Listed>>,
    after: &'a BTreeMap<String, Vec<Listed>>,
) -> impl Iterator<Item = (&'a [Listed], &'a [Listed])> {
    carried.into_iter().map(move |name| {
        let of = |listed: &'a BTreeMap<String, Vec<Listed>>| listed.get(name.as_ref()).map_or(&[][..], Vec::as_slice);
        (of(before), of(after))
    })
}

struct SliceBuilder<'a> {
    inputs: &'a Inputs<'a>,
    slices: Vec<EndpointSlice>,
    /// Number of slices by name prefix.
    count: BTreeMap<String, usize>,
}

impl SliceBuilder<'_> {
    /// Adds slices that lead carried ports `to` activators or pods; `None`: slices of pods for ports that are not
    /// carried.
    fn add(&mut self, to: Option<&str>, family: &str, ports: Vec<EndpointPort>, mut endpoints: Vec<Endpoint>) {
        let inputs = self.inputs;
        if !inputs.families.is_empty() && !inputs.families.iter().any(|known| known == family) {
            return;
        }
        endpoints.sort_by(|a, b| a.addresses.cmp(&b.addresses));
        endpoints.dedup_by(|a, b| a.addresses == b.addresses);
        for chunk in endpoints.chunks(ENDPOINTS_MAX) {
            let mut labels = inputs.labels.clone();
            labels.insert(SERVICE_NAME.to_owned(), inputs.service.to_owned());
            labels.insert(names::SLICE_MANAGED_BY.to_owned(), names::MANAGED_BY.to_owned());
            labels.insert(names::LEADS_TO.to_owned(), to.unwrap_or(names::LEADS_TO_PODS).to_owned());
            let mut prefix = format!("-zeroscale-{}", family.to_lowercase());
            if to.is_none() {
                // Activators do not watch these slices.
                labels.remove(names::SIDE);
                prefix.push_str("-other");
            }
            let number = self.count.entry(prefix.clone()).or_default();
            let name = Some(names::child_name(inputs.service, &format!("{prefix}-{number}")));
            *number += 1;
            let (namespace, owner_references) = (Some(inputs.namespace.to_owned()), Some(vec![inputs.owner.clone()]));
            let metadata =
                ObjectMeta { name, namespace, labels: Some(labels), owner_references, ..ObjectMeta::default() };
            let (endpoints, ports) = (Some(chunk.to_vec()), Some(ports.clone()));
            self.slices.push(EndpointSlice { metadata, address_type: family.to_owned(), endpoints, ports });
        }
    }
}

fn endpoint_port(port: &ServedPort, number: i32) -> EndpointPort {
    let (name, protocol) = (Some(port.id.name.clone()), Some(port.protocol.clone()));
    EndpointPort { name, port: Some(number), protocol, app_protocol: port.app_protocol.clone() }
}

/// Returns the endpoint of an activator, with the details from the slices of its own Service.
fn activator(slices: &[Arc<EndpointSlice>], address: IpAddr, ready: bool) -> Endpoint {
    let is_it = |endpoint: &&Endpoint| endpoint.addresses.iter().any(|text| text.parse() == Ok(address));
    let known = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten()).find(is_it);
    let conditions = EndpointConditions { ready: Some(ready), serving: Some(true), terminating: Some(!ready) };
    let (addresses, conditions) = (vec![address.to_string()], Some(conditions));
    Endpoint { addresses, conditions, hints: None, deprecated_topology: None, ..known.cloned().unwrap_or_default() }
}

#[cfg(test)]
#[path = "slice_plan_tests.rs"]
mod tests;
