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
use tokio_util::sync::CancellationToken;

/// Objects of the API server.
#[derive(Default)]
struct Cluster {
    scalers: Vec<Value>,
    services: Vec<Value>,
    slices: Vec<Value>,
    /// Ledgers of hosts and ports.
    maps: Vec<Value>,
}

impl Cluster {
    fn answer(&self, request: &Request<Incoming>) -> Response<rig::AnyBody> {
        let query = request.uri().query().unwrap_or_default();
        let (items, selector) = match request.uri().path() {
            "/api/v1/services" => (&self.services[..], "labelSelector=zeroscale.dev%2Fside"),
            "/apis/discovery.k8s.io/v1/endpointslices" => (&self.slices[..], "labelSelector=zeroscale.dev%2Fside"),
            "/apis/zeroscale.dev/v1alpha1/zeroscalers" => (&self.scalers[..], ""),
            "/api/v1/namespaces/knative-serving/configmaps" if query.contains("zeroscale.dev%2Fledger") => {
                (&self.maps[..], "")
            }
            "/api/v1/namespaces/knative-serving/configmaps" => (Default::default(), ""),
            other => panic!("unexpected request for {other}"),
        };
        assert!(query.contains(selector), "{query}");
        if query.contains("watch=true") {
            let events = futures::stream::pending::<Result<Frame<Bytes>, hyper::Error>>();
            return Response::new(StreamBody::new(events).boxed_unsync());
        }
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": items});
        Response::new(rig::full(list.to_string()))
    }
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}])
}

/// Returns the Service that selects the pods of the ZeroScaler `name`, as the autoscaler writes it.
fn private_service(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {
        "namespace": namespace, "name": names::private_service(name), "resourceVersion": "1",
        "uid": format!("{namespace}-service"),
        "ownerReferences": owner("zeroscale.dev/v1alpha1", "ZeroScaler", name, &format!("{namespace}-zs")),
        "labels": {names::SIDE: "Private", names::WORKLOAD: name}}})
}

/// Returns a ZeroScaler whose status names `service`.
fn scaler(namespace: &str, name: &str, service: &str) -> Value {
    let backend = rig::backend(name);
    json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-zs"), "resourceVersion": "1"},
        "spec": {"target": {"name": name}},
        "status": {"service": service, "backend": backend, "ports": [{"name": "http", "port": 80}]}})
}

/// Returns a slice with this pod and owner.
fn slice(namespace: &str, name: &str, workload: &str, owner: Value, pod: SocketAddr) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "namespace": namespace, "name": name, "resourceVersion": "2", "ownerReferences": owner,
            "labels": {names::SIDE: "Private", names::WORKLOAD: workload},
        },
        "ports": [{"name": "http", "port": pod.port()}],
        "endpoints": [{"addresses": [pod.ip().to_string()], "conditions": {"ready": true}}]})
}

fn config_map(name: &str, ledger: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data, "metadata": {
        "namespace": "knative-serving", "name": name, "resourceVersion": "1", "labels": {names::LEDGER: ledger}}})
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
    let mut services = vec![private_service("default", "hello"), private_service("evil", "hello")];
    let mut scalers = vec![scaler("default", "hello", "hello"), scaler("evil", "hello", "hello")];
    // Statuses whose Service is written like one of another namespace.
    let forged = ["hello.default", "hello.default.svc", "hello.default.svc.cluster", "*.default"];
    for (n, service) in forged.iter().enumerate() {
        scalers.push(scaler("evil", &format!("r{n}"), service));
    }
    scalers.push(scaler("evil", "../default/hello", "hello"));
    scalers.push(scaler("evil", "hello.default", "hello.default"));
    // A private Service of no ZeroScaler.
    let mut unowned = private_service("evil", "unowned");
    unowned["metadata"]["ownerReferences"] = json!([]);
    services.push(unowned);
    // Slices with the labels and owners of the other namespace's slices.
    let slice_of = |namespace: &str, name: &str, workload: &str, uid: &str, pod: &Pod| {
        slice(namespace, name, workload, owner("v1", "Service", "hello-private", uid), pod.address)
    };
    let slices = vec![
        slice_of("default", "a", "hello", "default-service", &pod),
        slice_of("default", "not-the-services", "hello", "evil-service", &evil),
        slice_of("evil", "a", "hello", "evil-service", &evil),
        slice_of("evil", "b", "hello", "default-service", &evil),
        slice_of("evil", "c", "unowned", "evil-service", &evil),
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
    let maps = vec![config_map("hosts.evil", names::LEDGER_OF_HOSTS, json!({"hosts": grants.to_string()}))];
    let plane = Plane::start(Cluster { scalers, services, slices, maps }).await;
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

/// Goal: neither the status of its ZeroScaler nor its slices give a tenant the number of another.
#[tokio::test]
async fn a_tenant_cannot_take_port_numbers_of_another() {
    let (pod, evil) = (Pod::saying("default").await, Pod::saying("evil").await);
    let slice_of = |namespace: &str, name: &str, uid: &str, pod: &Pod| {
        let owner = owner("zeroscale.dev/v1alpha1", "ZeroScaler", "hello", uid);
        slice(namespace, name, "hello", owner, pod.address)
    };
    let with_numbers = |namespace: &str| {
        let mut scaler = scaler(namespace, "hello", "hello");
        scaler["status"]["ports"] = json!([{"name": "http", "port": 80, "number": 20_000},
            {"name": "9000", "port": 9000, "number": 20_001}]);
        scaler
    };
    let numbers = json!({
        "20000": "held default/hello default-zs 80 http",
        "20001": "held default/hello former 80 http",
        "20002": "held evil/hello evil-zs 80 http",
    });
    let plane = Plane::start(Cluster {
        scalers: vec![with_numbers("default"), with_numbers("evil")],
        maps: vec![config_map("ports.20000", names::LEDGER_OF_PORTS, numbers)],
        slices: vec![
            slice_of("default", "a", "default-zs", &pod),
            slice_of("default", "b", "evil-zs", &evil),
            slice_of("evil", "a", "evil-zs", &evil),
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
    let api = Pod::start(|_| async {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503,
            "reason": "ServiceUnavailable", "message": "not here"});
        let mut response = Response::new(rig::full(status.to_string()));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
    })
    .await;
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
