//! The EndpointSlices of a public Service: who serves its clients at the moment.
//!
//! | mode | pods ready | activators ready | the Service leads to |
//! |---|---|---|---|
//! | Serve | some | any | the pods |
//! | Serve | none | some | the activators |
//! | Proxy | any | some | the activators |
//! | any | some | none | the pods |
//! | any | none | none | the pods as they are, not ready |
//!
//! Pods come from the slices that Kubernetes writes for the private Service, with their real ports and conditions, and
//! activators from those of `activator-service`, of which `numActivators` are chosen by the ownership hash.
//!
//! # Ports
//!
//! A port of the Service carries the revision's traffic, or something else (an adopted Service may have a port for
//! metrics). What is not traffic goes to the pods in every mode, in slices of its own that no switch touches. An
//! EndpointSlice has one list of ports for all its endpoints, so endpoints are grouped by address family and ports;
//! pods of a rolling update may well listen on different ones.
//!
//! Activators find themselves in slices labelled as public, by the port named `http` or `http2`, else the only one. So
//! slices of other ports are not labelled; and where an adopted Service has several ports for its traffic under names
//! of its own, each gets a slice, of which one is labelled.
//!
//! # Names
//!
//! Slices of traffic are numbered, group after group, so that a switch of the path rewrites the first slice in one
//! atomic update instead of deleting one and creating another.

use common::names;
use common_api::Mode;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Kubernetes' bound on the endpoints of one slice.
pub(crate) const ENDPOINTS_MAX: usize = 1000;
/// Label that ties a slice to its Service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label that says who writes a slice.
pub(crate) const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// A port of the public Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicPort {
    /// Its name there; a Service with one port may leave it out.
    pub(crate) name: Option<String>,
    /// `TCP`, `UDP` or `SCTP`.
    pub(crate) protocol: String,
    /// Hint for proxies on what is spoken.
    pub(crate) app_protocol: Option<String>,
    /// Where it leads.
    pub(crate) leads_to: LeadsTo,
}

/// Where a port leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeadsTo {
    /// The revision's traffic.
    Traffic,
    /// Always the pods: the port of the private Service with this name.
    Pods(String),
}

/// Everything that the slices of one public Service follow from.
#[derive(Clone, Debug)]
pub(crate) struct Inputs<'a> {
    /// Namespace of the Service.
    pub(crate) namespace: &'a str,
    /// Name of the Service.
    pub(crate) service: &'a str,
    /// Its ports.
    pub(crate) ports: &'a [PublicPort],
    /// What the ServerlessService asks for.
    pub(crate) mode: Mode,
    /// How many activators carry the traffic; 0: all.
    pub(crate) num_activators: i32,
    /// What activators are chosen by: the ServerlessService's name.
    pub(crate) target: &'a str,
    /// Name of the traffic port of the private Service and of `activator-service`.
    pub(crate) traffic_port: &'a str,
    /// Port of the activators where theirs has no such name.
    pub(crate) activator_port: u16,
    /// Slices of the private Service.
    pub(crate) private: &'a [Arc<EndpointSlice>],
    /// Slices of `activator-service`.
    pub(crate) activators: &'a [Arc<EndpointSlice>],
    /// Labels that each slice gets, beside its Service's name and manager.
    pub(crate) labels: BTreeMap<String, String>,
    /// Who owns them.
    pub(crate) owner: OwnerReference,
}

/// Where the traffic goes, after what is ready has been looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To activators.
    Activators,
    /// To pods, ready or not.
    Pods,
}

/// What follows from the inputs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// Where the traffic goes.
    pub(crate) route: Route,
    /// Pods that are ready.
    pub(crate) pods_ready: usize,
    /// The slices, by name.
    pub(crate) slices: Vec<EndpointSlice>,
}

/// Applies the table above.
pub(crate) fn desired(inputs: &Inputs<'_>) -> Outcome {
    let pods_ready = ready(inputs.private);
    let activators_ready = ready(inputs.activators);
    let route = match inputs.mode {
        _ if activators_ready == 0 => Route::Pods,
        _ if pods_ready == 0 => Route::Activators,
        Mode::Proxy => Route::Activators,
        Mode::Serve => Route::Pods,
    };
    let mut groups = Groups::default();
    if route == Route::Activators {
        let chosen = chosen_activators(inputs);
        for slice in inputs.activators {
            let number = port_of(slice, inputs.traffic_port).unwrap_or(i32::from(inputs.activator_port));
            let ports = inputs.ports.iter().filter(|port| port.leads_to == LeadsTo::Traffic);
            let ports: Vec<_> = ports.map(|port| endpoint_port(port, number)).collect();
            let endpoints: Vec<_> =
                slice.endpoints.iter().flatten().filter(|e| is_ready(e) && chosen.holds(e)).collect();
            for (class, ports) in split_by_class(ports, inputs.traffic_port) {
                groups.add(&slice.address_type, class, ports, endpoints.iter().map(|e| activator_endpoint(e)));
            }
        }
    }
    for slice in inputs.private {
        let endpoints = || slice.endpoints.iter().flatten().map(pod_endpoint);
        let ports = |traffic: bool| -> Vec<EndpointPort> {
            let ports = inputs.ports.iter().filter(|port| (port.leads_to == LeadsTo::Traffic) == traffic);
            ports.filter_map(|port| pod_port(port, slice, inputs.traffic_port)).collect()
        };
        if route == Route::Pods {
            groups.add(&slice.address_type, Class::Traffic, ports(true), endpoints());
        }
        groups.add(&slice.address_type, Class::Other, ports(false), endpoints());
    }
    Outcome { route, pods_ready, slices: groups.into_slices(inputs) }
}

/// What a slice is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// The revision's traffic.
    Traffic,
    /// Anything else; or traffic whose activators are told by another slice.
    Other,
}

/// Ports that activators serve, such that each activator recognises itself in exactly one slice.
fn split_by_class(mut ports: Vec<EndpointPort>, traffic_port: &str) -> Vec<(Class, Vec<EndpointPort>)> {
    if ports.len() < 2 || ports.iter().any(|port| port.name.as_deref() == Some(traffic_port)) {
        return vec![(Class::Traffic, ports)];
    }
    let rest = ports.split_off(1);
    let rest = rest.into_iter().map(|port| (Class::Other, vec![port]));
    std::iter::once((Class::Traffic, ports)).chain(rest).collect()
}

fn pod_port(port: &PublicPort, slice: &EndpointSlice, traffic_port: &str) -> Option<EndpointPort> {
    let private_name = match &port.leads_to {
        LeadsTo::Traffic => traffic_port,
        LeadsTo::Pods(name) => name,
    };
    Some(endpoint_port(port, port_of(slice, private_name)?))
}

fn endpoint_port(port: &PublicPort, number: i32) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(number),
        protocol: Some(port.protocol.clone()),
        app_protocol: port.app_protocol.clone(),
    }
}

fn port_of(slice: &EndpointSlice, name: &str) -> Option<i32> {
    slice.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name))?.port
}

fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

fn ready(slices: &[Arc<EndpointSlice>]) -> usize {
    slices.iter().flat_map(|slice| slice.endpoints.iter().flatten()).filter(|e| is_ready(e)).count()
}

/// Which activators carry the traffic.
enum Chosen {
    All,
    These(BTreeSet<String>),
}

impl Chosen {
    fn holds(&self, endpoint: &Endpoint) -> bool {
        match self {
            Self::All => true,
            Self::These(addresses) => endpoint.addresses.iter().any(|address| addresses.contains(address)),
        }
    }
}

fn chosen_activators(inputs: &Inputs<'_>) -> Chosen {
    let endpoints = inputs.activators.iter().flat_map(|slice| slice.endpoints.iter().flatten()).filter(|e| is_ready(e));
    let addresses: BTreeSet<String> = endpoints.flat_map(|e| e.addresses.iter().cloned()).collect();
    match usize::try_from(inputs.num_activators) {
        Ok(n) if n > 0 && n < addresses.len() => {
            let addresses: Vec<String> = addresses.into_iter().collect();
            let chosen = common::ownership::subset(&addresses, n, inputs.target);
            Chosen::These(chosen.into_iter().map(str::to_owned).collect())
        }
        _ => Chosen::All,
    }
}

fn activator_endpoint(endpoint: &Endpoint) -> Endpoint {
    let conditions = EndpointConditions { ready: Some(true), serving: Some(true), terminating: Some(false) };
    Endpoint { conditions: Some(conditions), hints: None, deprecated_topology: None, ..endpoint.clone() }
}

/// As Kubernetes wrote it, hints aside: those are about the private Service.
fn pod_endpoint(endpoint: &Endpoint) -> Endpoint {
    Endpoint { hints: None, ..endpoint.clone() }
}

/// Class, address family, and ports as text.
type GroupKey = (Class, String, String);

/// Endpoints by class, address family and ports.
#[derive(Default)]
struct Groups(BTreeMap<GroupKey, (Vec<EndpointPort>, Vec<Endpoint>)>);

impl Groups {
    fn add(&mut self, family: &str, class: Class, ports: Vec<EndpointPort>, endpoints: impl Iterator<Item = Endpoint>) {
        if ports.is_empty() {
            return;
        }
        let order = ports.iter().map(|p| format!("{:?}:{:?} ", p.name, p.port)).collect();
        self.0.entry((class, family.to_owned(), order)).or_insert_with(|| (ports, vec![])).1.extend(endpoints);
    }

    fn into_slices(self, inputs: &Inputs<'_>) -> Vec<EndpointSlice> {
        let mut slices = vec![];
        let mut count: BTreeMap<(Class, String), usize> = BTreeMap::new();
        for ((class, family, _), (ports, mut endpoints)) in self.0 {
            endpoints.sort_by(|a, b| a.addresses.cmp(&b.addresses));
            endpoints.dedup_by(|a, b| a.addresses == b.addresses);
            for chunk in endpoints.chunks(ENDPOINTS_MAX) {
                let number = count.entry((class, family.clone())).or_default();
                slices.push(slice(inputs, class, &family, *number, ports.clone(), chunk.to_vec()));
                *number += 1;
            }
        }
        slices
    }
}

fn slice(
    inputs: &Inputs<'_>,
    class: Class,
    family: &str,
    number: usize,
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
) -> EndpointSlice {
    let mut labels = inputs.labels.clone();
    labels.insert(SERVICE_NAME.to_owned(), inputs.service.to_owned());
    labels.insert(SLICE_MANAGED_BY.to_owned(), names::MANAGED_BY.to_owned());
    let mut kind = family.to_lowercase();
    if class == Class::Other {
        labels.remove(names::SIDE);
        kind.push_str("-other");
    }
    let suffix = format!("-zeroscale-{kind}-{number}");
    EndpointSlice {
        metadata: ObjectMeta {
            name: Some(names::child_name(inputs.service, &suffix)),
            namespace: Some(inputs.namespace.to_owned()),
            labels: Some(labels),
            owner_references: Some(vec![inputs.owner.clone()]),
            ..ObjectMeta::default()
        },
        address_type: family.to_owned(),
        endpoints: Some(endpoints),
        ports: Some(ports),
    }
}

/// Whether a slice is one that we write.
pub(crate) fn is_ours(slice: &EndpointSlice) -> bool {
    let labels = slice.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(SLICE_MANAGED_BY)).is_some_and(|manager| manager == names::MANAGED_BY)
}

/// One write that brings what is nearer to what should be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    /// Replace an existing slice.
    Update(Box<EndpointSlice>),
    /// Make a new one.
    Create(Box<EndpointSlice>),
    /// Remove one by name.
    Delete(String),
}

/// The writes that turn `existing`, all slices of the public Service, into `desired`: updates first, since one of them
/// moves the path, deletions last. Slices that others left behind are deleted too: they would go on leading to the
/// pods.
pub(crate) fn writes(existing: &[Arc<EndpointSlice>], desired: Vec<EndpointSlice>) -> Vec<Write> {
    let (mut updates, mut creates) = (vec![], vec![]);
    let mut kept = BTreeSet::new();
    for want in desired {
        let name = want.metadata.name.clone().unwrap_or_default();
        match existing.iter().find(|slice| slice.metadata.name == want.metadata.name) {
            Some(have) => {
                if !same(have, &want) {
                    let mut next = EndpointSlice::clone(have);
                    next.metadata.labels.get_or_insert_default().extend(want.metadata.labels.unwrap_or_default());
                    next.metadata.owner_references = want.metadata.owner_references;
                    next.endpoints = want.endpoints;
                    next.ports = want.ports;
                    updates.push(Write::Update(Box::new(next)));
                }
            }
            None => creates.push(Write::Create(Box::new(want))),
        }
        kept.insert(name);
    }
    let gone = existing.iter().filter_map(|slice| slice.metadata.name.clone()).filter(|name| !kept.contains(name));
    updates.into_iter().chain(creates).chain(gone.map(Write::Delete)).collect()
}

fn same(have: &EndpointSlice, want: &EndpointSlice) -> bool {
    let endpoints = |slice: &EndpointSlice| slice.endpoints.clone().unwrap_or_default();
    let ports = |slice: &EndpointSlice| slice.ports.clone().unwrap_or_default();
    let labels = have.metadata.labels.clone().unwrap_or_default();
    let labelled = want.metadata.labels.iter().flatten().all(|(name, value)| labels.get(name) == Some(value));
    labelled
        && have.metadata.owner_references == want.metadata.owner_references
        && endpoints(have) == endpoints(want)
        && ports(have) == ports(want)
}

#[cfg(test)]
#[path = "slices_tests.rs"]
mod tests;
