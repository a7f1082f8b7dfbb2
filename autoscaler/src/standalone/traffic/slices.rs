//! Our EndpointSlices: their marks, and the writes that turn existing slices into desired ones.

use autoscaler_core::ports::claims::Claim;
use common::RevisionKey as Key;
use common::names::{self, SLICE_MANAGED_BY};
use common_api::ZeroScaler;
use common_controller::objects::controller;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::Resource;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Limit of Kubernetes on the endpoints of one slice.
pub(crate) const ENDPOINTS_MAX: usize = 1000;
/// Label that ties a slice to its Service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";

pub(super) fn port_of(slice: &EndpointSlice, name: &str) -> Option<i32> {
    slice.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name))?.port
}

pub(super) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

pub(crate) fn ready(slices: &[Arc<EndpointSlice>]) -> usize {
    slices.iter().flat_map(|slice| slice.endpoints.iter().flatten()).filter(|e| is_ready(e)).count()
}

/// Reports whether a slice is managed by us.
pub(crate) fn is_ours(slice: &EndpointSlice) -> bool {
    let labels = slice.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(SLICE_MANAGED_BY)).is_some_and(|manager| manager == names::MANAGED_BY)
}

/// Reports whether a slice of ours leads a ZeroScaler's clients to activators, on numbers of its own.
pub(crate) fn leads_to_activators(slice: &EndpointSlice) -> bool {
    let labels = slice.metadata.labels.as_ref();
    let says_so =
        labels.and_then(|labels| labels.get(names::LEADS_TO)).is_some_and(|to| to == names::LEADS_TO_ACTIVATORS);
    let owner = controller(&slice.metadata);
    says_so && is_ours(slice) && owner.is_some_and(|owner| owner.kind == ZeroScaler::kind(&()))
}

/// Returns the port numbers that a slice leads a ZeroScaler's clients to, if it claims to do so. Any client with write
/// access can make this claim.
pub(crate) fn claim_of(slice: &EndpointSlice) -> Option<Claim> {
    let owner = controller(&slice.metadata).filter(|_| leads_to_activators(slice))?;
    let key = Key::new(slice.metadata.namespace.as_deref()?, owner.name.as_str());
    let numbers: BTreeSet<u16> =
        slice.ports.iter().flatten().filter_map(|port| u16::try_from(port.port?).ok()).collect();
    (!numbers.is_empty()).then(|| Claim { key, uid: owner.uid.as_str().into(), numbers })
}

/// Write that brings the slices closer to the desired state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    Update(Box<EndpointSlice>),
    Create(Box<EndpointSlice>),
    Delete(String),
}

/// Returns the writes that turn `existing`, all slices of the public Service, into `desired`. Updates come first, since
/// one of them moves the path; deletions come last. Slices left behind by other controllers are deleted too, because
/// they would keep leading to the pods.
pub(crate) fn writes(existing: &[Arc<EndpointSlice>], desired: Vec<EndpointSlice>) -> Vec<Write> {
    let (mut updates, mut creates) = (vec![], vec![]);
    let mut desired_names = BTreeSet::new();
    for want in desired {
        let name = want.metadata.name.clone().unwrap_or_default();
        match existing.iter().find(|slice| slice.metadata.name == want.metadata.name) {
            Some(have) => {
                let mut next = EndpointSlice::clone(have);
                next.metadata.labels.get_or_insert_default().extend(want.metadata.labels.unwrap_or_default());
                next.metadata.owner_references = want.metadata.owner_references;
                next.endpoints = want.endpoints;
                next.ports = want.ports;
                if next != **have {
                    updates.push(Write::Update(Box::new(next)));
                }
            }
            None => creates.push(Write::Create(Box::new(want))),
        }
        desired_names.insert(name);
    }
    let gone =
        existing.iter().filter_map(|slice| slice.metadata.name.clone()).filter(|name| !desired_names.contains(name));
    updates.into_iter().chain(creates).chain(gone.map(Write::Delete)).collect()
}

#[cfg(test)]
#[path = "slices_tests.rs"]
mod tests;
