//! EndpointSlices of a private Service that cannot select its pods.
//!
//! A Service selects by labels only. Some targets select by expressions. If labels also match foreign pods, only this
//! process knows which pods are the target's own. In both cases this module writes the slices that the controller of
//! Kubernetes would write, from the counted pods.
//!
//! Pods of an adopted ReplicaSet are the target's own as well, although their names do not show it
//! ([`common::pod_names`]).
//!
//! For a target that selects by labels, these slices begin when its labels match the first foreign pod, usually before
//! that pod has an address. The controller of Kubernetes takes over again when no foreign pod is left and the target
//! sleeps, since no request is in flight then.

use super::services::Common;
use super::slices::{self, ENDPOINTS_MAX, SERVICE_NAME};
use super::{Controller, Pass};
use crate::cluster::error::Error;
use crate::cluster::facts::{Labels, Target};
use crate::scale::PodAddress;
use crate::standalone::services::service_ports::{number_of, target_of};
use common::RevisionKey as Key;
use common::names;
use common::pod_names::PodNames;
use common::write_rate::WriteClass;
use common_controller::objects::controller_reference;
use k8s_openapi::api::core::v1::{ObjectReference, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use std::sync::Arc;

impl Pass<'_> {
    /// Reports whether labels alone identify the target's pods.
    pub(super) fn labels_suffice(&self, private: &str) -> bool {
        let Controller { cluster, parts, .. } = self.controller;
        let pods = &parts.ports.pods;
        let private = cluster.services.get(&Key::new(self.key.namespace(), private));
        let is_led = private.is_some_and(|private| private.spec.as_ref().is_none_or(|spec| spec.selector.is_none()));
        match pods.foreign_pods(self.key) {
            Some(foreign) => {
                let (own, names) = (pods.addresses(self.key), self.pod_names());
                let are_known = own.iter().all(|pod| names.matches(&pod.pod));
                foreign.controllers.is_empty() && are_known && (!is_led || own.is_empty())
            }
            None => !is_led, // Keep the present state.
        }
    }

    /// Returns the pod names that activators accept as the target's if the controller of Kubernetes writes the slices.
    fn pod_names(&self) -> PodNames {
        let target = &self.path.request.target;
        PodNames::for_workload(&target.api_version, &target.kind, target.name.as_str().into())
    }

    /// Writes and returns the slices. Returns `None` if the controller of Kubernetes writes its own; earlier slices of
    /// ours are then deleted.
    pub(super) async fn pod_slices(
        &self,
        private: &Service,
        common: &Common,
        target: &Target,
    ) -> Result<Option<Vec<Arc<EndpointSlice>>>, Error> {
        let (controller, key) = (self.controller, self.key);
        let mut existing = controller.cluster.slices_of(&Key::new(key.namespace(), private.name_any()));
        let selects = private.spec.as_ref().is_some_and(|spec| spec.selector.is_some());
        let desired = if selects {
            existing.retain(|slice| slices::is_ours(slice));
            Vec::new()
        } else {
            let pods = controller.parts.ports.pods.addresses(key);
            desired(private, common.labels_of(names::SERVICE_TYPE_PRIVATE), target, &pods)
        };
        let writes = slices::writes(&existing, desired.clone());
        self.write_slices(&private.name_any(), &existing, writes, WriteClass::Object, || true).await?;
        Ok((!selects).then(|| desired.into_iter().map(Arc::new).collect()))
    }
}

/// Returns one slice for each address family and thousand pods.
fn desired(private: &Service, mut labels: Labels, target: &Target, pods: &[PodAddress]) -> Vec<EndpointSlice> {
    labels.insert(SERVICE_NAME.to_owned(), private.name_any());
    labels.insert(names::SLICE_MANAGED_BY.to_owned(), names::MANAGED_BY.to_owned());
    let ports = private.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let ports: Vec<_> = ports
        .map(|port| EndpointPort {
            name: port.name.clone(),
            port: number_of(&target_of(port), Some(target)),
            protocol: port.protocol.clone(),
            app_protocol: port.app_protocol.clone(),
        })
        .collect();
    let mut desired = Vec::new();
    for (family, is_of) in [("IPv4", true), ("IPv6", false)] {
        let endpoints: Vec<_> = pods.iter().filter(|pod| pod.address.is_ipv4() == is_of).map(endpoint).collect();
        for (number, chunk) in endpoints.chunks(ENDPOINTS_MAX).enumerate() {
            let suffix = format!("-zeroscale-{}-{number}", family.to_lowercase());
            let name = Some(names::child_name(&private.name_any(), &suffix));
            let (namespace, labels) = (private.metadata.namespace.clone(), Some(labels.clone()));
            let owner_references = Some(vec![controller_reference(private)]);
            let metadata = ObjectMeta { name, namespace, labels, owner_references, ..ObjectMeta::default() };
            let (endpoints, ports) = (Some(chunk.to_vec()), Some(ports.clone()));
            desired.push(EndpointSlice { metadata, address_type: family.to_owned(), endpoints, ports });
        }
    }
    desired
}

fn endpoint(pod: &PodAddress) -> Endpoint {
    let (ready, serving, terminating) = (Some(pod.ready), Some(pod.ready), Some(pod.deleting));
    let conditions = Some(EndpointConditions { ready, serving, terminating });
    let (kind, name) = (Some("Pod".to_owned()), Some(pod.pod.clone()));
    let target_ref = Some(ObjectReference { kind, name, ..ObjectReference::default() });
    Endpoint { addresses: vec![pod.address.to_string()], conditions, target_ref, ..Endpoint::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standalone::services::service_ports::target_with;
    use serde_json::json;

    #[test]
    fn slices_list_pods_by_address_family_with_conditions_and_ports() {
        let private: Service = serde_json::from_value(json!({
            "metadata": {"name": "hello-private", "namespace": "ns", "uid": "p"},
            "spec": {"ports": [{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}]},
        }))
        .expect("a Service");
        let target = target_with(json!([{"name": "app", "ports": [{"name": "web", "containerPort": 8080}]}]));
        let pod = |pod: &str, address: &str, ready, deleting| PodAddress {
            pod: pod.to_owned(),
            address: address.parse().expect("an address"),
            ready,
            deleting,
        };
        let pods =
            [pod("a", "10.0.0.1", true, false), pod("b", "fd00::1", false, true), pod("c", "10.0.0.3", false, false)];
        let slices = desired(&private, Labels::new(), &target, &pods);
        let line = |slice: &EndpointSlice, endpoint: &Endpoint| {
            let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready);
            format!("{} {} {ready:?}", slice.address_type, endpoint.addresses[0])
        };
        let endpoints = |slice: &EndpointSlice| slice.endpoints.clone().unwrap_or_default();
        let lines = |slice: &EndpointSlice| endpoints(slice).iter().map(|each| line(slice, each)).collect::<Vec<_>>();
        let expected =
            [vec!["IPv4 10.0.0.1 Some(true)", "IPv4 10.0.0.3 Some(false)"], vec!["IPv6 fd00::1 Some(false)"]];
        assert_eq!(slices.iter().map(lines).collect::<Vec<_>>(), expected);
        assert_eq!(slices[0].ports.as_ref().and_then(|ports| ports[0].port), Some(8080));
        assert_eq!(slices[0].owner_references()[0].uid, "p", "they are deleted with it");
        assert_eq!(desired(&private, Labels::new(), &target, &[]), [], "no pods, no slices");
    }
}
