//! Detects a client's protocol from its first bytes.
//!
//! # Ports with any protocol
//!
//! A port that carries HTTP and other protocols ([`detect_any`]) must not relay as bytes anything that a pod could
//! take for HTTP. Otherwise clients could bypass our checks and forge forwarding headers. So everything that the most
//! lenient server would read as the first line of a request ([`RequestLine`]) counts as HTTP, and is rejected as such
//! if it is malformed:
//!
//! | first bytes | detected as |
//! |---|---|
//! | HTTP/2's preface | HTTP/2 |
//! | a request line | HTTP/1 |
//! | blanks, empty lines, a word of token characters, a blank and text, without a line end in [`LINE_MAX`] bytes | HTTP/1 |
//! | an incomplete start of these | checked again when more arrives |
//! | anything else, also an undecided start after which the client ends | other |
//!
//! The bytes of another protocol must not be delayed, so relayed bytes may still turn out to be a request line. The
//! relay keeps checking ([`crate::relay`]), and resets the connection before a pod gets the end of that line.

use crate::relay::mark;
use crate::request_line::{RequestLine, is_blank};
use common_runtime::tls::server::TlsStream;
use rustix::net::{RecvFlags, recv};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use tokio::io::{AsyncBufRead, Interest};
use tokio::net::TcpStream;

/// Preface of an HTTP/2 connection.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Number of bytes of the preface with which no HTTP/1 method begins (RFC 9113, 3.4).
const HTTP2_BEGINS: usize = 3;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
    /// Not HTTP.
    Other,
    /// None: the client has closed the connection.
    Closed,
}

/// Start of HTTP/2's preface.
const PRI: &[u8] = b"PRI * HTTP/2";

/// Number of bytes after which an unfinished first line counts as a request.
const LINE_MAX: usize = 2048;

/// Detects the protocol by peeking at the first bytes. Bytes that fit both protocols are checked again only when more
/// arrive. If the connection ends instead, there is nothing to serve. HTTP/2 needs its complete preface, because the
/// wait for the rest would have no deadline.
pub(super) async fn detect(stream: &TcpStream) -> io::Result<Protocol> {
    Ok(peek_until::<{ PREFACE.len() }, _>(stream, protocol_of).await?.unwrap_or(Protocol::Closed))
}

pub(super) async fn detect_any(stream: &TcpStream) -> io::Result<Protocol> {
    Ok(peek_until::<LINE_MAX, _>(stream, protocol_of_any).await?.unwrap_or(Protocol::Other))
}

/// Returns the result of `detect` for at most the first `N` bytes, as soon as it has one; `None` if the connection ends
/// before.
pub(super) async fn peek_until<const N: usize, T>(
    stream: &TcpStream,
    detect: impl Fn(&[u8]) -> io::Result<T>,
) -> io::Result<Option<T>> {
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        let looked = stream.try_io(Interest::READABLE, || {
            let mut first = [0; N];
            let (n, _) = recv(stream, &mut first, RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
            detect(&first[..n])
        });
        match looked {
            // The end was reported before this look, so all bytes were checked.
            Err(error) if error.kind() == ErrorKind::WouldBlock && ready.is_read_closed() => return Ok(None),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            detected => return detected.map(Some),
        }
    }
}

/// Returns the protocol of a connection that begins with `first`. The error `WouldBlock` means that the next bytes
/// decide.
fn protocol_of(first: &[u8]) -> io::Result<Protocol> {
    let fitting = first.iter().zip(PREFACE).take_while(|(byte, expected)| byte == expected).count();
    match first.len() {
        0 => Ok(Protocol::Closed),
        n if n == fitting && n < PREFACE.len() => Err(ErrorKind::WouldBlock.into()),
        // A preface with a later mistake is HTTP/2 too, and rejected as such.
        _ if fitting >= HTTP2_BEGINS => Ok(Protocol::Http2),
        _ => Ok(Protocol::Http1),
    }
}

/// Returns the protocol among all protocols. The error `WouldBlock` means that the next bytes decide.
fn protocol_of_any(first: &[u8]) -> io::Result<Protocol> {
    // A shortcut for the input of nearly all clients.
    let end = first.iter().position(|byte| *byte == b'\n').unwrap_or_default();
    if first[..end].ends_with(b" HTTP/1.1\r") && first[0].is_ascii_uppercase() {
        return Ok(Protocol::Http1);
    }
    let mut line = RequestLine::default();
    match line.read(first) {
        _ if first.is_empty() => Ok(Protocol::Closed),
        _ if PREFACE.starts_with(first) && first.len() < PREFACE.len() => Err(ErrorKind::WouldBlock.into()),
        _ if first.starts_with(mark::PREFIX) => Ok(Protocol::Other),
        Some(true) if first.starts_with(PRI) => Ok(Protocol::Http2),
        Some(true) => Ok(Protocol::Http1),
        None if !line.is_second && may_become_request(first) => match first.len() {
            0..LINE_MAX => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(Protocol::Http1),
        },
        Some(false) | None => Ok(Protocol::Other),
    }
}

/// Reports whether an unfinished line may become one that hyper reads as a request line.
fn may_become_request(first: &[u8]) -> bool {
    let begins = first.iter().position(|byte| *byte != b'\n' && !is_blank(*byte)).unwrap_or(first.len());
    let line = &first[begins..];
    let (method, behind) = line.split_at(line.iter().take_while(|byte| is_token(**byte)).count());
    let target = &behind[behind.iter().take_while(|byte| is_blank(**byte)).count()..];
    behind.first().is_none_or(|byte| is_blank(*byte) && may_follow(method, target))
}

/// Reports whether a server may accept `target`, as far as it has arrived, after the method in a line.
fn may_follow(method: &[u8], target: &[u8]) -> bool {
    let is_text = |byte: &u8| !byte.is_ascii_control() || is_blank(*byte);
    let is_path = target.starts_with(b"/") && !method.first().is_some_and(u8::is_ascii_digit);
    is_path || target.iter().all(is_text)
}

/// Reports whether a byte is allowed in a method (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Reports whether a connection that begins with these bytes uses TLS: the record of a ClientHello.
pub(super) fn is_tls(first: &[u8; 2]) -> bool {
    *first == [22, 3]
}

/// Waits for the first decrypted bytes and peeks at them. The preface arrives in one record.
pub(super) async fn detect_tls(stream: &mut TlsStream<TcpStream>) -> io::Result<Protocol> {
    let is_http2 = |bytes: &[u8]| bytes.starts_with(&PREFACE[..HTTP2_BEGINS]);
    let is_http2 = poll_fn(|cx| Pin::new(&mut *stream).poll_fill_buf(cx).map_ok(is_http2)).await?;
    Ok(if is_http2 { Protocol::Http2 } else { Protocol::Http1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::loopback;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn the_protocol_is_detected_from_the_first_bytes() {
        let rows: [(&[&[u8]], Protocol); 5] = [
            (&[b"GET / HTTP/1.1\r\n"], Protocol::Http1),
            (&[b"P", b"OST / HTTP/1.1\r\n"], Protocol::Http1),
            (&[b"PR", b"I * HTTP/2.0\r\n\r\nSM\r\n\r\n"], Protocol::Http2),
            (&[PREFACE], Protocol::Http2),
            (&[], Protocol::Closed),
        ];
        for (parts, expected) in rows {
            let (mut client, server) = loopback::connected().await;
            let sniffing = tokio::spawn(async move { detect(&server).await });
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

    /// Goal: everything that a lenient server could take for a request is HTTP, and other protocols are detected as
    /// early as possible.
    #[test]
    fn http_is_distinguished_from_all_other_protocols() {
        use Protocol::{Closed, Http1, Http2, Other};
        let long_line = [b"GET /".as_slice(), &[b'a'; LINE_MAX]].concat();
        let long_word = [b'A'; LINE_MAX];
        let rows: &[(&[u8], Option<Protocol>)] = &[
            (b"", Some(Closed)),
            (b"GET / HTTP/1.1\r\n", Some(Http1)),
            (b"CONNECT a:1 HTTP/1.1\r\n", Some(Http1)),
            (b" GET / HTTP/1.1\r\n", Some(Http1)),
            (b"\x0b\r\n\x1c\xa0GET / HTTP/1.1\r\n", Some(Http1)),
            (b"\xc2\x85GET / HTTP/1.1\r\n", Some(Http1)),
            (b"GET /\xff HTTP/1.1\r\n", Some(Http1)),
            (b"GET /?\x00\x01\x7f HTTP/1.1\r\n", Some(Http1)),
            (b"GET /a\r\n\r\n", Some(Http1)), // HTTP/0.9
            (b"GET\x0b/a\nhost:", Some(Http1)),
            (&long_line, Some(Http1)),
            (&long_word, Some(Http1)),
            (PREFACE, Some(Http2)),
            (b"PRI * HTTP/2.0\r\n\r\nXX", Some(Http2)),
            // These may become a request.
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
            // These are no requests, as far as that is known at once.
            (b"G@T /", Some(Other)),
            (b"GET /a\r\n", Some(Other)),
            (b"\0zeroscale mark\na:", Some(Other)),     // Another activator.
            (b"\x16\x03\x01\x02\x00\x01", Some(Other)), // TLS
            (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", Some(Other)), // PostgreSQL's SSLRequest
            (b"\x00\x00\x00\x1f\x00\x03\x00\x00user\x00", Some(Other)),
            (b"\x00\x00\x00\x20\x00\x12\x00\x03", Some(Other)), // Kafka
            (b"\x00\x1d\x20\xa0\x01\x00\x00\x01", Some(Other)), // DNS
            (b"\x20\x01\x00\x00", Some(Other)),                 // MongoDB, with this length
            (b"A\x0b\x00\x00", Some(Other)),
            (b"0 \x02\x01\x01", Some(Other)), // LDAP, with a length that puts a space second
            (b"0\x0c\x02\x01\x01\x60\x07", Some(Other)), // LDAP, most common
            (b"0032git-upload-pack /project.git\0host=a\0", Some(Other)),
            (b"\x0bMSH|^~\\&|A|B\r\x1c\r", Some(Other)), // HL7
            (b"\x05\x01\x00", Some(Other)),              // SOCKS
            (b"*1\r\n$4\r\nPING\r\n", Some(Other)),      // Redis
            (b"PING\r\n", Some(Other)),
            (b"SET key value\r\n", Some(Other)),
            (b"GET key\r\n", Some(Other)), // Redis, by hand
            (b"EHLO a\r\n", Some(Other)),
            (b"get /key\r\n", Some(Other)), // memcached
            (b"SSH-2.0-OpenSSH_9.2\r\n", Some(Other)),
            (b"PRINT all\r\n", Some(Other)),
            (b"AMQP\x00\x00\x09\x01", Some(Other)),
            (b"\x10\x0c\x00\x04MQTT", Some(Other)),
            (b"\r\n\r\n\0\r\nQUIT\n", Some(Other)), // HAProxy's PROXY
        ];
        for (first, expected) in rows {
            let detected = match protocol_of_any(first) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                detected => Some(detected.expect("nothing else goes wrong")),
            };
            assert_eq!(detected, *expected, "{:?}", String::from_utf8_lossy(&first[..first.len().min(64)]));
        }
        for blank in b"\x0c\r\x1c\x1d\x1e\x1f\x85\xa0" {
            let line = [&b"GET"[..], &[*blank], b"/", &[*blank], b"HTTP/1.1\r\n"].concat();
            assert_eq!(protocol_of_any(&line).expect("it is HTTP"), Http1, "{blank:x}");
        }
    }

    #[tokio::test]
    async fn an_undecided_connection_that_ends_is_not_http() {
        for (sent, expected) in
            [("hello", Protocol::Other), ("", Protocol::Closed), ("GET / HTTP/1.1", Protocol::Other)]
        {
            let (mut client, server) = loopback::connected().await;
            client.write_all(sent.as_bytes()).await.expect("open");
            client.shutdown().await.expect("open");
            assert_eq!(detect_any(&server).await.expect("told"), expected, "{sent:?}");
        }
    }

    /// Goal: an undecided connection is not checked again before more bytes or the end arrive. Method: polls are
    /// counted, with a paused clock, which advances when all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn an_undecided_connection_is_checked_again_only_when_bytes_arrive() {
        let (mut client, server) = loopback::connected().await;
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = polls.clone();
        let sniffing = tokio::spawn(async move {
            let mut sniffing = pin!(detect(&server));
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
