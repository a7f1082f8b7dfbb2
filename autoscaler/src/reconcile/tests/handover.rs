//! Tests of Services that are given back: clients always have a destination, and no Service is forgotten.

use super::fixture::{ApiRequest, Fixture, ago};
use super::scalers::{SERVICES, adopted_workload, asleep, edited, is_freed, is_sent, lines, service, settled};
use crate::standalone::release::handover::RECONNECT_TIME;
use serde_json::{Value, json};

const DELETE_SLICE: &str = "DELETE /apis/discovery.k8s.io/v1/namespaces/ns/endpointslices/hello-zeroscale-ipv4-0";

/// Returns a slice of a Service that leads to this many ready pods.
pub(super) fn slice(name: &str, service: &str, manager: &str, pods: usize) -> Value {
    let endpoints: Vec<_> =
        (0..pods).map(|n| json!({"addresses": [format!("10.0.1.{n}")], "conditions": {"ready": true}})).collect();
    json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {
            "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": manager,
        }},
        "addressType": "IPv4", "ports": [{"name": "web", "port": 8080}], "endpoints": endpoints,
    })
}

pub(super) const KUBERNETES: &str = "endpointslice-controller.k8s.io";

/// Returns a deleted workload that serves two pods, once these are ready.
fn deleted_workload() -> Fixture {
    let mut object = asleep(json!({}));
    object["metadata"]["deletionTimestamp"] = json!(ago(1));
    let f = adopted_workload(object, 2);
    f.put_slice(slice("private", "hello-private", KUBERNETES, 2));
    f
}

fn gave_back(requests: &[ApiRequest]) -> bool {
    let put = format!("PUT {SERVICES}/hello");
    requests.iter().any(|(_, line, body)| *line == put && body["spec"]["selector"]["app"] == "hello")
}

#[tokio::test(start_paused = true)]
async fn our_slices_stay_until_those_of_kubernetes_lead_to_as_many_pods() {
    let mut f = deleted_workload();
    let requests = f.settle().await;
    assert!(gave_back(&requests) && !is_freed(&requests), "{:?}", lines(&requests));
    f.queued();
    f.put_slice(slice("hello-abc", "hello", KUBERNETES, 1));
    assert!(f.queued().contains(&f.key), "a slice of Kubernetes queues the object");
    let requests = f.settle().await;
    assert!(!is_freed(&requests), "one of two pods");
    assert!(!lines(&requests).iter().any(|line| line.starts_with("DELETE")), "{:?}", lines(&requests));
    f.put_slice(slice("hello-abd", "hello", KUBERNETES, 1));
    assert!(is_freed(&f.settle().await));
}

/// Goal: once Kubernetes' own slices lead to the pods, the object stays for the time that clients of activators need
/// to reconnect, and is requeued for its end. If the Service is gone, the object goes at once.
#[tokio::test(start_paused = true)]
async fn a_deleted_object_stays_while_clients_of_activators_reconnect() {
    let mut f = deleted_workload();
    f.activators(&[("10.0.9.1", true)]);
    assert!(!is_freed(&f.settle().await));
    f.put_slice(slice("hello-abc", "hello", KUBERNETES, 2));
    assert!(!is_freed(&f.settle().await));
    tokio::time::advance(RECONNECT_TIME / 2).await;
    assert!(!is_freed(&f.settle().await));
    f.queued();
    tokio::time::advance(RECONNECT_TIME).await;
    assert!(f.queued().contains(&f.key), "queued again");
    assert!(is_freed(&f.settle().await));

    let mut f = deleted_workload();
    f.activators(&[("10.0.9.1", true)]);
    assert!(!is_freed(&f.settle().await));
    f.remove_service();
    assert!(is_freed(&f.settle().await), "no client uses the Service any more");
}

#[tokio::test(start_paused = true)]
async fn our_slices_of_a_former_service_stay_until_kubernetes_has_its_own() {
    let mut f = adopted_workload(asleep(json!({})), 1);
    f.put_slice(slice("private", "hello-private", KUBERNETES, 1));
    f.put_slice(slice("hello-zeroscale-ipv4-0", "hello", common::names::MANAGED_BY, 1));
    settled(&mut f).await;
    let mut other = service();
    other["metadata"]["name"] = json!("other");
    f.put_service(other);
    f.put_scaler(edited(json!({"services": [{"name": "other"}]})));
    let requests = settled(&mut f).await;
    assert!(gave_back(&requests) && !is_sent(&requests, DELETE_SLICE), "{:?}", lines(&requests));
    assert!(is_sent(&requests, &format!("PUT {SERVICES}/other")), "the new Service does not wait");
    f.put_slice(slice("hello-abc", "hello", KUBERNETES, 1));
    let requests = settled(&mut f).await;
    assert!(is_sent(&requests, DELETE_SLICE), "{:?}", lines(&requests));
}

/// Goal: a borrowed Service is given back even if the newest version names an unusable Service and the former version
/// is not known, whether or not the object is being deleted.
#[tokio::test(start_paused = true)]
async fn a_borrowed_service_is_given_back_although_the_spec_names_an_unusable_one() {
    let mut headless = service();
    (headless["metadata"]["name"], headless["spec"]["clusterIP"]) = (json!("bare"), json!("None"));
    for (name, is_deleted) in [("bare", false), ("bare", true), ("nobodys", true)] {
        let mut object = asleep(json!({"services": [{"name": name}]}));
        if is_deleted {
            object["metadata"]["deletionTimestamp"] = json!(ago(1));
        }
        let mut f = adopted_workload(object, 2);
        f.put_service(headless.clone());
        let mut requests = settled(&mut f).await;
        requests.extend(settled(&mut f).await);
        assert!(gave_back(&requests), "{name}, {is_deleted}: {:?}", lines(&requests));
        assert!(is_freed(&requests), "{name}, {is_deleted}: {:?}", lines(&requests));
    }
}
