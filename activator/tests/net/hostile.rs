//! Malicious or faulty clients: each is refused, its connection is closed, and no pod receives any of its bytes. Other
//! clients are still served.

use crate::frames::*;
use crate::rig::{self, Pod, Rig, patient};
use common::backend::Protocol;
use http::{Request, StatusCode};
use tokio::io::AsyncWriteExt;

/// Starts an activator with one pod.
async fn warm() -> (Rig, Pod) {
    let pod = Pod::echoing().await;
    let rig = Rig::with_pods(&[pod.address], |backend| backend.timeout_ms = 2_000).await;
    rig.until_open().await;
    (rig, pod)
}

/// Sends `bytes` and returns everything that is received until the connection is closed.
async fn answer_to(rig: &Rig, bytes: &[u8]) -> String {
    let mut client = rig.raw().await;
    // The connection may be closed before all is written.
    let _ = patient(client.write_all(bytes)).await;
    rig::read_to_end(&mut client).await
}

/// End of an HTTP/1 connection.
#[derive(Debug, PartialEq)]
enum End {
    /// One error response of this status and nothing more. 0: no response of HTTP/1.
    Refused(u16),
    /// The first request is served, and the one behind it gets a 400.
    SecondRefused,
}
use End::{Refused, SecondRefused};

/// Goal: the activator is as strict as Knative's, as far as was observed, or stricter: it also refuses obsolete line
/// folding, LF alone, and a length beside a coding.
#[tokio::test]
async fn ambiguous_http1_is_refused() {
    let (rig, pod) = warm().await;
    let rows = [
        ("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\x03\x03\r\n\r\n", Refused(400)),
        ("no HTTP", "nonsense\r\n\r\n", Refused(400)),
        ("no version", "GET /\r\n\r\n", Refused(400)),
        ("another version", "GET / HTTP/3.0\r\nHost: app.ns\r\n\r\n", Refused(400)),
        ("HTTP/2 with a broken preface", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", Refused(0)),
        ("a tunnel", "CONNECT app.ns:80 HTTP/1.1\r\nHost: app.ns:80\r\nConnection: close\r\n\r\n", Refused(400)),
        ("two spaces", "GET  / HTTP/1.1\r\nHost: app.ns\r\n\r\n", Refused(400)),
        ("a control byte in the target", "GET /\x01 HTTP/1.1\r\nHost: app.ns\r\n\r\n", Refused(400)),
        ("DEL in the target", "GET /\x7f HTTP/1.1\r\nHost: app.ns\r\n\r\n", Refused(400)),
        ("a blank in the target", "GET /a b HTTP/1.1\r\nHost: app.ns\r\n\r\n", Refused(400)),
        ("a fragment behind the host", "GET http://app.ns#/ HTTP/1.1\r\nHost: app.ns\r\n\r\n", Refused(400)),
        ("a host in brackets", "GET http://<app.ns>/ HTTP/1.1\r\nHost: app.ns\r\n\r\n", Refused(400)),
        ("an invalid target", "GET nowhere HTTP/1.1\r\nHost: app.ns\r\n\r\n", Refused(400)),
        ("no host", "GET / HTTP/1.1\r\n\r\n", Refused(400)),
        ("an invalid host", "GET / HTTP/1.1\r\nHost: app.ns/x@y\r\n\r\n", Refused(400)),
        ("user information", "GET http://app.ns@evil/ HTTP/1.1\r\nHost: app.ns\r\n\r\n", Refused(400)),
        ("LF alone", "GET / HTTP/1.1\nHost: app.ns\n\n", Refused(400)),
        (
            "HTTP/1.0 with a coding",
            "POST / HTTP/1.0\r\nHost: app.ns\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            Refused(400),
        ),
    ];
    let with_fields = [
        ("two hosts", "Host: app.ns\r\n", Refused(400)),
        ("space before the colon", "X-A : b\r\n", Refused(400)),
        ("no colon", "X-A\r\n", Refused(400)),
        ("an invalid name", "X(A): b\r\n", Refused(400)),
        ("an empty name", ": b\r\n", Refused(400)),
        ("line folding", "X-A: b\r\n c\r\n", Refused(400)),
        ("LF alone on one line", "X-A: b\nX-C: d\r\n", Refused(400)),
        ("CR alone", "X-A: b\rX-C: d\r\n", Refused(400)),
        ("NUL", "X-A: b\0c\r\n", Refused(400)),
    ];
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
    let coded = |coding: &str| format!("Transfer-Encoding:{coding}\r\n\r\n0\r\n\r\n");
    let next = "\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n";
    let smuggled = "\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: app.ns\r\n\r\n";
    let second = format!("POST / HTTP/1.1\r\nHost: app.ns\r\nContent-Length: 30\r\n{CHUNKED}{smuggled}");
    let with_bodies = [
        ("a length and a coding", format!("Content-Length: 5\r\n{CHUNKED}{next}"), Refused(400)),
        ("a coding and a length", format!("{CHUNKED}Content-Length: 5\r\n\r\n0\r\n\r\n"), Refused(400)),
        ("both behind a body, already in the parser", format!("Content-Length: 1\r\n\r\nx{second}"), SecondRefused),
        ("two lengths", "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd".into(), Refused(400)),
        ("a list of lengths", "Content-Length: 3, 3\r\n\r\nabc".into(), Refused(400)),
        ("a signed length", "Content-Length: +3\r\n\r\nabc".into(), Refused(400)),
        ("a negative length", "Content-Length: -3\r\n\r\nabc".into(), Refused(400)),
        ("a hexadecimal length", "Content-Length: 0x3\r\n\r\nabc".into(), Refused(400)),
        ("an empty length", "Content-Length:\r\n\r\nabc".into(), Refused(400)),
        ("a huge length", "Content-Length: 99999999999999999999\r\n\r\n".into(), Refused(400)),
        ("an unknown coding", coded(" xchunked"), Refused(400)),
        ("no coding", coded(""), Refused(400)),
        ("chunked is not last", coded(" chunked, identity"), Refused(400)),
        ("more than chunked", coded(" gzip, chunked"), Refused(501)),
        ("chunked twice", coded(" chunked\r\nTransfer-Encoding: chunked"), Refused(501)),
        ("a coding with a vertical tab", coded(" \x0bchunked"), Refused(400)),
        ("another expectation", "Content-Length: 3\r\nExpect: a-coin\r\n\r\nabc".into(), Refused(417)),
    ];
    let head = |method: &str| format!("{method} / HTTP/1.1\r\nHost: app.ns\r\n");
    let rows = rows.map(|(name, text, end)| (name, text.to_owned(), end)).into_iter();
    let rows = rows.chain(with_fields.map(|(name, fields, end)| (name, format!("{}{fields}\r\n", head("GET")), end)));
    let rows = rows.chain(with_bodies.map(|(name, rest, end)| (name, head("POST") + &rest, end)));
    for (name, bytes, expected) in rows {
        let before = pod.requests();
        let text = answer_to(&rig, bytes.as_bytes()).await;
        let answers = text.matches("HTTP/1.").count();
        match expected {
            Refused(0) => assert_eq!(answers, 0, "{name}: {text}"),
            Refused(status) => {
                let starts = |version: &str| text.starts_with(&format!("HTTP/{version} {status} "));
                assert!(starts("1.1") || starts("1.0"), "{name}: {text}");
                assert_eq!((answers, pod.requests()), (1, before), "{name}: {text}");
            }
            SecondRefused => {
                assert_eq!((answers, pod.requests()), (2, before + 1), "{name}: {text}");
                assert!(text.contains("HTTP/1.1 400 ") && !text.contains("smuggled"), "{name}: {text}");
            }
        }
    }
    assert_eq!(rig.get("app.ns", "/").await.status, StatusCode::OK);
}

/// Goal: malformed chunks get a 400, not the pod's 502, and nothing after them is taken for a request.
#[tokio::test]
async fn malformed_chunks_are_the_clients_fault() {
    let pod = Pod::measuring().await;
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let rig = Rig::with_pods(&[pod.address], |backend| backend.protocol = protocol).await;
        for chunks in [
            "zz\r\nab\r\n0\r\n\r\n",
            "0x2\r\nab\r\n0\r\n\r\n",
            "-1\r\nab\r\n0\r\n\r\n",
            "fffffffffffffffff\r\nab\r\n0\r\n\r\n",
            "2\r\nabc\r\n0\r\n\r\n",
            "2;a\nb\r\nab\r\n0\r\n\r\n",
            "2\nab\r\n0\r\n\r\n",
            "\r\n\r\n",
        ] {
            let head = "POST / HTTP/1.1\r\nHost: app.ns\r\nTransfer-Encoding: chunked\r\n\r\n";
            let text =
                answer_to(&rig, format!("{head}{chunks}GET /next HTTP/1.1\r\nHost: app.ns\r\n\r\n").as_bytes()).await;
            assert!(text.starts_with("HTTP/1.1 400 "), "{protocol:?} {chunks:?}: {text}");
            assert_eq!(text.matches("HTTP/1.1").count(), 1, "{protocol:?} {chunks:?}: {text}");
        }
        // A short chunk extension is skipped, a very long one is refused.
        let long = format!("2;{}\r\nab\r\n0\r\n\r\n", "e".repeat(64 * 1024));
        for (chunks, status) in [("2;name=value\r\nab\r\n0\r\n\r\n", 200), (&long, 400)] {
            let head = "POST / HTTP/1.1\r\nHost: app.ns\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
            let text = answer_to(&rig, format!("{head}{chunks}").as_bytes()).await;
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{protocol:?}: {text}");
        }
    }
}

/// Goal: each bound has its own status, and heads within the bounds are served.
#[tokio::test]
async fn oversized_heads_are_refused() {
    let (rig, pod) = warm().await;
    let get = |target: &str, fields: &str| format!("GET {target} HTTP/1.1\r\nHost: app.ns\r\n{fields}\r\n");
    let field = |size: usize| format!("X-Large: {}\r\n", "v".repeat(size));
    let rows = [
        ("a target of 65 KB", get(&format!("/{}", "p".repeat(66_000)), ""), 414),
        ("a field of 2 MB", get("/", &field(2 << 20)), 431),
        ("fields of 2 MB", get("/", &field(40_000).repeat(52)), 431),
        ("too many fields", get("/", &"X-A: b\r\n".repeat(1024)), 431),
    ];
    for (name, head, status) in rows {
        let text = answer_to(&rig, head.as_bytes()).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {text}");
    }
    assert_eq!(pod.requests(), 0);
    let mut client = rig.send_raw(&get("/", &field(60_000).repeat(6))).await;
    let text = rig::read_until(&mut client, "\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 200 "), "a head of 360 KB is within the bound: {}", &text[..40.min(text.len())]);
}

/// Goal: the upload ends both while it is held and while it is being forwarded.
#[tokio::test]
async fn a_stalled_upload_ends_at_the_timeout() {
    for held in [false, true] {
        let pod = Pod::measuring().await;
        let rig = Rig::with_revision(|backend| backend.timeout_ms = 300).await;
        if !held {
            rig.pods(&[pod.address]).await;
        }
        let text = answer_to(&rig, b"POST / HTTP/1.1\r\nHost: app.ns\r\nContent-Length: 1000\r\n\r\n0123456789").await;
        assert!(text.starts_with("HTTP/1.1 504 "), "held: {held}: {text}");
        rig.until(|load| load.in_flight + load.queued == 0).await;
    }
}

/// Goal: the authority of a request target in absolute form selects the revision and reaches the pod; `Host` does
/// neither.
#[tokio::test]
async fn an_absolute_target_takes_precedence_over_the_host() {
    let (rig, _pod) = warm().await;
    let text = answer_to(&rig, b"GET http://app.ns/p HTTP/1.1\r\nHost: other.ns\r\nConnection: close\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    assert!(text.contains("GET /p\n") && text.contains("host: app.ns\n"), "{text}");
    assert!(!text.contains("other.ns"), "{text}");
    let text = answer_to(&rig, b"GET http://other.ns/ HTTP/1.1\r\nHost: app.ns\r\nConnection: close\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 404 "), "{text}");
}

// HTTP/2, in frames.

pub(crate) const GET: [(&[u8], &[u8]); 4] =
    [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"app.ns")];

pub(crate) const POST: [(&[u8], &[u8]); 4] = [(b":method", b"POST"), GET[1], GET[2], GET[3]];

fn get_and(more: &[(&[u8], &[u8])]) -> Vec<u8> {
    block(&[&GET, more].concat())
}

/// Goal: no pod gets a request that is malformed by RFC 9113, 8.2 and 8.3, or would become another request when written
/// as HTTP/1.1.
#[tokio::test]
async fn http2_that_cannot_be_translated_reaches_no_pod() {
    let (rig, pod) = warm().await;
    let rows = [
        ("connection", get_and(&[(b"connection", b"close")])),
        ("keep-alive", get_and(&[(b"keep-alive", b"1")])),
        ("proxy-connection", get_and(&[(b"proxy-connection", b"close")])),
        ("upgrade", get_and(&[(b"upgrade", b"websocket")])),
        ("transfer-encoding", get_and(&[(b"transfer-encoding", b"chunked")])),
        ("te other than trailers", get_and(&[(b"te", b"gzip")])),
        ("an upper-case name", get_and(&[(b"X-Upper", b"v")])),
        ("a name with a space", get_and(&[(b"x a", b"v")])),
        ("a name with a colon", get_and(&[(b"x:a", b"v")])),
        ("a name with CR LF", get_and(&[(b"x\r\na", b"v")])),
        ("an empty name", get_and(&[(b"", b"v")])),
        ("a value with CR LF", get_and(&[(b"x-a", b"v\r\nhost: evil")])),
        ("a value with LF", get_and(&[(b"x-a", b"v\nhost: evil")])),
        ("a value with NUL", get_and(&[(b"x-a", b"v\0w")])),
        ("an unknown pseudo-header", get_and(&[(b":secret", b"v")])),
        ("a path twice", get_and(&[(b":path", b"/other")])),
        ("a late pseudo-header", block(&[GET[0], GET[1], GET[2], (b"x-a", b"v"), GET[3]])),
        ("no path", block(&[GET[0], GET[1], GET[3]])),
        ("an empty path", block(&[GET[0], GET[1], (b":path", b""), GET[3]])),
        ("no method", block(&GET[1..])),
        ("a path with CR LF", block(&[GET[0], GET[1], (b":path", b"/ HTTP/1.1\r\nx: y"), GET[3]])),
        ("a method with a space", block(&[(b":method", b"GET /x"), GET[1], GET[2], GET[3]])),
        ("an authority with CR LF", block(&[GET[0], GET[1], GET[2], (b":authority", b"app.ns\r\nx: y")])),
        ("a length without a body", get_and(&[(b"content-length", b"5")])),
    ];
    for (name, block) in rows {
        let mut client = Frames::open(&rig).await;
        client.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block)).await;
        let verdict = client.verdict(1).await;
        assert_eq!(pod.requests(), 0, "{name}: {verdict:?}");
    }
    // If `:authority` and `Host` differ, the authority is used, and `Host` does not reach the pod.
    let answer = rig::ask_http2(rig.address, Request::get("http://app.ns/").header("host", "other.ns"), "").await;
    assert!(answer.body.contains("host: app.ns\n") && !answer.body.contains("other.ns"), "{}", answer.body);
}

/// Reads to the end of a connection. Returns the code of its GOAWAY, if there is one.
async fn ending(client: &mut Frames) -> Option<u32> {
    while let Some(frame) = client.next().await {
        if frame.kind == GOAWAY {
            return Some(frame.code(4));
        }
    }
    None
}

/// Goal: a flood of cheap frames ends the sender's connection.
#[tokio::test]
async fn http2_floods_end_their_own_connection() {
    let (rig, pod) = warm().await;

    // Requests that are reset before they are processed (CVE-2023-44487).
    let mut rapid = Frames::open(&rig).await;
    let mut bytes = Vec::new();
    for n in 0..2_000 {
        bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, &get_and(&[])));
        bytes.extend(frame(RST_STREAM, 0, 2 * n + 1, &8_u32.to_be_bytes()));
    }
    rapid.send(&bytes).await;
    assert!(matches!(ending(&mut rapid).await, None | Some(11)), "ENHANCE_YOUR_CALM, or closed");
    assert!(pod.requests() < 1_000, "{} of 2000 reset requests reached the pod", pod.requests());

    // A header block without an end (CVE-2024-27316).
    let mut endless = Frames::open(&rig).await;
    endless.send(&frame(HEADERS, END_STREAM, 1, &get_and(&[]))).await;
    let piece = frame(CONTINUATION, 0, 1, &block(&[(&b"x-a"[..], &[b'v'; 100][..]); 100]));
    let mut sent = 0;
    while endless.send(&piece).await {
        sent += piece.len();
        assert!(sent < 64 << 20, "still read after {sent} bytes");
    }

    // Frames that carry nothing, also mixed with requests.
    const UNKNOWN: u8 = 0xfa;
    for (kind, payload) in [
        (PING, &[0; 8][..]),
        (SETTINGS, &[]),
        (PRIORITY, &[0, 0, 0, 0, 7]),
        (WINDOW_UPDATE, &[0, 0, 0, 1]),
        (UNKNOWN, b"x"),
        (UNKNOWN, &[]),
    ] {
        let mut flood = Frames::open(&rig).await;
        let stream = if kind == PRIORITY { 1 } else { 0 };
        flood.send(&frame(kind, 0, stream, payload).repeat(5_000)).await;
        assert_eq!(ending(&mut flood).await, Some(11), "kind {kind}: ENHANCE_YOUR_CALM");
    }
    assert_eq!(rig.get("app.ns", "/").await.status, StatusCode::OK, "other clients are served");
}
