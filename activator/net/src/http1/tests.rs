//! Test that compares responses as hyper's client and this module read them. Every difference must be explained.
//!
//! Responses are assembled from usual and unusual pieces, some bytes are changed, and the result is split into parts.
//! All of it derives from a seed, which a failure names.

use super::{Decoder, Head, Malformed, read_head};
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LINES: [&str; 8] = [
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200 Fine",
    "HTTP/1.0 200 OK",
    "HTTP/1.1 204 No Content",
    "HTTP/1.1 304 Not Modified",
    "HTTP/1.1 500",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK",
    "HTTP/1.1 103 Early\r\nlink: </a>\r\n\r\nHTTP/1.1 404 Not Found",
];

const FIELDS: [&str; 12] = [
    "content-length: 5",
    "Content-Length: 5, 5",
    "content-length: 0",
    "content-length: 05",
    "transfer-encoding: chunked",
    "Transfer-Encoding: Chunked",
    "connection: close",
    "x-a: b",
    "x-a:\tb \t",
    "x-empty:",
    "trailer: x-sum",
    "set-cookie: a=\"\u{e4}\"",
];

const BODIES: [&str; 7] = [
    "",
    "hello",
    "hello, world",
    "5\r\nhello\r\n0\r\n\r\n",
    "5;a=b\r\nhello\r\n2 \r\n, \r\n0\r\nx-sum: 1\r\n\r\n",
    "005\r\nhello\r\n0\r\n\r\nrest",
    "5\r\nhello\r\n",
];

/// Result of reading: status, fields, body, trailers.
type Read = (StatusCode, HeaderMap, Vec<u8>, Option<HeaderMap>);

fn random_response(rng: &mut SmallRng) -> Vec<u8> {
    let mut text = LINES.choose(rng).copied().unwrap_or_default().to_owned();
    for _ in 0..rng.random_range(0..4) {
        text += "\r\n";
        text += FIELDS.choose(rng).copied().unwrap_or_default();
    }
    text += "\r\n\r\n";
    text += BODIES.choose(rng).copied().unwrap_or_default();
    let mut bytes = text.into_bytes();
    if rng.random_bool(0.3) {
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..3) {
            0 => bytes[at] = *b"\r\n\0 ;:,a0\xff".choose(rng).unwrap_or(&0),
            1 => drop(bytes.remove(at)),
            _ => bytes.truncate(at),
        }
    }
    bytes
}

async fn read_by_hyper(parts: &[&[u8]]) -> Option<Read> {
    let (client, mut pod) = tokio::io::duplex(1 << 16);
    let (mut sender, connection) = http1::handshake(TokioIo::new(client)).await.expect("a connection");
    let driver = tokio::spawn(connection);
    let exchange = async {
        let response: Response<_> = sender.send_request(Request::new(Empty::<Bytes>::new())).await.ok()?;
        let (mut head, body) = response.into_parts();
        head.headers.remove(CONTENT_LENGTH);
        let body = body.collect().await.ok()?;
        let trailers = body.trailers().cloned();
        Some((head.status, head.headers, body.to_bytes().to_vec(), trailers))
    };
    let says = async {
        let mut request = [0; 256];
        assert_ne!(pod.read(&mut request).await.expect("open"), 0);
        for part in parts {
            if pod.write_all(part).await.is_err() {
                break; // hyper has read enough.
            }
            tokio::task::yield_now().await;
        }
        drop(pod);
    };
    let (read, ()) = tokio::join!(exchange, says);
    driver.abort();
    read
}

/// Reads a response with this module. An incomplete response is an error.
fn read_here(parts: &[&[u8]]) -> Result<Read, Malformed> {
    const CLOSED: Malformed = Malformed("closed");
    let mut input = BytesMut::new();
    let mut parts = parts.iter();
    let answer = loop {
        match read_head(&mut input, &Method::GET)? {
            Some(Head::Final(answer)) => break answer,
            Some(Head::Interim(_)) => {}
            None => input.extend_from_slice(parts.next().ok_or(CLOSED)?),
        }
    };
    let (mut decoder, mut data, mut trailers) = (answer.body, Vec::new(), None);
    loop {
        while let Some(frame) = decoder.decode(&mut input)? {
            match frame.into_data() {
                Ok(bytes) => data.extend_from_slice(&bytes),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        match parts.next() {
            _ if decoder.is_done() => break,
            Some(part) => input.extend_from_slice(part),
            None if decoder == Decoder::UntilClose => break,
            None => return Err(CLOSED),
        }
    }
    assert!(decoder.is_done() || decoder == Decoder::UntilClose);
    let (mut head, ()) = answer.head.into_parts();
    head.headers.remove(CONTENT_LENGTH); // It is normalized to one number.
    Ok((head.status, head.headers, data, trailers))
}

/// Problems that are rejected here but not by hyper: the end of the body is ambiguous, or would be with a body.
const REFUSED_HERE: [&str; 2] = [
    "the Transfer-Encoding of the response is not exactly one chunked coding",
    "the Content-Length of the response is not one number",
];

/// Reports whether all heads of a response are valid, HTTP/1.0 has no chunks, and no bare LF is an empty line. hyper
/// rejects everything else.
fn is_usual(mut bytes: &[u8]) -> bool {
    loop {
        let mut fields = [httparse::EMPTY_HEADER; 8];
        let mut head = httparse::Response::new(&mut fields);
        let Ok(httparse::Status::Complete(length)) = head.parse(bytes) else { return false };
        if !head.code.is_some_and(|code| (100..200).contains(&code)) {
            let is_coding = |field: &httparse::Header<'_>| field.name.eq_ignore_ascii_case("transfer-encoding");
            let is_old = head.version == Some(0) && head.headers.iter().any(is_coding);
            return !is_old && !bytes.windows(2).any(|ends| ends == b"\n\n");
        }
        bytes = &bytes[length..];
    }
}

#[tokio::test]
async fn responses_are_read_as_hyper_reads_them() {
    let (mut same, mut neither, mut mended) = (0, 0, 0);
    for seed in 0..4_000 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let bytes = random_response(&mut rng);
        let part = *[1, 3, 17, 1000].choose(&mut rng).unwrap_or(&1);
        let parts: Vec<&[u8]> = bytes.chunks(part).collect();
        let case = || format!("seed {seed}: {:?}", String::from_utf8_lossy(&bytes));
        match (read_by_hyper(&parts).await, read_here(&parts)) {
            (Some(theirs), Ok(ours)) => {
                assert_eq!(ours, theirs, "{}", case());
                same += 1;
            }
            (None, Err(_)) => neither += 1,
            (Some(theirs), Err(problem)) => {
                assert!(REFUSED_HERE.contains(&problem.0), "{problem}, but hyper read {theirs:?}; {}", case());
            }
            (None, Ok(ours)) => {
                assert!(!is_usual(&bytes), "hyper refused what was read as {ours:?}; {}", case());
                mended += 1;
            }
        }
    }
    assert!(same > 1_000 && neither > 300 && mended > 0, "{same} the same, {neither} by neither, {mended} here");
}
