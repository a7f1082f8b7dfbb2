//! Rows of the reference's table of ServerlessServices (9.4), by their numbers, as far as standalone's controller has them:
//! where Knative's writes Endpoints, ours writes slices. What makes both Services is in [`super::sks`], and whose endpoints
//! are chosen, in the slices' own tables.

use super::super::error::Error;
use super::super::sks;
use super::fixture::{Exchange, Fixture, assert_condition, expect};
use super::kpa_standalone::{SKSS, autoscaler, serverless, status};
use common::RevisionKey as Key;
use common_runtime::environment::Mode;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/ns/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices";
const SLICE: &str = "hello-zeroscale-ipv4-0";
const POD: &str = "10.0.0.1";
const ACTIVATOR: &str = "10.9.0.1";

fn slice(name: &str, namespace: &str, of: &str, port: i32, addresses: &[&str]) -> Value {
    let endpoints: Vec<_> =
        addresses.iter().map(|address| json!({"addresses": [address], "conditions": {"ready": true}})).collect();
    json!({
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": of}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": port}], "endpoints": endpoints,
    })
}

/// A revision with a ServerlessService that nobody has looked at; the pods and activators that are ready.
fn born(mode: &str, pods: &[&str], activators: &[&str]) -> Fixture {
    let f = Fixture::new(Mode::Standalone);
    f.put_autoscaler(autoscaler(json!({}), status("True", "", 3600, 1, 1)));
    let mut sks = serverless(mode, 2, "pa");
    sks["status"] = Value::Null;
    f.put_serverless(sks);
    f.put_target(1);
    are(&f, pods, activators);
    f
}

fn are(f: &Fixture, pods: &[&str], activators: &[&str]) {
    f.put_slice(slice("p", "ns", "hello-private", 8080, pods));
    f.put_slice(slice("a", "system", "activator-service", 8012, activators));
}

async fn pass(f: &mut Fixture, script: Vec<Exchange>) -> Result<(), Error> {
    f.play(script, async |cx, key| sks::reconcile(cx, key).await).await
}

fn put_status() -> Exchange {
    expect(&format!("PUT {SKSS}/hello/status"))
}

/// A status that says who has the traffic: the pods, or the activators.
fn tells(populated: (&'static str, &'static str), activators: &'static str) -> Exchange {
    put_status().with(move |body| {
        assert_condition(body, "EndpointsPopulated", populated.0, populated.1);
        assert_condition(body, "ActivatorEndpointsPopulated", activators, "ActivatorEndpointsPopulated");
    })
}

fn addresses(body: &Value) -> Vec<&str> {
    let endpoints = body["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
    endpoints.iter().filter_map(|endpoint| endpoint["addresses"][0].as_str()).collect()
}

/// The first pass: both Services, the slice with these addresses, and the status.
fn birth(leads_to: &'static [&'static str], told: Exchange) -> Vec<Exchange> {
    vec![
        expect(&format!("POST {SERVICES}")),
        expect(&format!("POST {SERVICES}")),
        expect(&format!("POST {SLICES}")).with(move |body| assert_eq!(addresses(body), leads_to)),
        told,
    ]
}

/// The watch tells of the slice that was written.
fn slice_is_seen(f: &Fixture, version: &str) {
    let (slices, key) = (&f.cx.world.slices, Key::new("ns", SLICE));
    let written = slices.get(&key).expect("offered");
    slices.apply(&key, version, Some((*written).clone()));
}

/// Everything consistent: the pod has the traffic.
async fn settled() -> Fixture {
    let mut f = born("Serve", &[POD], &[ACTIVATOR]);
    pass(&mut f, birth(&[POD], tells(("True", ""), "False"))).await.expect("birth");
    slice_is_seen(&f, "101");
    f
}

/// Somebody edits a Service.
fn edit(f: &Fixture, name: &str, edit: impl FnOnce(&mut Service)) {
    let key = Key::new("ns", name);
    let mut service = Service::clone(&*f.cx.world.services.get(&key).expect("made"));
    edit(&mut service);
    f.cx.world.services.apply(&key, "102", Some(service));
}

fn select_others(service: &mut Service) {
    let selector = [("app".to_owned(), "other".to_owned())].into();
    service.spec.as_mut().expect("a spec").selector = Some(selector);
}

#[tokio::test]
async fn row_1_what_is_consistent_is_left_alone() {
    pass(&mut settled().await, vec![]).await.expect("nothing to do");
}

#[tokio::test]
async fn rows_2_3_and_20_the_first_pass_leads_to_who_is_ready() {
    for (row, mode, pods, activators, leads_to, populated, in_path) in [
        (2, "Serve", &[][..], &[ACTIVATOR][..], &[ACTIVATOR][..], ("Unknown", "NoHealthyBackends"), "True"),
        (3, "Proxy", &[POD], &[], &[POD], ("True", ""), "False"),
        (20, "Serve", &[POD], &[], &[POD], ("True", ""), "False"),
    ] {
        let mut f = born(mode, pods, activators);
        let outcome = pass(&mut f, birth(leads_to, tells(populated, in_path))).await;
        assert!(outcome.is_ok(), "row {row}: {outcome:?}");
    }
}

#[tokio::test]
async fn rows_8_and_9_a_selector_that_somebody_changed_is_put_back() {
    let mut f = settled().await;
    edit(&f, "hello", select_others);
    let put = expect(&format!("PUT {SERVICES}/hello")).with(|body| assert!(body["spec"]["selector"].is_null()));
    pass(&mut f, vec![put]).await.expect("row 8: the status stays");

    let mut f = settled().await;
    edit(&f, "hello-private", select_others);
    let put = expect(&format!("PUT {SERVICES}/hello-private"))
        .with(|body| assert_eq!(body["spec"]["selector"], json!({"app": "hello"})));
    pass(&mut f, vec![put]).await.expect("row 9: the status comes to the same");
}

#[tokio::test]
async fn row_10_without_a_deployment_nothing_is_made() {
    let mut f = born("Serve", &[POD], &[ACTIVATOR]);
    let mut sks = serverless("Serve", 2, "pa");
    sks["spec"]["objectRef"]["name"] = json!("blah");
    f.put_serverless(sks);
    let error = pass(&mut f, vec![]).await.expect_err("there is no such Deployment").to_string();
    assert_eq!(error, "failed to get scale target: Deployment \"blah\" does not exist in namespace \"ns\"");
}

#[tokio::test]
async fn rows_15_to_17_an_update_that_fails_ends_the_pass() {
    let mut f = settled().await;
    are(&f, &["10.0.0.2"], &[ACTIVATOR]);
    let refused = expect(&format!("PUT {SLICES}/{SLICE}")).refused(500, "inducing failure");
    pass(&mut f, vec![refused]).await.expect_err("row 15: the status stays");

    let mut f = settled().await;
    edit(&f, "hello-private", select_others);
    let refused = expect(&format!("PUT {SERVICES}/hello-private")).refused(500, "inducing failure");
    let told =
        put_status().with(|body| assert_condition(body, "EndpointsPopulated", "Unknown", "UpdatingPrivateService"));
    pass(&mut f, vec![refused, told]).await.expect_err("row 16");

    let mut f = settled().await;
    edit(&f, "hello", select_others);
    let refused = expect(&format!("PUT {SERVICES}/hello")).refused(500, "inducing failure");
    pass(&mut f, vec![refused]).await.expect_err("row 17: the status stays");
}

#[tokio::test]
async fn row_22_a_private_service_of_somebody_else_is_left_alone() {
    let mut f = settled().await;
    edit(&f, "hello-private", |service| service.metadata.owner_references = None);
    let told = put_status().with(|body| assert_condition(body, "EndpointsPopulated", "False", "NotOwned"));
    let error = pass(&mut f, vec![told]).await.expect_err("not ours");
    assert_eq!(error.to_string(), "SKS: hello does not own Service: hello-private");
}

#[tokio::test]
async fn row_23_a_status_that_cannot_be_written_fails_the_pass() {
    let mut f = born("Serve", &[POD], &[ACTIVATOR]);
    let refused = put_status().refused(500, "inducing failure");
    pass(&mut f, birth(&[POD], refused)).await.expect_err("refused");
}

#[tokio::test]
async fn rows_24_26_27_the_slice_follows_pods_and_activators() {
    let leads_to = |expected: &'static [&'static str]| {
        expect(&format!("PUT {SLICES}/{SLICE}")).with(move |body| assert_eq!(addresses(body), expected))
    };
    let mut f = settled().await;
    are(&f, &["10.0.0.2"], &[ACTIVATOR]);
    pass(&mut f, vec![leads_to(&["10.0.0.2"])]).await.expect("row 24: another pod, the same status");

    let mut f = born("Serve", &[], &[ACTIVATOR]);
    pass(&mut f, birth(&[ACTIVATOR], tells(("Unknown", "NoHealthyBackends"), "True"))).await.expect("no pod");
    slice_is_seen(&f, "101");
    are(&f, &[POD], &[ACTIVATOR]);
    pass(&mut f, vec![leads_to(&[POD]), tells(("True", ""), "False")]).await.expect("row 26");

    let mut f = born("Proxy", &[POD], &[ACTIVATOR]);
    pass(&mut f, birth(&[ACTIVATOR], tells(("True", ""), "True"))).await.expect("through the activators");
    slice_is_seen(&f, "101");
    are(&f, &[POD], &[ACTIVATOR, "10.9.0.2"]);
    pass(&mut f, vec![leads_to(&[ACTIVATOR, "10.9.0.2"])]).await.expect("row 27");
}
