//! `Expect: 100-continue`: the upload stays at the client until the pod asks for it.

use crate::rig::{self, Pod, Rig, read_until, write};
use crate::scripted::Scripted;
use common::backend::Protocol;
use http::{Request, StatusCode};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const HEAD: &str = "POST / HTTP/1.1\r\nhost: app.ns\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";

async fn is_silent(client: &TcpStream) -> bool {
    tokio::time::timeout(Duration::from_millis(100), client.peek(&mut [0])).await.is_err()
}

/// Goal: the client gets the 100 when the pod sends it, not before, even if its request was held, and then sends its
/// body.
#[tokio::test]
async fn the_pods_100_releases_the_upload() {
    let mut pods = Scripted::start().await;
    let rig = Rig::with_revision(|_| {}).await;
    let mut client = rig.send_raw(HEAD).await;
    rig.until(|load| load.queued == 1).await;
    assert!(is_silent(&client).await, "there is no pod yet");
    rig.pods(&[pods.address]).await;
    let (head, mut pod) = pods.next_request().await;
    assert!(head.to_ascii_lowercase().contains("expect: 100-continue"), "{head}");
    assert!(is_silent(&client).await, "the pod has not sent a 100");
    pod.write_all(b"HTTP/1.1 100 Continue\r\nx-hint: 1\r\n\r\n").await.expect("open");
    assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 100"));
    write(&mut client, "hello").await;
    assert_eq!(read_until(&mut pod, "hello").await, "hello");
    pod.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await.expect("open");
    assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 201"));
}

/// Goal: a response to an unread upload reaches the client without a 100, and no byte of the upload is sent. The
/// connection ends, as the response announces.
#[tokio::test]
async fn a_response_without_a_100_is_passed_on_without_the_upload() {
    let (mut pods, rig) = Scripted::with_rig().await;
    for answer in ["HTTP/1.1 417 Expectation Failed", "HTTP/1.1 200 OK"] {
        let (mut client, _, mut pod) = pods.request(&rig, HEAD).await;
        pod.write_all(format!("{answer}\r\ncontent-length: 2\r\n\r\nno").as_bytes()).await.expect("open");
        let text = rig::read_to_end(&mut client).await;
        assert!(text.starts_with(answer) && text.ends_with("no") && !text.contains(" 100 "), "{text}");
        assert_eq!(text.matches("\r\nconnection: close\r\n").count(), 1, "{text}");
        assert_eq!(rig::read_to_end(&mut pod).await, "", "no byte of the body");
    }
}

/// Goal: the wait is as long as Knative's.
#[tokio::test]
async fn a_pod_that_never_sends_100_gets_the_upload_after_a_second() {
    let (mut pods, rig) = Scripted::with_rig().await;
    let start = tokio::time::Instant::now();
    let (mut client, _, mut pod) = pods.request(&rig, HEAD).await;
    assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 100"));
    assert!(start.elapsed() > Duration::from_millis(700), "{:?}", start.elapsed());
    write(&mut client, "hello").await;
    read_until(&mut pod, "hello").await;
    pod.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.expect("open");
    assert!(read_until(&mut client, "ok").await.starts_with("HTTP/1.1 200"));
}

/// Goal: an HTTP/2 pod gets the upload with its stream, and a client that sends without waiting for a 100 is served.
#[tokio::test]
async fn http2_pods_and_clients_that_send_at_once_do_not_wait() {
    let pod = Pod::returning().await;
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let rig = Rig::with_pods(&[pod.address], |backend| backend.protocol = protocol).await;
        let mut client = rig.send_raw(&format!("{HEAD}hello")).await;
        let text = read_until(&mut client, "hello").await;
        assert!(text.contains("HTTP/1.1 200"), "{protocol:?}: {text}");
        // Over HTTP/2 the header is not passed on, and nothing waits.
        let request = Request::post("http://app.ns/").header("expect", "100-continue");
        let answer = rig::ask_http2(rig.address, request, "over h2").await;
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "over h2"), "{protocol:?}");
    }
}

/// Goal: no 100 is sent for an upload that will not be read: unknown host, or timeout while held.
#[tokio::test]
async fn our_own_refusals_request_no_upload() {
    let rig = Rig::with_revision(|backend| backend.timeout_ms = 300).await;
    for (host, status) in [("nobody.ns", "404"), ("app.ns", "504")] {
        let mut client = rig.send_raw(&HEAD.replace("app.ns", host)).await;
        let text = rig::read_to_end(&mut client).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")) && !text.contains(" 100 "), "{host}: {text}");
        assert_eq!(text.matches("HTTP/1.1").count(), 1, "{host}: {text}");
    }
}
