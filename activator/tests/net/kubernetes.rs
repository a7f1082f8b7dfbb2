//! The whole plane against an API server: a small one of our own, since only a few exchanges matter here.

use crate::rig::{self, Pod, patient};
use activator::Options;
use bytes::Bytes;
use common::names;
use common_runtime::environment::Mode;
use common_runtime::resolve::Dns;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// What the API server knows, and what it tells watchers from now on.
struct Cluster {
    services: Vec<Value>,
    addresses: Vec<Value>,
    /// The status with which slices are refused, if they are.
    slices_denied: Option<StatusCode>,
    more: watch::Receiver<Vec<Value>>,
}

impl Cluster {
    fn answer(&self, request: &Request<Incoming>) -> Response<rig::AnyBody> {
        let (kind, api_version, items) = match request.uri().path() {
            "/api/v1/services" => ("ServiceList", "v1", self.services.clone()),
            "/apis/discovery.k8s.io/v1/endpointslices" => {
                if let Some(code) = self.slices_denied {
                    let reason = if code == StatusCode::FORBIDDEN { "Forbidden" } else { "NotFound" };
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "code": code.as_u16(), "reason": reason, "message": "no endpointslices"});
                    let mut response = Response::new(rig::full(status.to_string()));
                    *response.status_mut() = code;
                    return response;
                }
                ("EndpointSliceList", "discovery.k8s.io/v1", self.addresses.clone())
            }
            "/api/v1/endpoints" => ("EndpointsList", "v1", self.addresses.clone()),
            "/api/v1/namespaces/knative-serving/configmaps" => ("ConfigMapList", "v1", vec![]),
            other => panic!("nobody may ask for {other}"),
        };
        let query = request.uri().query().unwrap_or_default();
        assert!(
            kind == "ConfigMapList" || query.contains("labelSelector=networking.internal.knative.dev%2FserviceType"),
            "{query}"
        );
        if !query.contains("watch=true") {
            let list =
                json!({"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": "1"}, "items": items});
            return Response::new(rig::full(list.to_string()));
        }
        let (sender, receiver) = mpsc::unbounded_channel::<Value>();
        if !matches!(kind, "ServiceList" | "ConfigMapList") {
            let mut more = self.more.clone();
            tokio::spawn(async move {
                loop {
                    for event in more.borrow_and_update().iter() {
                        let _ = sender.send(event.clone());
                    }
                    if more.changed().await.is_err() {
                        return;
                    }
                }
            });
        } else {
            tokio::spawn(async move { sender.closed().await });
        }
        let events = futures::stream::unfold(receiver, |mut receiver| async move {
            let event = receiver.recv().await?;
            Some((Ok(Frame::data(Bytes::from(format!("{event}\n")))), receiver))
        });
        Response::new(StreamBody::new(events).boxed_unsync())
    }
}

fn labels(kind: &str) -> Value {
    json!({names::SERVICE_TYPE: kind, names::REVISION: "hello"})
}

fn private_service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {
        "namespace": "default", "name": "hello-private", "resourceVersion": "1",
        "labels": labels("Private"),
        "annotations": {names::BACKEND: serde_json::to_string(&rig::backend("hello")).expect("serializable")}}})
}

fn slice(pod: SocketAddr) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "default", "name": "hello-private-x", "resourceVersion": "2", "labels": labels("Private")},
        "ports": [{"name": "http", "port": pod.port()}],
        "endpoints": [{"addresses": [pod.ip().to_string()], "conditions": {"ready": false}}]})
}

fn endpoints(pod: SocketAddr) -> Value {
    json!({"apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"namespace": "default", "name": "hello-private", "resourceVersion": "2", "labels": labels("Private")},
        "subsets": [{"notReadyAddresses": [{"ip": pod.ip().to_string()}], "ports": [{"name": "http", "port": pod.port()}]}]})
}

/// Runs the plane on `cluster`, sends one request before there is a pod, then announces `address`.
async fn one_request_wakes(slices_denied: Option<StatusCode>, address: impl Fn(SocketAddr) -> Value) {
    let (announce, more) = watch::channel(Vec::new());
    let cluster = Arc::new(Cluster { services: vec![private_service()], addresses: vec![], slices_denied, more });
    let api = Pod::start(move |request| {
        let answer = cluster.answer(&request);
        async move { answer }
    })
    .await;
    let uri = format!("http://{}", api.address).parse().expect("a URI");
    let client = kube::Client::try_from(kube::Config::new(uri)).expect("a client");

    // `run` does not say where it listens.
    let free = rig::own_address();
    let mut options = Options::new("activator-0", [127, 0, 0, 1].into(), Mode::Standalone);
    (options.http1, options.h2c) = (free, rig::free());
    options.stat_url = format!("ws://{free}");
    options.linger = std::time::Duration::ZERO;
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(activator::run(options, client, Arc::new(Dns), shutdown.clone()));

    let pod = Pod::saying("hello").await;
    let get = async |host: &str| {
        let mut client = rig::http1_client(free).await;
        let request = Request::get("/").header("host", host).body(Empty::<Bytes>::new()).expect("valid");
        rig::Answer::read(patient(client.send_request(request)).await.expect("an answer")).await
    };
    patient(async {
        while tokio::net::TcpStream::connect(free).await.is_err()
            || get("nobody.default").await.status != StatusCode::NOT_FOUND
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let (answer, ()) = tokio::join!(get("hello.default"), async {
        announce.send_replace(vec![json!({"type": "ADDED", "object": address(pod.address)})]);
    });
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "hello"));
    shutdown.cancel();
    patient(running).await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn services_and_slices_make_a_revision() {
    one_request_wakes(None, slice).await;
}

#[tokio::test]
async fn endpoints_take_the_place_of_slices_that_are_denied_or_absent() {
    for code in [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND] {
        one_request_wakes(Some(code), endpoints).await;
    }
}
