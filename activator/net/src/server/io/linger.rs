//! Close of a client's connection while the client may still send (RFC 9112, 9.6).
//!
//! If a socket is closed with unread bytes, or receives bytes afterwards, the kernel resets the connection. A reset
//! discards bytes that the client has not read yet: our response. So first only our side is closed, and input is read
//! and discarded until the client closes its side, within limits of time and bytes. This applies if more input is
//! certain or likely: over HTTP/1 if a request was not read completely (an upload or head was rejected), over HTTP/2
//! always (a client that reads sends window updates).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Maximum time to read on. Envoy has a second, nginx five between two reads. It must cover some round trips.
const LINGER: Duration = Duration::from_secs(2);

/// Maximum number of bytes to discard: more than is in transit from a client that stops when it reads the response.
const BYTES_MAX: usize = 8 << 20;

/// Number of bytes that are discarded per read.
const PIECE: usize = 16 * 1024;

/// Closing state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Linger {
    /// Remaining limits, once our side is closed.
    left: Option<Box<Left>>,
}

/// Remaining limits of time and bytes.
#[derive(Debug)]
struct Left {
    time: Pin<Box<Sleep>>,
    bytes: usize,
}

impl Linger {
    /// Closes our side of `stream`, and reads on if the client `may_send`. Ready when the socket can be closed.
    pub(crate) fn poll_shutdown(
        &mut self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        cx: &mut Context<'_>,
        may_send: bool,
    ) -> Poll<io::Result<()>> {
        if self.left.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
        }
        if !may_send && self.left.is_none() {
            return Poll::Ready(Ok(()));
        }
        let left = self.left.get_or_insert_with(|| Box::new(Left { time: Box::pin(sleep(LINGER)), bytes: BYTES_MAX }));
        // Checked first, because reads that never wait would use up the task's budget each time.
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
                // The client closed its side, has gone, or sends too much.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
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

    /// Closes a connection whose client may still send.
    async fn closed(mut stream: DuplexStream) -> io::Result<()> {
        let mut linger = Linger::default();
        poll_fn(|cx| linger.poll_shutdown(&mut stream, cx, true)).await
    }

    /// Goal: the client sees our FIN at once, may send for a limited time, and ends that by closing its side. Method: a
    /// pipe with a small buffer, so that sent bytes were read; paused time.
    #[tokio::test(start_paused = true)]
    async fn input_is_discarded_until_the_client_closes_or_time_is_up() {
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
    async fn a_client_that_sends_too_much_is_closed_early() {
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
    async fn a_connection_without_further_input_is_closed_at_once() {
        let (_client, mut server) = duplex(1);
        let mut linger = Linger::default();
        poll_fn(|cx| linger.poll_shutdown(&mut server, cx, false)).await.expect("closed");
    }
}
