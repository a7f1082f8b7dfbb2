//! Tests of paths in standalone: creation, moves of the path, adoption, tampering.

use super::fixture::{Exchange, Fixture, expect, leads};
use super::kpa_knative::status;
use super::kpa_standalone::{public_service, scaler, taken_service};
use crate::cluster::error::Error;
use crate::scale::{ForeignPods, PodAddress};
use crate::standalone::traffic::SUCCEEDED_WITHIN;
use autoscaler_core::path_mode::PathMode;
use common::backend::ProbeKind;
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/ns/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices";
const SLICE: &str = "hello-zeroscale-ipv4-0";

/// Ports of a Service of ours.
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

fn pods(f: &Fixture, ready: bool) {
    f.put_slice(json!({
        "metadata": {"name": "p", "namespace": "ns", "labels": {"kubernetes.io/service-name": "hello-private"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}, {"name": "http-backend", "port": 8080}],
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}],
    }));
}

async fn pass(f: &mut Fixture, script: Vec<Exchange>) -> Result<(), Error> {
    f.play(script, async |cx, key| cx.serverless().reconcile(key).await).await
}

fn endpoints(body: &Value) -> (Value, Value) {
    (body["endpoints"][0]["addresses"][0].clone(), body["ports"][0]["port"].clone())
}

#[tokio::test]
async fn born_asleep_it_leads_to_the_activators() {
    let mut f = fixture(json!({}), PathMode::Proxy).await;
    let script = vec![
        expect(&format!("POST {SERVICES}")).with(|body| {
            assert_eq!(body["metadata"]["name"], "hello-private");
            assert_eq!(body["spec"]["selector"], json!({"app": "hello"}));
            let labels = &body["metadata"]["labels"];
            assert_eq!(*labels, json!({"zeroscale.dev/side": "Private", "zeroscale.dev/workload": "hello"}));
            assert!(body["metadata"]["annotations"].is_null(), "nothing is said where a tenant may write");
        }),
        expect(&format!("POST {SERVICES}")).with(|body| {
            assert_eq!(body["metadata"]["name"], "hello");
            assert!(body["spec"]["selector"].is_null());
            assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "zs");
        }),
        expect(&format!("POST {SLICES}")).with(|body| {
            assert_eq!(body["metadata"]["name"], SLICE);
            assert_eq!(endpoints(body), (json!("10.9.0.1"), json!(20_000)));
            assert_eq!(
                (&body["ports"][1]["name"], &body["ports"][1]["port"]),
                (&json!("http-backend"), &json!(20_001))
            );
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

/// Goal: one update moves the path, and a reconcile of a consistent state writes nothing.
#[tokio::test]
async fn a_switch_of_the_path_is_one_update() {
    let mut f = fixture(json!({}), PathMode::Proxy).await;
    pods(&f, true);
    let everything = || {
        vec![
            expect(&format!("POST {SERVICES}")),
            expect(&format!("POST {SERVICES}")),
            expect(&format!("POST {SLICES}")),
        ]
    };
    pass(&mut f, everything()).await.expect("birth");
    // As reported by the watch.
    let slices = &f.cx.cluster().slices;
    let key = common::RevisionKey::new("ns", SLICE);
    let slice = slices.get(&key).expect("offered");
    slices.apply(&key, "100", Some((*slice).clone()));
    pass(&mut f, vec![]).await.expect("nothing to do");

    f.request_path(PathMode::Serve, "hello");
    let moved = expect(&format!("PUT {SLICES}/{SLICE}"))
        .with(|body| assert_eq!(endpoints(body), (json!("10.0.0.1"), json!(8080))));
    let told = leads().with(|path| assert_eq!(path["inPath"], false));
    pass(&mut f, vec![moved, told]).await.expect("to the pods");
}

/// Goal: once the labels match a foreign pod, the private Service loses its selector and our slices lead to the
/// target's own pods only; slices that Kubernetes wrote are deleted. The selector returns when no foreign pod is left
/// and the target sleeps.
#[tokio::test]
async fn where_labels_find_the_pods_of_others_our_slices_lead_to_the_targets_own() {
    let mut f = fixture(json!({}), PathMode::Proxy).await;
    let birth = || vec![expect(&format!("POST {SERVICES}")), expect(&format!("POST {SERVICES}"))];
    pass(&mut f, birth().into_iter().chain([expect(&format!("POST {SLICES}"))]).collect()).await.expect("birth");
    pods(&f, true);
    let stranger = ForeignPods { pods: vec!["q".into()], controllers: vec!["Job q".into()] };
    let pod = "hello-6c4d4cdbcf-vd82f".to_owned();
    let own = PodAddress { pod, address: "10.0.0.5".parse().expect("one"), ready: true, deleting: false };
    (*f.fakes.strangers.lock(), *f.fakes.addresses.lock()) = (stranger, vec![own]);
    let gone = || json!({"kind": "Status", "status": "Success"});
    let private = format!("PUT {SERVICES}/hello-private");
    let script = vec![
        expect(&private).with(|body| assert!(body["spec"]["selector"].is_null())),
        expect(&format!("POST {SLICES}")).with(|body| {
            assert_eq!(body["metadata"]["name"], "hello-private-zeroscale-ipv4-0");
            assert_eq!(body["metadata"]["labels"]["zeroscale.dev/side"], "Private", "activators find it");
            assert_eq!(endpoints(body), (json!("10.0.0.5"), json!(8080)));
        }),
        expect("DELETE /api/v1/namespaces/ns/endpoints/hello-private").answered(200, gone()),
        expect(&format!("DELETE {SLICES}/p")).answered(200, gone()),
    ];
    pass(&mut f, script).await.expect("a stranger has come");
    let slice = |name: &str| common::RevisionKey::new("ns", name);
    f.cx.cluster().slices.apply(&slice("p"), "", None); // As reported by the watch.
    *f.fakes.strangers.lock() = ForeignPods::default();
    pass(&mut f, vec![]).await.expect("awake, it stays as it is");
    f.fakes.addresses.lock().clear();
    let script = vec![
        expect(&private).with(|body| assert_eq!(body["spec"]["selector"], json!({"app": "hello"}))),
        expect(&format!("DELETE {SLICES}/hello-private-zeroscale-ipv4-0")).answered(200, gone()),
    ];
    pass(&mut f, script).await.expect("asleep");
}

#[tokio::test]
async fn an_allowed_service_is_borrowed_and_what_was_left_behind_goes() {
    let mut f = fixture_of(json!({}), PathMode::Proxy, &[("", 80)]).await;
    f.put_service(json!({
        "metadata": {"name": "hello", "namespace": "ns", "uid": "s", "resourceVersion": "40"},
        "spec": {"selector": {"app": "hello"}, "clusterIP": "10.96.0.7", "ports": [{"port": 80, "targetPort": 8080}]},
    }));
    f.put_slice(json!({
        "metadata": {"name": "hello-x7k2p", "namespace": "ns", "labels": {
            "kubernetes.io/service-name": "hello",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }},
        "addressType": "IPv4", "ports": [{"name": "", "port": 8080}], "endpoints": [],
    }));
    let gone = || json!({"kind": "Status", "status": "Success"});
    let script = vec![
        expect(&format!("POST {SERVICES}")),
        expect(&format!("PUT {SERVICES}/hello")).with(|body| {
            assert!(body["spec"]["selector"].is_null());
            assert_eq!(body["spec"]["clusterIP"], "10.96.0.7");
            let annotations = &body["metadata"]["annotations"];
            assert_eq!(annotations["zeroscale.dev/adopted-selector"], "{\"app\":\"hello\"}");
            assert_eq!(annotations["zeroscale.dev/adopted-by"], "zs");
            assert!(body["metadata"]["ownerReferences"].is_null(), "what is borrowed must not go with us");
        }),
        expect(&format!("POST {SLICES}")).with(|body| {
            assert_eq!(body["ports"][0]["name"], "", "the ports keep the names that the Service gave them");
            assert_eq!(endpoints(body), (json!("10.9.0.1"), json!(20_000)));
        }),
        expect("DELETE /api/v1/namespaces/ns/endpoints/hello").answered(200, gone()),
        expect(&format!("DELETE {SLICES}/hello-x7k2p")).answered(200, gone()),
        leads().with(|path| assert_eq!(path["service"], "hello")),
    ];
    pass(&mut f, script).await.expect("a pass");
}

#[tokio::test]
async fn a_foreign_service_is_never_touched() {
    let mut f = fixture(json!({}), PathMode::Proxy).await;
    f.put_service(taken_service());
    let script = vec![
        expect(&format!("POST {SERVICES}")),
        leads().with(|path| assert_eq!(path["service"], "", "so that nobody changes replicas by it")),
    ];
    pass(&mut f, script).await.expect("a pass");
}

/// Goal: after a ZeroScaler was deleted and re-created, the former one's Service is left to the garbage collector.
#[tokio::test]
async fn the_service_of_a_former_self_is_left_to_the_garbage_collector() {
    let mut f = fixture(json!({}), PathMode::Proxy).await;
    f.put_service(public_service("former"));
    let pending = leads().with(|path| assert_eq!(path["service"], ""));
    pass(&mut f, vec![expect(&format!("POST {SERVICES}")), pending]).await.expect("a pass");
}

/// Goal: without activators the traffic goes to the pods, unless they are about to end: while the write that removes
/// the last one is in progress or done, the traffic goes nowhere.
#[tokio::test]
async fn nobody_is_led_back_to_pods_that_are_about_to_go() {
    let mut f = fixture(json!({}), PathMode::Proxy).await;
    f.put_target_at(1, 61);
    pods(&f, true);
    let born = [SERVICES, SERVICES, SLICES].map(|collection| expect(&format!("POST {collection}")));
    pass(&mut f, born.into_iter().collect()).await.expect("birth");
    let slice = common::RevisionKey::new("ns", SLICE);
    let written = f.cx.cluster().slices.get(&slice).expect("offered");
    f.cx.cluster().slices.apply(&slice, "100", Some((*written).clone()));
    f.cx.cluster().slices.apply(&common::RevisionKey::new("system", "activators"), "101", None);

    f.cx.scaler.leaving.begin(&f.key, std::time::Duration::from_secs(60));
    let to_nobody = expect(&format!("DELETE {SLICES}/{SLICE}")).answered(200, json!({"kind": "Status"}));
    pass(&mut f, vec![to_nobody]).await.expect("a write is under way");
    f.cx.cluster().slices.apply(&slice, "102", None);
    f.put_target_at(0, 62);
    f.cx.scaler.leaving.end(&f.key, true);
    pass(&mut f, vec![]).await.expect("it was carried out");
    f.put_target_at(1, 63);
    let led =
        expect(&format!("POST {SLICES}")).with(|body| assert_eq!(endpoints(body), (json!("10.0.0.1"), json!(8080))));
    pass(&mut f, vec![led]).await.expect("there is a pod that stays");
}

/// Goal: an activator that shuts down in order and its successor are replaced in one write, if the successor reports
/// soon. If clients would be refused, nothing waits.
#[tokio::test(start_paused = true)]
async fn an_activator_that_goes_waits_for_its_successor() {
    let [goes, stays, comes] = ["10.9.0.1", "10.9.0.2", "10.9.0.3"];
    let (in_order, dead) = (json!({"ready": false, "serving": true, "terminating": true}), json!({"ready": false}));
    let rows = [(&in_order, true, vec![stays, comes]), (&in_order, false, vec![stays]), (&dead, false, vec![stays])];
    for (end, answers, led) in rows {
        let mut f = fixture(json!({}), PathMode::Proxy).await;
        f.served_by(OURS.len(), &[goes, stays]);
        let born = [SERVICES, SERVICES, SLICES].map(|collection| expect(&format!("POST {collection}")));
        pass(&mut f, born.into_iter().collect()).await.expect("birth");
        let (slices, key) = (&f.cx.cluster().slices, common::RevisionKey::new("ns", SLICE));
        let written = slices.get(&key).expect("offered");
        slices.apply(&key, "100", Some((*written).clone()));
        let ready = json!({"ready": true});
        f.activators_with(&[(goes, end), (stays, &ready), (comes, &ready)]);
        if end == &in_order {
            pass(&mut f, vec![]).await.expect("the other one is asked");
        }
        if answers {
            f.hear(comes, &[(20_000, "zs"), (20_001, "zs")]);
        } else if end == &in_order {
            tokio::time::advance(SUCCEEDED_WITHIN).await;
        }
        let put = expect(&format!("PUT {SLICES}/{SLICE}")).with(move |body| {
            let of = |endpoint: &Value| endpoint["addresses"][0].as_str().map(str::to_owned);
            let found: Vec<_> = body["endpoints"].as_array().expect("endpoints").iter().filter_map(of).collect();
            assert_eq!(found, led);
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
        let gone = || json!({"kind": "Status", "status": "Success"});
        let mut script = vec![
            expect(&format!("POST {SERVICES}")),
            expect(&format!("POST {SERVICES}")).with(|body| assert_eq!(body["metadata"]["name"], "web")),
        ];
        if is_there {
            script.push(expect(&format!("DELETE {SERVICES}/hello")).answered(200, gone()));
        }
        script.extend([
            expect(&format!("DELETE {SLICES}/{SLICE}")).answered(200, gone()),
            expect(&format!("POST {SLICES}")).with(|body| assert_eq!(body["metadata"]["name"], "web-zeroscale-ipv4-0")),
            leads().with(|path| assert_eq!(path["service"], "web")),
        ]);
        pass(&mut f, script).await.expect("a pass");
    }
}

#[tokio::test]
async fn only_the_leader_writes() {
    let mut f = fixture(json!({}), PathMode::Proxy).await;
    *f.fakes.led_by_another.lock() = true;
    pass(&mut f, vec![]).await.expect("nothing to do");
}
