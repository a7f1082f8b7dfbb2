//! `Expect: 100-continue`: the upload stays at the client until the pod asks for it.

use crate::rig::{self, Pod, Rig, patient, read_until, write};
use crate::scripted::Scripted;
use common::backend::Protocol;
use http::{Request, StatusCode};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HEAD: &str = "POST / HTTP/1.1\r\nhost: app.ns\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";

async fn is_silent(client: &TcpStream) -> bool {
    tokio::time::timeout(Duration::from_millis(100), client.peek(&mut [0])).await.is_err()
}

/// Goal: the client gets the 100 when the pod sends it, not before, also if its request was held, and then sends its
/// body.
#[tokio::test]
async fn the_pods_own_100_lets_the_upload_go() {
    let mut pods = Scripted::start().await;
    let rig = Rig::with_revision(|_| {}).await;
    let mut client = rig.raw().await;
    write(&mut client, HEAD).await;
    rig.until(|load| load.queued == 1).await;
    assert!(is_silent(&client).await, "there is no pod yet");
    rig.pods(&[pods.address]).await;
    let (head, mut pod) = pods.next_request().await;
    assert!(head.to_ascii_lowercase().contains("expect: 100-continue"), "{head}");
    assert!(is_silent(&client).await, "nobody has asked for the body");
    pod.write_all(b"HTTP/1.1 100 Continue\r\nx-hint: 1\r\n\r\n").await.expect("open");
    assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 100"));
    write(&mut client, "hello").await;
    let mut body = [0; 5];
    patient(pod.read_exact(&mut body)).await.expect("the body");
    assert_eq!(&body, b"hello");
    pod.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await.expect("open");
    assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 201"));
}

/// Goal: a pod's rejection of an unread upload reaches the client without a 100 and without any byte of the upload. The
/// connection ends, as the response says.
#[tokio::test]
async fn a_refusal_reaches_the_client_without_its_upload() {
    let mut pods = Scripted::start().await;
    let rig = Rig::with_pods(&[pods.address], |_| {}).await;
    for answer in ["HTTP/1.1 417 Expectation Failed", "HTTP/1.1 200 OK"] {
        let mut client = rig.raw().await;
        write(&mut client, HEAD).await;
        let (_, mut pod) = pods.next_request().await;
        pod.write_all(format!("{answer}\r\ncontent-length: 2\r\n\r\nno").as_bytes()).await.expect("open");
        let text = rig::read_to_end(&mut client).await;
        assert!(text.starts_with(answer) && text.ends_with("no") && !text.contains(" 100 "), "{text}");
        assert_eq!(text.matches("\r\nconnection: close\r\n").count(), 1, "{text}");
        let mut rest = Vec::new();
        let _ = patient(pod.read_to_end(&mut rest)).await;
        assert!(rest.is_empty(), "nothing of the body came");
    }
}

/// Goal: a pod that never sends 100 gets the upload anyway, after a second (as in Knative).
#[tokio::test]
async fn a_pod_that_says_nothing_gets_the_upload_after_a_second() {
    let mut pods = Scripted::start().await;
    let rig = Rig::with_pods(&[pods.address], |_| {}).await;
    let mut client = rig.raw().await;
    let start = tokio::time::Instant::now();
    write(&mut client, HEAD).await;
    let (_, mut pod) = pods.next_request().await;
    assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 100"));
    assert!(start.elapsed() > Duration::from_millis(700), "{:?}", start.elapsed());
    write(&mut client, "hello").await;
    let mut body = [0; 5];
    patient(pod.read_exact(&mut body)).await.expect("the body");
    pod.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.expect("open");
    assert!(read_until(&mut client, "ok").await.starts_with("HTTP/1.1 200"));
}

/// Goal: an HTTP/2 pod gets the upload as soon as there is a stream, and a client that sends without waiting is served.
#[tokio::test]
async fn http2_pods_and_impatient_clients_wait_for_nothing() {
    let pod = Pod::returning().await;
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let rig = Rig::with_pods(&[pod.address], |backend| backend.protocol = protocol).await;
        let mut client = rig.raw().await;
        write(&mut client, &format!("{HEAD}hello")).await;
        let text = read_until(&mut client, "hello").await;
        assert!(text.contains("HTTP/1.1 200"), "{protocol:?}: {text}");
        // Over HTTP/2 the header is not passed on, and nothing waits.
        let mut client = rig::http2_client(rig.address).await;
        let request = Request::post("http://app.ns/").header("expect", "100-continue");
        let request =
            request.body(http_body_util::Full::new(bytes::Bytes::from_static(b"over h2"))).expect("a request");
        let answer = rig::Answer::read(patient(client.send_request(request)).await.expect("an answer")).await;
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "over h2"), "{protocol:?}");
    }
}

/// Goal: the activator does not ask for an upload that will not be read: unknown host, or timeout while held.
#[tokio::test]
async fn refusals_of_ours_ask_for_no_upload() {
    let rig = Rig::with_revision(|backend| backend.timeout_ms = 300).await;
    for (host, status) in [("nobody.ns", "404"), ("app.ns", "504")] {
        let mut client = rig.raw().await;
        write(&mut client, &HEAD.replace("app.ns", host)).await;
        let text = rig::read_to_end(&mut client).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")) && !text.contains(" 100 "), "{host}: {text}");
        assert_eq!(text.matches("HTTP/1.1").count(), 1, "{host}: {text}");
    }
}
