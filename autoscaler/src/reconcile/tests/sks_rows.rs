//! The cases of Knative's ServerlessService controller tests, for standalone's paths: where Knative's writes
//! Endpoints, ours writes slices. The choice of activators and the filter of ports are tested with the slices. Two
//! things differ, each marked in place: missing objects count as empty and are no error, and the report contains the
//! path in effect, not the requested one.

use super::fixture::{Exchange, Fixture, expect, leads};
use super::kpa_knative::status;
use super::kpa_standalone::scaler;
use crate::cluster::error::Error;
use autoscaler_core::path_mode::PathMode::{self, Proxy, Serve};
use common::RevisionKey as Key;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/ns/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices";
const SLICE: &str = "hello-zeroscale-ipv4-0";
const POD: &str = "10.0.0.1";
const ACTIVATOR: &str = "10.9.0.1";

/// Returns a slice of pods behind the private Service, with these ports.
fn slice_of_pods(ports: [&str; 2], addresses: &[&str]) -> Value {
    let endpoints: Vec<_> =
        addresses.iter().map(|address| json!({"addresses": [address], "conditions": {"ready": true}})).collect();
    json!({
        "metadata": {"name": "p", "namespace": "ns", "labels": {"kubernetes.io/service-name": "hello-private"}},
        "addressType": "IPv4", "ports": ports.map(|name| json!({"name": name, "port": 8080})), "endpoints": endpoints,
    })
}

/// Returns a workload whose path was never reconciled, without any slices.
async fn alone(mode: PathMode, protocol: &str) -> Fixture {
    let mut f = Fixture::standalone();
    let ports = json!({"ports": [{"name": "http", "protocol": protocol}]});
    f.put_autoscaler(scaler(ports, status("True", "", 3600, 1, 1)));
    f.request_path(mode, "hello");
    f.put_target(1);
    let name = if protocol == "h2c" { "http2" } else { "http" };
    f.numbered(&[(name, 80), (&format!("{name}-backend"), 8080)], &[]).await;
    f
}

/// Returns the same with these ready pods and activators.
async fn born(mode: PathMode, pods: &[&str], activators: &[&str]) -> Fixture {
    let f = alone(mode, "http1").await;
    are(&f, pods, activators);
    f
}

fn pods_are(f: &Fixture, pods: &[&str]) {
    f.put_slice(slice_of_pods(["http", "http-backend"], pods));
}

fn activators_are(f: &Fixture, activators: &[&str]) {
    f.served_by(2, activators);
}

fn are(f: &Fixture, pods: &[&str], activators: &[&str]) {
    pods_are(f, pods);
    activators_are(f, activators);
}

async fn pass(f: &mut Fixture, script: Vec<Exchange>) -> Result<(), Error> {
    f.play(script, async |cx, key| cx.serverless().reconcile(key).await).await
}

/// Expects a report of the path in effect: the activators, or the pods.
fn tells(in_path: bool) -> Exchange {
    leads().with(move |path| assert_eq!(path["inPath"], in_path, "{path}"))
}

fn addresses(body: &Value) -> Vec<&str> {
    let endpoints = body["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
    endpoints.iter().filter_map(|endpoint| endpoint["addresses"][0].as_str()).collect()
}

/// Expects the first reconcile: both Services, the slice with these addresses, and the report.
fn birth(leads_to: &'static [&'static str], told: Exchange) -> Vec<Exchange> {
    vec![
        expect(&format!("POST {SERVICES}")),
        expect(&format!("POST {SERVICES}")),
        expect(&format!("POST {SLICES}")).with(move |body| assert_eq!(addresses(body), leads_to)),
        told,
    ]
}

/// Reports the written slice by the watch.
fn slice_is_seen(f: &Fixture, version: &str) {
    let (slices, key) = (&f.cx.cluster().slices, Key::new("ns", SLICE));
    let written = slices.get(&key).expect("offered");
    slices.apply(&key, version, Some((*written).clone()));
}

/// Returns a consistent state in which the pod has the traffic.
async fn settled() -> Fixture {
    let mut f = born(Serve, &[POD], &[ACTIVATOR]).await;
    pass(&mut f, birth(&[POD], tells(false))).await.expect("birth");
    slice_is_seen(&f, "101");
    f
}

/// Edits a Service as another writer.
fn edit(f: &Fixture, name: &str, edit: impl FnOnce(&mut Service)) {
    let key = Key::new("ns", name);
    let mut service = Service::clone(&*f.cx.cluster().services.get(&key).expect("made"));
    edit(&mut service);
    f.cx.cluster().services.apply(&key, "102", Some(service));
}

fn select_others(service: &mut Service) {
    let selector = [("app".to_owned(), "other".to_owned())].into();
    service.spec.as_mut().expect("a spec").selector = Some(selector);
}

#[tokio::test]
async fn what_is_consistent_is_left_alone() {
    pass(&mut settled().await, vec![]).await.expect("nothing to do");
}

#[tokio::test]
async fn the_first_pass_leads_to_who_is_ready() {
    for (mode, pods, activators, leads_to, in_path) in [
        (Serve, &[][..], &[ACTIVATOR][..], &[ACTIVATOR][..], true),
        // Upstream reports the activators, as requested.
        (Proxy, &[POD], &[], &[POD], false),
        (Proxy, &[POD], &[ACTIVATOR], &[ACTIVATOR], true),
        (Serve, &[POD], &[], &[POD], false),
    ] {
        let mut f = born(mode, pods, activators).await;
        let outcome = pass(&mut f, birth(leads_to, tells(in_path))).await;
        assert!(outcome.is_ok(), "{mode:?} {pods:?} {activators:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_selector_that_somebody_changed_is_put_back() {
    let mut f = settled().await;
    edit(&f, "hello", select_others);
    let put = expect(&format!("PUT {SERVICES}/hello")).with(|body| assert!(body["spec"]["selector"].is_null()));
    pass(&mut f, vec![put]).await.expect("the status stays");

    let mut f = settled().await;
    edit(&f, "hello-private", select_others);
    let put = expect(&format!("PUT {SERVICES}/hello-private"))
        .with(|body| assert_eq!(body["spec"]["selector"], json!({"app": "hello"})));
    pass(&mut f, vec![put]).await.expect("the status comes to the same");
}

#[tokio::test]
async fn without_a_deployment_nothing_is_made() {
    let mut f = born(Serve, &[POD], &[ACTIVATOR]).await;
    f.request_path(Serve, "blah");
    pass(&mut f, vec![]).await.expect("the ZeroScaler's status says that there is no such Deployment");
}

#[tokio::test]
async fn everything_is_made_or_the_report_names_no_service() {
    let named = |service: &'static str| move |path: &Value| assert_eq!(path["service"], service);
    let mut f = born(Serve, &[POD], &[ACTIVATOR]).await;
    pass(&mut f, birth(&[POD], tells(false).with(named("hello")))).await.expect("everything is made");
    for (made, service) in [(0, ""), (1, ""), (2, "hello")] {
        let mut f = born(Serve, &[POD], &[ACTIVATOR]).await;
        let mut script: Vec<_> = birth(&[POD], leads()).into_iter().take(made + 1).collect();
        let last = script.pop().expect("a request");
        script.push(last.refused(500, "inducing failure"));
        script.push(leads().with(named(service)));
        let outcome = pass(&mut f, script).await;
        assert!(outcome.is_err(), "{made}");
    }
}

#[tokio::test]
async fn an_update_that_fails_ends_the_pass() {
    let mut f = settled().await;
    are(&f, &["10.0.0.2"], &[ACTIVATOR]);
    let refused = expect(&format!("PUT {SLICES}/{SLICE}")).refused(500, "inducing failure");
    pass(&mut f, vec![refused]).await.expect_err("the slice was refused, the status stays");

    let mut f = settled().await;
    edit(&f, "hello-private", select_others);
    let refused = expect(&format!("PUT {SERVICES}/hello-private")).refused(500, "inducing failure");
    pass(&mut f, vec![refused]).await.expect_err("the private Service was refused");

    let mut f = settled().await;
    edit(&f, "hello", select_others);
    let refused = expect(&format!("PUT {SERVICES}/hello")).refused(500, "inducing failure");
    pass(&mut f, vec![refused]).await.expect_err("the public Service was refused, the status stays");
}

/// Upstream ends the first two reconciles with an error, and writes an empty list in the third. Here objects that are
/// not listed yet count as empty, and an empty list is no slice.
#[tokio::test]
async fn what_is_missing_counts_as_empty() {
    let mut f = alone(Proxy, "http1").await;
    pods_are(&f, &[POD]);
    pass(&mut f, birth(&[POD], tells(false))).await.expect("no slice of activators");

    let mut f = alone(Serve, "http1").await;
    activators_are(&f, &[ACTIVATOR]);
    let told = tells(true);
    pass(&mut f, birth(&[ACTIVATOR], told)).await.expect("no slice of pods");

    let mut f = born(Proxy, &[], &[]).await;
    let told = tells(false).with(|path| assert_eq!(path["service"], "hello"));
    let services = [SERVICES, SERVICES].map(|collection| expect(&format!("POST {collection}")));
    pass(&mut f, services.into_iter().chain([told]).collect()).await.expect("nobody is ready");
}

/// The private Service. A public one is tested in [`super::sks`]; foreign slices of our public Service are deleted.
#[tokio::test]
async fn a_private_service_of_somebody_else_is_left_alone() {
    let mut f = settled().await;
    edit(&f, "hello-private", |service| service.metadata.owner_references = None);
    let error = pass(&mut f, vec![]).await.expect_err("not ours");
    assert_eq!(error.to_string(), "ZeroScaler: hello does not own Service: hello-private");
}

#[tokio::test(start_paused = true)]
async fn the_slice_follows_pods_and_activators() {
    let leads_to = |expected: &'static [&'static str]| {
        expect(&format!("PUT {SLICES}/{SLICE}")).with(move |body| assert_eq!(addresses(body), expected))
    };
    let mut f = settled().await;
    are(&f, &["10.0.0.2"], &[ACTIVATOR]);
    pass(&mut f, vec![leads_to(&["10.0.0.2"])]).await.expect("another pod, the same status");

    let mut f = born(Serve, &[], &[ACTIVATOR]).await;
    pass(&mut f, birth(&[ACTIVATOR], tells(true))).await.expect("no pod");
    slice_is_seen(&f, "101");
    are(&f, &[POD], &[ACTIVATOR]);
    pass(&mut f, vec![leads_to(&[POD]), tells(false)]).await.expect("to the first pod");

    let mut f = born(Proxy, &[POD], &[ACTIVATOR]).await;
    pass(&mut f, birth(&[ACTIVATOR], tells(true))).await.expect("through the activators");
    slice_is_seen(&f, "101");
    are(&f, &[POD], &[ACTIVATOR, "10.9.0.2"]);
    pass(&mut f, vec![leads_to(&[ACTIVATOR, "10.9.0.2"])]).await.expect("a second activator joins without a wait");
}

#[tokio::test]
async fn pods_that_speak_http2_give_way_to_the_activators() {
    let pods = |addresses: &[&str]| slice_of_pods(["http2", "http2-backend"], addresses);
    let mut f = alone(Serve, "h2c").await;
    f.put_slice(pods(&[POD]));
    activators_are(&f, &[ACTIVATOR]);
    pass(&mut f, birth(&[POD], tells(false))).await.expect("to the pod");
    slice_is_seen(&f, "101");
    f.put_slice(pods(&[]));
    let moved = expect(&format!("PUT {SLICES}/{SLICE}")).with(|body| {
        assert_eq!(addresses(body), [ACTIVATOR]);
        assert_eq!((&body["ports"][0]["port"], &body["ports"][0]["name"]), (&json!(20_000), &json!("http2")));
    });
    pass(&mut f, vec![moved, tells(true)]).await.expect("to the activator");
}
