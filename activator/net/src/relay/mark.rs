//! First line of a connection that one activator relays to another. No protocol begins with such a line. The caller
//! authenticates its mark.
//!
//! ```text
//! ▶ NUL "zeroscale " mark LF      ◀ CONNECTED: the rest belongs to the pod     ◀ another byte: go elsewhere
//! ```

use super::end::TcpEnd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::time::Duration;
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// Byte that reports a connected pod.
pub const CONNECTED: u8 = b'+';

/// Start of a mark's line.
pub(crate) const PREFIX: &[u8] = b"\0zeroscale ";

/// Maximum length of the line.
const LINE_MAX: usize = 1024;

/// Maximum wait for the complete line.
const PATIENCE: Duration = Duration::from_secs(2);

enum FirstBytes {
    /// A complete mark, and the length of its line.
    Mark(String, usize),
    /// Bytes that are not a mark.
    Client,
    /// Number of bytes that may become a mark.
    Part(usize),
}

/// Takes the mark at the start of a connection, if there is one, and nothing else. From another activator's address
/// (`is_sibling`) it waits for a mark; a client may send nothing at all. An error means that the connection is broken,
/// or a required mark is not complete in time. None of its bytes may then reach a pod.
pub(crate) async fn take_mark(stream: &TcpStream, is_sibling: impl Fn() -> bool) -> io::Result<Option<String>> {
    let until = Instant::now() + PATIENCE;
    let mut is_last = false;
    loop {
        match peek(stream)? {
            FirstBytes::Client => return Ok(None),
            FirstBytes::Part(0) if !is_sibling() => return Ok(None),
            FirstBytes::Part(bytes) if is_last && bytes < PREFIX.len() && !is_sibling() => return Ok(None),
            FirstBytes::Part(_) if is_last => return Err(ErrorKind::InvalidData.into()),
            FirstBytes::Part(_) => {}
            FirstBytes::Mark(mark, length) => {
                recv(stream, &mut [0; LINE_MAX][..length], RecvFlags::DONTWAIT)?;
                return Ok(Some(mark));
            }
        }
        is_last = match timeout_at(until, stream.ready(Interest::READABLE)).await {
            Ok(ready) => ready?.is_read_closed(),
            Err(_) => true,
        };
        // Clear the readiness, so that the next wait ends with new bytes.
        let _ = stream.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
    }
}

fn peek(stream: &TcpStream) -> io::Result<FirstBytes> {
    let mut line = [0; LINE_MAX];
    let read = match recv(stream, &mut line, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN) => 0,
        read => read?.0,
    };
    if !PREFIX.starts_with(&line[..read.min(PREFIX.len())]) {
        return Ok(FirstBytes::Client);
    }
    match line[..read].iter().position(|byte| *byte == b'\n') {
        Some(end) => Ok(FirstBytes::Mark(String::from_utf8_lossy(&line[PREFIX.len()..end]).into_owned(), end + 1)),
        None if read == LINE_MAX => Err(ErrorKind::InvalidData.into()),
        None => Ok(FirstBytes::Part(read)),
    }
}

/// Marks a new connection to another activator, and waits for its answer. An error means that the connection is broken
/// or closed.
pub(crate) async fn send_mark(end: &mut TcpEnd, mark: &str) -> io::Result<u8> {
    let line = [PREFIX, mark.as_bytes(), b"\n"].concat();
    let mut left = &line[..];
    while !left.is_empty() {
        let written = poll_fn(|cx| end.poll_write(cx, left)).await?;
        left = &left[written..];
    }
    let mut byte = [0];
    let mut read = ReadBuf::new(&mut byte);
    match poll_fn(|cx| end.poll_read(cx, &mut read)).await? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(byte[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::loopback::connected;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Goal: a mark that arrives in parts is taken completely, and the bytes after it stay.
    #[tokio::test]
    async fn a_mark_may_arrive_in_parts() {
        let (mut client, server) = connected().await;
        let sends = async {
            for part in ["\0", "zeroscale ", "the mark", "\nhello"] {
                tokio::time::sleep(Duration::from_millis(5)).await;
                client.write_all(part.as_bytes()).await.expect("open");
            }
        };
        let (mark, ()) = tokio::join!(take_mark(&server, || true), sends);
        assert_eq!(mark.expect("a mark").as_deref(), Some("the mark"));
        // Registered anew, as the server does, so that buffered bytes are reported again.
        let mut server = TcpStream::from_std(server.into_std().expect("open")).expect("open");
        let mut rest = [0; 5];
        server.read_exact(&mut rest).await.expect("open");
        assert_eq!(&rest, b"hello");
    }

    /// Goal: bytes that are not a mark belong to a client, and stay. The start of an activator's mark never counts as a
    /// client's bytes.
    #[tokio::test]
    async fn an_incomplete_mark_of_an_activator_is_rejected() {
        for (sent, is_sibling, is_client) in [
            ("hello", true, true),
            ("\0hello", true, true),
            ("\0", false, true),
            ("\0zero", false, true),
            ("", true, false),
            ("\0", true, false),
            ("\0zeroscale 01", false, false),
            ("\0zeroscale 01", true, false),
        ] {
            let (mut client, mut server) = connected().await;
            client.write_all(sent.as_bytes()).await.expect("open");
            client.shutdown().await.expect("open");
            server.readable().await.expect("open");
            let mark = take_mark(&server, || is_sibling).await;
            assert_eq!(matches!(mark, Ok(None)), is_client, "{sent:?} {is_sibling} {mark:?}");
            let mut left = String::new();
            server.read_to_string(&mut left).await.expect("open");
            assert_eq!(left, sent);
        }
        let (_client, server) = connected().await;
        assert!(matches!(take_mark(&server, || false).await, Ok(None)), "a silent client is not waited for");
    }
}
