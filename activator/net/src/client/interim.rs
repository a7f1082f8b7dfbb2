//! Interim responses (1xx) on their way from a pod to an HTTP/1.1 client.
//!
//! hyper's server writes final responses, and has no way to write another before them. So the exchange with the pod
//! leaves the bytes of one here ([`Interims::pass`]) and waits until they are written; the client's connection writes
//! them ([`Interims::poll_write`]).
//!
//! # Why they never stand between the bytes of another response
//!
//! - They begin only where hyper flushes, which it does when it has written all that it has.
//! - Then the request's own response has not begun: its exchange waits here, and has none yet. That of the request before
//!   has ended, since hyper asks for one response at a time.
//! - What has begun is written to its end before anything else.
//! - Whoever stops waiting takes it back, unless it has begun. The request's future ends before hyper has its response.
//!
//! The exchange is polled by the connection's own task, and hyper flushes each time; so nobody need be woken to begin.
//! One at a time waits, so that a client that does not read stops its pod.

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::AsyncWrite;

/// What waits to be written to one client.
#[derive(Debug, Default)]
pub(crate) struct Interims {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// What is left of the response.
    bytes: Bytes,
    /// Some of it is written.
    begun: bool,
    /// Who waits for its end.
    waker: Option<Waker>,
}

/// An interim response that waits. Dropping it takes it back, if it has not begun.
#[derive(Debug)]
pub(crate) struct Passing<'a> {
    interims: &'a Interims,
}

impl Interims {
    /// Leaves one here, with its empty line. What has not begun of another gives way to it.
    pub(crate) fn pass(&self, bytes: Bytes) -> Passing<'_> {
        let mut waiting = self.waiting.lock();
        if !waiting.begun {
            waiting.bytes = bytes;
        }
        drop(waiting);
        Passing { interims: self }
    }

    /// Writes what waits to the client. Ready when nothing is left that has to be written first: where one `may_begin`,
    /// all of it, else what has begun.
    ///
    /// # Errors
    /// The connection takes no more.
    pub(crate) fn poll_write<W>(&self, stream: &mut W, cx: &mut Context<'_>, may_begin: bool) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        let mut waiting = self.waiting.lock();
        while waiting.begun || may_begin && !waiting.bytes.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, &waiting.bytes))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => waiting.bytes.advance(written),
            }
            waiting.begun = !waiting.bytes.is_empty();
            if !waiting.begun {
                waiting.bytes = Bytes::new();
                waiting.waker.take().into_iter().for_each(Waker::wake);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Passing<'_> {
    /// Ready when it is written.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.interims.waiting.lock();
        if waiting.bytes.is_empty() {
            return Poll::Ready(());
        }
        waiting.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        let mut waiting = self.interims.waiting.lock();
        waiting.waker = None;
        if !waiting.begun {
            waiting.bytes = Bytes::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};
    use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};

    const HINTS: &[u8] = b"HTTP/1.1 103 Early Hints\r\n\r\n";

    async fn read(client: &mut DuplexStream, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        client.read_exact(&mut bytes).await.expect("as many");
        bytes
    }

    fn write(interims: &Interims, server: &mut DuplexStream, may_begin: bool) -> Poll<io::Result<()>> {
        task::spawn(()).enter(|cx, _| interims.poll_write(server, cx, may_begin))
    }

    /// Goal: nothing begins where it may not, and what has begun ends before anything else.
    #[tokio::test]
    async fn one_begins_where_it_may_and_is_written_to_its_end() {
        let (mut client, mut server) = duplex(10);
        let interims = Interims::default();
        let passing = interims.pass(Bytes::from_static(HINTS));
        let mut waits = task::spawn(());
        assert_pending!(waits.enter(|cx, _| passing.poll(cx)));
        assert_ready_ok!(write(&interims, &mut server, false));
        assert_pending!(write(&interims, &mut server, true), "there is no room for all of it");
        assert_pending!(write(&interims, &mut server, false), "its rest goes first");
        let mut seen = read(&mut client, 10).await;
        assert_pending!(write(&interims, &mut server, false));
        seen.extend(read(&mut client, 10).await);
        assert!(!waits.is_woken());
        assert_ready_ok!(write(&interims, &mut server, false));
        seen.extend(read(&mut client, HINTS.len() - 20).await);
        assert_eq!(seen, HINTS);
        assert!(waits.is_woken());
        assert_ready!(waits.enter(|cx, _| passing.poll(cx)));
        drop(passing);
        assert_ready_ok!(write(&interims, &mut server, true));
        drop(server);
        assert_eq!(client.read(&mut [0]).await.expect("open"), 0, "once");
    }

    /// Goal: who stops waiting takes back what has not begun; what has begun comes to its end all the same.
    #[tokio::test]
    async fn what_has_not_begun_is_taken_back() {
        let (mut client, mut server) = duplex(10);
        let interims = Interims::default();
        drop(interims.pass(Bytes::from_static(HINTS)));
        assert_ready_ok!(write(&interims, &mut server, true));
        let passing = interims.pass(Bytes::from_static(HINTS));
        assert_pending!(write(&interims, &mut server, true));
        drop(passing);
        let mut seen = Vec::new();
        while seen.len() < HINTS.len() {
            seen.extend(read(&mut client, (HINTS.len() - seen.len()).min(10)).await);
            let _ = write(&interims, &mut server, false);
        }
        assert_eq!(seen, HINTS);
        assert_ready_ok!(write(&interims, &mut server, false));
    }
}
