//! Terminating pods: a request that a pod has not processed is sent to another, whatever its method.

use crate::frames::{GOAWAY, RST_STREAM, SETTINGS, frame};
use crate::rig::{self, FullResponse, Pod, Rig, ask_with, bind, patient};
use common::backend::Protocol;
use http::StatusCode;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn post(rig: &Rig, text: &'static str) -> FullResponse {
    ask_with(rig.address, rig::post("/"), text).await
}

/// Goal: requests that an HTTP/2 pod reports as unprocessed go to another pod, with their bodies: after REFUSED_STREAM,
/// and after a GOAWAY that names no stream. If too much of the body was sent, the activator responds with a 502.
#[tokio::test]
async fn a_refused_stream_is_sent_elsewhere() {
    for size in [0, 10_000] {
        refused_then_sent_elsewhere(size, StatusCode::OK).await;
    }
    refused_then_sent_elsewhere(60_000, StatusCode::BAD_GATEWAY).await;
}

async fn refused_then_sent_elsewhere(size: usize, expected: StatusCode) {
    let refused = frame(RST_STREAM, 0, 1, &7_u32.to_be_bytes());
    let goodbye = frame(GOAWAY, 0, 0, &[0; 8]);
    for answer in [refused, goodbye] {
        let rig = Rig::with_revision(|backend| backend.protocol = Protocol::H2c).await;
        let (listener, address) = bind().await;
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        let refusing = tokio::spawn(async move {
            let mut streams = tokio::task::JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let (count, mut answer) = (count.clone(), answer.clone());
                streams.spawn(async move {
                    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
                    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
                    loop {
                        let n = stream.read(&mut chunk).await?;
                        if n == 0 {
                            return Ok::<_, std::io::Error>(());
                        }
                        bytes.extend_from_slice(&chunk[..n]);
                        // A HEADERS frame with END_HEADERS, and maybe END_STREAM, of one of the first streams.
                        let headers = |part: &[u8]| part[0] == 1 && part[1] & 4 == 4 && part[2..5] == [0, 0, 0];
                        if bytes.len() >= size
                            && let Some(at) = bytes.windows(6).position(headers)
                        {
                            if answer[3] == RST_STREAM {
                                answer[8] = bytes[at + 5];
                            }
                            bytes.clear();
                            count.fetch_add(1, Ordering::SeqCst);
                            stream.write_all(&answer).await?;
                        }
                    }
                });
            }
        });
        rig.pods(&[address]).await;
        let next = Pod::returning().await;
        let text = "x".repeat(size);
        let (answered, ()) = tokio::join!(ask_with(rig.address, rig::post("/"), text.clone()), async {
            rig::until(|| requests.load(Ordering::SeqCst) > 0).await;
            rig.pods(&[address, next.address]).await;
        });
        assert_eq!(answered.status, expected, "{size} bytes: {}", answered.body);
        if expected == StatusCode::OK {
            assert!(answered.body == text, "{size} bytes: {} returned", answered.body.len());
            assert_eq!(next.requests(), 1);
        } else {
            assert_eq!(answered.header("x-zeroscale-origin"), "activator");
        }
        refusing.abort();
    }
}

/// Starts a pod that closes each connection after its first response, without announcing it. Counts closed connections.
async fn closing() -> (SocketAddr, Arc<AtomicUsize>) {
    let (listener, address) = bind().await;
    let closed = Arc::new(AtomicUsize::new(0));
    let count = closed.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"body") && stream.read_buf(&mut request).await.unwrap_or(0) > 0 {}
            if request.ends_with(b"body") {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.expect("open");
                drop(stream);
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    (address, closed)
}

#[tokio::test]
async fn a_post_uses_no_connection_that_was_closed_while_idle() {
    let rig = Rig::with_revision(|_| {}).await;
    let (address, closed) = closing().await;
    rig.pods(&[address]).await;
    for sent in 1..=10 {
        assert_eq!(post(&rig, "body").await.status, StatusCode::OK, "the {sent}th");
        rig::until(|| closed.load(Ordering::SeqCst) == sent).await;
    }
}

/// Goal: no request uses the idle connections of a pod that is no longer listed. Requests in flight there are
/// completed.
#[tokio::test]
async fn a_terminating_pods_idle_connections_are_closed_at_once() {
    let rig = Rig::with_revision(|_| {}).await;
    let (listener, address) = bind().await;
    let next = Pod::returning().await;
    rig.pods(&[address]).await;
    let next_request = async || {
        let (mut stream, _) = listener.accept().await.expect("dialled");
        rig::read_until(&mut stream, "\r\n\r\n").await;
        stream
    };
    let (first, second, leave) = (rig.get("app.ns", "/"), rig.get("app.ns", "/"), async {
        let (mut idle, mut busy) = (next_request().await, next_request().await);
        idle.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nidle").await.expect("open");
        rig.until(|load| load.in_flight == 1).await;
        rig.pods(&[next.address]).await;
        assert_eq!(patient(idle.read(&mut [0])).await.expect("closed, not reset"), 0);
        busy.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbusy").await.expect("open");
    });
    let (first, second, ()) = patient(async { tokio::join!(first, second, leave) }).await;
    let mut bodies = [first.body, second.body];
    bodies.sort();
    assert_eq!(bodies, ["busy", "idle"]);
    assert_eq!(post(&rig, "after").await.body, "after");
}
