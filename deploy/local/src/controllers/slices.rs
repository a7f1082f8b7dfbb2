//! Controller of EndpointSlices: one slice of a Service for all pods with the same port numbers.
//!
//! [`reconcile`] compares the desired with the existing slices and makes as few changes as possible. Pods stay in the
//! slice of their ports, and a surplus slice is reused for other ports. Without pods, one empty slice remains, as in
//! Kubernetes, so that readers see a Service without endpoints instead of an unknown Service. (Kubernetes would create
//! a new slice; here it is the same object, which saves a creation on a scale from zero.)
//!
//! # Limits
//!
//! Several slices for many pods (a node here runs about a hundred), IPv6, host names, topology hints, zones, and the
//! annotation `last-change-trigger-time` are not supported.

use super::index::{Index, SERVICE_NAME, Write, is_finished, owned_by, selector_of, true_condition};
use super::write::Request;
use common::labels;
use common_controller::ObjectKey;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Label of an EndpointSlice with its manager.
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Manager of slices for Services with a selector.
pub(crate) const CONTROLLER: &str = "endpointslice-controller.k8s.io";

/// Ports and the endpoints that have them.
type Group = (Vec<EndpointPort>, Vec<Endpoint>);

/// Plans the writes for the slices of the Service `key`.
///
/// If a Service loses its selector, its slices stay unchanged, since another client manages them from then on.
pub(crate) fn plan(index: &Index, key: &ObjectKey) -> Vec<Write> {
    let Some(service) = index.services.get(key) else { return Vec::new() };
    let Some(selector) = selector_of(service).filter(|_| service.metadata.deletion_timestamp.is_none()) else {
        return Vec::new();
    };
    let pods = index.pods.within(key.namespace());
    let mut groups: Vec<Group> = Vec::new();
    for pod in pods.filter(|pod| labels::have_all(pod.labels(), selector) && !is_finished(pod)) {
        let Some(endpoint) = endpoint(service, pod) else { continue };
        let ports = ports_of(service, pod);
        match groups.iter_mut().find(|(known, _)| *known == ports) {
            Some((_, endpoints)) => endpoints.push(endpoint),
            None => groups.push((ports, vec![endpoint])),
        }
    }
    let has_label =
        |slice: &EndpointSlice, name: &str, value: &str| slice.labels().get(name).is_some_and(|label| label == value);
    let is_ours = |slice: &&Arc<EndpointSlice>| {
        has_label(slice, SERVICE_NAME, key.name())
            && has_label(slice, MANAGED_BY, CONTROLLER)
            && slice.metadata.deletion_timestamp.is_none()
    };
    let existing: Vec<_> = index.slices.within(key.namespace()).filter(is_ours).cloned().collect();
    reconcile(service, groups, &existing).into_iter().map(Write::Slice).collect()
}

/// Returns a pod as an endpoint, if it has an address. With `publishNotReadyAddresses`, every endpoint counts as ready.
fn endpoint(service: &Service, pod: &Pod) -> Option<Endpoint> {
    let address: Ipv4Addr = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
    let serving = true_condition(pod, "Ready").is_some();
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let publish_all = service.spec.as_ref().and_then(|s| s.publish_not_ready_addresses) == Some(true);
    let node_name = pod.spec.as_ref().and_then(|s| s.node_name.clone()).filter(|name| !name.is_empty());
    Some(Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(publish_all || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        node_name,
        target_ref: Some(ObjectReference {
            kind: Some("Pod".into()),
            namespace: pod.namespace(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    })
}

/// Returns the ports of `service` on `pod`. A number is used unchanged. A name is looked up in the pod's containers for
/// the same protocol; a port whose name the pod does not have is left out.
fn ports_of(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.as_ref().and_then(|s| s.ports.as_deref()).unwrap_or_default();
    ports
        .iter()
        .filter_map(|port| {
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                protocol: Some(protocol(port.protocol.as_deref()).to_owned()),
                port: Some(target(port, pod)?),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect()
}

/// Returns the protocol; the default is TCP.
fn protocol(protocol: Option<&str>) -> &str {
    protocol.filter(|p| !p.is_empty()).unwrap_or("TCP")
}

fn target(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match port.target_port.as_ref() {
        None | Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let containers = pod.spec.as_ref()?.containers.iter();
            containers
                .flat_map(|c| c.ports.as_deref().unwrap_or_default())
                .find(|p| {
                    p.name.as_ref() == Some(name)
                        && protocol(p.protocol.as_deref()) == protocol(port.protocol.as_deref())
                })
                .map(|p| p.container_port)
        }
    }
}

/// Returns the writes that change the slices `existing` so that they contain `groups`.
fn reconcile(
    service: &Service,
    mut groups: Vec<Group>,
    existing: &[Arc<EndpointSlice>],
) -> Vec<Request<EndpointSlice>> {
    if groups.is_empty() {
        groups.push((Vec::new(), Vec::new()));
    }
    // Slices with the same ports first, then any other.
    let mut left: Vec<&Arc<EndpointSlice>> = existing.iter().collect();
    let mut matched: Vec<(Group, Option<&Arc<EndpointSlice>>)> = groups
        .into_iter()
        .map(|group| {
            let same = left.iter().position(|slice| slice.ports.as_deref().unwrap_or_default() == group.0);
            (group, same.map(|at| left.remove(at)))
        })
        .collect();
    for (_, slice) in matched.iter_mut().filter(|(_, slice)| slice.is_none()) {
        *slice = left.pop();
    }
    let mut requests: Vec<_> = left.into_iter().map(|slice| Request::delete(slice.as_ref())).collect();
    requests.extend(matched.into_iter().filter_map(|(group, slice)| match slice {
        Some(slice) => Request::update(slice.as_ref(), &fill(EndpointSlice::clone(slice), service, group)),
        None => {
            let metadata = ObjectMeta {
                namespace: service.namespace(),
                generate_name: Some(format!("{}-", service.name_any())),
                ..ObjectMeta::default()
            };
            let slice = EndpointSlice { metadata, address_type: "IPv4".into(), endpoints: None, ports: None };
            Some(Request::Create(Box::new(fill(slice, service, group))))
        }
    }));
    requests
}

fn fill(mut slice: EndpointSlice, service: &Service, (ports, endpoints): Group) -> EndpointSlice {
    let mut labels = service.labels().clone();
    labels.insert(SERVICE_NAME.into(), service.name_any());
    labels.insert(MANAGED_BY.into(), CONTROLLER.into());
    slice.metadata.labels = Some(labels);
    slice.metadata.owner_references = Some(vec![owned_by(service)]);
    slice.endpoints = Some(endpoints);
    slice.ports = Some(ports);
    slice
}

#[cfg(test)]
mod tests;
