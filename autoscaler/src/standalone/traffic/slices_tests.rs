//! Tests of the writes that turn existing slices into desired ones.

use super::*;
use serde_json::json;

fn slice(name: &str, manager: &str, number: u16) -> EndpointSlice {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {SLICE_MANAGED_BY: manager}},
        "addressType": "IPv4", "ports": [{"name": "web", "port": number}],
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
    }))
    .expect("a slice")
}

/// Goal: a switch is one update, a repeat writes nothing, and slices left behind by Kubernetes are deleted.
#[test]
fn writes_are_few_and_the_one_that_moves_the_path_comes_first() {
    let ours = |name: &str, number| slice(name, names::MANAGED_BY, number);
    let existing: Vec<_> =
        [ours("a", 8080), slice("left", "endpointslice-controller.k8s.io", 8080)].map(Arc::new).into();
    let lines = |desired: Vec<EndpointSlice>| -> Vec<String> {
        let name = |slice: &EndpointSlice| slice.metadata.name.clone().unwrap_or_default();
        let line = |write: Write| match write {
            Write::Update(slice) => format!("update {}", name(&slice)),
            Write::Create(slice) => format!("create {}", name(&slice)),
            Write::Delete(slice) => format!("delete {slice}"),
        };
        writes(&existing, desired).into_iter().map(line).collect()
    };
    assert_eq!(lines(vec![ours("b", 1), ours("a", 20_000)]), ["update a", "create b", "delete left"]);
    assert_eq!(lines(vec![ours("a", 8080)]), ["delete left"]);
}

#[test]
fn only_a_zeroscalers_own_slices_lead_to_activators() {
    let mut marked = slice("a", names::MANAGED_BY, 20_000);
    let owned = |kind: &str| {
        let owner = json!([{"apiVersion": "zeroscale.dev/v1alpha1", "kind": kind, "name": "a", "uid": "u", "controller": true}]);
        serde_json::from_value(owner).expect("an owner")
    };
    let labels = marked.metadata.labels.get_or_insert_default();
    labels.insert(names::LEADS_TO.to_owned(), names::LEADS_TO_ACTIVATORS.to_owned());
    assert!(!leads_to_activators(&marked), "no owner");
    marked.metadata.owner_references = Some(owned("Service"));
    assert!(!leads_to_activators(&marked), "owned by a Service");
    marked.metadata.owner_references = Some(owned("ZeroScaler"));
    assert!(leads_to_activators(&marked));
    let claim = claim_of(&marked).expect("a claim");
    assert_eq!((claim.key.as_str(), &*claim.uid, claim.numbers), ("ns/a", "u", [20_000].into()));
    marked.metadata.labels.get_or_insert_default().insert(names::LEADS_TO.to_owned(), names::LEADS_TO_PODS.to_owned());
    assert!(!leads_to_activators(&marked), "to pods");
}
