//! The activator in place of Knative's, against the embedded API server: Revisions, private Services and core/v1
//! Endpoints as Knative's controllers write them, and pods that respond like a queue-proxy. No other component of ours
//! runs.

use activator::Options;
use common_runtime::environment::Mode;
use common_runtime::resolve::Dns;
use e2e::bare::{self, SYSTEM};
use e2e::space::until;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::json;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);

/// Mock queue-proxy: its readiness, and the number of received probes.
#[derive(Clone)]
struct QueueProxy {
    address: SocketAddr,
    ready: Arc<AtomicBool>,
    probes: Arc<AtomicUsize>,
}

impl QueueProxy {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let pod = Self { address, ready: Arc::default(), probes: Arc::default() };
        let serving = pod.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let pod = serving.clone();
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let answer = pod.answer(&request);
                        async move { Ok::<_, Infallible>(answer) }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        pod
    }

    /// Dispatches like Knative's: probes by their user agent, all else to the program, which echoes the request.
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let text = |name: &str| request.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let (status, body) = if text("user-agent").starts_with("Knative-Activator-Probe") {
            self.probes.fetch_add(1, Ordering::SeqCst);
            match (text("k-network-probe"), self.ready.load(Ordering::SeqCst)) {
                ("queue", true) => (StatusCode::OK, "queue".to_owned()),
                ("queue", false) => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
                (other, _) => (StatusCode::BAD_REQUEST, format!("unexpected probe header value: {other}")),
            }
        } else {
            let names = ["host", "k-original-host", "k-proxy-request", "k-passthrough-lb", "knative-serving-revision"];
            (StatusCode::OK, names.map(|name| format!("{name}={}", text(name))).join("\n"))
        };
        let mut response = Response::new(Full::from(body));
        *response.status_mut() = status;
        response
    }
}

/// Creates the objects that Knative's controllers write for a Revision whose only pod is not ready yet.
async fn knative(client: &Client, pod: SocketAddr) -> anyhow::Result<()> {
    bare::install_knative_for_activators(client).await?;
    bare::create_namespace(client, "ns").await?;
    bare::create_revision(client, "app-00001", 20, 8012).await?;
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "app-00001-private", "labels": bare::knative_labels("app-00001", "Private")},
        "subsets": [{"notReadyAddresses": [{"ip": pod.ip().to_string()}], "ports": [{"name": "http", "port": pod.port()}]}],
    });
    bare::create(client, Some("ns"), endpoints).await.map(drop)
}

/// Sends a request as Knative's ingress forwards it; returns the response from its status line on.
async fn get(address: SocketAddr, revision: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "GET / HTTP/1.1\r\nHost: app.example.com\r\nKnative-Serving-Namespace: ns\r\nKnative-Serving-Revision: {revision}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Goal: a request named by the ingress's headers is held, is released when its queue-proxy is ready although
/// Kubernetes reports the pod as not ready, arrives by Knative's contract, and follows `config-network` live. A deleted
/// Revision is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn knatives_objects_and_headers_lead_to_a_queue_proxy() -> anyhow::Result<()> {
    let (_server, client) = bare::start("127.201.128.0/17").await?;
    let pod = QueueProxy::start().await;
    knative(&client, pod.address).await?;

    // `run` does not report its address, so use one that no other test uses.
    let [low, high, ..] = std::process::id().to_le_bytes();
    let address = SocketAddr::from(([127, 202, high, low.max(1)], 18_012));
    let mut options = Options::new("activator-0", address.ip(), Mode::Knative);
    (options.http1, options.h2c) = (address, SocketAddr::new(address.ip(), 0));
    (options.stat_url, options.linger) = ("ws://127.0.0.1:9".into(), Duration::ZERO);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(activator::run(options, client.clone(), Arc::new(Dns), shutdown.clone()));
    until("it to know its revisions", async || {
        get(address, "nobody").await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 404"))
    })
    .await?;

    let held = tokio::spawn(async move { get(address, "app-00001").await });
    until("probes of the pod, which is not ready", async || pod.probes.load(Ordering::SeqCst) > 2).await?;
    assert!(!held.is_finished(), "held");
    pod.ready.store(true, Ordering::SeqCst);
    let answer = tokio::time::timeout(PATIENCE, held).await???;
    let contract = format!(
        "host={}\nk-original-host=app.example.com\nk-proxy-request=activator\nk-passthrough-lb=\nknative-serving-revision=",
        pod.address
    );
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(&contract), "{answer}");

    // A mesh in which pods are addressable, live; an invalid value, which changes nothing; and no mesh again.
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM);
    for (value, through) in [("true", true), ("perhaps", true), ("false", false)] {
        let data = json!({"data": {"enable-mesh-pod-addressability": value}});
        maps.patch("config-network", &PatchParams::default(), &Patch::Merge(&data)).await?;
        until(&format!("requests with what the mesh routes by: {through}"), async || {
            let answer = get(address, "app-00001").await.unwrap_or_default();
            let carries = answer.contains("host=app-00001-private.ns\n") && answer.contains("k-passthrough-lb=true\n");
            answer.starts_with("HTTP/1.1 200") && carries == through
        })
        .await?;
    }

    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("serving.knative.dev", "v1", "Revision"), "revisions");
    let revisions: Api<DynamicObject> = Api::namespaced_with(client.clone(), "ns", &kind);
    revisions.delete("app-00001", &DeleteParams::default()).await?;
    until("the deleted Revision to be unknown", async || {
        get(address, "app-00001")
            .await
            .is_ok_and(|answer| answer.starts_with("HTTP/1.1 404") && answer.ends_with("\"app-00001\" not found\n"))
    })
    .await?;
    shutdown.cancel();
    tokio::time::timeout(PATIENCE, running).await??
}
