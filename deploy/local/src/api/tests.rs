//! Tests of the server over real sockets.

use std::os::unix::fs::PermissionsExt as _;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{ApiOptions, ApiServer};

mod openapi;
mod zeroscalers;

fn options() -> ApiOptions {
    ApiOptions::new("10.96.0.0/16".parse().unwrap())
}

async fn start(options: ApiOptions) -> (ApiServer, Client) {
    let server = ApiServer::start(options).await.unwrap();
    let mut config = Config::new(server.url().parse().unwrap());
    config.auth_info.token = Some(server.token().to_string().into());
    let client = Client::try_from(config).unwrap();
    (server, client)
}

/// Starts a server. Also returns the ConfigMaps of the default namespace.
async fn maps(options: ApiOptions) -> (ApiServer, Api<ConfigMap>) {
    let (server, client) = start(options).await;
    (server, Api::namespaced(client, "default"))
}

/// Watches the changes after a list of all ConfigMaps.
async fn watch_from_list(maps: &Api<ConfigMap>) -> BoxStream<'_, kube::Result<WatchEvent<ConfigMap>>> {
    let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    maps.watch(&WatchParams::default(), &version).await.unwrap().boxed()
}

fn config_map(name: &str, text: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": text}})).unwrap()
}

/// Sends a raw request, and returns the response until the server closes the connection.
async fn exchange(server: &ApiServer, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn an_up_to_date_watch_gets_410_when_the_history_is_dropped() {
    let (server, maps) = maps(options()).await;
    maps.create(&PostParams::default(), &config_map("a", "0")).await.unwrap();
    let mut events = watch_from_list(&maps).await;
    maps.create(&PostParams::default(), &config_map("b", "0")).await.unwrap();
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    server.forget_history();
    let rest: Vec<_> = events.try_collect().await.unwrap();
    assert!(matches!(&rest[..], [WatchEvent::Error(error)] if error.code == 410), "{rest:?}");
    let mut events = watch_from_list(&maps).await;
    maps.create(&PostParams::default(), &config_map("c", "0")).await.unwrap();
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))), "a new list can be watched from");
}

/// Goal: a watcher that does not read falls behind and gets an error once it reads again. Writers are not affected.
#[tokio::test]
async fn a_watcher_that_falls_behind_gets_410_and_blocks_no_writer() {
    let (server, maps) = maps(ApiOptions { history: 8, ..options() }).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let request = format!(
        "GET /api/v1/namespaces/default/configmaps?watch=1 HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.address(),
        server.token()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 15];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    // More than the sockets' buffers hold, while the client does not read.
    let large = "x".repeat(512 * 1024);
    maps.create(&PostParams::default(), &config_map("a", "0")).await.unwrap();
    for n in 0..64 {
        let patch = json!({"data": {"k": format!("{n}{large}")}});
        maps.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
    let mut rest = Vec::new();
    let mut chunk = vec![0; 1 << 20];
    while !rest.ends_with(b"0\r\n\r\n") {
        let read = stream.read(&mut chunk).await.unwrap();
        assert!(read > 0, "the stream ends cleanly");
        rest.extend_from_slice(&chunk[..read]);
    }
    let text = String::from_utf8_lossy(&rest);
    assert!(text.contains(r#""type":"ERROR""#) && text.contains(r#""code":410"#), "an ERROR event ends the stream");
}

#[tokio::test]
async fn foreign_hosts_origins_and_tokens_are_rejected() {
    let (server, _) = start(options()).await;
    let (address, token) = (server.address(), server.token());
    for (host, extra, code) in [
        (address.to_string(), format!("Authorization: Bearer {token}\r\n"), 200),
        (format!("localhost:{}", address.port()), format!("Authorization: Bearer {token}\r\n"), 200),
        ("evil.example:80".into(), format!("Authorization: Bearer {token}\r\n"), 403),
        (address.to_string(), format!("Origin: http://evil.example\r\nAuthorization: Bearer {token}\r\n"), 403),
        (address.to_string(), format!("Origin: http://{address}\r\nAuthorization: Bearer {token}\r\n"), 200),
        (address.to_string(), "Authorization: Bearer wrong\r\n".into(), 401),
        (address.to_string(), String::new(), 403),
    ] {
        let request = format!("GET /api/v1/namespaces HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{extra}\r\n");
        let answer = exchange(&server, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{host} {extra}: {answer}");
    }
}

/// Goal: each way of creating an object without effect returns a warning. Changes and other objects return none.
#[tokio::test]
async fn creating_an_object_without_effect_returns_a_warning() {
    let (server, _) = start(options()).await;
    let jobs = "apis/batch/v1/namespaces/default/jobs";
    let job = |name: &str| {
        let (metadata, spec) = (json!({"name": name}), json!({"template": {}}));
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}).to_string()
    };
    let send = async |method: &str, path: &str, format: &str, body: &str| {
        let (address, token, length) = (server.address(), server.token(), body.len());
        let head = format!("Host: {address}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n");
        let about = format!("Content-Type: application/{format}\r\nContent-Length: {length}\r\n");
        exchange(&server, &format!("{method} /{path} HTTP/1.1\r\n{head}{about}\r\n{body}")).await
    };
    let (a, b) = (format!("{jobs}/a"), format!("{jobs}/b?fieldManager=m"));
    let label = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let map = json!({"metadata": {"name": "a"}}).to_string();
    for (method, path, format, body, code, warned) in [
        ("POST", jobs, "json", job("a"), 201, Some("a")),
        ("PATCH", b.as_str(), "apply-patch+yaml", job("b"), 201, Some("b")),
        ("PATCH", b.as_str(), "apply-patch+yaml", job("b"), 200, None),
        ("PATCH", a.as_str(), "merge-patch+json", label, 200, None),
        ("POST", "api/v1/namespaces/default/configmaps", "json", map, 201, None),
    ] {
        let answer = send(method, path, format, &body).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{method} {path}: {answer}");
        let warning = answer.lines().find_map(|line| line.strip_prefix("warning: 299 - "));
        let expected = warned.map(|name| format!("\"Job default/{name} will have no pods: without --external only Deployments, ReplicaSets and Pods are run\""));
        assert_eq!(warning, expected.as_deref(), "{method} {path}");
    }
}

#[tokio::test]
async fn the_server_listens_only_on_loopback_addresses() {
    let listen = "192.0.2.1:0".parse().unwrap();
    let refused = ApiServer::start(ApiOptions { listen, ..options() }).await.err().unwrap();
    assert!(refused.to_string().contains("loopback"), "{refused}");
}

#[tokio::test]
async fn the_kubeconfig_names_the_dashboard_and_only_its_owner_can_read_it() {
    let dashboard = Some("127.0.0.1:8090".parse().unwrap());
    let (server, _) = start(ApiOptions { dashboard, ..options() }).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, "former content").unwrap();
    server.write_kubeconfig(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let kubeconfig = kube::config::Kubeconfig::read_from(&path).unwrap();
    let extensions = kubeconfig.clusters[0].cluster.as_ref().and_then(|cluster| cluster.extensions.clone()).unwrap();
    assert_eq!(extensions[0].name, "zeroscale.dev/dashboard");
    assert_eq!(extensions[0].extension["address"], "http://127.0.0.1:8090");
}

#[tokio::test]
async fn shutdown_ends_open_watches() {
    let (server, maps) = maps(options()).await;
    let watch = maps.watch(&WatchParams::default(), "0").await.unwrap();
    server.shutdown().await;
    let rest: Vec<Result<WatchEvent<ConfigMap>, _>> = watch.collect().await;
    assert!(rest.is_empty(), "{rest:?}");
}

/// Goal: a Service that becomes an ExternalName releases its address, but not before the change. Method: another
/// Service requests that address after a dry run, and after the change itself.
#[tokio::test]
async fn a_service_that_becomes_an_external_name_releases_its_address() {
    let (_server, client) = start(options()).await;
    let services: Api<Service> = Api::namespaced(client, "default");
    let service = |name: &str, address: Option<&str>| -> Service {
        let spec = json!({"ports": [{"port": 80}], "clusterIP": address});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    let first = services.create(&PostParams::default(), &service("a", None)).await.unwrap();
    let address = first.spec.and_then(|spec| spec.cluster_ip).unwrap();
    let named = Patch::Merge(json!({"spec": {"type": "ExternalName", "externalName": "example.com"}}));
    let refused =
        |outcome: kube::Result<Service>| matches!(outcome, Err(kube::Error::Api(status)) if status.code == 422);
    services.patch("a", &PatchParams { dry_run: true, ..PatchParams::default() }, &named).await.unwrap();
    let second = service("b", Some(&address));
    assert!(refused(services.create(&PostParams::default(), &second).await), "still taken");
    services.patch("a", &PatchParams::default(), &named).await.unwrap();
    services.create(&PostParams::default(), &second).await.unwrap();
}

/// Goal: a protobuf body, as sent by `kubectl create namespace` and helm, is accepted like JSON, and the response is
/// JSON. An unsupported kind is rejected by name.
#[tokio::test]
async fn protobuf_bodies_of_common_kinds_are_accepted() {
    let (_server, client) = start(options()).await;
    let post = |path: &str, body: &[u8]| {
        let post = http::Request::post(path).header("content-type", "application/vnd.kubernetes.protobuf");
        post.header("accept", "application/vnd.kubernetes.protobuf,application/json").body(body.to_vec()).unwrap()
    };
    let namespace =
        b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x1a\x0a\x14\x0a\x04demo\x12\0\x1a\0\"\0*\x002\08\0B\0\
        \x12\0\x1a\0\x1a\0\"\0";
    let made: Value = client.request(post("/api/v1/namespaces", namespace)).await.unwrap();
    assert_eq!((&made["metadata"]["name"], &made["status"]["phase"]), (&json!("demo"), &json!("Active")));

    let pod = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\0";
    let refused = client.request::<Value>(post("/api/v1/namespaces/default/pods", pod)).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, status.message.contains("v1 Pod")), (415, true), "{}", status.message);
}

/// Goal: impersonation, which this server does not support, is rejected by name and not ignored.
#[tokio::test]
async fn impersonation_is_rejected() {
    let (_server, client) = start(options()).await;
    let request = http::Request::post("/api/v1/namespaces").header("impersonate-user", "jane");
    let refused = client.request::<Value>(request.body(b"{}".to_vec()).unwrap()).await.unwrap_err();
    let kube::Error::Api(answer) = refused else { panic!("{refused}") };
    assert_eq!((answer.code, answer.message.contains("--as")), (400, true), "{}", answer.message);
}

/// Goal: a client that sends its whole body before it reads gets the rejection instead of a reset.
#[tokio::test]
async fn a_client_that_is_still_sending_gets_the_rejection() {
    let (server, _) = start(options()).await;
    for (length, status) in [(2 << 20, 403), (16 << 20, 413)] {
        let head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: a\r\nconnection: close\r\n";
        let request = format!("{head}content-length: {length}\r\n\r\n{}", "x".repeat(length));
        let answer = exchange(&server, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}
