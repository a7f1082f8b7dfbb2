//! Interim responses (1xx) of a pod: HTTP/1.1 clients get them, in order and without delay.

use crate::rig::{self, GET, UPGRADE, ask_http2, patient, read_until, write};
use crate::scripted::{Scripted, read_head};
use http::Request;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HINT: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Returns everything up to the final response's body, without the header that hyper adds.
async fn read_answer(client: &mut TcpStream) -> String {
    let text = read_until(client, "\r\n\r\nok").await;
    text.split("\r\n").filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("\r\n")
}

/// Goal: a hint arrives before its response; several arrive in order, even together with the response; and the
/// connection stays open.
#[tokio::test]
async fn hints_come_at_once_and_in_order() {
    let (mut pods, rig) = Scripted::with_rig().await;
    let (mut client, _, mut pod) = pods.request(&rig, GET).await;
    write(&mut pod, HINT).await;
    assert_eq!(read_until(&mut client, "\r\n\r\n").await, HINT, "before there is a response");
    write(&mut pod, "HTTP/1.1 102 X\r\nconnection: x-own\r\nx-own: 1\r\ncontent-length: 7\r\n\r\n").await;
    assert_eq!(read_until(&mut client, "\r\n\r\n").await, "HTTP/1.1 102 Processing\r\n\r\n");
    write(&mut pod, OK).await;
    assert_eq!(read_answer(&mut client).await, OK);

    write(&mut client, GET).await;
    assert!(patient(read_head(&mut pod)).await.is_some(), "on the same connection");
    write(&mut pod, &format!("{HINT}HTTP/1.1 104 X\r\n\r\n{HINT}{OK}")).await;
    assert_eq!(read_answer(&mut client).await, format!("{HINT}HTTP/1.1 104 \r\n\r\n{HINT}{OK}"));
    write(&mut client, GET).await;
    assert!(patient(read_head(&mut pod)).await.is_some());
    write(&mut pod, OK).await;
    assert_eq!(read_answer(&mut client).await, OK);
}

/// Goal: a hint never appears inside the previous response, even if the client has not read all of it. Method: two
/// requests in one write; the first response exceeds the socket buffers. The client reads slowly, so that the end of
/// this response is still in the activator when the hint and the response of the second request come.
#[tokio::test]
async fn a_hint_waits_for_the_end_of_the_response_before_it() {
    const LENGTH: usize = 16 << 20;
    const LEFT: usize = 128 << 10; // The sockets buffer this much, so that the pod can finish without a reader.
    let (mut pods, rig) = Scripted::with_rig().await;
    let (mut client, _, mut pod) = pods.request(&rig, &GET.repeat(2)).await;
    let answered = Arc::new(AtomicBool::new(false));
    let both = answered.clone();
    let answering = tokio::spawn(async move {
        write(&mut pod, &format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n")).await;
        write(&mut pod, &"x".repeat(LENGTH)).await;
        assert!(read_head(&mut pod).await.is_some(), "over the same connection");
        write(&mut pod, &format!("{HINT}{OK}")).await;
        both.store(true, Ordering::SeqCst);
        pod
    });
    let mut received = Vec::new();
    while !answered.load(Ordering::SeqCst) {
        if received.len() > LENGTH - LEFT {
            rig::until(|| answered.load(Ordering::SeqCst)).await;
            break;
        }
        let mut piece = vec![0; 64 << 10];
        let n = patient(client.read(&mut piece)).await.expect("open");
        received.extend_from_slice(&piece[..n]);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(received.len() < LENGTH, "its end was received too early");
    while !received.ends_with(b"\r\n\r\nok") {
        assert_ne!(patient(client.read_buf(&mut received)).await.expect("open"), 0);
    }
    let body = received.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    assert!(received[body..body + LENGTH].iter().all(|byte| *byte == b'x'), "the first body is unchanged");
    let rest = String::from_utf8_lossy(&received[body + LENGTH..]);
    assert!(rest.starts_with(HINT) && rest[HINT.len()..].starts_with("HTTP/1.1 200 OK\r\n"), "{rest}");
    drop(patient(answering).await.expect("no panic"));
}

#[tokio::test]
async fn http10_and_http2_clients_get_no_hints() {
    let (mut pods, rig) = Scripted::with_rig().await;
    let (mut client, _, mut pod) = pods.request(&rig, "GET / HTTP/1.0\r\nhost: app.ns\r\n\r\n").await;
    write(&mut pod, &format!("{HINT}{OK}")).await;
    let text = rig::read_to_end(&mut client).await;
    assert!(text.starts_with("HTTP/1.0 200 OK\r\n") && text.ends_with("ok"), "{text}");
    assert_eq!(text.matches("HTTP/1.").count(), 1, "{text}");

    let (answer, ()) = tokio::join!(ask_http2(rig.address, Request::get("http://app.ns/"), ""), async {
        if patient(read_head(&mut pod)).await.is_none() {
            pod = pods.next_request().await.1;
        }
        write(&mut pod, &format!("{HINT}{OK}")).await;
    });
    assert_eq!(answer.body, "ok");
}

/// Goal: 100 and 101 keep their meaning. Bytes of a tunnel are not taken for hints.
#[tokio::test]
async fn hints_may_precede_100_and_101() {
    let (mut pods, rig) = Scripted::with_rig().await;
    let expecting = "POST / HTTP/1.1\r\nhost: app.ns\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";
    let (mut client, _, mut pod) = pods.request(&rig, expecting).await;
    write(&mut pod, HINT).await;
    assert_eq!(read_until(&mut client, "\r\n\r\n").await, HINT, "without a 100");
    write(&mut pod, "HTTP/1.1 100 Continue\r\n\r\n").await;
    assert_eq!(read_until(&mut client, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    write(&mut client, "hello").await;
    assert_eq!(read_until(&mut pod, "hello").await, "hello");
    write(&mut pod, &format!("{HINT}{OK}")).await;
    assert_eq!(read_answer(&mut client).await, format!("{HINT}{OK}"));

    let (mut client, _, mut pod) = pods.request(&rig, UPGRADE).await;
    let switched = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nhi";
    write(&mut pod, &format!("{HINT}{switched}")).await;
    let text = read_until(&mut client, "\r\n\r\nhi").await;
    assert!(text.starts_with(HINT) && text[HINT.len()..].starts_with("HTTP/1.1 101 "), "{text}");
    write(&mut client, "from the client").await;
    assert_eq!(read_until(&mut pod, "client").await, "from the client");
    write(&mut pod, "HTTP/1.1 103 is text here\r\n\r\n").await;
    assert_eq!(read_until(&mut client, "\r\n\r\n").await, "HTTP/1.1 103 is text here\r\n\r\n");
}

/// Goal: an error response follows the hints after a timeout, and if the hints of a pod exceed their bound.
#[tokio::test]
async fn an_error_response_of_ours_follows_the_hints() {
    let (mut pods, rig) = Scripted::with_rig().await;
    rig.revision(|backend| backend.timeout_ms = 3_000).await;
    let (mut client, _, mut pod) = pods.request(&rig, GET).await;
    write(&mut pod, HINT).await;
    let text = read_until(&mut client, "timeout of 3s").await;
    assert!(text.starts_with(HINT) && text[HINT.len()..].starts_with("HTTP/1.1 504 "), "{text}");

    rig.revision(|_| {}).await;
    let closing = GET.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    let (mut client, _, mut pod) = pods.request(&rig, &closing).await;
    let flood = tokio::spawn(async move {
        let mut hints = 0;
        while pod.write_all(HINT.as_bytes()).await.is_ok() {
            hints += 1;
        }
        hints
    });
    let text = rig::read_to_end(&mut client).await;
    assert!(patient(flood).await.expect("no panic") > 0);
    let hints = text.matches(HINT).count();
    let end = &text[hints * HINT.len()..];
    assert!(end.starts_with("HTTP/1.1 502 "), "after {hints} hints: {end}");
    assert!(hints > 0 && hints * HINT.len() < 2 << 20, "{hints} hints");
}
