//! Probes of real sockets and processes.

use super::*;
use hyper::service::service_fn;
use hyper_util::server::conn::auto;
use serde_json::json;
use std::convert::Infallible;
use tokio::net::{TcpListener, TcpSocket};

fn launch() -> Launch {
    Launch { program: "/bin/sh".into(), args: vec![], env: [("MARK".into(), "1".into())].into(), dir: None }
}

fn handler(probe: serde_json::Value, ip: IpAddr, ports: serde_json::Value) -> Result<Handler, String> {
    let probe: Probe = serde_json::from_value(probe).expect("a valid probe");
    let ports: Vec<ContainerPort> = serde_json::from_value(ports).expect("valid ports");
    Handler::new(&probe, ip, &ports, &launch(), |name| Ok(format!("/bin/{name}").into()))
}

/// Starts a server that returns 200 on `/ok`, 500 elsewhere, and gRPC health by service name.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                let is_probe = request.headers().get("user-agent").is_some_and(|v| v == USER_AGENT);
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.map(|b| b.to_bytes()).unwrap_or_default();
                Ok::<_, Infallible>(answer(&path, &body, is_probe))
            });
            tokio::spawn(async move {
                auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await
            });
        }
    });
    address
}

fn answer(path: &str, body: &[u8], is_probe: bool) -> http::Response<Full<Bytes>> {
    let response = http::Response::builder();
    match path {
        "/ok" if is_probe => response.status(204).body(Full::default()),
        GRPC_CHECK => {
            let serving = body.ends_with(b"good") || body == [0; 5];
            let message = Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 8, if serving { 1 } else { 2 }]);
            response.header("grpc-status", "0").body(Full::new(message))
        }
        _ => response.status(500).body(Full::default()),
    }
    .expect("a valid response")
}

#[tokio::test]
async fn each_kind_of_probe_detects_success_and_failure() {
    let good = server().await;
    // Bound without a listener, so that connections are refused. A closed listener would not do: a process that another
    // test is just starting may keep the socket open for a moment.
    let bound = TcpSocket::new_v4().expect("a socket");
    bound.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let closed = bound.local_addr().expect("an address");
    let (port, ip) = (good.port(), good.ip());
    let rows = [
        (json!({"tcpSocket": {"port": port}}), true),
        (json!({"tcpSocket": {"port": closed.port()}}), false),
        (json!({"httpGet": {"port": port, "path": "/ok"}}), true),
        (json!({"httpGet": {"port": "web", "path": "ok"}}), true),
        (json!({"httpGet": {"port": port, "path": "/bad"}}), false),
        (json!({"httpGet": {"port": closed.port(), "path": "/ok"}}), false),
        (json!({"grpc": {"port": port}}), true),
        (json!({"grpc": {"port": port, "service": "good"}}), true),
        (json!({"grpc": {"port": port, "service": "bad"}}), false),
        (json!({"grpc": {"port": closed.port()}}), false),
        (json!({"exec": {"command": ["sh", "-c", "test $MARK = 1"]}}), true),
        (json!({"exec": {"command": ["sh", "-c", "exit 3"]}}), false),
        (json!({"exec": {"command": ["nonexistent"]}}), false),
    ];
    for (probe, expected) in rows {
        let ports = json!([{"name": "web", "containerPort": port}]);
        let handler = handler(probe.clone(), ip, ports).expect("a valid probe");
        let answer = handler.check().await;
        assert_eq!(answer.is_ok(), expected, "{probe}: {answer:?}");
    }
}

#[test]
fn an_unsupported_probe_is_rejected_with_its_reason() {
    let ip = IpAddr::from([127, 0, 0, 1]);
    let rows = [
        (json!({}), "exec, tcpSocket, httpGet, grpc"),
        (json!({"httpGet": {"port": 1, "scheme": "HTTPS"}}), "HTTPS"),
        (json!({"tcpSocket": {"port": "absent"}}), "absent"),
        (json!({"tcpSocket": {"port": 70000}}), "70000"),
        (json!({"exec": {"command": []}}), "needs a command"),
    ];
    for (probe, expected) in rows {
        let error = handler(probe, ip, json!([])).expect_err("refused");
        assert!(error.contains(expected), "{error}");
    }
}
