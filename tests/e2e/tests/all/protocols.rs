//! Protocols of users' workloads with default settings: gRPC, WebSockets, event streams, and servers that speak first.

use crate::shared::until_scaler;
use anyhow::{Context, ensure};
use bytes::Bytes;
use common_api::ZeroScaler;
use common_api::zeroscaler::PortProtocol;
use e2e::talk::GREETING;
use e2e::test_env::{SOON, program};
use e2e::{Load, TestEnv, Workload};
use futures::{SinkExt, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use local::up::UpOptions;
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

/// Longest wait for a response.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn each_protocol_is_served() -> anyhow::Result<()> {
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    tokio::try_join!(
        a_label_suffices_for_grpc(&env),
        streams_outlive_the_wake_timeout(&env),
        requests_of_ingresses_and_health_checks_are_served(&env),
        servers_that_speak_first_are_served(&env),
    )?;
    env.end().await
}

/// Makes a gRPC call and returns its status.
async fn call(at: SocketAddr) -> anyhow::Result<String> {
    let stream = TokioIo::new(TcpStream::connect(at).await?);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await?;
    tokio::spawn(connection);
    let request = Request::post(format!("http://{at}/echo.Echo/Call")).header("content-type", "application/grpc+proto");
    let request = request.header("te", "trailers").body(Full::<Bytes>::from("\0\0\0\0\x01x"))?;
    let answer = timeout(PATIENCE, sender.send_request(request)).await??;
    let early = answer.headers().get("grpc-message").cloned();
    let body = timeout(PATIENCE, answer.into_body().collect()).await??;
    let status = body.trailers().and_then(|trailers| trailers.get("grpc-status")).context(format!("{early:?}"))?;
    Ok(status.to_str()?.to_owned())
}

async fn a_label_suffices_for_grpc(env: &TestEnv) -> anyhow::Result<()> {
    let mut deployment = Workload::new("grpc").env("E2E_GRPC", 1).deployment(&program()?);
    deployment["metadata"]["labels"] = json!({"zeroscale.dev/enabled": "true"});
    deployment["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{"containerPort": 8080}]);
    env.create::<Deployment>(deployment).await?;
    let ports = json!([{"port": 80, "targetPort": 8080}]);
    let service = json!({"selector": {"app": "grpc"}, "ports": ports});
    env.create::<Service>(json!({"metadata": {"name": "grpc"}, "spec": service})).await?;
    until_scaler(env, "grpc", "Ready", |object| object.is_ready()).await?;
    ensure!(env.is_asleep("grpc").await?, "no request was sent");
    for state in ["asleep", "awake"] {
        ensure!(call(env.service_address("grpc").await?).await.context(state)? == "0", "{state}");
    }
    Ok(())
}

async fn streams_outlive_the_wake_timeout(env: &TestEnv) -> anyhow::Result<()> {
    const WAKE: Duration = Duration::from_secs(5);
    env.deploy(&Workload::new("streams").env("E2E_STREAMS", 1).set("wake.timeout", "5s")).await?;
    let at = env.service_address("streams").await?;
    for state in ["asleep", "awake"] {
        let stream = TcpStream::connect(at).await?;
        let (mut socket, _) =
            timeout(PATIENCE, tokio_tungstenite::client_async(format!("ws://{at}/ws"), stream)).await??;
        let load = Load::new(at, at.to_string());
        let events = load.spawn_get("/events");
        sleep(WAKE + Duration::from_secs(1)).await;
        socket.send(Message::text("late")).await.context(state)?;
        let echoed = timeout(PATIENCE, socket.next()).await?.context(state)??;
        ensure!(echoed == Message::text("late"), "{state}: {echoed:?}");
        load.get_ok("/release").await.context(state)?;
        let events = timeout(PATIENCE, events).await???;
        ensure!(events.text().contains("second"), "{state}: {events:?}");
    }
    Ok(())
}

/// Goal: a pod gets the scheme that a TLS ingress reports, and a request without Host gets the name of its Service; at
/// zero and awake, from clients that half-close their connection.
async fn requests_of_ingresses_and_health_checks_are_served(env: &TestEnv) -> anyhow::Result<()> {
    const INGRESS: &str = "GET /headers HTTP/1.1\r\nhost: a.example\r\nx-forwarded-for: 203.0.113.9\r\n\
        x-forwarded-proto: https\r\nforwarded: for=203.0.113.9\r\nconnection: close\r\n\r\n";
    let host = format!(r#"["host","check.{}.svc"]"#, env.namespace);
    let forwarded = [r#"["x-forwarded-proto","https"]"#, r#"["forwarded","for=203.0.113.9, for="#, ";proto=https"];
    for (name, request, expected) in
        [("ingress", INGRESS, &forwarded[..]), ("check", "GET /headers HTTP/1.0\r\n\r\n", &[&host])]
    {
        env.deploy(&Workload::new(name)).await?;
        let at = env.service_address(name).await?;
        for state in ["asleep", "awake"] {
            let (mut stream, mut answer) = (TcpStream::connect(at).await?, String::new());
            stream.write_all(request.as_bytes()).await?;
            stream.shutdown().await?;
            timeout(PATIENCE, stream.read_to_string(&mut answer)).await??;
            let is_right = answer.contains(" 200 OK") && expected.iter().all(|part| answer.contains(part));
            ensure!(is_right, "{name}, {state}: {answer}");
        }
    }
    Ok(())
}

/// Creates a server that speaks first on this port, at zero.
async fn greeter(env: &TestEnv, name: &str, port: u16) -> anyhow::Result<()> {
    let workload = Workload::new(name).env("E2E_TALKS", "server");
    let mut deployment = workload.deployment(&program()?);
    deployment["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{"containerPort": port}]);
    env.create::<Deployment>(deployment).await?;
    let service = json!({"selector": {"app": name}, "ports": [{"port": port}]});
    env.create::<Service>(json!({"metadata": {"name": name}, "spec": service})).await?;
    env.create::<ZeroScaler>(workload.scaler()).await?;
    env.until_served(name).await
}

/// Connects without sending anything, and reads the greeting.
async fn greeted(at: SocketAddr) -> anyhow::Result<()> {
    let mut greeting = vec![0; GREETING.len()];
    let mut stream = TcpStream::connect(at).await?;
    timeout(PATIENCE, stream.read_exact(&mut greeting)).await.context("no greeting")??;
    ensure!(greeting == GREETING, "{greeting:?}");
    Ok(())
}

/// Goal: a server that speaks first is served with default settings. On its well-known port it is served at once. On
/// another port it is detected once it is awake, and until then a condition describes the remedy.
async fn servers_that_speak_first_are_served(env: &TestEnv) -> anyhow::Result<()> {
    greeter(env, "mysql", 3306).await?;
    for state in ["asleep", "awake"] {
        greeted(env.service_address("mysql").await?).await.context(state)?;
    }
    greeter(env, "other", 7000).await?;
    let at = env.service_address("other").await?;
    let mut silent = TcpStream::connect(at).await?;
    ensure!(timeout(Duration::from_secs(1), silent.read(&mut [0; 1])).await.is_err(), "the protocol is not known yet");
    drop(silent);
    until_scaler(env, "other", "a suggestion", |object| {
        object.condition("ProtocolsDetected").is_some_and(|detected| {
            detected.reason == "SilentConnections" && detected.message.contains("[{name: \"7000\", protocol: tcp}]")
        })
    })
    .await?;
    ensure!(env.is_asleep("other").await?, "a silent connection woke it");
    env.patch::<ZeroScaler>("other", json!({"spec": {"scale": {"min": 1}}})).await?;
    env.until(SOON, "a pod", async || Ok(env.ready_pods("other").await? == 1)).await?;
    greeted(at).await.context("awake")?;
    env.until(SOON, "the port to be known", async || {
        let status = env.scaler("other").await?.status.context("a status")?;
        Ok(status.ports.iter().any(|port| port.learned && port.protocol == PortProtocol::Tcp))
    })
    .await?;
    ensure!(env.condition("other", "ProtocolsDetected").await?.is_none(), "it is known");
    env.patch::<ZeroScaler>("other", json!({"spec": {"scale": {"min": null}}})).await?;
    env.until_asleep("other").await?;
    greeted(at).await.context("asleep, once it is known")?;
    Ok(())
}
