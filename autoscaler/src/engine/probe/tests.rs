//! Tests of probes over real sockets, with a resolver that knows one address.

use super::*;
use crate::scale::fixture::FixedAddress;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Returns a server that answers its n-th connection with the n-th response, and reports the requests.
async fn server(answers: &'static [&'static str]) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (read, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut head = vec![0; 4096];
            let length = stream.read(&mut head).await.expect("a request");
            let _ = read.send(String::from_utf8_lossy(&head[..length]).into_owned());
            stream.write_all(answer.as_bytes()).await.expect("an answer");
        }
    });
    (address, requests)
}

const ACTIVATOR_ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nactivator";
const POD_ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
const QUEUE_PROXY_ANSWER: &str = "HTTP/1.1 400 Bad Request\r\ncontent-length: 9\r\n\r\nactivator";

fn target() -> ProbeTarget {
    ProbeTarget { host: "hello.ns.svc.cluster.local".into(), port: 80 }
}

fn prober(address: SocketAddr) -> (Arc<Prober>, WorkQueue<Key>) {
    let queue = WorkQueue::new();
    (Arc::new(Prober::new(Arc::new(FixedAddress(address)), CancellationToken::new(), queue.clone())), queue)
}

#[tokio::test]
async fn an_activators_response_to_the_probe_is_a_proof() {
    let (address, mut requests) = server(&[ACTIVATOR_ANSWER]).await;
    let (prober, over) = prober(address);
    let key = Key::new("ns", "hello");
    assert_eq!(prober.proof(&key, &target()), ProbeResult::NotProbed);
    prober.start_round(&key, target());
    prober.start_round(&key, target()); // One round at a time: the server responds once.
    assert_eq!(over.next().await.key(), &key);
    assert_eq!(prober.proof(&key, &target()), ProbeResult::InPath);
    let other = ProbeTarget { port: 81, ..target() };
    assert_eq!(prober.proof(&key, &other), ProbeResult::NotProbed, "a proof is valid for one target");
    let request = requests.recv().await.expect("a request");
    assert!(request.starts_with("GET //healthz HTTP/1.1\r\n"), "{request}");
    for line in [
        "host: hello.ns.svc.cluster.local:80",
        "user-agent: Knative-Autoscaling-Probe",
        "k-network-probe: activator",
        "connection: close",
    ] {
        assert!(request.lines().any(|l| l.eq_ignore_ascii_case(line)), "{line} is not in {request}");
    }
    prober.forget(&key);
    assert_eq!(prober.proof(&key, &target()), ProbeResult::NotProbed);
}

/// Goal: only an activator's exact response is a proof. Until it arrives the round continues, with a second between two
/// probes; then it ends. Method: the first response is a pod's, the second a queue-proxy's, the third an activator's.
#[tokio::test]
async fn a_round_continues_until_an_activator_responds() {
    let (address, mut requests) = server(&[POD_ANSWER, QUEUE_PROXY_ANSWER, ACTIVATOR_ANSWER]).await;
    let (prober, over) = prober(address);
    let key = Key::new("ns", "hello");
    let started = Instant::now();
    prober.start_round(&key, target());
    requests.recv().await.expect("the first probe");
    requests.recv().await.expect("the second probe");
    assert_eq!(prober.proof(&key, &target()), ProbeResult::NotInPath);
    requests.recv().await.expect("the third probe");
    assert!(started.elapsed() >= PROBE_PERIOD * 2);
    assert_eq!(over.next().await.key(), &key);
    assert_eq!(prober.proof(&key, &target()), ProbeResult::InPath);
}
