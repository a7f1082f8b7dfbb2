//! Tests of paths in standalone: creation, moves of the path, adoption, tampering.

use super::fixture::{Exchange, Fixture, expect, leads};
use super::handover::{KUBERNETES, slice};
use super::kpa_knative::status;
use super::kpa_standalone::{public_service, scaler, taken_service};
use super::scalers::{SERVICES, SLICES, addresses};
use crate::cluster::error::Error;
use crate::scale::{ForeignPods, PodAddress};
use crate::standalone::traffic::SUCCEEDED_WITHIN;
use autoscaler_core::path_mode::PathMode;
use common::RevisionKey as Key;
use common::backend::ProbeKind;
use serde_json::{Value, json};

pub(super) const SLICE: &str = "hello-zeroscale-ipv4-0";

const OURS: [(&str, u16); 2] = [("http", 80), ("http-backend", 8080)];

/// Creates a fixture with an activator that listens for a Service of ours.
async fn fixture(spec: Value, mode: PathMode) -> Fixture {
    fixture_of(spec, mode, &OURS).await
}

/// Creates the same for a Service with these ports.
async fn fixture_of(spec: Value, mode: PathMode, ports: &[(&str, u16)]) -> Fixture {
    let mut f = Fixture::standalone();
    f.put_autoscaler(scaler(spec, status("False", "NoTraffic", 3600, 0, 0)));
    f.request_path(mode, "hello");
    f.put_target(0);
    f.numbered(ports, &["10.9.0.1"]).await;
    f
}

/// Sets the ready pods in the slice of the private Service.
pub(super) fn put_pods(f: &Fixture, pods: &[&str]) {
    let endpoints: Vec<_> =
        pods.iter().map(|address| json!({"addresses": [address], "conditions": {"ready": true}})).collect();
    f.put_slice(json!({
        "metadata": {"name": "p", "namespace": "ns", "labels": {"kubernetes.io/service-name": "hello-private"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}, {"name": "http-backend", "port": 8080}],
        "endpoints": endpoints,
    }));
}

pub(super) async fn pass(f: &mut Fixture, script: Vec<Exchange>) -> Result<(), Error> {
    f.play(script, async |cx, key| cx.standalone().paths.reconcile(key).await).await
}

/// Creates both Services and the slice of the public one, which the watch then reports.
async fn create(f: &mut Fixture) {
    let created = [SERVICES, SERVICES, SLICES].map(|collection| expect(&format!("POST {collection}")));
    pass(f, created.into_iter().collect()).await.expect("the first pass");
    report_slice(f, "100");
}

/// Reports the written slice by the watch, as this version.
pub(super) fn report_slice(f: &Fixture, version: &str) {
    let (slices, key) = (&f.cx.cluster().slices, Key::new("ns", SLICE));
    let written = slices.get(&key).expect("offered");
    slices.apply(&key, version, Some((*written).clone()));
}

fn deleted() -> Value {
    json!({"kind": "Status", "status": "Success"})
}

fn endpoints(body: &Value) -> (Value, Value) {
    (body["endpoints"][0]["addresses"][0].clone(), body["ports"][0]["port"].clone())
}

#[tokio::test]
async fn a_new_sleeping_workload_leads_to_the_activators() {
    let mut f = fixture(json!({}), PathMode::Proxy).await;
    let script = vec![
        expect(&format!("POST {SERVICES}")).with(|body| {
            assert_eq!(body["metadata"]["name"], "hello-private");
            assert_eq!(body["spec"]["selector"], json!({"app": "hello"}));
            let labels = &body["metadata"]["labels"];
            assert_eq!(*labels, json!({"zeroscale.dev/side": "Private", "zeroscale.dev/workload": "hello"}));
            assert!(body["metadata"]["annotations"].is_null(), "a tenant may edit annotations, so none is used");
        }),
        expect(&format!("POST {SERVICES}")).with(|body| {
            assert_eq!(body["metadata"]["name"], "hello");
            assert!(body["spec"]["selector"].is_null());
            assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "zs");
        }),
        expect(&format!("POST {SLICES}")).with(|body| {
            assert_eq!(body["metadata"]["name"], SLICE);
            assert_eq!(endpoints(body), (json!("10.9.0.1"), json!(20_000)));
            let second = &body["ports"][1];
            assert_eq!((&second["name"], &second["port"]), (&json!("http-backend"), &json!(20_001)));
            let labels = &body["metadata"]["labels"];
            assert_eq!(labels["zeroscale.dev/side"], "Public");
            assert_eq!(labels["zeroscale.dev/leads-to"], "activators");
            assert_eq!(labels["endpointslice.kubernetes.io/managed-by"], "zeroscale.dev");
        }),
        leads().with(|path| assert_eq!((&path["service"], &path["inPath"]), (&json!("hello"), &json!(true)))),
    ];
    pass(&mut f, script).await.expect("a pass");
    let backend = f.backend();
    assert_eq!((&*backend.service, backend.probe), ("hello", ProbeKind::Tcp.into()));
}

/// Goal: once the labels match a foreign pod, the private Service loses its selector and our slices lead to the
/// target's own pods only; slices that Kubernetes wrote are deleted. The selector returns when no foreign pod is left
/// and the target sleeps.
#[tokio::test]
async fn our_slices_lead_to_the_targets_own_pods_if_labels_match_foreign_pods() {
    let mut f = fixture(json!({}), PathMode::Proxy).await;
    create(&mut f).await;
    put_pods(&f, &["10.0.0.1"]);
    let foreign = ForeignPods { pods: vec!["q".into()], controllers: vec!["Job q".into()] };
    let pod = "hello-6c4d4cdbcf-vd82f".to_owned();
    let own = PodAddress { pod, address: "10.0.0.5".parse().expect("one"), ready: true, deleting: false };
    (*f.fakes.foreign_pods.lock(), *f.fakes.addresses.lock()) = (foreign, vec![own]);
    let private = format!("PUT {SERVICES}/hello-private");
    let script = vec![
        expect(&private).with(|body| assert!(body["spec"]["selector"].is_null())),
        expect(&format!("POST {SLICES}")).with(|body| {
            assert_eq!(body["metadata"]["name"], "hello-private-zeroscale-ipv4-0");
            assert_eq!(body["metadata"]["labels"]["zeroscale.dev/side"], "Private", "activators find it");
            assert_eq!(endpoints(body), (json!("10.0.0.5"), json!(8080)));
        }),
        expect("DELETE /api/v1/namespaces/ns/endpoints/hello-private").answered(200, deleted()),
        expect(&format!("DELETE {SLICES}/p")).answered(200, deleted()),
    ];
    pass(&mut f, script).await.expect("a foreign pod exists");
    f.cx.cluster().slices.apply(&Key::new("ns", "p"), "", None); // As reported by the watch.
    *f.fakes.foreign_pods.lock() = ForeignPods::default();
    pass(&mut f, vec![]).await.expect("nothing changes while pods run");
    f.fakes.addresses.lock().clear();
    let script = vec![
        expect(&private).with(|body| assert_eq!(body["spec"]["selector"], json!({"app": "hello"}))),
        expect(&format!("DELETE {SLICES}/hello-private-zeroscale-ipv4-0")).answered(200, deleted()),
    ];
    pass(&mut f, script).await.expect("asleep");
}

#[tokio::test]
async fn an_adoptable_service_is_borrowed_and_slices_of_kubernetes_are_deleted() {
    let mut f = fixture_of(json!({}), PathMode::Proxy, &[("", 80)]).await;
    f.put_service(json!({
        "metadata": {"name": "hello", "namespace": "ns", "uid": "s", "resourceVersion": "40"},
        "spec": {"selector": {"app": "hello"}, "clusterIP": "10.96.0.7", "ports": [{"port": 80, "targetPort": 8080}]},
    }));
    f.put_slice(slice("hello-x7k2p", "hello", KUBERNETES, 0));
    let script = vec![
        expect(&format!("POST {SERVICES}")),
        expect(&format!("PUT {SERVICES}/hello")).with(|body| {
            assert!(body["spec"]["selector"].is_null());
            assert_eq!(body["spec"]["clusterIP"], "10.96.0.7");
            let annotations = &body["metadata"]["annotations"];
            assert_eq!(annotations["zeroscale.dev/adopted-selector"], "{\"app\":\"hello\"}");
            assert_eq!(annotations["zeroscale.dev/adopted-by"], "zs");
            assert!(body["metadata"]["ownerReferences"].is_null(), "a ZeroScaler must not own a borrowed Service");
        }),
        expect(&format!("POST {SLICES}")).with(|body| {
            assert_eq!(body["ports"][0]["name"], "", "the ports keep the names that the Service gave them");
            assert_eq!(endpoints(body), (json!("10.9.0.1"), json!(20_000)));
        }),
        expect("DELETE /api/v1/namespaces/ns/endpoints/hello").answered(200, deleted()),
        expect(&format!("DELETE {SLICES}/hello-x7k2p")).answered(200, deleted()),
        leads().with(|path| assert_eq!(path["service"], "hello")),
    ];
    pass(&mut f, script).await.expect("a pass");
}

/// Goal: a foreign Service is not changed, and no replicas are changed because of it. After a ZeroScaler was deleted
/// and re-created, the former one's Service is left to the garbage collector.
#[tokio::test]
async fn a_foreign_service_is_never_changed() {
    for service in [taken_service(), public_service("former")] {
        let mut f = fixture(json!({}), PathMode::Proxy).await;
        f.put_service(service.clone());
        let pending = leads().with(|path| assert_eq!(path["service"], ""));
        let outcome = pass(&mut f, vec![expect(&format!("POST {SERVICES}")), pending]).await;
        assert!(outcome.is_ok(), "{service}: {outcome:?}");
    }
}

/// Goal: without activators the slice leads to the pods, unless they are about to go: while the write that removes the
/// last pod is in progress or done, there is no slice.
#[tokio::test]
async fn clients_are_not_led_back_to_pods_that_are_about_to_go() {
    let mut f = fixture(json!({}), PathMode::Proxy).await;
    f.put_target_at(1, 61);
    put_pods(&f, &["10.0.0.1"]);
    create(&mut f).await;
    f.cx.cluster().slices.apply(&Key::new("system", "activators"), "101", None);

    f.cx.scaler.leaving.begin(&f.key, std::time::Duration::from_secs(60));
    let deletion = expect(&format!("DELETE {SLICES}/{SLICE}")).answered(200, deleted());
    pass(&mut f, vec![deletion]).await.expect("a write is in progress");
    f.cx.cluster().slices.apply(&Key::new("ns", SLICE), "102", None);
    f.put_target_at(0, 62);
    f.cx.scaler.leaving.end(&f.key, true);
    pass(&mut f, vec![]).await.expect("the write is done");
    f.put_target_at(1, 63);
    let led =
        expect(&format!("POST {SLICES}")).with(|body| assert_eq!(endpoints(body), (json!("10.0.0.1"), json!(8080))));
    pass(&mut f, vec![led]).await.expect("the pod stays");
}

/// Goal: one write replaces an activator that terminates in order by its successor, if the successor reports soon. The
/// removal of a dead activator does not wait, because its clients are refused.
#[tokio::test(start_paused = true)]
async fn a_terminating_activator_waits_for_its_successor() {
    let [goes, stays, comes] = ["10.9.0.1", "10.9.0.2", "10.9.0.3"];
    let (in_order, dead) = (json!({"ready": false, "serving": true, "terminating": true}), json!({"ready": false}));
    let rows = [(&in_order, true, vec![stays, comes]), (&in_order, false, vec![stays]), (&dead, false, vec![stays])];
    for (end, answers, led) in rows {
        let mut f = fixture(json!({}), PathMode::Proxy).await;
        f.served_by(OURS.len(), &[goes, stays]);
        create(&mut f).await;
        let ready = json!({"ready": true});
        f.activators_with(&[(goes, end), (stays, &ready), (comes, &ready)]);
        if end == &in_order {
            pass(&mut f, vec![]).await.expect("the successor is queried");
        }
        if answers {
            f.report_listening(comes, &[(20_000, "zs"), (20_001, "zs")]);
        } else if end == &in_order {
            tokio::time::advance(SUCCEEDED_WITHIN).await;
        }
        let put = expect(&format!("PUT {SLICES}/{SLICE}")).with(move |body| {
            assert_eq!(addresses(body), led);
        });
        pass(&mut f, vec![put]).await.expect("one write");
    }
}

/// Goal: if the public Service is renamed, the new one is created, and the former one and its slices are deleted, even
/// if the Service is already gone. Slices of a ZeroScaler that has taken over the Service stay.
#[tokio::test]
async fn a_renamed_public_service_leaves_nothing_behind() {
    for is_there in [true, false] {
        let mut f = fixture(json!({"services": [{"name": "web", "create": true}]}), PathMode::Proxy).await;
        f.put_path(PathMode::Proxy, "hello", Some(3600));
        if is_there {
            f.put_service(public_service("zs"));
        }
        for (name, owner) in [(SLICE, "zs"), ("hello-zeroscale-ipv4-1", "another")] {
            let owner = json!({"apiVersion": "v1", "kind": "K", "name": owner, "uid": owner, "controller": true});
            f.put_slice(json!({
                "metadata": {"name": name, "namespace": "ns", "ownerReferences": [owner], "labels": {
                    "kubernetes.io/service-name": "hello", "endpointslice.kubernetes.io/managed-by": "zeroscale.dev",
                }},
                "addressType": "IPv4",
            }));
        }
        let mut script = vec![
            expect(&format!("POST {SERVICES}")),
            expect(&format!("POST {SERVICES}")).with(|body| assert_eq!(body["metadata"]["name"], "web")),
        ];
        if is_there {
            script.push(expect(&format!("DELETE {SERVICES}/hello")).answered(200, deleted()));
        }
        script.extend([
            expect(&format!("DELETE {SLICES}/{SLICE}")).answered(200, deleted()),
            expect(&format!("POST {SLICES}")).with(|body| assert_eq!(body["metadata"]["name"], "web-zeroscale-ipv4-0")),
            leads().with(|path| assert_eq!(path["service"], "web")),
        ]);
        pass(&mut f, script).await.expect("a pass");
    }
}
