//! Requests to an activator that has just started, at an address that an activator had a moment ago.

use crate::rig::{Pod, Rig, patient};
use activator::discovery::Event;
use common_runtime::resolve::Dns;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: app.ns\r\nconnection: close\r\n\r\n";

async fn start() -> Rig {
    Rig::start_knowing_nothing(|_| {}, activator::Configs::default(), Arc::new(Dns)).await
}

/// Goal: a request before the revisions are known is served once they are. Method: a kubelet probe before it on the
/// same connection gets a response, so the request has been read.
#[tokio::test]
async fn a_request_before_the_first_lists_waits_for_them() {
    let rig = start().await;
    let mut client = TcpStream::connect(rig.address).await.expect("connected");
    let probe = "GET / HTTP/1.1\r\nhost: x\r\nuser-agent: kube-probe/1.34\r\n\r\n";
    client.write_all(format!("{probe}{REQUEST}").as_bytes()).await.expect("written");
    let mut told = Vec::new();
    patient(async {
        while !told.ends_with(b"list of revisions yet\n") {
            assert!(client.read_buf(&mut told).await.expect("readable") > 0, "{}", String::from_utf8_lossy(&told));
        }
    })
    .await;
    let pod = Pod::saying("served").await;
    rig.revision(|_| {}).await;
    rig.pods(&[pod.address]).await;
    rig.tell(Event::Synced).await;
    let mut answer = String::new();
    patient(client.read_to_string(&mut answer)).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("served"), "{answer}");
}

/// Goal: if lists do not come, a request gets an error in time.
#[tokio::test]
async fn a_request_is_refused_where_lists_do_not_come() {
    let rig = start().await;
    let mut client = TcpStream::connect(rig.address).await.expect("connected");
    client.write_all(REQUEST.as_bytes()).await.expect("written");
    let mut answer = String::new();
    patient(client.read_to_string(&mut answer)).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("x-zeroscale-reason: not-synced"), "{answer}");
}
