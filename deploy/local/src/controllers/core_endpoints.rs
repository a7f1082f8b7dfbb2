//! core/v1 Endpoints: the older form of a Service's addresses, for readers that know no EndpointSlices (Knative's
//! activator is one).
//!
//! One object named like the Service. Its subsets group addresses with equal ports, ready and not ready apart; a pod
//! that is going away is in none, unless the Service publishes addresses that are not ready.
//!
//! # Not here
//!
//! The limit of 1000 addresses and its annotation; the annotation `last-change-trigger-time`.

use super::index::true_condition;
use super::pod_endpoint::{HEADLESS, addresses, target_ref};
use super::ports;
use super::write::Request;
use common_controller::key_of;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointPort as SlicePort;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use std::sync::Arc;

/// Label on Endpoints that this controller keeps.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";

/// The write that brings the Endpoints of `service` up to date with its `pods`, if one is needed.
pub(crate) fn plan(
    service: &Service,
    pods: &[&Arc<Pod>],
    existing: Option<&Arc<Endpoints>>,
) -> Option<Request<Endpoints>> {
    let key = key_of(service);
    let mut labels = service.labels().clone();
    labels.remove(HEADLESS);
    if service.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()) == Some("None") {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(MANAGED_BY.into(), "endpoint-controller".into());
    let subsets = subsets(service, pods);
    let mut wanted = existing.map(|e| Endpoints::clone(e)).unwrap_or_else(|| Endpoints {
        metadata: ObjectMeta {
            namespace: Some(key.namespace().to_owned()),
            name: Some(key.name().to_owned()),
            ..ObjectMeta::default()
        },
        subsets: None,
    });
    wanted.metadata.labels = Some(labels);
    wanted.subsets = (!subsets.is_empty()).then_some(subsets);
    match existing {
        Some(existing) => Request::update(existing.as_ref(), &wanted),
        None => Some(Request::Create(Box::new(wanted))),
    }
}

/// Addresses grouped by their ports, each group sorted.
fn subsets(service: &Service, pods: &[&Arc<Pod>]) -> Vec<EndpointSubset> {
    let publish_all = service.spec.as_ref().and_then(|s| s.publish_not_ready_addresses) == Some(true);
    let declares_ports = service.spec.as_ref().and_then(|s| s.ports.as_ref()).is_some_and(|p| !p.is_empty());
    let mut groups: Vec<(Vec<EndpointPort>, Vec<EndpointAddress>, Vec<EndpointAddress>)> = Vec::new();
    for pod in pods {
        if pod.metadata.deletion_timestamp.is_some() && !publish_all {
            continue;
        }
        let Some(address) = addresses(pod).into_iter().find(std::net::IpAddr::is_ipv4) else { continue };
        let ports: Vec<_> = ports::resolve(service, pod).into_iter().filter_map(core_port).collect();
        if ports.is_empty() && declares_ports {
            continue;
        }
        let spec = pod.spec.as_ref();
        let in_subdomain = spec.and_then(|s| s.subdomain.as_ref()) == service.metadata.name.as_ref();
        let address = EndpointAddress {
            ip: address.to_string(),
            hostname: spec.and_then(|s| s.hostname.clone()).filter(|_| in_subdomain),
            node_name: spec.and_then(|s| s.node_name.clone()).filter(|name| !name.is_empty()),
            target_ref: Some(target_ref(pod)),
        };
        let at = groups.iter().position(|(held, _, _)| *held == ports).unwrap_or_else(|| {
            groups.push((ports, Vec::new(), Vec::new()));
            groups.len() - 1
        });
        let (_, ready, not_ready) = &mut groups[at];
        let is_ready = publish_all || true_condition(pod, "Ready").is_some();
        if is_ready { ready.push(address) } else { not_ready.push(address) }
    }
    let sorted = |mut addresses: Vec<EndpointAddress>| {
        addresses.sort_by(|a, b| a.ip.cmp(&b.ip));
        (!addresses.is_empty()).then_some(addresses)
    };
    groups
        .into_iter()
        .map(|(ports, ready, not_ready)| EndpointSubset {
            addresses: sorted(ready),
            not_ready_addresses: sorted(not_ready),
            ports: (!ports.is_empty()).then_some(ports),
        })
        .collect()
}

/// A slice's port in the older form, where an empty name is no name.
fn core_port(port: SlicePort) -> Option<EndpointPort> {
    Some(EndpointPort {
        name: port.name.filter(|name| !name.is_empty()),
        port: port.port?,
        protocol: port.protocol,
        app_protocol: port.app_protocol,
    })
}
