//! Terminating pods: a request that a pod has not processed is sent to another, whatever its method.

use crate::frames::{DATA, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS, frame, read_frame};
use crate::rig::{self, Pod, Rig, ask_with, bind, listen, patient};
use common::backend::Protocol;
use http::StatusCode;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Goal: requests that an HTTP/2 pod reports as unprocessed go to another pod, with their bodies: after REFUSED_STREAM,
/// and after a GOAWAY that names no stream. If too much of the body was sent, the activator responds with a 502.
#[tokio::test]
async fn a_refused_stream_is_sent_elsewhere() {
    let rows = [(0, StatusCode::OK), (10_000, StatusCode::OK), (60_000, StatusCode::BAD_GATEWAY)];
    for (leaves, (size, expected)) in [false, true].into_iter().flat_map(|leaves| rows.map(|row| (leaves, row))) {
        let rig = Rig::with_revision(|backend| backend.protocol = Protocol::H2c).await;
        let refusing = Pod::raw(listen().await, move |mut stream, requests| async move {
            stream.read_exact(&mut [0; PREFACE.len()]).await?;
            stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
            let (mut request, mut length) = (None, 0);
            while let Ok(received) = read_frame(&mut stream).await {
                match received.kind {
                    HEADERS => (request, length) = (Some(received.stream), 0),
                    DATA => length += received.payload.len(),
                    _ => {}
                }
                if let Some(id) = request.take_if(|_| length >= size) {
                    requests.fetch_add(1, Ordering::SeqCst);
                    let refused = frame(RST_STREAM, 0, id, &7_u32.to_be_bytes());
                    stream.write_all(&if leaves { frame(GOAWAY, 0, 0, &[0; 8]) } else { refused }).await?;
                }
            }
            Ok::<_, std::io::Error>(())
        });
        rig.pods(&[refusing.address]).await;
        let next = Pod::returning().await;
        let text = "x".repeat(size);
        let (answered, ()) = tokio::join!(ask_with(rig.address, rig::post("/"), text.clone()), async {
            rig::until(|| refusing.requests() > 0).await;
            rig.pods(&[refusing.address, next.address]).await;
        });
        assert_eq!(answered.status, expected, "{size} bytes: {}", answered.body);
        if expected == StatusCode::OK {
            assert!(answered.body == text, "{size} bytes: {} returned", answered.body.len());
            assert_eq!(next.requests(), 1);
        } else {
            assert_eq!(answered.header("x-zeroscale-origin"), "activator");
        }
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
    assert_eq!(ask_with(rig.address, rig::post("/"), "after").await.body, "after");
}
