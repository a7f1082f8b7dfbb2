//! The table computed from objects, and forwarding over real sockets.

use super::*;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

fn service(cluster_ip: &str) -> Service {
    let ports = json!([{"name": "http", "port": 80}, {"name": "u", "port": 53, "protocol": "UDP"}]);
    serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "ns"}, "spec": {"clusterIP": cluster_ip, "ports": ports},
    }))
    .expect("a valid Service")
}

fn slice(endpoints: serde_json::Value) -> EndpointSlice {
    serde_json::from_value(json!({
        "metadata": {"name": "a-1", "namespace": "ns", "labels": {"kubernetes.io/service-name": "a"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints,
    }))
    .expect("a valid EndpointSlice")
}

fn endpoint(address: &str, ready: bool, serving: bool, terminating: bool) -> serde_json::Value {
    json!({"addresses": [address], "conditions": {"ready": ready, "serving": serving, "terminating": terminating}})
}

#[test]
fn ready_endpoints_are_preferred_to_terminating_ones() {
    let (ready, starting) = (endpoint("127.1.0.1", true, true, false), endpoint("127.1.0.2", false, false, false));
    let ending = endpoint("127.1.0.3", false, true, true);
    let rows = [
        (json!([ready, starting, ending]), vec!["127.1.0.1:8080"]),
        (json!([starting, ending]), vec!["127.1.0.3:8080"]),
        (json!([starting]), vec![]),
        (json!([{"addresses": ["127.1.0.4"]}]), vec!["127.1.0.4:8080"]), // No conditions: ready.
    ];
    for (endpoints, expected) in rows {
        let ports = table::service_ports([service("127.1.128.1")].iter(), [slice(endpoints.clone())].iter());
        assert_eq!(ports.len(), 1, "TCP ports only");
        let (address, backends) = ports.values().next().expect("a port");
        let backends: Vec<_> = backends.iter().map(ToString::to_string).collect();
        assert_eq!(backends, expected, "{endpoints}");
        assert_eq!(address.map(|a| a.to_string()).as_deref(), Some("127.1.128.1:80"));
    }
}

/// Starts a server that sends its name and closes the connection.
async fn server(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(name.as_bytes()).await;
        }
    });
    address
}

async fn ask(address: SocketAddr) -> io::Result<String> {
    let mut text = String::new();
    TcpStream::connect(address).await?.read_to_string(&mut text).await?;
    Ok(text)
}

#[tokio::test]
async fn connections_rotate_skip_refusing_endpoints_and_follow_changes() {
    let (a, b) = (server("a").await, server("b").await);
    // Bound without a listener, so that connections are refused.
    let bound = TcpSocket::new_v4().expect("a socket");
    bound.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let dead = bound.local_addr().expect("an address");
    let listener = listener("127.0.0.1:0".parse().expect("an address")).expect("a listener");
    let listening = accept(a, listener, vec![a, b]);
    let mut answers = [ask(listening.local).await.expect("an answer"), ask(listening.local).await.expect("an answer")];
    answers.sort();
    assert_eq!(answers, ["a", "b"]);
    listening.backends.set(vec![dead, b]);
    for _ in 0..3 {
        assert_eq!(ask(listening.local).await.expect("an answer"), "b");
    }
    listening.backends.set(Vec::new());
    let refused = ask(listening.local).await.map_err(|e| e.kind());
    assert_eq!(refused, Err(io::ErrorKind::ConnectionReset), "no endpoint is left");
    let local = listening.local;
    drop(listening);
    let closed = async {
        while ask(local).await.map_err(|e| e.kind()) != Err(io::ErrorKind::ConnectionRefused) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), closed).await.expect("the listener closes");
}

/// Goal: a Service with an address of another machine gets a substitute. Method: an address of TEST-NET-1, which no
/// machine has.
#[tokio::test]
async fn an_address_of_another_machine_gets_a_substitute() {
    let listener = listener("192.0.2.1:80".parse().expect("an address")).expect("a substitute");
    assert!(listener.local_addr().expect("an address").ip().is_loopback());
}
