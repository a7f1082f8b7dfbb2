//! Contents of slices, and minimal changes of them.

use super::*;
use crate::controllers::fixture::{created, next_version, now, patched, pod, ready, running, with_ip};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

fn service(extra: serde_json::Value) -> Service {
    let mut spec = json!({
        "selector": {"app": "a"},
        "ports": [{"name": "http", "port": 80, "targetPort": "web"}],
        "clusterIP": "127.1.128.1",
    });
    json_patch::merge(&mut spec, &extra);
    serde_json::from_value(json!({
        "metadata": {
            "name": "a", "namespace": "ns", "uid": "s", "labels": {"team": "x"}, "resourceVersion": next_version(),
        },
        "spec": spec,
    }))
    .expect("a valid Service")
}

fn key() -> ObjectKey {
    ObjectKey::new("ns", "a")
}

fn index(service: Service, pods: impl IntoIterator<Item = Pod>) -> Index {
    let mut index = Index::default();
    index.services.apply_response(service);
    for pod in pods {
        index.pods.apply_response(pod);
    }
    index
}

/// Applies the planned writes, as a server would. Returns their number.
fn settle(index: &mut Index) -> usize {
    let writes = plan(index, &key());
    let count = writes.len();
    for write in writes {
        match write {
            Write::Slice(Request::Create(slice)) => created(&mut index.slices, *slice),
            Write::Slice(Request::Patch { key, patch, .. }) => patched(&mut index.slices, &key, &patch),
            Write::Slice(Request::Delete { key, uid }) => drop(index.slices.apply_deletion(&key, &uid)),
            other => panic!("not a write of a slice: {other:?}"),
        }
    }
    count
}

fn only_slice(index: &Index) -> &EndpointSlice {
    let mut all = index.slices.all();
    let slice = all.next().expect("a slice");
    assert!(all.next().is_none(), "only one slice");
    slice
}

#[test]
fn a_slice_has_each_pod_with_its_conditions() {
    let mut ending = with_ip(ready(pod("ending"), 0), "127.1.0.3");
    ending.metadata.deletion_timestamp = Some(Time(now()));
    let mut finished = with_ip(pod("finished"), "127.1.0.4");
    finished.status.get_or_insert_default().phase = Some("Succeeded".into());
    let pods = [
        with_ip(ready(pod("ready"), 0), "127.1.0.1"),
        with_ip(running(pod("starting")), "127.1.0.2"),
        ending,
        finished,
        running(pod("without-address")),
    ];
    let mut index = index(service(json!({})), pods);
    settle(&mut index);
    let slice = only_slice(&index);
    let labels = slice.labels();
    assert_eq!(labels.get("team").map(String::as_str), Some("x"), "the Service's labels are copied");
    assert_eq!(labels.get(MANAGED_BY).map(String::as_str), Some(CONTROLLER));
    assert_eq!(labels.get(SERVICE_NAME).map(String::as_str), Some("a"));
    assert_eq!(slice.owner_references()[0].kind, "Service");
    assert_eq!(slice.ports.as_ref().map(|p| p[0].port), Some(Some(8080)), "the name is resolved in the pod");
    let row = |e: &Endpoint| {
        let c = e.conditions.clone().expect("conditions");
        (e.addresses[0].clone(), c.ready == Some(true), c.serving == Some(true), c.terminating == Some(true))
    };
    let mut conditions: Vec<_> = slice.endpoints.iter().flatten().map(row).collect();
    conditions.sort();
    let expected =
        [("127.1.0.1", true, true, false), ("127.1.0.2", false, false, false), ("127.1.0.3", false, true, true)];
    assert_eq!(conditions, expected.map(|(ip, r, s, t)| (ip.to_owned(), r, s, t)));
    assert_eq!(settle(&mut index), 0, "nothing more to do");
}

#[test]
fn publish_not_ready_addresses_makes_every_address_ready() {
    let pods = [with_ip(running(pod("starting")), "127.1.0.2")];
    let mut index = index(service(json!({"publishNotReadyAddresses": true})), pods);
    settle(&mut index);
    let conditions =
        only_slice(&index).endpoints.as_ref().expect("endpoints")[0].conditions.clone().expect("conditions");
    assert_eq!((conditions.ready, conditions.serving), (Some(true), Some(false)));
}

/// Goal: scaling from zero pods to one and back takes one write each, to the same slice.
#[test]
fn the_empty_slice_is_reused() {
    let mut index = index(service(json!({})), []);
    assert_eq!(settle(&mut index), 1);
    let name = only_slice(&index).name_any();
    index.pods.apply_response(with_ip(running(pod("p")), "127.1.0.1"));
    assert_eq!(settle(&mut index), 1);
    assert_eq!(only_slice(&index).name_any(), name);
    index.pods.apply_deletion(&ObjectKey::new("ns", "p"), "p");
    assert_eq!(settle(&mut index), 1);
    let slice = only_slice(&index);
    assert_eq!(slice.name_any(), name);
    assert!(slice.endpoints.as_ref().is_none_or(Vec::is_empty));
}

#[test]
fn a_changed_target_port_changes_the_slice() {
    let mut index = index(service(json!({})), [with_ip(ready(pod("p"), 0), "127.1.0.1")]);
    settle(&mut index);
    index.services.apply_response(service(json!({"ports": [{"name": "http", "port": 80, "targetPort": 9000}]})));
    assert!(settle(&mut index) > 0);
    assert_eq!(only_slice(&index).ports.as_ref().expect("ports")[0].port, Some(9000));
}

/// Goal: pods that have a named port at different numbers are in separate slices, and one more pod changes only one
/// slice.
#[test]
fn each_number_of_a_named_port_has_its_own_slice() {
    let at = |name: &str, ip: &str, port: i32| {
        let mut pod = with_ip(ready(pod(name), 0), ip);
        let containers = &mut pod.spec.as_mut().expect("a spec").containers;
        containers[0].ports.as_mut().expect("ports")[0].container_port = port;
        pod
    };
    let mut index = index(service(json!({})), [at("a", "127.1.0.1", 81), at("b", "127.1.0.2", 82)]);
    settle(&mut index);
    assert_eq!(index.slices.all().count(), 2);
    index.pods.apply_response(at("c", "127.1.0.3", 82));
    assert_eq!(settle(&mut index), 1, "only the slice of its port changes");
    index.pods.apply_deletion(&ObjectKey::new("ns", "a"), "a");
    assert_eq!(settle(&mut index), 1);
    assert_eq!(only_slice(&index).endpoints.as_ref().map(Vec::len), Some(2));
}

/// Goal: the slices of a Service stay unchanged once its selector is gone.
#[test]
fn a_service_that_loses_its_selector_keeps_its_slices() {
    let mut index = index(service(json!({})), [with_ip(ready(pod("p"), 0), "127.1.0.1")]);
    settle(&mut index);
    index.services.apply_response(service(json!({"selector": null})));
    index.pods.apply_deletion(&ObjectKey::new("ns", "p"), "p");
    assert!(plan(&index, &key()).is_empty());
}
