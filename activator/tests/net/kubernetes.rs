//! An activator with a small API server of our own, which supports only the few exchanges that matter here.

use crate::rig::{self, Pod, patient};
use activator::Options;
use bytes::Bytes;
use common::names;
use common_runtime::environment::Mode;
use common_runtime::resolve::Dns;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Objects of the API server, and its later events for watches.
#[derive(Default)]
struct Cluster {
    /// `None`: the kind is unknown.
    scalers: Option<Vec<Value>>,
    /// Ledger of ports.
    numbers: Vec<Value>,
    services: Vec<Value>,
    addresses: Vec<Value>,
    /// Ledger of hosts.
    maps: Vec<Value>,
    /// Events of EndpointSlices. `None`: no events.
    more: Option<watch::Receiver<Vec<Value>>>,
}

fn denied(code: StatusCode) -> Response<rig::AnyBody> {
    let reason = if code == StatusCode::FORBIDDEN { "Forbidden" } else { "NotFound" };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code.as_u16(), "reason": reason, "message": "not here"});
    let mut response = Response::new(rig::full(status.to_string()));
    *response.status_mut() = code;
    response
}

impl Cluster {
    fn answer(&self, request: &Request<Incoming>) -> Response<rig::AnyBody> {
        let (kind, api_version, items) = match request.uri().path() {
            "/api/v1/services" => ("ServiceList", "v1", self.services.clone()),
            "/apis/discovery.k8s.io/v1/endpointslices" => {
                ("EndpointSliceList", "discovery.k8s.io/v1", self.addresses.clone())
            }
            "/apis/zeroscale.dev/v1alpha1/zeroscalers" => match &self.scalers {
                Some(scalers) => ("ZeroScalerList", "zeroscale.dev/v1alpha1", scalers.clone()),
                None => return denied(StatusCode::NOT_FOUND),
            },
            "/api/v1/namespaces/knative-serving/configmaps" => {
                let are_ledgers = request.uri().query().unwrap_or_default().contains("zeroscale.dev%2Fledger");
                ("ConfigMapList", "v1", if are_ledgers { [&self.maps[..], &self.numbers].concat() } else { vec![] })
            }
            other => panic!("unexpected request for {other}"),
        };
        let query = request.uri().query().unwrap_or_default();
        assert!(
            matches!(kind, "ConfigMapList" | "ZeroScalerList") || query.contains("labelSelector=zeroscale.dev%2Fside"),
            "{query}"
        );
        if !query.contains("watch=true") {
            let list =
                json!({"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": "1"}, "items": items});
            return Response::new(rig::full(list.to_string()));
        }
        let (sender, receiver) = mpsc::unbounded_channel::<Value>();
        let more = self.more.clone().filter(|_| kind == "EndpointSliceList");
        if let Some(mut more) = more {
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
    json!({names::SIDE: kind, names::WORKLOAD: "hello"})
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}])
}

/// Returns the Service that selects the pods of the ZeroScaler `name`, as the autoscaler writes it.
fn private_service_of(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {
        "namespace": namespace, "name": names::private_service(name), "resourceVersion": "1",
        "uid": format!("{namespace}-service"),
        "ownerReferences": owner("zeroscale.dev/v1alpha1", "ZeroScaler", name, &format!("{namespace}-zs")),
        "labels": {names::SIDE: "Private", names::WORKLOAD: name}}})
}

fn private_service() -> Value {
    private_service_of("default", "hello")
}

/// Returns a ZeroScaler whose status names `service`.
fn scaler_of(namespace: &str, name: &str, service: &str) -> Value {
    let backend = rig::backend(name);
    json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-zs"), "resourceVersion": "1"},
        "spec": {"target": {"name": name}},
        "status": {"service": service, "backend": backend, "ports": [{"name": "http", "port": 80}]}})
}

fn slice(pod: SocketAddr) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "namespace": "default", "name": "hello-private-x", "resourceVersion": "2", "labels": labels("Private"),
            "ownerReferences": owner("v1", "Service", "hello-private", "default-service"),
        },
        "ports": [{"name": "http", "port": pod.port()}],
        "endpoints": [{"addresses": [pod.ip().to_string()], "conditions": {"ready": false}}]})
}

/// Activator with an API server.
struct Plane {
    address: SocketAddr,
    shutdown: CancellationToken,
    running: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Plane {
    /// Starts an activator, and waits until it knows all objects of `cluster`.
    async fn start(cluster: Cluster) -> Self {
        let cluster = Arc::new(cluster);
        let api = Pod::start(move |request| {
            let answer = cluster.answer(&request);
            async move { answer }
        })
        .await;
        let uri = format!("http://{}", api.address).parse().expect("a URI");
        let client = kube::Client::try_from(kube::Config::new(uri)).expect("a client");
        std::mem::forget(api); // Serves until the test's end.

        // `run` does not return its address.
        let address = rig::own_address();
        let mut options = Options::new("activator-0", [127, 0, 0, 1].into(), Mode::Standalone);
        (options.http1, options.h2c) = (address, rig::free());
        options.stat_url = format!("ws://{address}");
        options.linger = std::time::Duration::ZERO;
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(activator::run(options, client, Arc::new(Dns), shutdown.clone()));
        let plane = Self { address, shutdown, running };
        patient(async {
            while tokio::net::TcpStream::connect(address).await.is_err()
                || plane.get("nobody.default").await.status != StatusCode::NOT_FOUND
            {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
        plane
    }

    async fn get(&self, host: &str) -> rig::FullResponse {
        self.get_at(self.address.port(), host).await
    }

    async fn get_at(&self, number: u16, host: &str) -> rig::FullResponse {
        rig::ask(SocketAddr::new(self.address.ip(), number), Request::get("/").header("host", host)).await
    }

    async fn stop(self) {
        self.shutdown.cancel();
        patient(self.running).await.expect("no panic").expect("a clean end");
    }
}

/// Goal: pods of a user who may edit Services and slices only in the namespace `evil` get no request for names of
/// another namespace, regardless of these objects and of the hosts granted to that namespace. Method: all such forged
/// objects at once, beside valid ones, each with the address of a server that identifies itself.
#[tokio::test]
async fn a_tenant_cannot_take_names_of_another() {
    let (pod, evil) = (Pod::saying("default").await, Pod::saying("evil").await);
    let mut services = vec![private_service(), private_service_of("evil", "hello")];
    let mut scalers = vec![scaler_of("default", "hello", "hello"), scaler_of("evil", "hello", "hello")];
    // Statuses whose Service is written like one of another namespace.
    let forged = ["hello.default", "hello.default.svc", "hello.default.svc.cluster", "*.default"];
    for (n, service) in forged.iter().enumerate() {
        scalers.push(scaler_of("evil", &format!("r{n}"), service));
    }
    scalers.push(scaler_of("evil", "../default/hello", "hello"));
    scalers.push(scaler_of("evil", "hello.default", "hello.default"));
    // A private Service of no ZeroScaler.
    let mut unowned = private_service_of("evil", "unowned");
    unowned["metadata"]["ownerReferences"] = json!([]);
    services.push(unowned);
    // Slices with the labels and owners of the other namespace's slices.
    let slice_in = |namespace: &str, name: &str, revision: &str, uid: &str, pod: SocketAddr| {
        let mut slice = slice(pod);
        slice["metadata"]["namespace"] = json!(namespace);
        slice["metadata"]["name"] = json!(name);
        slice["metadata"]["labels"][names::WORKLOAD] = json!(revision);
        slice["metadata"]["ownerReferences"][0]["uid"] = json!(uid);
        slice["endpoints"][0]["conditions"]["ready"] = json!(true);
        slice
    };
    let addresses = vec![
        slice_in("default", "a", "hello", "default-service", pod.address),
        slice_in("default", "not-the-services", "hello", "evil-service", evil.address),
        slice_in("evil", "a", "hello", "evil-service", evil.address),
        slice_in("evil", "b", "hello", "default-service", evil.address),
        slice_in("evil", "c", "unowned", "evil-service", evil.address),
    ];
    // Names that are reserved, even if a ledger grants them.
    let hosts = [
        "evil.example.com",
        "*.example.com",
        "hello",
        "hello.default",
        "hello.default.svc",
        "*.default.svc",
        "hello.default.svc.cluster.local",
        "*.svc",
        "*.local",
    ];
    let grants =
        json!({"hello": {"uid": "any", "hosts": hosts}, "nobody": {"uid": "any", "hosts": ["no.example.org"]}});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"hosts": grants.to_string()}, "metadata": {
        "namespace": "knative-serving", "name": "hosts.evil", "resourceVersion": "1",
        "labels": {names::LEDGER: names::LEDGER_OF_HOSTS}}});
    let plane =
        Plane::start(Cluster { services, addresses, scalers: Some(scalers), maps: vec![map], ..Cluster::default() })
            .await;
    for (host, expected) in [
        ("hello.default", "default"),
        ("hello.default:80", "default"),
        ("HELLO.default.", "default"),
        ("hello.default.svc", "default"),
        ("hello.default.svc.cluster.local", "default"),
        ("hello.evil", "evil"),
        ("hello.evil.svc", "evil"),
        ("evil.example.com", "evil"),
        ("any.example.com", "evil"),
    ] {
        let answer = plane.get(host).await;
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, expected), "{host}");
    }
    // The bare name is ambiguous, because both namespaces list the caller's address.
    let unknown =
        ["hello", "other.default.svc", "other.default.svc.cluster.local", "unowned.evil", "r0.evil", "no.example.org"];
    for host in unknown {
        assert_eq!(plane.get(host).await.status, StatusCode::NOT_FOUND, "{host}");
    }
    plane.stop().await;
}

/// Returns a ZeroScaler `hello` with two ports, whose status names their numbers.
fn scaler(namespace: &str, uid: &str, number: u16) -> Value {
    let mut scaler = scaler_of(namespace, "hello", "hello");
    scaler["metadata"]["uid"] = json!(uid);
    scaler["status"]["ports"] = json!([{"name": "http", "port": 80, "number": number},
        {"name": "9000", "port": 9000, "number": number + 1}]);
    scaler
}

/// Returns the ledger of ports.
fn numbers(lines: &[(u16, &str)]) -> Value {
    let data: Value = lines.iter().map(|(number, line)| (number.to_string(), json!(line))).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data, "metadata": {
        "namespace": "knative-serving", "name": "ports.20000", "resourceVersion": "1",
        "labels": {names::LEDGER: names::LEDGER_OF_PORTS}}})
}

/// Goal: requests to each of its numbers and to its Service's name wait for its pods. These are listed in slices of the
/// Service that the ZeroScaler controls, or in slices of the ZeroScaler.
#[tokio::test]
async fn a_zeroscaler_and_the_ledger_make_a_workload_with_ports() {
    for (api_version, kind, name, uid) in
        [("v1", "Service", "hello-private", "private"), ("zeroscale.dev/v1alpha1", "ZeroScaler", "hello", "zs")]
    {
        let (announce, more) = watch::channel(Vec::new());
        let mut service = private_service();
        service["metadata"]["uid"] = json!("private");
        service["metadata"]["ownerReferences"] = owner("zeroscale.dev/v1alpha1", "ZeroScaler", "hello", "zs");
        let plane = Plane::start(Cluster {
            scalers: Some(vec![scaler("default", "zs", 20_000)]),
            numbers: vec![numbers(&[
                (20_000, "held default/hello zs 80 http"),
                (20_001, "held default/hello zs 9000"),
                (20_002, "held default/hello"),
            ])],
            services: vec![service],
            more: Some(more),
            ..Cluster::default()
        })
        .await;
        let (web, other) = (Pod::saying("web").await, Pod::saying("other").await);
        let mut slice = slice(web.address);
        slice["metadata"]["ownerReferences"] = owner(api_version, kind, name, uid);
        slice["ports"] = json!([{"name": "http", "port": web.address.port()}, {"port": other.address.port()}]);
        let (first, second, by_name, ()) = tokio::join!(
            plane.get_at(20_000, "nobody.example"),
            plane.get_at(20_001, "hello.default"),
            plane.get("hello.default"),
            async { drop(announce.send_replace(vec![json!({"type": "ADDED", "object": slice})])) }
        );
        assert_eq!([first.body, second.body, by_name.body], ["web", "other", "web"], "{kind}");
        let address = SocketAddr::new(plane.address.ip(), 20_002);
        assert!(tokio::net::TcpStream::connect(address).await.is_err(), "an invalid line is ignored");
        plane.stop().await;
    }
}

/// Goal: neither the status of its ZeroScaler nor its slices give a tenant the number of another.
#[tokio::test]
async fn a_tenant_cannot_take_port_numbers_of_another() {
    let (pod, evil) = (Pod::saying("default").await, Pod::saying("evil").await);
    let slice_of = |namespace: &str, name: &str, uid: &str, pod: SocketAddr| {
        let mut slice = slice(pod);
        (slice["metadata"]["namespace"], slice["metadata"]["name"]) = (json!(namespace), json!(name));
        slice["metadata"]["ownerReferences"] = owner("zeroscale.dev/v1alpha1", "ZeroScaler", "hello", uid);
        slice["endpoints"][0]["conditions"]["ready"] = json!(true);
        slice
    };
    let plane = Plane::start(Cluster {
        scalers: Some(vec![scaler("default", "zs", 20_000), scaler("evil", "evil", 20_000)]),
        numbers: vec![numbers(&[
            (20_000, "held default/hello zs 80 http"),
            (20_001, "held default/hello former 80 http"),
            (20_002, "held evil/hello evil 80 http"),
        ])],
        addresses: vec![
            slice_of("default", "a", "zs", pod.address),
            slice_of("default", "b", "evil", evil.address),
            slice_of("evil", "a", "evil", evil.address),
        ],
        ..Cluster::default()
    })
    .await;
    for _ in 0..20 {
        assert_eq!(plane.get_at(20_000, "hello.evil").await.body, "default");
    }
    assert_eq!(plane.get_at(20_002, "hello.default").await.body, "evil");
    let former = plane.get_at(20_001, "hello.default").await;
    assert_eq!(former.header("x-zeroscale-reason"), "not-served", "the number of a deleted ZeroScaler");
    plane.stop().await;
}

/// Method: the API server responds with 503.
#[tokio::test]
async fn an_activator_that_waits_for_its_configuration_shuts_down() {
    let api = Pod::start(|_| async { denied(StatusCode::SERVICE_UNAVAILABLE) }).await;
    let uri = format!("http://{}", api.address).parse().expect("a URI");
    let client = kube::Client::try_from(kube::Config::new(uri)).expect("a client");
    let options = Options::new("activator-0", [127, 0, 0, 1].into(), Mode::Standalone);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(activator::run(options, client, Arc::new(Dns), shutdown.clone()));
    rig::until(|| api.requests() > 0).await;
    assert!(!running.is_finished());
    shutdown.cancel();
    patient(running).await.expect("no panic").expect("a clean end");
}
