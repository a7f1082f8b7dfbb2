//! EndpointSlices for Endpoints that somebody wrote by hand for a Service without a selector, so that readers need to
//! know slices alone.
//!
//! Endpoints labelled `endpointslice.kubernetes.io/skip-mirror: "true"`, those that are a leader election's lock, and
//! those without a Service are not mirrored. When the reason ends, so do the slices.

use super::index::{Index, Plan, SERVICE_NAME, Write, selector_of};
use super::slices::{Family, MANAGED_BY, frame_for, reconcile};
use super::write::Request;
use common_controller::ObjectKey;
use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};
use kube::ResourceExt;
use std::net::IpAddr;

/// The manager of mirrored slices.
const MIRRORING: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Most addresses of one subset that are mirrored (Kubernetes' default).
const ADDRESSES_MAX: usize = 1000;

/// What is to be done for the slices that mirror the Endpoints `key`.
pub(crate) fn plan(index: &Index, key: &ObjectKey) -> Plan {
    let existing: Vec<_> = index.slices_of(key, MIRRORING).cloned().collect();
    let mirrored = index.endpoints.get(key).filter(|endpoints| {
        may_be_mirrored(endpoints) && index.services.get(key).is_some_and(|service| is_by_hand(service))
    });
    let Some(endpoints) = mirrored else {
        let writes = existing.iter().map(|slice| Write::Slice(Request::delete(slice.as_ref()))).collect();
        return Plan { writes, again_after: None };
    };
    let mut labels = endpoints.labels().clone();
    labels.insert(SERVICE_NAME.into(), key.name().to_owned());
    labels.insert(MANAGED_BY.into(), MIRRORING.into());
    let mut annotations = endpoints.annotations().clone();
    annotations.remove(LAST_APPLIED);
    let mut writes = Vec::new();
    for family in [Family::V4, Family::V6] {
        let wanted = mirrored_endpoints(endpoints, family);
        let existing: Vec<_> = existing.iter().filter(|s| s.address_type == family.name()).cloned().collect();
        if wanted.is_empty() {
            writes.extend(existing.iter().map(|slice| Write::Slice(Request::delete(slice.as_ref()))));
            continue;
        }
        let frame = frame_for(endpoints.as_ref(), labels.clone(), annotations.clone(), family);
        writes.extend(reconcile(&frame, wanted, &existing).into_iter().map(Write::Slice));
    }
    Plan { writes, again_after: None }
}

/// What to do with Endpoints whose Service has been deleted: they go too, unless they are a leader election's lock.
pub(crate) fn plan_left(index: &Index, key: &ObjectKey) -> Plan {
    let left =
        index.endpoints.get(key).filter(|e| index.services.get(key).is_none() && !e.annotations().contains_key(LEADER));
    let writes = left.map(|endpoints| Write::Endpoints(Request::delete(endpoints.as_ref()))).into_iter().collect();
    Plan { writes, again_after: None }
}

fn may_be_mirrored(endpoints: &Endpoints) -> bool {
    endpoints.metadata.deletion_timestamp.is_none()
        && endpoints.labels().get(SKIP).map(String::as_str) != Some("true")
        && !endpoints.annotations().contains_key(LEADER)
}

/// Whether a Service's endpoints are written by hand.
fn is_by_hand(service: &Service) -> bool {
    let external = service.spec.as_ref().and_then(|s| s.type_.as_deref()) == Some("ExternalName");
    selector_of(service).is_none() && !external
}

fn mirrored_endpoints(endpoints: &Endpoints, family: Family) -> Vec<(Vec<EndpointPort>, Endpoint)> {
    let mut mirrored = Vec::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports: Vec<_> = subset
            .ports
            .iter()
            .flatten()
            .map(|port| EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(port.port),
                protocol: port.protocol.clone(),
                app_protocol: port.app_protocol.clone(),
            })
            .collect();
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let not_ready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        let of_family = ready.chain(not_ready).filter(|(a, _)| a.ip.parse::<IpAddr>().is_ok_and(|ip| family.holds(ip)));
        mirrored
            .extend(of_family.take(ADDRESSES_MAX).map(|(address, ready)| (ports.clone(), endpoint(address, ready))));
    }
    mirrored
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}
