//! Which protocol a client speaks, told from its first bytes.
//!
//! # Where anything may come
//!
//! A port that carries HTTP and anything else ([`told_or_other`]) must not let through as bytes what a pod could take for
//! HTTP: then anybody could pass by our checks, and say in the name of others whom a request has passed. So whatever the
//! most lenient server reads as the first line of a request ([`RequestLine`]) is HTTP, and refused as such if it is not in
//! order:
//!
//! | first bytes | taken for |
//! |---|---|
//! | HTTP/2's preface | HTTP/2 |
//! | a request line | HTTP/1 |
//! | blanks, empty lines, a word of token characters, a blank and text, without an end of the line in [`LINE_MAX`] bytes | HTTP/1 |
//! | what begins so and is not all there | looked at again when more comes |
//! | anything else, also what the client has ended before it could be told | other |
//!
//! Bytes of a protocol that is not HTTP must not be waited for, so what is passed on as other may still turn out to be a
//! request line: the relay reads on ([`crate::relay`]), and resets the connection before a pod has the end of that line.

use crate::relay::mark;
use crate::request_line::{RequestLine, is_blank};
use common_runtime::tls::server::TlsStream;
use rustix::net::{RecvFlags, recv};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use tokio::io::{AsyncBufRead, Interest};
use tokio::net::TcpStream;

/// How an HTTP/2 connection starts.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// No HTTP/1 method begins with so many bytes of it (RFC 9113, 3.4).
const HTTP2_BEGINS: usize = 3;

/// What a client speaks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
    /// Nothing: it has ended.
    Closed,
}

/// Begin of HTTP/2's preface.
const PRI: &[u8] = b"PRI * HTTP/2";

/// What a request's first line may have before it is taken for one.
const LINE_MAX: usize = 2048;

/// Looks at the first bytes without taking them. What fits both protocols is looked at again when more has come, and
/// not before; where the end has come instead, there is nothing to be served. HTTP/2 is told from the whole of its
/// preface, since nobody bounds the time of what is left of it.
pub(super) async fn told(stream: &TcpStream) -> io::Result<Protocol> {
    Ok(looked_at::<{ PREFACE.len() }, _>(stream, told_by).await?.unwrap_or(Protocol::Closed))
}

/// The same where anything may come; none: it is not HTTP.
pub(super) async fn told_or_other(stream: &TcpStream) -> io::Result<Option<Protocol>> {
    looked_at::<LINE_MAX, _>(stream, told_among_all).await.map(Option::flatten)
}

/// What `tell` says of the first `N` bytes at most, as soon as it says something; none if the end has come before.
async fn looked_at<const N: usize, T>(
    stream: &TcpStream,
    tell: impl Fn(&[u8]) -> io::Result<T>,
) -> io::Result<Option<T>> {
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        let looked = stream.try_io(Interest::READABLE, || {
            let mut first = [0; N];
            let (n, _) = recv(stream, &mut first, RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
            tell(&first[..n])
        });
        match looked {
            // What was seen of its end before was seen of all that it sends.
            Err(error) if error.kind() == ErrorKind::WouldBlock && ready.is_read_closed() => return Ok(None),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            told => return told.map(Some),
        }
    }
}

/// The protocol of a connection that begins so.
///
/// # Errors
/// `WouldBlock`: that depends on what follows.
fn told_by(first: &[u8]) -> io::Result<Protocol> {
    let fitting = first.iter().zip(PREFACE).take_while(|(byte, expected)| byte == expected).count();
    match first.len() {
        0 => Ok(Protocol::Closed),
        n if n == fitting && n < PREFACE.len() => Err(ErrorKind::WouldBlock.into()),
        // A preface that breaks off later on is HTTP/2 as well, to be refused as such.
        _ if fitting >= HTTP2_BEGINS => Ok(Protocol::Http2),
        _ => Ok(Protocol::Http1),
    }
}

/// The same among all protocols; none: it is not HTTP.
///
/// # Errors
/// `WouldBlock`: that depends on what follows.
fn told_among_all(first: &[u8]) -> io::Result<Option<Protocol>> {
    // What nearly all clients send need not be looked at byte by byte.
    let end = first.iter().position(|byte| *byte == b'\n').unwrap_or_default();
    if first[..end].ends_with(b" HTTP/1.1\r") && first[0].is_ascii_uppercase() {
        return Ok(Some(Protocol::Http1));
    }
    let mut line = RequestLine::default();
    match line.read(first) {
        _ if first.is_empty() => Ok(Some(Protocol::Closed)),
        _ if PREFACE.starts_with(first) && first.len() < PREFACE.len() => Err(ErrorKind::WouldBlock.into()),
        _ if first.starts_with(mark::BEGINS) => Ok(None),
        Some(true) if first.starts_with(PRI) => Ok(Some(Protocol::Http2)),
        Some(true) => Ok(Some(Protocol::Http1)),
        None if !line.has_line() && may_become_request(first) => unfinished(first),
        Some(false) | None => Ok(None),
    }
}

/// Whether a line that has not ended may become one that hyper reads as a request's.
fn may_become_request(first: &[u8]) -> bool {
    let begins = first.iter().position(|byte| *byte != b'\n' && !is_blank(*byte)).unwrap_or(first.len());
    let line = &first[begins..];
    let (method, behind) = line.split_at(line.iter().take_while(|byte| is_token(**byte)).count());
    let target = &behind[behind.iter().take_while(|byte| is_blank(**byte)).count()..];
    behind.first().is_none_or(|byte| is_blank(*byte) && may_follow(method, target))
}

/// Whether a server may take `target`, as far as it has come, for what follows the method in a line.
fn may_follow(method: &[u8], target: &[u8]) -> bool {
    let is_text = |byte: &u8| !byte.is_ascii_control() || is_blank(*byte);
    let is_path = target.starts_with(b"/") && !method.first().is_some_and(u8::is_ascii_digit);
    is_path || target.iter().all(is_text)
}

/// What may become a request's first line.
fn unfinished(first: &[u8]) -> io::Result<Option<Protocol>> {
    if first.len() < LINE_MAX { Err(ErrorKind::WouldBlock.into()) } else { Ok(Some(Protocol::Http1)) }
}

/// What a method is made of (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a connection that begins so speaks TLS: the record of a ClientHello.
pub(super) fn is_tls(first: &[u8; 2]) -> bool {
    *first == [22, 3]
}

/// Waits for the first decrypted bytes and looks at them without taking them. The preface comes in one record.
pub(super) async fn told_in(stream: &mut TlsStream<TcpStream>) -> io::Result<Protocol> {
    let is_http2 = |bytes: &[u8]| bytes.starts_with(&PREFACE[..HTTP2_BEGINS]);
    let is_http2 = poll_fn(|cx| Pin::new(&mut *stream).poll_fill_buf(cx).map_ok(is_http2)).await?;
    Ok(if is_http2 { Protocol::Http2 } else { Protocol::Http1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn the_protocol_is_told_from_bytes_that_stay_in_the_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let rows: [(&[&[u8]], Protocol); 5] = [
            (&[b"GET / HTTP/1.1\r\n"], Protocol::Http1),
            (&[b"P", b"OST / HTTP/1.1\r\n"], Protocol::Http1),
            (&[b"PR", b"I * HTTP/2.0\r\n\r\nSM\r\n\r\n"], Protocol::Http2),
            (&[PREFACE], Protocol::Http2),
            (&[], Protocol::Closed),
        ];
        for (parts, expected) in rows {
            let mut client = TcpStream::connect(address).await.expect("connected");
            let (server, _) = listener.accept().await.expect("accepted");
            let sniffing = tokio::spawn(async move { told(&server).await });
            for part in parts {
                client.write_all(part).await.expect("written");
                tokio::task::yield_now().await;
            }
            if parts.is_empty() {
                drop(client);
            }
            assert_eq!(sniffing.await.expect("no panic").expect("told"), expected);
        }
    }

    /// Goal: what a lenient server could take for a request is HTTP, and what is none is told as early as can be.
    #[test]
    fn http_is_told_among_all_protocols() {
        use Protocol::{Closed, Http1, Http2};
        let long_line = [b"GET /".as_slice(), &[b'a'; LINE_MAX]].concat();
        let long_word = [b'A'; LINE_MAX];
        let rows: &[(&[u8], Option<Option<Protocol>>)] = &[
            (b"", Some(Some(Closed))),
            (b"GET / HTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET http://a/ HTTP/1.0\n", Some(Some(Http1))),
            (b"OPTIONS * HTTP/1.1\r\n", Some(Some(Http1))),
            (b"CONNECT a:1 HTTP/1.1\r\n", Some(Some(Http1))),
            (b"BREW-IT /pot HTTP/1.1\r\n", Some(Some(Http1))),
            (b"get / http/1.1\r\n", Some(Some(Http1))),
            (b"\r\n\nGET / HTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET\t/\tHTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET\x0b/\x0bHTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET\x0c/\x0cHTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET\r/\rHTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET\x1c/\x1cHTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET\x1d/\x1dHTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET\x1e/\x1eHTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET\x1f/\x1fHTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET\x85/\x85HTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET\xa0/\xa0HTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET\xc2\x85/\xc2\xa0HTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET ?\x01 HTTP/1.1\r\n", Some(Some(Http1))),
            (b"G@T / HTTP/1.1\r\n", Some(Some(Http1))),
            (b"G@T /\r\nHost: a\r\n", Some(Some(Http1))),
            (b" GET / HTTP/1.1\r\n", Some(Some(Http1))),
            (b"\x0b\r\n\x1c\xa0GET / HTTP/1.1\r\n", Some(Some(Http1))),
            (b"\xc2\x85GET / HTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET /\xff HTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET /?\x00\x01\x7f HTTP/1.1\r\n", Some(Some(Http1))),
            (b"GET /a\r\n\r\n", Some(Some(Http1))), // HTTP/0.9
            (b"GET\x0b/a\nhost:", Some(Some(Http1))),
            (&long_line, Some(Some(Http1))),
            (&long_word, Some(Some(Http1))),
            (PREFACE, Some(Some(Http2))),
            (b"PRI * HTTP/2.0\r\n\r\nXX", Some(Some(Http2))),
            // What may become one.
            (b"G", None),
            (b"GET / HTTP/1.1", None),
            (b"GET", None),
            (b"GET ", None),
            (b"GET /a HT", None),
            (b"\r\n", None),
            (b"\x0c", None),
            (b"GET\r", None),
            (b"GET\xa0/a\x1fHT", None),
            (b"GET /?\x01", None),
            (&PREFACE[..3], None),
            (&PREFACE[..10], None),
            (&PREFACE[..18], None),
            // What is none, as far as it can be told at once.
            (b"G@T /", Some(None)),
            (b"GET /a\r\n", Some(None)),
            (b"\0zeroscale mark\na:", Some(None)),             // Another activator.
            (b"\x16\x03\x01\x02\x00\x01", Some(None)),         // TLS
            (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", Some(None)), // PostgreSQL's SSLRequest
            (b"\x00\x00\x00\x1f\x00\x03\x00\x00user\x00", Some(None)),
            (b"\x00\x00\x00\x20\x00\x12\x00\x03", Some(None)), // Kafka
            (b"\x00\x1d\x20\xa0\x01\x00\x00\x01", Some(None)), // DNS
            (b"\x20\x01\x00\x00", Some(None)),                 // MongoDB, of such a length
            (b"A\x0b\x00\x00", Some(None)),
            (b"0 \x02\x01\x01", Some(None)), // LDAP, of such a length that a space comes second
            (b"0\x0c\x02\x01\x01\x60\x07", Some(None)), // The same, and the most frequent one.
            (b"0032git-upload-pack /project.git\0host=a\0", Some(None)),
            (b"\x0bMSH|^~\\&|A|B\r\x1c\r", Some(None)), // HL7
            (b"\x05\x01\x00", Some(None)),              // SOCKS
            (b"*1\r\n$4\r\nPING\r\n", Some(None)),      // Redis
            (b"PING\r\n", Some(None)),
            (b"SET key value\r\n", Some(None)),
            (b"GET key\r\n", Some(None)), // Redis, by hand
            (b"EHLO a\r\n", Some(None)),
            (b"get /key\r\n", Some(None)), // memcached
            (b"SSH-2.0-OpenSSH_9.2\r\n", Some(None)),
            (b"PRINT all\r\n", Some(None)),
            (b"AMQP\x00\x00\x09\x01", Some(None)),
            (b"\x10\x0c\x00\x04MQTT", Some(None)),
            (b"\r\n\r\n\0\r\nQUIT\n", Some(None)), // HAProxy's PROXY
        ];
        for (first, expected) in rows {
            let told = match told_among_all(first) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                told => Some(told.expect("nothing else goes wrong")),
            };
            assert_eq!(told, *expected, "{:?}", String::from_utf8_lossy(&first[..first.len().min(64)]));
        }
    }

    /// Goal: words that do not become a request's first line are none, once their client has ended its side.
    #[tokio::test]
    async fn what_ends_before_it_is_told_is_not_http() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        for (sent, expected) in [("hello", None), ("", Some(Protocol::Closed)), ("GET / HTTP/1.1", None)] {
            let mut client = TcpStream::connect(address).await.expect("connected");
            let (server, _) = listener.accept().await.expect("accepted");
            client.write_all(sent.as_bytes()).await.expect("open");
            client.shutdown().await.expect("open");
            assert_eq!(told_or_other(&server).await.expect("told"), expected, "{sent:?}");
        }
    }

    /// Goal: nobody looks at a connection whose bytes do not tell its protocol until more of them come, or its end.
    /// Method: polls are counted, on a paused clock, which moves on whenever everybody waits.
    #[tokio::test(start_paused = true)]
    async fn an_undecided_connection_is_looked_at_when_something_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        let (server, _) = listener.accept().await.expect("accepted");
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = polls.clone();
        let sniffing = tokio::spawn(async move {
            let mut sniffing = pin!(told(&server));
            poll_fn(|cx| {
                counted.fetch_add(1, Ordering::Relaxed);
                sniffing.as_mut().poll(cx)
            })
            .await
        });
        for (parts, part) in [b"P", b"R"].into_iter().enumerate() {
            client.write_all(part).await.expect("open");
            tokio::time::sleep(Duration::from_secs(60)).await;
            let polls = polls.load(Ordering::Relaxed);
            assert!(polls <= parts + 2, "{polls} looks at {} bytes", parts + 1); // One at the start.
        }
        drop(client);
        assert_eq!(sniffing.await.expect("no panic").expect("told"), Protocol::Closed);
    }
}
