//! The cases of Knative's ServerlessService controller tests, for standalone's paths. Knative's controller writes
//! Endpoints, ours writes slices. The choice of activators and the filter of ports are tested with the slices. There
//! are two differences: missing objects count as empty and are no error, and the report contains the path in effect,
//! not the requested one.

use super::fixture::{Exchange, Fixture, expect, leads};
use super::kpa_knative::status;
use super::kpa_standalone::scaler;
use super::scalers::{SERVICES, SLICES, addresses};
use super::sks::{SLICE, pass, put_pods, report_slice};
use autoscaler_core::path_mode::PathMode::{self, Proxy, Serve};
use common::RevisionKey as Key;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

const POD: &str = "10.0.0.1";
const ACTIVATOR: &str = "10.9.0.1";

/// Returns a workload whose path was never reconciled, with these ready pods and activators.
async fn new_workload(mode: PathMode, pods: &[&str], activators: &[&str]) -> Fixture {
    let mut f = Fixture::standalone();
    let ports = json!({"ports": [{"name": "http", "protocol": "http1"}]});
    f.put_autoscaler(scaler(ports, status("True", "", 3600, 1, 1)));
    f.request_path(mode, "hello");
    f.put_target(1);
    f.numbered(&[("http", 80), ("http-backend", 8080)], &[]).await;
    put_endpoints(&f, pods, activators);
    f
}

fn put_endpoints(f: &Fixture, pods: &[&str], activators: &[&str]) {
    put_pods(f, pods);
    f.served_by(2, activators);
}

/// Expects a report of the path in effect: the activators, or the pods.
fn reports(in_path: bool) -> Exchange {
    leads().with(move |path| assert_eq!(path["inPath"], in_path, "{path}"))
}

/// Expects the first reconcile: both Services, the slice with these addresses, and the report.
fn first_pass(leads_to: &'static [&'static str], report: Exchange) -> Vec<Exchange> {
    vec![
        expect(&format!("POST {SERVICES}")),
        expect(&format!("POST {SERVICES}")),
        expect(&format!("POST {SLICES}")).with(move |body| assert_eq!(addresses(body), leads_to)),
        report,
    ]
}

/// Returns a consistent state in which the pod has the traffic.
async fn settled() -> Fixture {
    let mut f = new_workload(Serve, &[POD], &[ACTIVATOR]).await;
    pass(&mut f, first_pass(&[POD], reports(false))).await.expect("the first pass");
    report_slice(&f, "101");
    f
}

/// Edits a Service as another writer.
fn edit(f: &Fixture, name: &str, edit: impl FnOnce(&mut Service)) {
    let key = Key::new("ns", name);
    let mut service = Service::clone(&*f.cx.cluster().services.get(&key).expect("created"));
    edit(&mut service);
    f.cx.cluster().services.apply(&key, "102", Some(service));
}

fn select_others(service: &mut Service) {
    let selector = [("app".to_owned(), "other".to_owned())].into();
    service.spec.as_mut().expect("a spec").selector = Some(selector);
}

#[tokio::test]
async fn a_changed_selector_is_restored_as_soon_as_the_write_is_accepted() {
    for (name, selector) in [("hello", Value::Null), ("hello-private", json!({"app": "hello"}))] {
        let mut f = settled().await;
        pass(&mut f, vec![]).await.expect("a consistent state is left alone");
        edit(&f, name, select_others);
        let put = || expect(&format!("PUT {SERVICES}/{name}"));
        pass(&mut f, vec![put().refused(500, "inducing failure")]).await.expect_err(name);
        let restored = put().with(move |body| assert_eq!(body["spec"]["selector"], selector));
        pass(&mut f, vec![restored]).await.expect("the status stays");
    }
}

#[tokio::test]
async fn without_leadership_or_a_deployment_nothing_is_created() {
    let mut f = new_workload(Serve, &[POD], &[ACTIVATOR]).await;
    *f.fakes.led_by_another.lock() = true;
    pass(&mut f, vec![]).await.expect("only the leader writes");
    *f.fakes.led_by_another.lock() = false;
    f.request_path(Serve, "blah");
    pass(&mut f, vec![]).await.expect("the status reports the missing Deployment");
}

#[tokio::test]
async fn the_report_names_the_service_once_both_services_exist() {
    let named = |service: &'static str| move |path: &Value| assert_eq!(path["service"], service);
    let mut f = new_workload(Serve, &[POD], &[ACTIVATOR]).await;
    pass(&mut f, first_pass(&[POD], reports(false).with(named("hello")))).await.expect("everything is created");
    for (count, service) in [(0, ""), (1, ""), (2, "hello")] {
        let mut f = new_workload(Serve, &[POD], &[ACTIVATOR]).await;
        let mut script: Vec<_> = first_pass(&[POD], leads()).into_iter().take(count + 1).collect();
        let last = script.pop().expect("a request");
        script.push(last.refused(500, "inducing failure"));
        script.push(leads().with(named(service)));
        let outcome = pass(&mut f, script).await;
        assert!(outcome.is_err(), "{count}");
    }
    let mut f = new_workload(Proxy, &[], &[]).await;
    let mut script = first_pass(&[], reports(false).with(named("hello")));
    script.remove(2);
    pass(&mut f, script).await.expect("no endpoint is ready, so there is no slice");
}

/// A foreign public Service is tested in [`super::sks`]. Foreign slices of our public Service are deleted.
#[tokio::test]
async fn a_foreign_private_service_is_left_alone() {
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
    put_endpoints(&f, &["10.0.0.2"], &[ACTIVATOR]);
    let refused = leads_to(&["10.0.0.2"]).refused(500, "inducing failure");
    pass(&mut f, vec![refused]).await.expect_err("the slice was refused, the status stays");
    pass(&mut f, vec![leads_to(&["10.0.0.2"])]).await.expect("another pod, the same status");

    let mut f = new_workload(Proxy, &[POD], &[ACTIVATOR]).await;
    pass(&mut f, first_pass(&[ACTIVATOR], reports(true))).await.expect("through the activators");
    report_slice(&f, "101");
    f.request_path(Serve, "hello");
    let pod_port = |body: &Value| assert_eq!(body["ports"][0]["port"], 8080);
    pass(&mut f, vec![leads_to(&[POD]).with(pod_port), reports(false)]).await.expect("another path, one update");

    let mut f = new_workload(Serve, &[], &[ACTIVATOR]).await;
    pass(&mut f, first_pass(&[ACTIVATOR], reports(true))).await.expect("no pod");
    report_slice(&f, "101");
    put_endpoints(&f, &[POD], &[ACTIVATOR]);
    pass(&mut f, vec![leads_to(&[POD]), reports(false)]).await.expect("to the first pod");

    let mut f = new_workload(Proxy, &[POD], &[ACTIVATOR]).await;
    pass(&mut f, first_pass(&[ACTIVATOR], reports(true))).await.expect("through the activators");
    report_slice(&f, "101");
    put_endpoints(&f, &[POD], &[ACTIVATOR, "10.9.0.2"]);
    pass(&mut f, vec![leads_to(&[ACTIVATOR, "10.9.0.2"])]).await.expect("a second activator joins without a wait");
}
