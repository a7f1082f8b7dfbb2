//! Proof that clients of a ZeroScaler are led to activators, required before its last pod goes. It needs new evidence
//! of the kind that admits addresses to its slices ([`autoscaler_core::ports::slices`]).
//!
//! The proof holds under three conditions:
//!
//! - Every slice of each of its Services, whatever wrote it, leads to activators or is empty. Ports that activators do
//!   not carry are exempt.
//! - Each port that activators carry leads to an activator.
//! - Each of these activators has confirmed within [`autoscaler_core::ports::PROOF_HOLDS`] that it listens on the
//!   number for this object.
//!
//! The time until all nodes follow the slices cannot be proven; the grace period covers it.

use crate::standalone::cluster::Cluster;
use crate::standalone::traffic::adopt::is_controlled_by;
use crate::standalone::traffic::{slice_plan, slices};
use common::RevisionKey as Key;
use common::names;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Services of an object, each with the names of the ports that activators carry.
pub(crate) type CarriedServices = Vec<(Key, BTreeSet<String>)>;

/// Returns the destinations of the slices of all Services of the object with this uid, or `None` if the slices do not
/// lead to activators alone.
pub(crate) fn leads_of(cluster: &Cluster, uid: &str, services: &CarriedServices) -> Option<Vec<(IpAddr, u16)>> {
    let each = services.iter().map(|(service, carried)| leads(&cluster.slices_of(service), uid, carried));
    Some(each.collect::<Option<Vec<_>>>()?.concat())
}

/// Returns the destinations of the slices of a Service, or `None` if the slices do not lead to activators alone.
fn leads(slices: &[Arc<EndpointSlice>], uid: &str, carried: &BTreeSet<String>) -> Option<Vec<(IpAddr, u16)>> {
    let leads_elsewhere = |slice: &Arc<EndpointSlice>| {
        let is_own = is_controlled_by(&slice.metadata, uid);
        let is_public = slice.metadata.labels.iter().flatten().any(|(name, _)| name == names::SIDE);
        let is_exempt = slices::leads_to_activators(slice) || slices::is_ours(slice) && !is_public;
        slices::ready(std::slice::from_ref(slice)) > 0 && !(is_own && is_exempt)
    };
    if slices.iter().any(leads_elsewhere) {
        return None;
    }
    let mut listed = slice_plan::listed(slices.iter().map(|slice| &**slice), uid);
    listed.values_mut().for_each(|listed| listed.retain(|at| at.ready));
    let is_covered = |port: &String| listed.get(port).is_some_and(|listed| !listed.is_empty());
    let is_covered = carried.iter().all(is_covered);
    let leads: Vec<_> = listed.into_values().flatten().map(|at| (at.address, at.number)).collect();
    (!leads.is_empty() && is_covered).then_some(leads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn slice(change: impl FnOnce(&mut Value)) -> Arc<EndpointSlice> {
        let mut value = json!({
            "metadata": {"name": "a", "namespace": "ns",
                "labels": {"endpointslice.kubernetes.io/managed-by": "zeroscale.dev", names::SIDE: "Public",
                    names::LEADS_TO: "activators"},
                "ownerReferences": [{"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "name": "a", "uid": "u",
                    "controller": true}]},
            "addressType": "IPv4", "ports": [{"name": "web", "port": 20000}],
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
        });
        change(&mut value);
        Arc::new(serde_json::from_value(value).expect("a slice"))
    }

    #[test]
    fn the_proof_requires_that_every_slice_leads_to_activators() {
        let carried = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let here: IpAddr = "10.0.0.1".parse().expect("an address");
        let pods = |slice: &mut Value| slice["metadata"]["labels"][names::LEADS_TO] = json!("pods");
        let of_kubernetes = |slice: &mut Value| slice["metadata"]["labels"] = json!({});
        let other = |slice: &mut Value| {
            pods(slice);
            slice["metadata"]["labels"].as_object_mut().expect("labels").remove(names::SIDE);
        };
        let empty = |slice: &mut Value| {
            of_kubernetes(slice);
            slice["endpoints"] = json!([]);
        };
        let foreign = |slice: &mut Value| slice["metadata"]["ownerReferences"][0]["uid"] = json!("another");
        type Row = (Vec<Arc<EndpointSlice>>, &'static [&'static str], bool);
        let rows: [Row; 8] = [
            (vec![slice(|_| {})], &["web"], true),
            (vec![slice(|_| {}), slice(other), slice(empty)], &["web"], true),
            (vec![slice(|_| {})], &["web", "db"], false),
            (vec![slice(|_| {}), slice(pods)], &["web"], false),
            (vec![slice(|_| {}), slice(of_kubernetes)], &["web"], false),
            (vec![slice(foreign)], &["web"], false),
            (vec![slice(empty)], &[], false),
            (vec![], &["web"], false),
        ];
        for (number, (slices, names, holds)) in rows.into_iter().enumerate() {
            let expected = holds.then(|| vec![(here, 20_000)]);
            assert_eq!(leads(&slices, "u", &carried(names)), expected, "row {number}");
        }
    }
}
