//! Request targets that are no valid URI, as users type them and old browsers send them.

use crate::protocols::{PAIRS, Pair};
use crate::rig::{self, Pod, Rig, patient, read_until};
use common::backend::Protocol;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends a request with this target on an open connection, and returns the response's text.
async fn ask(client: &mut TcpStream, target: &[u8]) -> String {
    let request = [b"GET ", target, b" HTTP/1.1\r\nhost: app.ns\r\n\r\n"].concat();
    patient(client.write_all(&request)).await.expect("open");
    read_until(client, "x-forwarded-proto: http").await
}

/// Goal: the pod gets the same target as from Knative. In a query, bytes that hyper would refuse are encoded.
#[tokio::test]
async fn odd_targets_reach_the_pod() {
    let rows: [(&[u8], &str); 7] = [
        (b"/?q={\"a\":1}", "/?q={%22a%22:1}"),
        (b"/a<b>`{c}|\"\\^?d=<\"e\">`", "/a%3Cb%3E%60%7Bc%7D%7C%22%5C%5E?d=%3C%22e%22%3E`"),
        (b"/caf\xe9?caf\xe9", "/caf%E9?caf%E9"),
        ("/caf\u{e9}".as_bytes(), "/caf%C3%A9"),
        (b"/a#b?c#d", "/a%23b?c%23d"),
        (b"http://app.ns/<?\"", "/%3C?%22"),
        (b"//a//b/../%2F?x=[1]", "//a//b/../%2F?x=[1]"),
    ];
    let pod = Pod::echoing().await;
    for pair in [PAIRS[0], PAIRS[1]] {
        let rig = pair.start(&pod).await;
        let mut client = rig.raw().await;
        for (target, expected) in rows {
            let answer = ask(&mut client, target).await;
            let expected = match pair.pod {
                Protocol::Http1 => format!("http/1.1 GET {expected}\n"),
                Protocol::H2c => format!("h2 GET http://app.ns{expected}\n"),
            };
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(&expected), "{expected}: {answer}");
        }
    }
}

/// Goal: the target is complete even if its encoding exceeds a read buffer. Requests behind it are served.
#[tokio::test]
async fn a_long_odd_target_is_passed_on_completely() {
    let pod = Pod::start(|request: Request<Incoming>| async move {
        Response::new(rig::full(format!("{} {}\n", request.uri().path().len(), request.uri())))
    })
    .await;
    let rig = PAIRS[0].start(&pod).await;
    let target = "\"".repeat(20_000);
    let request = format!("GET /{target} HTTP/1.1\r\nhost: app.ns\r\n\r\n");
    let last = "GET /< HTTP/1.1\r\nhost: app.ns\r\nconnection: close\r\n\r\n";
    let answers = rig::read_to_end(&mut rig.send_raw(&format!("{request}{request}{last}")).await).await;
    let whole = format!("60001 /{}\n", "%22".repeat(20_000));
    assert_eq!(answers.matches(&whole).count(), 2, "{} bytes", answers.len());
    assert!(answers.ends_with("4 /%3C\n"), "{}", &answers[answers.len().saturating_sub(200)..]);

    // Longer than allowed after encoding.
    let mut client = rig.raw().await;
    let request = format!("GET /{} HTTP/1.1\r\nhost: app.ns\r\n\r\n", "\"".repeat(22_000));
    let _ = patient(client.write_all(request.as_bytes())).await;
    let answer = rig::read_to_end(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 414"), "{answer}");
}

/// Goal: the bytes are unchanged even if they look like a request with an odd target.
#[tokio::test]
async fn early_bytes_of_a_tunnel_arrive_unchanged() {
    const EARLY: &[u8] = b"GET /<\xe9#\" HTTP/1.1\r\n";
    let pod = Pod::start(|mut request: Request<Incoming>| async move {
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgraded.await.expect("upgraded"));
            let mut early = [0; EARLY.len()];
            io.read_exact(&mut early).await.expect("all of it");
            io.write_all(if early == EARLY { b"same" } else { b"else" }).await.expect("open");
            io.shutdown().await.expect("open");
        });
        rig::switching_to("other")
    })
    .await;
    let rig: Rig = Pair { client: Protocol::Http1, pod: Protocol::Http1 }.start(&pod).await;
    let mut client = rig.raw().await;
    let head = b"GET /< HTTP/1.1\r\nhost: app.ns\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n";
    patient(client.write_all(&[head, EARLY].concat())).await.expect("open");
    let answer = rig::read_to_end(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 101") && answer.ends_with("same"), "{answer}");
}
