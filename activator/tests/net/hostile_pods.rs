//! Pods with invalid or endless responses. Only the request that got one fails, by a 502 that names the activator or a
//! reset within the response. All counts return to zero, and the pod stays in use.

use crate::frames::*;
use crate::rig::{self, FullResponse, Pod, Rig, bind, listen};
use bytes::Bytes;
use common::backend::Protocol;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Behavior of a pod after the first bytes of its response.
#[derive(Clone, Copy, Debug)]
enum Behavior {
    Waits,
    Closes,
    /// Sends this repeatedly, as long as it is read.
    Repeats(&'static [u8]),
}
use Behavior::{Closes, Repeats, Waits};

/// Starts a pod that answers every request with the same bytes.
async fn hostile(protocol: Protocol, answer: &[u8], then: Behavior) -> Pod {
    let answer = answer.to_vec();
    Pod::raw(listen().await, move |stream, requests| serve(stream, protocol, answer.clone(), then, requests))
}

async fn serve(
    mut stream: TcpStream,
    protocol: Protocol,
    answer: Vec<u8>,
    then: Behavior,
    requests: Arc<AtomicUsize>,
) -> std::io::Result<()> {
    let answer_to = |bytes: &[u8]| match protocol {
        Protocol::Http1 => bytes.ends_with(b"\r\n\r\n").then(|| answer.clone()),
        // A HEADERS frame with END_STREAM and END_HEADERS, of one of the first streams.
        Protocol::H2c => {
            let at = bytes.windows(6).position(|part| part[..5] == [1, 5, 0, 0, 0])?;
            Some(on_stream(&answer, bytes[at + 5]))
        }
    };
    let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut chunk).await?;
        if n == 0 {
            return Ok(());
        }
        request.extend_from_slice(&chunk[..n]);
        let Some(answer) = answer_to(&request) else { continue };
        request.clear();
        requests.fetch_add(1, Ordering::SeqCst);
        stream.write_all(&answer).await?;
        match then {
            Waits => {}
            Closes => return Ok(()),
            Repeats(bytes) => {
                // Many in each call, which costs less processor time.
                let many = bytes.repeat(4096_usize.div_ceil(bytes.len()));
                loop {
                    stream.write_all(&many).await?;
                }
            }
        }
    }
}

/// Returns the frames of stream 1 with another stream identifier.
fn on_stream(frames: &[u8], stream: u8) -> Vec<u8> {
    let (mut frames, mut at) = (frames.to_vec(), 0);
    while let Some(head) = frames.get_mut(at..at + 9) {
        if head[5..] == [0, 0, 0, 1] {
            head[8] = stream;
        }
        at += 9 + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    }
    frames
}

async fn start_rig(protocol: Protocol, pod: &Pod) -> Rig {
    Rig::with_pods(&[pod.address], |backend| backend.protocol = protocol).await
}

/// Sends two requests to a pod with this response and checks that both get a 502.
async fn assert_refused(name: &str, protocol: Protocol, answer: &[u8], then: Behavior) {
    let pod = hostile(protocol, answer, then).await;
    let rig = start_rig(protocol, &pod).await;
    for method in ["POST", "PUT"] {
        let request = Request::builder().method(method).uri("/").header("host", "app.ns");
        let request = request.header("content-length", "0").body(Empty::<Bytes>::new()).expect("a request");
        let mut client = rig::http1_client(rig.address).await;
        let answered = tokio::time::timeout(rig::PATIENCE, client.send_request(request)).await;
        let answer = FullResponse::read(answered.expect(name).expect(name)).await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{name}, {method}: {}", answer.body);
        let refusal = (answer.header("x-zeroscale-origin"), answer.header("x-zeroscale-reason"));
        assert_eq!(refusal, ("activator", "pod"), "{name}, {method}");
    }
    assert_eq!(pod.requests(), 2, "{name}: the pod stays in use, and gets each request once");
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

/// Sends requests to a pod with this response, over HTTP/1.1 and then over HTTP/2, and checks that the response begins
/// with a 200 and is broken off.
async fn assert_reset(name: &str, protocol: Protocol, answer: &[u8], then: Behavior) {
    let pod = hostile(protocol, answer, then).await;
    let rig = start_rig(protocol, &pod).await;
    // The second of two may wait for a pod that is still busy with the first.
    let requests = if matches!(then, Repeats(_)) { 1 } else { 2 };
    for sent in 1..=requests {
        let request = |target: &str| rig::post(target).body(Empty::<Bytes>::new()).expect("a request");
        let answered = tokio::time::timeout(rig::PATIENCE, async {
            match sent {
                1 => rig::http1_client(rig.address).await.send_request(request("/")).await,
                _ => rig::http2_client(rig.address).await.send_request(request("http://app.ns/")).await,
            }
        });
        // The connection may break before the response head has been sent on.
        if let Ok(response) = answered.await.expect(name) {
            assert_eq!(response.status(), StatusCode::OK, "{name}");
            let rest = tokio::time::timeout(rig::PATIENCE, response.into_body().collect()).await.expect(name);
            assert!(rest.is_err(), "{name}: ended cleanly, with {:?}", rest.map(|rest| rest.to_bytes()));
        }
        assert_eq!(pod.requests(), sent, "{name}: the pod stays in use");
    }
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

#[tokio::test]
async fn invalid_http1_responses_become_a_502() {
    let large = format!("HTTP/1.1 200 OK\r\nx-large: {}\r\n\r\n", "v".repeat(500 * 1024));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-a: b\r\n".repeat(1500));
    let coded = |rest: &str| format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {rest}\r\n0\r\n\r\n").into_bytes();
    let rows: &[(&str, &[u8], Behavior)] = &[
        ("status 099", b"HTTP/1.1 099 Low\r\ncontent-length: 0\r\n\r\n", Waits),
        ("status 1000", b"HTTP/1.1 1000 High\r\ncontent-length: 0\r\n\r\n", Waits),
        ("status abc", b"HTTP/1.1 abc OK\r\ncontent-length: 0\r\n\r\n", Waits),
        ("another protocol", b"SSH-2.0-OpenSSH_9.6\r\n", Waits),
        ("HTTP/2", b"\0\0\0\x04\0\0\0\0\0", Waits),
        ("a line without a colon", b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", Waits),
        ("a name with a space", b"HTTP/1.1 200 OK\r\nx a: b\r\ncontent-length: 0\r\n\r\n", Waits),
        ("a value with NUL", b"HTTP/1.1 200 OK\r\nx-a: b\0c\r\ncontent-length: 0\r\n\r\n", Waits),
        ("two lengths", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!", Waits),
        ("an invalid length", b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", Waits),
        ("two lengths in one field", b"HTTP/1.1 200 OK\r\ncontent-length: 2, 3\r\n\r\nok!", Waits),
        ("an unknown coding", &coded("gzip, chunked\r\n\r\n2\r\nok"), Waits),
        ("chunked twice", &coded("chunked\r\ntransfer-encoding: chunked\r\n"), Waits),
        ("a field of 500 KB", large.as_bytes(), Waits),
        ("1500 fields", many.as_bytes(), Waits),
        ("a head without end", b"HTTP/1.1 200 OK\r\n", Repeats(&[b'x'; 4096])),
        ("fields without end", b"HTTP/1.1 200 OK\r\n", Repeats(b"x-a: b\r\n")),
        ("interim responses without end", b"", Repeats(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")),
        ("interim responses and an end", b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", Closes),
        ("half a head", b"HTTP/1.1 200 OK\r\ncontent-le", Closes),
        ("an upgrade without a request for it", b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", Closes),
    ];
    for (name, answer, then) in rows {
        assert_refused(name, Protocol::Http1, answer, *then).await;
    }
}

/// Goal: unusual framing that other proxies accept is passed on in the usual form. If it is faulty, both connections
/// end with the response.
#[tokio::test]
async fn unusual_framing_is_translated_to_the_usual_form() {
    // Name, response without the name of the protocol, and expected field.
    let usual = [
        ("equal lengths", "1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok", "content-length: 2\r\n"),
        ("equal fields", "1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok", "content-length: 2\r\n"),
        ("identity", "1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\nok", "transfer-encoding: chunked\r\n"),
        ("a folded field", "1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 2\r\n\r\nok", "x: a   b\r\n"),
        ("a blank before the colon", "1.1 200 OK\r\nx : a\r\ncontent-length: 2\r\n\r\nok", "x: a\r\n"),
        ("lines that end with LF", "1.1 200 OK\nx: a\ncontent-length: 2\n\nok", "x: a\r\n"),
        ("a 304 with a length", "1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", "content-length: 9\r\n"),
    ];
    let chunks = "transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let both = format!("1.1 200 OK\r\ncontent-length: 9\r\n{chunks}");
    let old = format!("1.0 200 OK\r\n{chunks}");
    let faulty = [("a length and chunks", both.as_str()), ("chunks of HTTP/1.0", old.as_str())];
    let faulty = faulty.map(|(name, answer)| (name, answer, "transfer-encoding: chunked\r\n"));
    let rows = usual.map(|row| (row, false)).into_iter().chain(faulty.map(|row| (row, true)));
    for ((name, answer, field), ends) in rows {
        let then = if name == "identity" { Closes } else { Waits };
        let pod = hostile(Protocol::Http1, format!("HTTP/{answer}").as_bytes(), then).await;
        let rig = start_rig(Protocol::Http1, &pod).await;
        let mut client = rig.send_raw("POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 0\r\n\r\n").await;
        let head = rig::read_until(&mut client, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200 ") || head.starts_with("HTTP/1.1 304 "), "{name}: {head}");
        assert!(head.contains(field), "{name}: {head}");
        assert_eq!(head.matches("content-length").count() + head.matches("chunked").count(), 1, "{name}: {head}");
        assert_eq!(head.contains("connection: close"), ends, "{name}: {head}");
        if !ends {
            rig::write(&mut client, "GET / HTTP/1.1\r\nhost: app.ns\r\nconnection: close\r\n\r\n").await;
        }
        let rest = rig::read_to_end(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 304 ") || head.contains("ok") || rest.contains("ok"), "{name}: {rest}");
        assert_eq!(pod.requests(), if ends { 1 } else { 2 }, "{name}");
    }
}

#[tokio::test]
async fn broken_http1_bodies_are_reset() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nparts\r\n";
    let chunked = |rest: &str| format!("{CHUNKED}{rest}").into_bytes();
    let rows: &[(&str, Vec<u8>, Behavior)] = &[
        ("less than its length", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nparts".to_vec(), Closes),
        ("no last chunk", chunked(""), Closes),
        ("an invalid size", chunked("zz\r\nab\r\n"), Waits),
        ("a size beyond all bounds", chunked("fffffffffffffffff\r\n"), Waits),
        ("a chunk longer than its size", chunked("2\r\nabc\r\n0\r\n\r\n"), Waits),
        ("an extension without end", chunked("2;"), Repeats(&[b'e'; 4096])),
        ("an invalid trailer", chunked("0\r\nnonsense\r\n\r\n"), Waits),
        ("trailers without end", chunked("0\r\n"), Repeats(b"x-trailer: value\r\n")),
    ];
    for (name, answer, then) in rows {
        assert_reset(name, Protocol::Http1, answer, *then).await;
    }
}

#[tokio::test]
async fn bytes_behind_a_response_are_not_the_next_response() {
    let doubled = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    let pod = hostile(Protocol::Http1, doubled, Waits).await;
    let rig = start_rig(Protocol::Http1, &pod).await;
    for sent in 1..=5 {
        let answer = rig.send(rig::post("/")).await;
        assert_eq!((answer.status, answer.body.as_str(), pod.requests()), (StatusCode::OK, "ok", sent));
    }
}

/// Returns a response head with a field whose value has `size` bytes, and `count` references to it of one byte each.
fn head_of_references(stream: u32, size: usize, count: usize) -> Vec<u8> {
    // 200 from the static table; then a literal that is added to the dynamic table, as entry 62.
    let mut block = vec![0x88, 0x40, 1, b'x'];
    match size {
        0..127 => block.push(size as u8),
        _ => block.extend([0x7f, (size - 127) as u8 | 0x80, ((size - 127) >> 7) as u8]),
    }
    block.extend(vec![b'v'; size]);
    block.extend(vec![0xbe; count]);
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
}

/// CONTINUATION of stream 1 with a field, without END_HEADERS.
const MORE_FIELDS: &[u8] = b"\0\0\x06\x09\0\0\0\0\x01\0\x01a\x02bc";

#[tokio::test]
async fn invalid_http2_responses_become_a_502() {
    let head = |fields: &[(&[u8], &[u8])]| frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(fields));
    let ok: (&[u8], &[u8]) = (b":status", b"200");
    let begun = frame(HEADERS, 0, 1, &block(&[ok]));
    let interrupted = [begun, frame(DATA, 0, 1, b"x"), frame(CONTINUATION, 0, 1, &[])].concat();
    let rows = [
        ("HTTP/1.1", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Waits),
        ("a frame too large", [&[0xff, 0xff, 0xff, DATA, 0][..], &1_u32.to_be_bytes()].concat(), Waits),
        ("a head of no stream", frame(HEADERS, END_STREAM | END_HEADERS, 0, &block(&[ok])), Waits),
        ("a head of another stream", frame(HEADERS, END_STREAM | END_HEADERS, 2, &block(&[ok])), Waits),
        ("data before the head", frame(DATA, END_STREAM, 1, b"data"), Waits),
        ("status 099", head(&[(b":status", b"099")]), Waits),
        ("no status", head(&[(b"x-a", b"b")]), Waits),
        ("an upper-case name", head(&[ok, (b"X-A", b"b")]), Waits),
        ("a value with CR LF", head(&[ok, (b"x-a", b"b\r\nevil: c")]), Waits),
        ("an invalid block", frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0xff; 16]), Waits),
        ("an internal error", frame(RST_STREAM, 0, 1, &2_u32.to_be_bytes()), Waits),
        ("a reset of an unknown stream", frame(RST_STREAM, 0, 99, &2_u32.to_be_bytes()), Waits),
        ("a window beyond all bounds", frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]), Waits),
        ("a window that overflows", frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes()), Waits),
        ("a promise", frame(PUSH_PROMISE, END_HEADERS, 1, &[&2_u32.to_be_bytes()[..], &block(&[ok])].concat()), Waits),
        ("a head without end", frame(HEADERS, END_STREAM, 1, &block(&[ok])), Repeats(MORE_FIELDS)),
        ("a little more than 400 KiB of references", head_of_references(1, 4000, 102), Waits),
        ("ten megabytes of references", head_of_references(1, 4000, 2600), Waits),
        ("12 000 references to an empty value", head_of_references(1, 0, 12_000), Waits),
        ("a head in pieces with DATA between", interrupted, Waits),
    ];
    for (name, answer, then) in rows {
        let settings = frame(SETTINGS, 0, 0, &[]);
        let answer = if name == "HTTP/1.1" { answer } else { [settings, answer].concat() };
        assert_refused(name, Protocol::H2c, &answer, then).await;
    }
}

/// Goal: heads within the bound pass, regardless of their compressed size, and the activator's SETTINGS announce the
/// bound.
#[tokio::test]
async fn http2_heads_within_the_bound_pass() {
    let answer = [frame(SETTINGS, 0, 0, &[]), head_of_references(1, 4000, 98)].concat();
    let pod = hostile(Protocol::H2c, &answer, Waits).await;
    let rig = start_rig(Protocol::H2c, &pod).await;
    for _ in 0..3 {
        let answer = rig.send(rig::post("/")).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        assert_eq!(answer.headers.get_all("x").iter().count(), 99);
    }
    let (listener, address) = bind().await;
    rig.pods(&[address]).await;
    let announces = async {
        loop {
            let (mut stream, _) = listener.accept().await.expect("dialled");
            let (mut hello, bound) = (vec![0; 24 + 9 + 60], [&[0, 6][..], &(400 * 1024_u32).to_be_bytes()].concat());
            if let Ok(n @ 34..) = stream.read(&mut hello).await {
                return hello[..n].windows(6).any(|setting| setting == bound);
            }
        }
    };
    assert!(rig::patient(announces).await, "no SETTINGS_MAX_HEADER_LIST_SIZE");
}

#[tokio::test]
async fn broken_http2_bodies_are_reset() {
    let begun = [
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, END_HEADERS, 1, &block(&[(b":status", b"200")])),
        frame(DATA, 0, 1, b"parts"),
    ]
    .concat();
    let length = block(&[(b":status", b"200"), (b"content-length", b"9")]);
    let short = [frame(SETTINGS, 0, 0, &[]), frame(HEADERS, END_HEADERS, 1, &length)];
    let rows = [
        ("a reset", [&begun[..], &frame(RST_STREAM, 0, 1, &2_u32.to_be_bytes())].concat(), Waits),
        ("an end of the connection", begun.clone(), Closes),
        ("less than its length", [&short.concat()[..], &frame(DATA, END_STREAM, 1, b"parts")].concat(), Waits),
        ("resets without end", begun.clone(), Repeats(b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x02")),
        ("more than its window", begun, Repeats(&LARGE_DATA)),
    ];
    for (name, answer, then) in rows {
        assert_reset(name, Protocol::H2c, &answer, then).await;
    }
}

/// DATA frame of stream 1, of the default maximum size.
static LARGE_DATA: [u8; 9 + 16_384] = {
    let mut bytes = [0; 9 + 16_384];
    (bytes[1], bytes[8]) = (0x40, 1);
    bytes
};

/// Method: the pod responds with REFUSED_STREAM, or with a GOAWAY that names no stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_refuses_everything_gets_a_bounded_number_of_attempts() {
    let refused = frame(RST_STREAM, 0, 1, &7_u32.to_be_bytes());
    let goodbye = frame(GOAWAY, 0, 0, &[0; 8]);
    for answer in [refused, goodbye] {
        let pod = hostile(Protocol::H2c, &[frame(SETTINGS, 0, 0, &[]), answer].concat(), Closes).await;
        let rig = start_rig(Protocol::H2c, &pod).await;
        let answer = rig.send(rig::post("/")).await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{}", answer.body);
        assert_eq!(answer.header("x-zeroscale-origin"), "activator");
        assert!(pod.requests() < 1_000, "{} times", pod.requests());
        rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
    }
}
