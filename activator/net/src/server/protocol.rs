//! Which protocol a client speaks, told from its first bytes.

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

/// Looks at the first bytes without taking them. What fits both protocols is looked at again when more has come, and
/// not before; where the end has come instead, there is nothing to be served. HTTP/2 is told from the whole of its
/// preface, since nobody bounds the time of what is left of it.
pub(super) async fn told(stream: &TcpStream) -> io::Result<Protocol> {
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        let looked = stream.try_io(Interest::READABLE, || {
            let mut first = [0; PREFACE.len()];
            let (n, _) = recv(stream, &mut first, RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
            told_by(&first[..n])
        });
        match looked {
            // What was seen of its end before was seen of all that it sends.
            Err(error) if error.kind() == ErrorKind::WouldBlock && ready.is_read_closed() => {
                return Ok(Protocol::Closed);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            told => return told,
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
