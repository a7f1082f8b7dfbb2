//! What EndpointSlices say of a pod: its addresses, and which object it is.

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::ResourceExt;
use std::net::IpAddr;

/// Label for what belongs to a Service without a cluster address.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";

/// A pod's addresses.
pub(crate) fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = pod.status.as_ref() else { return Vec::new() };
    let all = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str()).chain(status.pod_ip.as_deref());
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in all.filter_map(|ip| ip.parse().ok()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// A reference to a pod, as endpoints carry it.
pub(crate) fn target_ref(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        namespace: pod.namespace(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}
