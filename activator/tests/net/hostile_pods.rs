//! Pods with invalid or endless responses. Each costs the request that got it, by a 502 that names the activator or a
//! reset in mid-response, and nothing else: all counts return to zero, and the pod stays in use.

use crate::frames::*;
use crate::rig::{self, Answer, Rig, listen};
use bytes::Bytes;
use common::backend::Protocol;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Behavior of a pod after the first bytes of its response.
#[derive(Clone, Copy, Debug)]
enum Then {
    Waits,
    Closes,
    /// Sends this repeatedly, as long as it is read.
    Repeats(&'static [u8]),
}
use Then::{Closes, Repeats, Waits};

/// Pod that answers every request with the same bytes.
struct Hostile {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Hostile {
    async fn start(protocol: Protocol, answer: &[u8], then: Then) -> Self {
        let listener = listen().await;
        let (address, requests) = (listener.local_addr().expect("bound"), Arc::new(AtomicUsize::new(0)));
        let (answer, count) = (answer.to_vec(), requests.clone());
        let accepting = tokio::spawn(async move {
            let mut streams = tokio::task::JoinSet::new(); // Dropped with the pod.
            while let Ok((stream, _)) = listener.accept().await {
                streams.spawn(meet(stream, protocol, answer.clone(), then, count.clone()));
            }
        });
        Self { address, requests, accepting }
    }

    fn request_count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn meet(
    mut stream: TcpStream,
    protocol: Protocol,
    answer: Vec<u8>,
    then: Then,
    requests: Arc<AtomicUsize>,
) -> std::io::Result<()> {
    let whole = |bytes: &[u8]| match protocol {
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
        let Some(answer) = whole(&request) else { continue };
        request.clear();
        requests.fetch_add(1, Ordering::SeqCst);
        stream.write_all(&answer).await?;
        match then {
            Waits => {}
            Closes => return Ok(()),
            Repeats(bytes) => {
                // Many at a time: a call for each would use all the time of a busy machine.
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

async fn rig(protocol: Protocol, pod: &Hostile) -> Rig {
    Rig::with_pods(&[pod.address], |backend| backend.protocol = protocol).await
}

/// Sends two requests to a pod with this response and checks that both get a 502.
async fn is_refused(name: &str, protocol: Protocol, answer: &[u8], then: Then) {
    let pod = Hostile::start(protocol, answer, then).await;
    let rig = rig(protocol, &pod).await;
    for method in ["POST", "PUT"] {
        let request = Request::builder().method(method).uri("/").header("host", "app.ns");
        let request = request.header("content-length", "0").body(Empty::<Bytes>::new()).expect("a request");
        let mut client = rig.client().await;
        let answered = tokio::time::timeout(rig::PATIENCE, client.send_request(request)).await;
        let answer = Answer::read(answered.expect(name).expect(name)).await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{name}, {method}: {}", answer.body);
        let refusal = (answer.header("x-zeroscale-origin"), answer.header("x-zeroscale-reason"));
        assert_eq!(refusal, ("activator", "pod"), "{name}, {method}");
    }
    assert_eq!(pod.request_count(), 2, "{name}: it stays in use, and is asked once for each");
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

/// Sends requests to a pod with this response and checks that the response begins well and is broken off.
async fn breaks_off(name: &str, protocol: Protocol, answer: &[u8], then: Then) {
    let pod = Hostile::start(protocol, answer, then).await;
    let rig = rig(protocol, &pod).await;
    // The second of two may wait for a pod that is still busy with the first.
    let requests = if matches!(then, Repeats(_)) { 1 } else { 2 };
    for sent in 1..=requests {
        let request = rig::post("/").body(Empty::<Bytes>::new()).expect("a request");
        // The connection may break before the response head has been sent on.
        let mut client = rig.client().await;
        let answered = tokio::time::timeout(rig::PATIENCE, client.send_request(request)).await;
        if let Ok(response) = answered.expect(name) {
            assert_eq!(response.status(), StatusCode::OK, "{name}");
            let rest = tokio::time::timeout(rig::PATIENCE, response.into_body().collect()).await.expect(name);
            assert!(rest.is_err(), "{name}: it ended cleanly, with {:?}", rest.map(|rest| rest.to_bytes()));
        }
        assert_eq!(pod.request_count(), sent, "{name}: it stays in use");
    }
    rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
}

#[tokio::test]
async fn http1_answers_that_are_none_are_told_as_such() {
    let large = format!("HTTP/1.1 200 OK\r\nx-large: {}\r\n\r\n", "v".repeat(500 * 1024));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-a: b\r\n".repeat(1500));
    let rows: &[(&str, &[u8], Then)] = &[
        ("status 099", b"HTTP/1.1 099 Low\r\ncontent-length: 0\r\n\r\n", Waits),
        ("status 1000", b"HTTP/1.1 1000 High\r\ncontent-length: 0\r\n\r\n", Waits),
        ("status abc", b"HTTP/1.1 abc OK\r\ncontent-length: 0\r\n\r\n", Waits),
        ("another protocol", b"SSH-2.0-OpenSSH_9.6\r\n", Waits),
        ("HTTP/2", b"\0\0\0\x04\0\0\0\0\0", Waits),
        ("a line without a colon", b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", Waits),
        ("a name with a space", b"HTTP/1.1 200 OK\r\nx a: b\r\ncontent-length: 0\r\n\r\n", Waits),
        ("a value with NUL", b"HTTP/1.1 200 OK\r\nx-a: b\0c\r\ncontent-length: 0\r\n\r\n", Waits),
        ("two lengths", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!", Waits),
        ("a length that is none", b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", Waits),
        ("two lengths in one field", b"HTTP/1.1 200 OK\r\ncontent-length: 2, 3\r\n\r\nok!", Waits),
        (
            "an unknown coding",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            Waits,
        ),
        (
            "chunked twice",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            Waits,
        ),
        ("a field of 500 KB", large.as_bytes(), Waits),
        ("1500 fields", many.as_bytes(), Waits),
        ("a head without end", b"HTTP/1.1 200 OK\r\n", Repeats(&[b'x'; 4096])),
        ("fields without end", b"HTTP/1.1 200 OK\r\n", Repeats(b"x-a: b\r\n")),
        ("interim answers without end", b"", Repeats(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")),
        ("interim answers and an end", b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", Closes),
        ("half a head", b"HTTP/1.1 200 OK\r\ncontent-le", Closes),
        ("an upgrade that nobody asked for", b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", Closes),
    ];
    for (name, answer, then) in rows {
        is_refused(name, Protocol::Http1, answer, *then).await;
    }
}

/// Goal: unusual framing that other proxies accept is translated to the usual form. If it is faulty, both connections
/// end with the response.
#[tokio::test]
async fn unusual_framing_comes_through_in_the_usual_form() {
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
        let pod = Hostile::start(Protocol::Http1, format!("HTTP/{answer}").as_bytes(), then).await;
        let rig = rig(Protocol::Http1, &pod).await;
        let mut client = rig.raw().await;
        rig::write(&mut client, "POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 0\r\n\r\n").await;
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
        assert_eq!(pod.request_count(), if ends { 1 } else { 2 }, "{name}");
    }
}

#[tokio::test]
async fn http1_bodies_that_go_wrong_are_reset() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nparts\r\n";
    let chunked = |rest: &str| format!("{CHUNKED}{rest}").into_bytes();
    let rows: &[(&str, Vec<u8>, Then)] = &[
        ("less than its length", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nparts".to_vec(), Closes),
        ("no last chunk", chunked(""), Closes),
        ("a size that is none", chunked("zz\r\nab\r\n"), Waits),
        ("a size beyond all bounds", chunked("fffffffffffffffff\r\n"), Waits),
        ("a chunk longer than it says", chunked("2\r\nabc\r\n0\r\n\r\n"), Waits),
        ("an extension without end", chunked("2;"), Repeats(&[b'e'; 4096])),
        ("a trailer that is none", chunked("0\r\nnonsense\r\n\r\n"), Waits),
        ("trailers without end", chunked("0\r\n"), Repeats(b"x-trailer: value\r\n")),
    ];
    for (name, answer, then) in rows {
        breaks_off(name, Protocol::Http1, answer, *then).await;
    }
}

/// Goal: bytes after a response are not taken for the next response.
#[tokio::test]
async fn more_than_an_answer_is_not_the_next_answer() {
    let stuffed = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    let pod = Hostile::start(Protocol::Http1, stuffed, Waits).await;
    let rig = rig(Protocol::Http1, &pod).await;
    for sent in 1..=5 {
        let answer = rig.send(rig::post("/")).await;
        assert_eq!((answer.status, answer.body.as_str(), pod.request_count()), (StatusCode::OK, "ok", sent));
    }
}

/// Returns a response head with a field whose value has `size` bytes, and `count` references to it, of a byte each.
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

fn http2_rows() -> Vec<(&'static str, Vec<u8>, Then)> {
    let head = |fields: &[(&[u8], &[u8])]| frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(fields));
    let ok: (&[u8], &[u8]) = (b":status", b"200");
    vec![
        ("HTTP/1.1", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Waits),
        ("a frame too large", [&[0xff, 0xff, 0xff, DATA, 0][..], &1_u32.to_be_bytes()].concat(), Waits),
        ("a head of no stream", frame(HEADERS, END_STREAM | END_HEADERS, 0, &block(&[ok])), Waits),
        ("a head of another stream", frame(HEADERS, END_STREAM | END_HEADERS, 2, &block(&[ok])), Waits),
        ("data before the head", frame(DATA, END_STREAM, 1, b"data"), Waits),
        ("status 099", head(&[(b":status", b"099")]), Waits),
        ("no status", head(&[(b"x-a", b"b")]), Waits),
        ("an upper-case name", head(&[ok, (b"X-A", b"b")]), Waits),
        ("a value with CR LF", head(&[ok, (b"x-a", b"b\r\nevil: c")]), Waits),
        ("a block that is none", frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0xff; 16]), Waits),
        ("an internal error", frame(RST_STREAM, 0, 1, &2_u32.to_be_bytes()), Waits),
        ("a reset of a stream that is none", frame(RST_STREAM, 0, 99, &2_u32.to_be_bytes()), Waits),
        ("a window beyond all bounds", frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]), Waits),
        ("more window than there can be", frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes()), Waits),
        ("a promise", frame(PUSH_PROMISE, END_HEADERS, 1, &[&2_u32.to_be_bytes()[..], &block(&[ok])].concat()), Waits),
        (
            "a head without end",
            frame(HEADERS, END_STREAM, 1, &block(&[ok])),
            Repeats(b"\0\0\x06\x09\0\0\0\0\x01\0\x01a\x02bc"),
        ),
        ("a little more than 400 KiB of references", head_of_references(1, 4000, 102), Waits),
        ("ten megabytes of references", head_of_references(1, 4000, 2600), Waits),
        ("12 000 references to next to nothing", head_of_references(1, 0, 12_000), Waits),
        (
            "a head in pieces with others between",
            [frame(HEADERS, 0, 1, &block(&[ok])), frame(DATA, 0, 1, b"x"), frame(CONTINUATION, 0, 1, &[])].concat(),
            Waits,
        ),
    ]
}

#[tokio::test]
async fn http2_answers_that_are_none_are_told_as_such() {
    for (name, answer, then) in http2_rows() {
        let settings = frame(SETTINGS, 0, 0, &[]);
        let answer = if name == "HTTP/1.1" { answer } else { [settings, answer].concat() };
        is_refused(name, Protocol::H2c, &answer, then).await;
    }
}

/// Goal: the pod is told the bound, and heads within it pass, regardless of their compressed size.
#[tokio::test]
async fn http2_heads_within_the_bound_pass() {
    let answer = [frame(SETTINGS, 0, 0, &[]), head_of_references(1, 4000, 98)].concat();
    let pod = Hostile::start(Protocol::H2c, &answer, Waits).await;
    let rig = rig(Protocol::H2c, &pod).await;
    for _ in 0..3 {
        let answer = rig.send(rig::post("/")).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        assert_eq!(answer.headers.get_all("x").iter().count(), 99);
    }
    let listener = listen().await;
    rig.pods(&[listener.local_addr().expect("bound")]).await;
    let sends = async {
        loop {
            let (mut stream, _) = listener.accept().await.expect("dialled");
            let (mut hello, bound) = (vec![0; 24 + 9 + 60], [&[0, 6][..], &(400 * 1024_u32).to_be_bytes()].concat());
            if let Ok(n @ 34..) = stream.read(&mut hello).await {
                return hello[..n].windows(6).any(|setting| setting == bound);
            }
        }
    };
    assert!(tokio::time::timeout(rig::PATIENCE, sends).await.expect("it dials"), "no SETTINGS_MAX_HEADER_LIST_SIZE");
}

#[tokio::test]
async fn http2_bodies_that_go_wrong_are_reset() {
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
        breaks_off(name, Protocol::H2c, &answer, then).await;
    }
}

/// DATA frame of stream 1, of the default maximum size.
static LARGE_DATA: [u8; 9 + 16_384] = {
    let mut bytes = [0; 9 + 16_384];
    (bytes[1], bytes[8]) = (0x40, 1);
    bytes
};

/// Goal: a pod that refuses every request, in one of two ways, gets a bounded number of attempts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_turns_everything_away_is_not_asked_for_ever() {
    let refused = frame(RST_STREAM, 0, 1, &7_u32.to_be_bytes());
    let goodbye = frame(7, 0, 0, &[0; 8]);
    for answer in [refused, goodbye] {
        let pod = Hostile::start(Protocol::H2c, &[frame(SETTINGS, 0, 0, &[]), answer].concat(), Closes).await;
        let rig = rig(Protocol::H2c, &pod).await;
        let answer = rig.send(rig::post("/")).await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{}", answer.body);
        assert_eq!(answer.header("x-zeroscale-origin"), "activator");
        assert!(pod.request_count() < 1_000, "{} times", pod.request_count());
        rig.until(|load| (load.in_flight, load.queued) == (0, 0)).await;
    }
}
