//! The end of a client's connection while the client may still send (RFC 9112, 9.6).
//!
//! Whoever closes a socket with unread bytes in it, or is sent some afterwards, resets the connection, and a reset takes
//! from the client what it has not read yet: our answer. So first only our side is closed, and what comes is read and
//! thrown away until the client closes its own, within bounds of time and bytes. It applies where something is certain
//! or likely to come: over HTTP/1 if a request's end has not been read (a refusal of an upload or of a head), over HTTP/2
//! always (a client that reads sends window updates).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long is read on. Envoy's bound is a second, nginx's five between two reads; it must cover some round trips.
const LINGER: Duration = Duration::from_secs(2);

/// How much is read on: more than what is on its way from a client that stops when it reads the answer.
const BYTES_MAX: usize = 8 << 20;

/// Bytes that are thrown away at once.
const PIECE: usize = 16 * 1024;

/// The closing of one connection.
#[derive(Debug, Default)]
pub(super) struct Linger {
    /// Our side is closed, and this long the other may still send.
    left: Option<Box<Left>>,
}

/// What is left of the bounds.
#[derive(Debug)]
struct Left {
    time: Pin<Box<Sleep>>,
    bytes: usize,
}

impl Linger {
    /// Closes our side of `stream`, and reads on if the client `may_send`. Ready when the socket can be closed.
    pub(super) fn poll_shutdown<S>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        may_send: bool,
    ) -> Poll<io::Result<()>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if self.left.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
        }
        if !may_send && self.left.is_none() {
            return Poll::Ready(Ok(()));
        }
        let left = self.left.get_or_insert_with(|| Box::new(Left { time: Box::pin(sleep(LINGER)), bytes: BYTES_MAX }));
        // Looked at first: reads that never wait would use up the task's turn each time.
        if left.time.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        loop {
            let mut piece = [std::mem::MaybeUninit::uninit(); PIECE];
            let mut piece = ReadBuf::uninit(&mut piece);
            match Pin::new(&mut *stream).poll_read(cx, &mut piece) {
                Poll::Ready(Ok(())) if (1..left.bytes).contains(&piece.filled().len()) => {
                    left.bytes -= piece.filled().len();
                }
                Poll::Ready(_) => return Poll::Ready(Ok(())), // It has closed its side, has gone, or sends too much.
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::Instant;

    /// Ends a connection whose client may send on.
    async fn closed(mut stream: DuplexStream) -> io::Result<()> {
        let mut linger = Linger::default();
        poll_fn(|cx| linger.poll_shutdown(&mut stream, cx, true)).await
    }

    /// Goal: the client sees our end at once, may send on for a bounded time, and ends it by closing its side.
    /// Method: a pipe that holds little, so that what is sent was read; paused time.
    #[tokio::test(start_paused = true)]
    async fn what_still_comes_is_read_until_the_client_closes_or_time_is_up() {
        for closes in [true, false] {
            let (mut client, server) = duplex(1);
            let begun = Instant::now();
            let closing = async {
                closed(server).await.expect("closed");
                begun.elapsed()
            };
            let sending = async {
                assert_eq!(client.read(&mut [0]).await.expect("an end"), 0, "before anything was read");
                client.write_all(&[b'x'; 1000]).await.expect("read on");
                if closes {
                    client.shutdown().await.expect("open");
                }
                client
            };
            let (took, mut client) = tokio::join!(closing, sending);
            assert_eq!(took >= LINGER, !closes, "{took:?}");
            assert!(client.write_all(b"more").await.is_err(), "closed after {took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_end_is_closed_in_spite_of_the_time_left() {
        let (mut client, server) = duplex(1 << 20);
        let begun = Instant::now();
        let closing = tokio::spawn(closed(server));
        let mut sent = 0;
        while client.write_all(&[b'x'; 1 << 16]).await.is_ok() {
            sent += 1 << 16;
        }
        closing.await.expect("no panic").expect("closed");
        assert!((BYTES_MAX / 2..BYTES_MAX + (3 << 20)).contains(&sent), "{sent} bytes");
        assert!(begun.elapsed() < LINGER);
    }

    #[tokio::test]
    async fn where_nothing_can_come_nobody_waits() {
        let (_client, mut server) = duplex(1);
        let mut linger = Linger::default();
        poll_fn(|cx| linger.poll_shutdown(&mut server, cx, false)).await.expect("closed");
    }
}
