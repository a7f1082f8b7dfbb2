//! Several Services of one workload: each that clients call wakes it, and a scrape of its metrics does not.

use crate::shared::until_scaler;
use anyhow::{Context, ensure};
use common_api::ZeroScaler;
use common_api::zeroscaler::ServicePath;
use e2e::test_env::{SOON, comparable, program};
use e2e::{Entry, Load, TestEnv, Workload};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use local::up::UpOptions;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

/// Names of the Services, in the order of creation, which is also alphabetical.
const SERVICES: [&str; 4] = ["a-public", "b-internal", "c-edge", "d-metrics"];

fn service(name: &str, type_: &str, port: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "annotations": {"note": "mine"}},
        "spec": {"type": type_, "selector": {"app": "shop"}, "ports": [port]}})
}

/// Creates a workload with HTTP at 8080 and 9090, and four Services, none of which has its name.
async fn shop(env: &TestEnv) -> anyhow::Result<Vec<Service>> {
    let workload = Workload::new("shop");
    let mut deployment = workload.deployment(&program()?);
    let containers = &mut deployment["spec"]["template"]["spec"]["containers"];
    let mut second = containers[0].clone();
    second["name"] = json!("second");
    second["ports"] = json!([{"name": "second", "containerPort": 9090}]);
    containers.as_array_mut().context("containers")?.push(second);
    env.create::<Deployment>(deployment).await?;
    let mut made = Vec::new();
    for (name, type_, port) in [
        ("a-public", "ClusterIP", json!({"port": 80, "targetPort": 8080})),
        ("b-internal", "ClusterIP", json!({"name": "http", "port": 8888, "targetPort": "http1"})),
        ("c-edge", "LoadBalancer", json!({"name": "edge", "port": 80, "targetPort": 9090})),
        ("d-metrics", "ClusterIP", json!({"name": "metrics", "port": 9090})),
    ] {
        made.push(env.create::<Service>(service(name, type_, port)).await?);
    }
    env.create::<ZeroScaler>(workload.scaler()).await?;
    Ok(made)
}

/// Returns a client of a Service at its own address.
async fn client(env: &TestEnv, name: &str) -> anyhow::Result<Load> {
    Ok(Load::new(env.service_address(name).await?, name))
}

/// Returns the status of a response through a Service's own address.
async fn call(env: &TestEnv, name: &str) -> anyhow::Result<u16> {
    Ok(client(env, name).await?.get("/").await?.status.as_u16())
}

/// Waits until a Service that is direct, or was direct until now, leads to a pod.
async fn until_called(env: &TestEnv, name: &str) -> anyhow::Result<()> {
    env.until(SOON, name, async || Ok(call(env, name).await.is_ok_and(|status| status == 200))).await
}

/// Returns the names of served Services and of direct Services in one status.
fn paths_of(object: &ZeroScaler) -> (Vec<String>, Vec<String>) {
    let services = object.status.iter().flat_map(|status| &status.services);
    let with = |path: ServicePath| {
        services.clone().filter(|service| service.path == path).map(|service| service.name.clone()).collect()
    };
    (with(ServicePath::Served), with(ServicePath::Direct))
}

/// Edits the list of Services, and waits until these are served.
async fn edit(env: &TestEnv, services: Value, served: &[&str]) -> anyhow::Result<()> {
    env.patch::<ZeroScaler>("shop", json!({"spec": {"services": services}})).await?;
    until_served(env, served).await
}

async fn until_served(env: &TestEnv, served: &[&str]) -> anyhow::Result<()> {
    until_scaler(env, "shop", "Ready", |object| object.is_ready() && paths_of(&object).0 == served).await
}

async fn has_selector(env: &TestEnv, name: &str) -> anyhow::Result<bool> {
    let spec = env.api::<Service>().get(name).await?.spec.context("a spec")?;
    Ok(spec.selector.is_some_and(|selector| !selector.is_empty()))
}

/// Goal: each Service of one workload leads to it, at zero and awake, whatever the names of its ports. The Service for
/// metrics does not wake it and leads to the pods while there are any. All Services are restored.
#[tokio::test(flavor = "multi_thread")]
async fn every_service_except_that_for_metrics_wakes_the_workload() -> anyhow::Result<()> {
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    let before = shop(&env).await?;
    until_served(&env, &SERVICES[..3]).await?;
    ensure!(paths_of(&env.scaler("shop").await?).1 == SERVICES[3..], "the one for metrics is direct");
    let scraped = tokio::time::timeout(Duration::from_secs(2), call(&env, "d-metrics")).await;
    ensure!(!scraped.is_ok_and(|answer| answer.is_ok()), "no pod serves metrics at zero");
    ensure!(env.replicas("shop").await? == 0, "a scrape woke it");
    for name in &SERVICES[..3] {
        ensure!(call(&env, name).await? == 200, "{name}: the first wakes it, the others find it awake");
    }
    until_called(&env, "d-metrics").await?;
    env.until_asleep("shop").await?;
    for name in ["c-edge", "a-public"] {
        ensure!(call(&env, name).await? == 200, "{name}: asleep");
    }
    for (name, expected) in [("a-public", 200), ("b-internal", 200), ("c-edge", 404), ("d-metrics", 404)] {
        let status = env.load(Entry::Activator, name).get("/").await?.status.as_u16();
        ensure!(status == expected, "{name} on the shared port: {status}");
    }
    // An edit of the list restores Services that are not listed any more; another edit takes them over again.
    edit(&env, json!([{"name": "b-internal"}]), &["b-internal"]).await?;
    ensure!(!has_selector(&env, "b-internal").await?, "the one that is named stays");
    let are_restored = async || Ok(has_selector(&env, "a-public").await? && has_selector(&env, "c-edge").await?);
    env.until(SOON, "the others back", are_restored).await?;
    env.until_asleep("shop").await?;
    edit(&env, Value::Null, &SERVICES[..3]).await?;
    ensure!(call(&env, "a-public").await? == 200, "served again");
    // A Service that is created later is taken over, too.
    env.until_asleep("shop").await?;
    let late = env.create::<Service>(service("e-late", "NodePort", json!({"port": 81, "targetPort": 8080}))).await?;
    until_served(&env, &["a-public", "b-internal", "c-edge", "e-late"]).await?;
    ensure!(call(&env, "e-late").await? == 200, "the late one wakes it");

    env.delete_scaler("shop").await?;
    for service in before.into_iter().chain([late]) {
        let name = service.metadata.name.clone().context("a name")?;
        let now = comparable(env.api::<Service>().get(&name).await?)?;
        ensure!(now == comparable(service)?, "{name} is as it was: {now}");
    }
    env.end().await
}

/// Goal: while the workload is awake, edits of the list of Services, and a new Service, cost no client of any Service a
/// request: neither of Services that stay, nor of those that are restored and taken over again. Method: two clients of
/// each, one of which connects anew each time.
#[tokio::test(flavor = "multi_thread")]
async fn edits_of_the_services_cost_no_request() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    shop(&env).await?;
    until_served(&env, &SERVICES[..3]).await?;
    for name in &SERVICES[..3] {
        ensure!(call(&env, name).await? == 200, "{name}");
    }
    let mut calls = Vec::new();
    for name in &SERVICES[..3] {
        let persistent = client(&env, name).await?;
        for load in [persistent.clone().with("connection", "close"), persistent] {
            calls.push(load.start_open(100.0, 10, "/"));
        }
    }
    edit(&env, json!([{"name": "b-internal"}]), &["b-internal"]).await?;
    until_called(&env, "a-public").await?;
    edit(&env, Value::Null, &SERVICES[..3]).await?;
    edit(&env, json!([{"name": "c-edge"}, {"name": "a-public"}]), &["c-edge", "a-public"]).await?;
    env.create::<Service>(service("e-late", "NodePort", json!({"port": 81, "targetPort": 8080}))).await?;
    edit(&env, Value::Null, &["a-public", "b-internal", "c-edge", "e-late"]).await?;
    for clients in calls {
        ensure!(clients.end().await?.ok > 0, "called all the while");
    }
    env.end().await
}

/// Creates a workload whose Service has `sessionAffinity: ClientIP`. It wakes with three pods.
async fn sticky(env: &TestEnv, name: &str, protocol: &str) -> anyhow::Result<SocketAddr> {
    let workload = Workload::new(name).set("scale.activation", 3).set("scale.window", "5m");
    let workload = workload.set("ports", json!([{"name": "http", "protocol": protocol}]));
    env.create::<Deployment>(workload.deployment(&program()?)).await?;
    let mut service = workload.service();
    service["spec"]["sessionAffinity"] = json!("ClientIP");
    env.create::<Service>(service).await?;
    env.create::<ZeroScaler>(workload.scaler()).await?;
    env.until_served(name).await?;
    let status = env.scaler(name).await?.status.context("a status")?;
    let number = status.ports.first().and_then(|port| port.number).context("a number")?;
    Ok(SocketAddr::new(env.activator().ip(), number))
}

async fn until_three_pods(env: &TestEnv, name: &str) -> anyhow::Result<()> {
    let has_three =
        |object: ZeroScaler| object.status.and_then(|status| status.pods).is_some_and(|pods| pods.ready == 3);
    until_scaler(env, name, "three pods", has_three).await
}

/// Sends requests of a client, and checks that the same pod responds to all once the activator knows all pods.
async fn pod_of(env: &TestEnv, client: &str, own: impl AsyncFn() -> anyhow::Result<String>) -> anyhow::Result<String> {
    // The activator may know only two of the pods yet.
    let mut first = own().await?;
    env.until(SOON, "its own pod", async || Ok(std::mem::replace(&mut first, own().await?) == first)).await?;
    for _ in 0..10 {
        ensure!(own().await? == first, "{client} stays with {first}");
    }
    Ok(first)
}

/// Goal: a client of a Service with `sessionAffinity: ClientIP` stays with its pod, and clients are distributed, from
/// the first wake on; by HTTP, identified by whichever address, and by TCP, identified by its own address.
#[tokio::test(flavor = "multi_thread")]
async fn session_affinity_keeps_a_client_on_its_pod() -> anyhow::Result<()> {
    let env = TestEnv::start().await?;
    sticky(&env, "http", "auto").await?;
    let tcp = sticky(&env, "tcp", "tcp").await?;
    let load = env.load(Entry::Activator, "http");
    let by_tcp = async |client: &str| {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(client.parse()?, 0))?;
        let mut stream = socket.connect(tcp).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: sticky\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let pod = answer.lines().find_map(|line| line.strip_prefix("x-pod: "));
        anyhow::Ok(pod.with_context(|| answer.clone())?.to_owned())
    };
    ensure!(load.get("/").await?.status == 200, "it wakes");
    by_tcp("127.0.0.2").await?;
    let (mut http_pods, mut tcp_pods) = (BTreeSet::new(), BTreeSet::new());
    until_three_pods(&env, "http").await?;
    for client in
        ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6", "192.0.2.7", "192.0.2.8"]
    {
        let load = load.clone().with("x-forwarded-for", client);
        let own = async || anyhow::Ok(load.get("/").await?.pod().context("a pod")?.to_owned());
        http_pods.insert(pod_of(&env, client, own).await?);
    }
    until_three_pods(&env, "tcp").await?;
    for client in ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6", "127.0.0.7", "127.0.0.8"] {
        tcp_pods.insert(pod_of(&env, client, async || by_tcp(client).await).await?);
    }
    ensure!(http_pods.len() > 1 && tcp_pods.len() > 1, "clients are spread: {http_pods:?} {tcp_pods:?}");
    env.end().await
}
