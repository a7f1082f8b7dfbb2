//! Third-party clients: curl, nghttp2's h2load and nghttp, tokio-tungstenite. `.ci/run` installs the programs.

use crate::protocols::{PAIRS, Pair};
use crate::rig::{self, Pod, patient};
use common::backend::Protocol;
use futures::{SinkExt, StreamExt};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// Runs a program to its end, and returns its output.
pub(crate) async fn run(program: &str, arguments: &[&str]) -> String {
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).kill_on_drop(true);
    let ended = patient(command.output()).await;
    let output = ended.unwrap_or_else(|error| panic!("{program} cannot be run ({error}); .ci/run installs it"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

async fn counting() -> Pod {
    Pod::start(|request: Request<Incoming>| async move {
        let version = request.version();
        let body = request.into_body().collect().await.expect("whole").to_bytes();
        Response::new(rig::full(format!("{} bytes over {version:?}", body.len())))
    })
    .await
}

/// Goal: curl works in each of its protocols, without uploads, and with uploads with and without `Expect`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_is_served() {
    let pod = counting().await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("a path").to_owned();
    std::fs::write(&path, vec![b'x'; 3 << 20]).expect("its content");
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let rig = Pair { client: Protocol::Http1, pod: protocol }.start(&pod).await;
        let url = format!("http://{}/", rig.address);
        let over = if protocol == Protocol::Http1 { "HTTP/1.1" } else { "HTTP/2.0" };
        for version in ["--http1.0", "--http1.1", "--http2-prior-knowledge", "--http2"] {
            let common = ["-sS", "--max-time", "15", version, "-H", "Host: app.ns"];
            let plain = run("curl", &[&common[..], &[&url]].concat()).await;
            assert_eq!(plain, format!("0 bytes over {over}"), "{version}");
            if version == "--http1.0" {
                let upload = run("curl", &[&common[..], &["-T", &path, &url]].concat()).await;
                assert_eq!(upload, format!("{} bytes over {over}", 3 << 20), "{version}");
                continue; // HTTP/1.0 supports neither chunks nor expectations.
            }
            let expecting = ["--expect100-timeout", "12", "-H", "Expect: 100-continue"];
            let expecting = if version == "--http1.1" { &expecting[..] } else { &[] };
            for coding in ["X-Length: known", "Transfer-Encoding: chunked"] {
                if coding.starts_with("Transfer") && version != "--http1.1" {
                    continue; // Not part of HTTP/2.
                }
                let upload = run("curl", &[&common[..], expecting, &["-H", coding, "-T", &path, &url]].concat()).await;
                assert_eq!(upload, format!("{} bytes over {over}", 3 << 20), "{version} {coding}");
            }
            if version == "--http2-prior-knowledge" {
                continue; // Debian 12's curl cannot reuse such a connection; h2load does.
            }
            let twice = run("curl", &[&common[..], &["-w", "|%{num_connects}|", &url, &url]].concat()).await;
            assert!(twice.ends_with("|0|"), "{version}: {twice}");
        }
    }
}

/// Goal: with many streams and many connections at once, in all four pairs, every request gets a response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2load_loses_nothing() {
    let pod = counting().await;
    for pair in PAIRS {
        let rig = pair.start(&pod).await;
        let at = format!("--connect-to={}", rig.address);
        let protocol: &[&str] = if pair.client == Protocol::Http1 { &["--h1"] } else { &["-m", "40"] };
        let text = run("h2load", &[&["-n", "1000", "-c", "8", &at], protocol, &["http://app.ns/"]].concat()).await;
        assert!(text.contains("1000 succeeded, 0 failed, 0 errored, 0 timeout"), "{pair:?}: {text}");
        assert!(text.contains("1000 2xx"), "{pair:?}: {text}");
    }
}

/// Goal: a WebSocket passes messages of all kinds and sizes in both directions, and its closing handshake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_messages_pass_in_both_directions() {
    let pod = Pod::start(|mut request: Request<Incoming>| async move {
        let key = derive_accept_key(request.headers()["sec-websocket-key"].as_bytes());
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let io = TokioIo::new(upgraded.await.expect("upgraded"));
            let mut socket = tokio_tungstenite::WebSocketStream::from_raw_socket(io, Role::Server, None).await;
            while let Some(Ok(message)) = socket.next().await {
                if message.is_text() || message.is_binary() {
                    socket.send(message).await.expect("open");
                }
            }
        });
        let mut response = rig::switching_to("websocket");
        response.headers_mut().insert("sec-websocket-accept", key.parse().expect("a value"));
        response
    })
    .await;
    let rig = Pair { client: Protocol::Http1, pod: Protocol::Http1 }.start(&pod).await;
    let stream = rig.raw().await;
    let (mut socket, _) = patient(tokio_tungstenite::client_async("ws://app.ns/chat", stream)).await.expect("agreed");
    for message in [Message::text("hello"), Message::binary(vec![7; 1 << 20]), Message::text("")] {
        socket.send(message.clone()).await.expect("open");
        assert_eq!(patient(socket.next()).await.expect("open").expect("whole"), message);
    }
    rig.until(|load| load.in_flight == 1).await;
    socket.close(None).await.expect("open");
    while let Some(Ok(message)) = patient(socket.next()).await {
        assert!(message.is_close(), "{message:?}");
    }
    drop(socket);
    rig.until(|load| load.in_flight == 0).await;
}
