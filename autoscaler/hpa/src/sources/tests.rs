//! Tests of the requests of the sources, and of the parsed responses.

use super::*;
use crate::fixture::{Mock, group, resource, resources, scale, with_apps};
use hpa_core::reconcile::{Scale, ScaleError, WriteResult};
use hpa_core::usage::PodValue;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SCALE: &str = "/apis/apps/v1/namespaces/shop/deployments/web/scale";
const CUSTOM: &str = "/apis/custom.metrics.k8s.io";

fn target(api_version: &str, kind: &str) -> CrossVersionObjectReference {
    CrossVersionObjectReference { api_version: Some(api_version.into()), kind: kind.into(), name: "web".into() }
}

/// Returns an API server with Deployments and Services.
fn mock() -> Mock {
    let mock = Mock::default();
    with_apps(&mock);
    mock
}

fn scales(mock: &Mock) -> RestScales {
    RestScales::new(mock.client(), Arc::new(Mapper::new(mock.client())))
}

fn metrics(client: Client) -> RestMetrics {
    RestMetrics::new(client.clone(), Arc::new(Mapper::new(client)), Duration::from_secs(15))
}

/// Returns upstream's text for a request with a plain 404 as its response.
fn missing(what: &str) -> String {
    format!("the server could not find the requested resource (get {what})")
}

fn value(name: &str, value: &str) -> Value {
    json!({"describedObject": {"kind": "Pod", "name": name}, "timestamp": "2023-11-14T22:13:20Z", "value": value})
}

/// Goal: the group of the reference matters, but not its version. Discovery is cached for half a minute. A write sends
/// the resource version that was read, and the server's own kind; a conflict is distinguished from other errors.
#[tokio::test(start_paused = true)]
async fn a_scale_is_found_through_discovery_and_written_as_it_was_read() {
    let mock = mock();
    let put = format!("PUT {SCALE}");
    mock.on(&format!("GET {SCALE}"), 200, scale(3)).on(&put, 200, scale(5));
    mock.reject(&put, 409, "the object has been modified").reject(&put, 422, "too many");
    let scales = scales(&mock);
    let read = scales.read("shop", &target("apps/v1beta2", "Deployment")).await.expect("a scale");
    let expected = Scale { spec_replicas: 3, status_replicas: 3, selector: "app=web".into() };
    assert_eq!(read.scale, expected);
    assert_eq!(mock.request_lines(), ["GET /apis/apps".to_owned(), "GET /apis/apps/v1".into(), format!("GET {SCALE}")]);
    assert_eq!(scales.write(&read, 5, REQUEST_TIMEOUT).await, WriteResult::Written);
    let (line, body) = mock.requests().remove(0);
    let mut written = scale(3);
    written["spec"]["replicas"] = json!(5);
    assert_eq!((line, body), (put, written));
    let conflict = WriteResult::Conflict("the object has been modified".into());
    assert_eq!(scales.write(&read, 4, REQUEST_TIMEOUT).await, conflict);
    assert_eq!(scales.write(&read, 4, REQUEST_TIMEOUT).await, WriteResult::Failed("too many".into()));
    assert_eq!(scales.read_again(&read).await, Ok(read));
    mock.requests();

    scales.read("shop", &target("apps/v1", "Deployment")).await.expect("a scale");
    assert_eq!(mock.request_lines(), [format!("GET {SCALE}")], "discovery is cached");
    tokio::time::advance(Duration::from_secs(30)).await;
    scales.read("shop", &target("apps/v1", "Deployment")).await.expect("a scale");
    assert_eq!(mock.request_lines().len(), 3, "the cache has expired");
}

#[tokio::test]
async fn errors_of_a_scale_have_upstreams_texts() {
    let mock = mock();
    mock.reject(&format!("GET {SCALE}"), 404, "deployments.apps \"web\" not found");
    let scales = scales(&mock);
    let unknown = |what: &str| ScaleError::Kind(format!("no matches for kind {what}"));
    for (api_version, kind, error) in [
        ("", "Deployment", unknown(r#""Deployment" in group """#)),
        ("apps/v1", "Gadget", unknown(r#""Gadget" in group "apps""#)),
        ("gone.example.com/v1", "Gadget", unknown(r#""Gadget" in group "gone.example.com""#)),
        ("apps/v1", "Deployment", ScaleError::Read("deployments.apps \"web\" not found".into())),
    ] {
        assert_eq!(scales.read("shop", &target(api_version, kind)).await, Err(error), "{api_version} {kind}");
    }
    mock.reject("GET /apis/broken.example.com", 500, "etcd is unavailable");
    let broken = scales.read("shop", &target("broken.example.com/v1", "Gadget")).await;
    assert_eq!(broken, Err(ScaleError::Kind("etcd is unavailable".into())));
}

/// Goal: if no resource of a kind has the scale, the first failure is reported.
#[tokio::test]
async fn each_resource_of_a_kind_is_tried_in_turn() {
    let mock = Mock::default();
    let of = |plural| resource(plural, "Widget");
    mock.on("GET /apis/example.com", 200, group("example.com", &["v2", "v1"]));
    mock.on("GET /apis/example.com/v2", 200, resources("example.com/v2", &[of("widgets")]));
    mock.on("GET /apis/example.com/v1", 200, resources("example.com/v1", &[of("oldwidgets"), of("widgets")]));
    let newer = "GET /apis/example.com/v2/namespaces/shop/widgets/web/scale";
    let older = "GET /apis/example.com/v1/namespaces/shop/oldwidgets/web/scale";
    let scales = scales(&mock);
    let reference = target("example.com/v1", "Widget");
    assert_eq!(scales.read("shop", &reference).await, Err(ScaleError::Read(missing("widgets.example.com web"))));
    mock.requests();
    mock.on(older, 200, scale(2));
    assert_eq!(scales.read("shop", &reference).await.expect("the second").scale.spec_replicas, 2);
    assert_eq!(mock.request_lines(), [newer, older]);
}

/// Goal: requests for an object of one namespace never reach outside of it. Method: a cluster-scoped object that has a
/// scale.
#[tokio::test]
async fn a_cluster_scoped_kind_is_requested_in_the_namespace() {
    let mock = Mock::default();
    let mut gadgets = resource("gadgets", "Gadget");
    gadgets["namespaced"] = json!(false);
    mock.on("GET /apis/example.com", 200, group("example.com", &["v1"]));
    mock.on("GET /apis/example.com/v1", 200, resources("example.com/v1", &[gadgets]));
    mock.on("GET /apis/example.com/v1/gadgets/web/scale", 200, scale(3));
    let read = scales(&mock).read("shop", &target("example.com/v1", "Gadget")).await;
    assert_eq!(read, Err(ScaleError::Read(missing("gadgets.example.com web"))));
    let line = "GET /apis/example.com/v1/namespaces/shop/gadgets/web/scale";
    assert_eq!(mock.request_lines().pop().as_deref(), Some(line));
}

#[tokio::test]
async fn an_old_servers_selector_is_a_map_of_labels() {
    for (status, selector) in [
        (json!({"replicas": 1, "selector": {"app": "web", "tier": "a"}}), "app=web,tier=a"),
        (json!({"selector": {"app": "web"}, "targetSelector": "app=web,tier in (a,b)"}), "app=web,tier in (a,b)"),
        (json!({}), ""),
    ] {
        let mock = mock();
        mock.on(&format!("GET {SCALE}"), 200, json!({"spec": {}, "status": status}));
        let read = scales(&mock).read("shop", &target("apps/v1", "Deployment")).await.expect("a scale");
        assert_eq!((read.scale.selector.as_str(), read.scale.spec_replicas), (selector, 0));
    }
}

#[tokio::test]
async fn each_request_has_its_path() {
    let mock = mock();
    mock.on("GET /apis/custom.metrics.k8s.io", 200, group("custom.metrics.k8s.io", &["v1beta2", "v1beta1"]));
    let metrics = metrics(mock.client());
    let pods = |metric_selector: &str| Request::Pods {
        metric: "qps".into(),
        selector: "app=web,tier in (a,b)".into(),
        metric_selector: metric_selector.into(),
    };
    let object = |object: Option<CrossVersionObjectReference>| Request::Object {
        object,
        metric: "hits".into(),
        metric_selector: "verb=GET".into(),
    };
    let external = |selector: &str| Request::External { metric: "queue".into(), metric_selector: selector.into() };
    let get = |version: &str, path: &str| format!("GET /apis/{version}/namespaces/shop/{path}");
    let custom = |path: &str| get("custom.metrics.k8s.io/v1beta2", path);
    let (selector, verb) = ("labelSelector=app%3Dweb%2Ctier%20in%20%28a%2Cb%29", "metricLabelSelector=verb%3DGET");
    for (request, line) in [
        (Request::Usage { selector: "app=web".into() }, get("metrics.k8s.io/v1beta1", "pods?labelSelector=app%3Dweb")),
        (pods(""), custom(&format!("pods/*/qps?{selector}"))),
        (pods("verb=GET"), custom(&format!("pods/*/qps?{selector}&{verb}"))),
        (object(Some(target("apps/v1", "Deployment"))), custom(&format!("deployments.apps/web/hits?{verb}"))),
        (object(Some(target("v1", "Service"))), custom(&format!("services/web/hits?{verb}"))),
        (object(None), custom(&format!("metrics/hits?{verb}"))),
        (external(""), get("external.metrics.k8s.io/v1beta1", "queue")),
        (external("a=b"), get("external.metrics.k8s.io/v1beta1", "queue?labelSelector=a%3Db")),
    ] {
        metrics.read("shop", &request).await;
        assert_eq!(mock.request_lines().pop(), Some(line), "{request:?}");
    }
}

#[tokio::test]
async fn responses_are_parsed_and_failures_have_upstreams_texts() {
    let mock = mock();
    let metrics = metrics(mock.client());
    let usage = Request::Usage { selector: String::new() };
    let external = Request::External { metric: "queue".into(), metric_selector: String::new() };
    let hits = |target| Request::Object { object: Some(target), metric: "hits".into(), metric_selector: String::new() };
    let object = hits(target("apps/v1", "Deployment"));
    assert_eq!(metrics.read("shop", &usage).await, Reading::Failed(missing("pods.metrics.k8s.io")));
    let queue = missing("queue.external.metrics.k8s.io");
    assert_eq!(metrics.read("shop", &external).await, Reading::Failed(queue));
    let unregistered = "no custom metrics API (custom.metrics.k8s.io) registered".to_owned();
    assert_eq!(metrics.read("shop", &object).await, Reading::Failed(unregistered));

    mock.on(&format!("GET {CUSTOM}"), 200, group("custom.metrics.k8s.io", &["v1beta1"]));
    let path = format!("GET {CUSTOM}/v1beta1/namespaces/shop/deployments.apps/web/hits");
    mock.on(&path, 200, json!({"items": [value("web", "2500m")]}));
    assert_eq!(metrics.read("shop", &object).await, Reading::Object(vec![2500]));
    for (api_version, kind, group) in [("a/b/c", "Gadget", ""), ("b.example/v1", "Gadget.b.example", "b.example")] {
        let gadget = hits(target(api_version, "Gadget"));
        let why = format!("no matches for kind \"Gadget\" in group {group:?}");
        let unknown = format!("unable to map kind {kind} to resource: {why}");
        assert_eq!(metrics.read("shop", &gadget).await, Reading::Failed(unknown));
    }
    let queue = "GET /apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue";
    let items = ["3", "1k"].map(|value| json!({"metricName": "queue", "value": value}));
    mock.on(queue, 200, json!({"items": items}));
    assert_eq!(metrics.read("shop", &external).await, Reading::External(vec![3000, 1_000_000]));
    mock.replace(queue, 200, json!({"items": [{"value": "many"}]}));
    let Reading::Failed(error) = metrics.read("shop", &external).await else { panic!("no quantity") };
    assert!(error.starts_with("the response cannot be parsed: \"many\" is not a quantity"), "{error}");
    let pods = "GET /apis/metrics.k8s.io/v1beta1/namespaces/shop/pods";
    mock.on(pods, 403, json!({"no": "Status"}));
    let unknown = "unknown (get pods.metrics.k8s.io)".to_owned();
    assert_eq!(metrics.read("shop", &usage).await, Reading::Failed(unknown));
}

/// Goal: the group's preferred version is used if it is supported here, or else the first supported one that it lists,
/// for one sync period.
#[tokio::test(start_paused = true)]
async fn the_custom_metrics_version_is_negotiated() {
    let pods = Request::Pods { metric: "qps".into(), selector: String::new(), metric_selector: String::new() };
    for (listed, used) in [
        (&["v1beta2", "v1beta1"][..], Some("v1beta2")),
        (&["v1beta1", "v1beta2"], Some("v1beta1")),
        (&["v1", "v1beta1"], Some("v1beta1")),
        (&["v1"], None),
    ] {
        let mock = Mock::default();
        mock.on(&format!("GET {CUSTOM}"), 200, group("custom.metrics.k8s.io", listed));
        let metrics = metrics(mock.client());
        let answer = json!({"items": [value("p", "1")]});
        let Some(used) = used else {
            let unregistered = "no custom metrics API (custom.metrics.k8s.io) registered".to_owned();
            assert_eq!(metrics.read("shop", &pods).await, Reading::Failed(unregistered));
            continue;
        };
        mock.on(&format!("GET {CUSTOM}/{used}/namespaces/shop/pods/*/qps"), 200, answer);
        let Reading::Pods(values) = metrics.read("shop", &pods).await else { panic!("{listed:?}") };
        let expected = PodValue { pod: "p".into(), value: 1000, ..values[0].clone() };
        assert_eq!(values, [expected]);
        metrics.read("shop", &pods).await;
        tokio::time::advance(Duration::from_secs(15)).await;
        metrics.read("shop", &pods).await;
        let negotiated = mock.request_lines().iter().filter(|line| line.ends_with(".k8s.io")).count();
        assert_eq!(negotiated, 2, "once for each period");
    }
}

/// Goal: a silent metrics API fails its metric after a bounded time.
#[tokio::test(start_paused = true)]
async fn a_request_to_a_silent_api_times_out() {
    let service =
        tower::service_fn(|_: http::Request<Body>| std::future::pending::<Result<http::Response<Body>, Infallible>>());
    let metrics = metrics(Client::new(service, "default"));
    let usage = Request::Usage { selector: String::new() };
    let start = Instant::now();
    assert_eq!(metrics.read("shop", &usage).await, Reading::Failed("no response within 10 s".into()));
    assert_eq!(start.elapsed(), REQUEST_TIMEOUT);
}

/// Goal: a request that several metrics need is sent once, and the responses come in the order of the requests.
#[tokio::test]
async fn equal_requests_are_sent_once() {
    let mock = Mock::default();
    let usage = |selector: &str| Some(Request::Usage { selector: selector.into() });
    let external = Some(Request::External { metric: "queue".into(), metric_selector: String::new() });
    mock.on("GET /apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue", 200, json!({"items": []}));
    let requests = [usage("a=b"), None, external, usage("a=b")];
    let answers = metrics(mock.client()).readings("shop", &requests).await;
    assert_eq!(mock.request_lines().len(), 2);
    assert_eq!(answers[0], answers[3]);
    assert!(matches!(&answers[0].0, Reading::Failed(_)));
    assert_eq!((&answers[1].0, &answers[2].0), (&Reading::None, &Reading::External(Vec::new())));
}

/// Goal: an object with thousands of metrics uses few connections, and its reconcile ends soon. Method: an API that
/// responds after six seconds, with the number in the metric's name.
#[tokio::test(start_paused = true)]
async fn concurrent_and_late_requests_are_limited() {
    let (running, max) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let shared_max = max.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (running, max) = (running.clone(), shared_max.clone());
        async move {
            max.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(6)).await;
            running.fetch_sub(1, Ordering::Relaxed);
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let body = json!({"items": [{"value": name}]}).to_string();
            Ok::<_, Infallible>(http::Response::new(Body::from(body.into_bytes())))
        }
    });
    let metrics = metrics(Client::new(service, "default"));
    let metric = |i: usize| Some(Request::External { metric: i.to_string(), metric_selector: String::new() });
    let requests: Vec<_> = (0..1_000).map(metric).chain([metric(0)]).collect();
    let start = Instant::now();
    let answers = metrics.readings("shop", &requests).await;
    assert_eq!((max.load(Ordering::Relaxed), start.elapsed().as_secs()), (CONCURRENT_MAX, 24));
    assert_eq!((answers.len(), &answers[1_000]), (1_001, &answers[0]), "requested once");
    let late = "not requested: earlier requests took 20 s";
    for (i, (answer, _)) in (0_i64..1_000).zip(&answers) {
        let expected = if i < 32 { Reading::External(vec![i * 1_000]) } else { Reading::Failed(late.to_owned()) };
        assert_eq!(answer, &expected, "{i}");
    }
}
