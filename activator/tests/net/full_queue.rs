//! Pods whose program accepts no connection for a while: their kernel's queue is full, and it says nothing to a
//! connect.

use crate::rig::{self, Rig, free, patient};
use http::StatusCode;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A listener whose queue has room for one.
fn listen_narrow() -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(free()).expect("a free port");
    socket.listen(0).expect("bound")
}

/// Reads a request without a body.
async fn read_request(stream: &mut TcpStream) {
    let text = rig::read_until(stream, "\r\n\r\n").await;
    assert!(text.ends_with("\r\n\r\n"), "{text:?}");
}

/// Goal: what such a pod runs goes on, whatever becomes of connects beside it, and nothing is written there to find out
/// whether it is there.
#[tokio::test]
async fn a_pod_with_a_full_queue_finishes_what_it_runs() {
    let listener = listen_narrow();
    let address = listener.local_addr().expect("bound");
    let rig = std::sync::Arc::new(Rig::start().await);
    rig.revision(|_| {}).await;
    rig.pods(&[address]).await;
    let mut client = rig.raw().await;
    rig::write(&mut client, "POST /first HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 0\r\n\r\n").await;
    let (mut running, _) = patient(listener.accept()).await.expect("dialled");
    read_request(&mut running).await;
    let _filling = patient(TcpStream::connect(address)).await.expect("room for one");

    let second = tokio::spawn({
        let rig = rig.clone();
        async move { rig.get("app.ns", "/second").await }
    });
    // Longer than it takes to doubt the pod, and to believe in it again.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut more = [0; 16];
    assert_eq!(running.try_read(&mut more).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock), "{more:?}");
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfirst";
    running.write_all(answer).await.expect("open");
    let answer = rig::read_until(&mut client, "first").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(running);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                while stream.read(&mut [0; 1024]).await.is_ok_and(|n| n > 0) {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.expect("open");
                }
            });
        }
    });
    assert_eq!(patient(second).await.expect("no panic").status, StatusCode::OK);
}
