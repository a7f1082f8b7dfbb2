//! EndpointSlices: the addresses of a Service, in pieces of at most [`ENDPOINTS_MAX`].
//!
//! [`reconcile`] compares what should be there with the slices that are, and changes as few as it can: an endpoint
//! stays in its slice, new ones fill the room there is, then empty slices are used again with whatever ports are
//! needed, then new ones are made. One empty slice is kept when there is nothing to say, as in Kubernetes, so that
//! readers see a Service without endpoints and not a Service unheard of. (Kubernetes would make that one anew; here it
//! is the same object, which saves a creation on the way back from zero.)
//!
//! # Not here
//!
//! Topology hints, zones, and the annotation `last-change-trigger-time`.

use super::index::{Index, Plan, SERVICE_NAME, Write, is_finished, owned_by, selector_of, true_condition};
use super::pod_endpoint::{HEADLESS, addresses, target_ref};
use super::ports;
use super::write::Request;
use common::labels;
use common_controller::{ObjectKey, key_of};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Most endpoints in one slice (Kubernetes' default).
const ENDPOINTS_MAX: usize = 100;
/// Label on an EndpointSlice: who keeps it.
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The manager of slices for Services with a selector.
pub(crate) const CONTROLLER: &str = "endpointslice-controller.k8s.io";
/// What is to be done for the slices of the Service `key`.
///
/// A Service that loses its selector keeps them as they are: from then on they are somebody else's.
pub(crate) fn plan(index: &Index, key: &ObjectKey) -> Plan {
    let Some(service) = index.services.get(key) else { return Plan::default() };
    let Some(selector) = selector_of(service).filter(|_| service.metadata.deletion_timestamp.is_none()) else {
        return Plan::default();
    };
    let pods: Vec<_> = index
        .pods
        .within(key.namespace())
        .filter(|pod| labels::have_all(pod.labels(), selector) && !is_finished(pod) && !addresses(pod).is_empty())
        .collect();
    let mut writes = Vec::new();
    for family in families(service) {
        let wanted = pods.iter().filter_map(|pod| {
            let address = addresses(pod).into_iter().find(|address| family.holds(*address))?;
            Some((ports::resolve(service, pod), endpoint(service, pod, address)))
        });
        let existing: Vec<_> =
            index.slices_of(key, CONTROLLER).filter(|slice| slice.address_type == family.name()).cloned().collect();
        let frame = Frame::of(service.as_ref(), family);
        writes.extend(reconcile(&frame, wanted.collect(), &existing).into_iter().map(Write::Slice));
    }
    Plan { writes, again_after: None }
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    pub(crate) fn holds(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Family::V4)
    }
}

/// The families a Service is for; IPv4 where it does not say.
fn families(service: &Service) -> Vec<Family> {
    let named = service.spec.as_ref().and_then(|s| s.ip_families.as_deref()).unwrap_or_default();
    let families: Vec<_> = named.iter().map(|name| if name == "IPv6" { Family::V6 } else { Family::V4 }).collect();
    if families.is_empty() { vec![Family::V4] } else { families }
}

/// A pod as an endpoint. A Service that publishes addresses that are not ready calls them ready.
fn endpoint(service: &Service, pod: &Pod, address: IpAddr) -> Endpoint {
    let serving = true_condition(pod, "Ready").is_some();
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let publish_all = service.spec.as_ref().and_then(|s| s.publish_not_ready_addresses) == Some(true);
    let spec = pod.spec.as_ref();
    let in_subdomain = spec.and_then(|s| s.subdomain.as_ref()) == service.metadata.name.as_ref();
    Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(publish_all || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: spec.and_then(|s| s.hostname.clone()).filter(|_| in_subdomain),
        node_name: spec.and_then(|s| s.node_name.clone()).filter(|name| !name.is_empty()),
        target_ref: Some(target_ref(pod)),
        ..Endpoint::default()
    }
}

/// What all slices of one Service and family have in common.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Start of the slices' names, and their service-name label.
    pub(crate) service: ObjectKey,
    pub(crate) labels: BTreeMap<String, String>,
    /// Whose end is theirs.
    pub(crate) owner: OwnerReference,
    pub(crate) family: Family,
}

impl Frame {
    /// For a Service with a selector: its labels, ours over them.
    fn of(service: &Service, family: Family) -> Self {
        let key = key_of(service);
        let mut labels = service.labels().clone();
        labels.remove(HEADLESS);
        if service.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()) == Some("None") {
            labels.insert(HEADLESS.into(), String::new());
        }
        labels.insert(SERVICE_NAME.into(), key.name().to_owned());
        labels.insert(MANAGED_BY.into(), CONTROLLER.into());
        Self { service: key, labels, owner: owned_by(service), family }
    }
}

/// The writes that turn the slices `existing` into such as hold `wanted`.
pub(crate) fn reconcile(
    frame: &Frame,
    wanted: Vec<(Vec<EndpointPort>, Endpoint)>,
    existing: &[Arc<EndpointSlice>],
) -> Vec<Request<EndpointSlice>> {
    let mut groups: Vec<(Vec<EndpointPort>, Vec<Endpoint>)> = Vec::new();
    for (ports, endpoint) in wanted {
        match groups.iter_mut().find(|(held, _)| *held == ports) {
            Some((_, endpoints)) => endpoints.push(endpoint),
            None => groups.push((ports, vec![endpoint])),
        }
    }
    // What each existing slice will hold; nothing so far.
    let mut held: Vec<(Vec<EndpointPort>, Vec<Endpoint>)> =
        existing.iter().map(|slice| (slice.ports.clone().unwrap_or_default(), Vec::new())).collect();
    // 1. Endpoints stay where they are.
    for (ports, endpoints) in &mut groups {
        for (slice, (slice_ports, kept)) in existing.iter().zip(&mut held) {
            if slice_ports != ports {
                continue;
            }
            for old in slice.endpoints.iter().flatten() {
                if let Some(at) = endpoints.iter().position(|new| is_same(new, old)) {
                    kept.push(endpoints.swap_remove(at));
                }
            }
        }
    }
    // 2. New ones fill slices of the same ports that hold any, 3. then empty slices, 4. then new slices.
    let mut created = Vec::new();
    for (ports, mut endpoints) in groups {
        for (_, kept) in held.iter_mut().filter(|(p, kept)| *p == ports && !kept.is_empty()) {
            kept.extend(endpoints.drain(..endpoints.len().min(ENDPOINTS_MAX.saturating_sub(kept.len()))));
        }
        while !endpoints.is_empty() {
            let piece = endpoints.drain(..endpoints.len().min(ENDPOINTS_MAX)).collect();
            match held.iter_mut().find(|(_, kept)| kept.is_empty()) {
                Some(empty) => *empty = (ports.clone(), piece),
                None => created.push((ports.clone(), piece)),
            }
        }
    }
    if existing.is_empty() && created.is_empty() {
        created.push((Vec::new(), Vec::new()));
    }
    let mut empty_kept = !created.is_empty() || held.iter().any(|(_, kept)| !kept.is_empty());
    let mut requests = Vec::new();
    for (old, (ports, kept)) in existing.iter().zip(held) {
        if kept.is_empty() && empty_kept {
            requests.push(Request::delete(old.as_ref()));
            continue;
        }
        empty_kept |= kept.is_empty();
        let ports = if kept.is_empty() { Vec::new() } else { ports };
        requests.extend(Request::update(old.as_ref(), &frame.fill(EndpointSlice::clone(old), ports, kept)));
    }
    requests.extend(created.into_iter().map(|(ports, endpoints)| {
        let meta = ObjectMeta {
            namespace: Some(frame.service.namespace().to_owned()),
            generate_name: Some(format!("{}-", frame.service.name())),
            ..ObjectMeta::default()
        };
        let slice =
            EndpointSlice { metadata: meta, address_type: frame.family.name().into(), endpoints: None, ports: None };
        Request::Create(Box::new(frame.fill(slice, ports, endpoints)))
    }));
    requests
}

impl Frame {
    fn fill(&self, mut slice: EndpointSlice, ports: Vec<EndpointPort>, endpoints: Vec<Endpoint>) -> EndpointSlice {
        slice.metadata.labels = Some(self.labels.clone());
        slice.metadata.owner_references = Some(vec![self.owner.clone()]);
        slice.endpoints = Some(endpoints);
        slice.ports = Some(ports);
        slice
    }
}

/// Whether two endpoints are the same one in two states.
fn is_same(a: &Endpoint, b: &Endpoint) -> bool {
    let uid = |e: &Endpoint| e.target_ref.as_ref().and_then(|r| r.uid.clone());
    a.addresses == b.addresses && uid(a) == uid(b)
}

#[cfg(test)]
#[path = "slices_tests.rs"]
mod tests;
