//! Dashboard over a port that the API server forwards. The test server speaks the kubelet's protocol over a WebSocket
//! (`v4.channel.k8s.io`): two channels per port, each of which begins with the port number.

use super::{LIST, Respond, Server, failure, listed, run, scaler, text};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::{Message, accept_hdr};

const PROTOCOL: &str = "v4.channel.k8s.io";
const PODS: &str = "GET /api/v1/namespaces/zeroscale-system/pods";
const PORT: [u8; 2] = 8090_u16.to_le_bytes();

/// Reports whether the pending request asks for port forwarding.
pub(super) fn is_port_forward(stream: &TcpStream) -> bool {
    let mut head = [0; 1024];
    loop {
        let read = stream.peek(&mut head).unwrap_or(0);
        match head[..read].iter().position(|byte| *byte == b'\r') {
            Some(end) => {
                let text = String::from_utf8_lossy(&head[..end]);
                return text.contains("/portforward?") && text.contains("ports=8090");
            }
            None if read == 0 || read == head.len() => return false,
            None => std::thread::yield_now(),
        }
    }
}

/// Handles one forwarded connection as `respond` returns: connects to `{"to": ADDRESS}`, or sends `{"error": TEXT}` as
/// the pod's error.
#[allow(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
pub(super) fn forward(stream: TcpStream, respond: &Respond) {
    let mut scripted = (0, Value::Null);
    let mut check = |request: &Request, mut response: Response| {
        scripted = respond(&format!("{} {}", request.method(), request.uri().path()), "");
        let offered = request.headers()["sec-websocket-protocol"].to_str().unwrap_or_default();
        if scripted.0 != 101 || !offered.split(", ").any(|offered| offered == PROTOCOL) {
            let mut refused = ErrorResponse::new(Some(scripted.1.to_string()));
            *refused.status_mut() = scripted.0.try_into().unwrap_or_default();
            return Err(refused);
        }
        response.headers_mut().insert("sec-websocket-protocol", PROTOCOL.parse().expect("a value"));
        Ok(response)
    };
    let Ok(mut socket) = accept_hdr(stream, &mut check) else { return };
    let mut send = |channel: u8, bytes: &[u8]| socket.send(Message::binary([&[channel], bytes].concat()));
    // Errors are ignored: a client that only checks the right may have closed the connection.
    let _ = send(0, &PORT).and_then(|()| send(1, &PORT));
    if let Some(error) = scripted.1["error"].as_str() {
        let _ = send(1, error.as_bytes());
        while socket.read().is_ok() {} // Wait until the client closes, so that it receives the error.
        return;
    }
    let to: SocketAddr = scripted.1["to"].as_str().and_then(|to| to.parse().ok()).expect("an address");
    let Ok(Message::Binary(bytes)) = socket.read() else { return };
    assert_eq!(bytes[0], 0, "the port's own channel");
    let mut pod = TcpStream::connect(to).expect("a dashboard");
    pod.write_all(&bytes[1..]).expect("written");
    let mut answer = Vec::new();
    pod.read_to_end(&mut answer).expect("an answer");
    for piece in answer.chunks(7) {
        let _ = socket.send(Message::binary([&[0], piece].concat()));
    }
    let _ = socket.close(None);
    while socket.read().is_ok() {}
}

fn pods(names: &[(&str, &str)]) -> (u16, Value) {
    let pod = |(name, ready): &(&str, &str)| {
        json!({"metadata": {"name": name, "namespace": "zeroscale-system"},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    };
    let items: Vec<_> = names.iter().map(pod).collect();
    (200, json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": items}))
}

/// Starts a dashboard that knows only workload `hello`, with its load.
fn dashboard() -> Server {
    Server::start(|_, _| {
        let hello = json!({"namespace": "shop", "name": "hello", "state": "Awake", "requestsPerSecond": 12.5, "held": 4,
            "pods": {"ready": 2, "actual": 2}, "why": "the load asks for it"});
        (200, json!({"replicas": [{"name": "autoscaler-1", "answered": true}], "workloads": [hello]}))
    })
}

/// Goal: without an address, the dashboard is found in a ready pod through the API server, with only the rights to list
/// pods and to forward a port. If the pod is gone, another one is used.
#[test]
fn the_dashboard_is_reached_through_the_api_server() {
    let to = json!({"to": dashboard().address.to_string()});
    let gone = std::sync::atomic::AtomicBool::new(false);
    let api = Server::start(move |request, _| match request {
        LIST => listed(&[scaler("hello", json!({}), json!({"state": "Asleep"}))]),
        // The second list has the replacement.
        PODS if gone.swap(true, std::sync::atomic::Ordering::Relaxed) => pods(&[("autoscaler-c", "True")]),
        PODS => pods(&[("autoscaler-a", "False"), ("autoscaler-b", "True")]),
        "GET /api/v1/namespaces/zeroscale-system/pods/autoscaler-c/portforward" => (101, to.clone()),
        _ => failure(404, "NotFound", "pods \"autoscaler-b\" not found", json!({"name": "autoscaler-b"})),
    });
    let output = run(api.address, &["status"]);
    let (table, warnings) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && warnings.is_empty(), "{warnings}");
    let row: Vec<_> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(row[..7], ["hello", "Awake", "2/2", "-", "-", "12", "4"], "{table}");
    let requests: Vec<_> = api.requests().into_iter().map(|(line, _)| line).collect();
    assert!(requests.iter().all(|line| line == LIST || line == PODS), "{requests:?}");
}

/// Goal: the error names the obstacle: no ready pod, a missing right, or a pod without a dashboard on that port.
#[test]
fn obstacles_to_the_dashboard_are_named() {
    let refused = "failed to connect to localhost:8090 inside namespace \"x\": connect: connection refused";
    type Row<'a> = (&'a [(&'a str, &'a str)], (u16, Value), &'a [&'a str]);
    let rows: [Row<'_>; 3] = [
        (&[("autoscaler-a", "False")], (500, json!({})), &["no pod with label app=autoscaler is ready", "1 exist"]),
        (
            &[("autoscaler-a", "True")],
            failure(403, "Forbidden", "cannot create pods/portforward", json!({})),
            &[
                "port 8090 of pod autoscaler-a",
                "cannot create pods/portforward: Forbidden",
                "the right to create pods/portforward in namespace zeroscale-system",
            ],
        ),
        (
            &[("autoscaler-a", "True")],
            (101, json!({"error": refused})),
            &["pod autoscaler-a accepts no connections on port 8090", "ZEROSCALE_DASHBOARD_ADDRESS", refused],
        ),
    ];
    for (listed_pods, forwarded, expected) in rows {
        let listed_pods = pods(listed_pods);
        let api = Server::start(move |request, _| match request {
            LIST => listed(&[scaler("hello", json!({}), json!({"state": "Asleep"}))]),
            PODS => listed_pods.clone(),
            _ => forwarded.clone(),
        });
        let output = run(api.address, &["status"]);
        let warnings = text(&output.stderr);
        assert!(output.status.success() && text(&output.stdout).contains("hello"), "{warnings}");
        for part in expected {
            assert!(warnings.contains(part), "{part}: {warnings}");
        }
    }
}
