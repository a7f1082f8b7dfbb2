//! Interim responses (1xx) on their way from a pod to an HTTP/1.1 client.
//!
//! hyper's server writes only final responses. So the exchange with the pod leaves the bytes of an interim response
//! here ([`Interims::pass`]) and waits until they are written. The client's connection writes them
//! ([`Interims::poll_write`]).
//!
//! # Why they never interrupt another response
//!
//! - Writing starts only when hyper flushes, which it does after it has written all that it has.
//! - At that moment the request's own response has not begun, because its exchange still waits here. The previous
//!   response has ended, because hyper asks for one response at a time.
//! - An interim response that was started is written completely before anything else.
//! - A cancelled wait takes the interim response back, unless it was started. The request's future ends before hyper
//!   has its response.
//!
//! The exchange is polled by the connection's own task, and hyper flushes after each poll, so starting needs no
//! wake-up. Only one interim response waits at a time, so that a client that does not read stops its pod.

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, Waker, ready};

/// Interim response that waits to be written to a client.
#[derive(Debug, Default)]
pub(crate) struct Interims {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Rest of the response.
    bytes: Bytes,
    /// A part of it was written.
    begun: bool,
    /// Task that waits for its end.
    waker: Option<Waker>,
}

/// A waiting interim response. Dropping it takes the response back, unless it was started.
#[derive(Debug)]
pub(crate) struct Passing<'a> {
    interims: &'a Interims,
}

impl Interims {
    /// Stores an interim response, including its final empty line. It replaces another one that was not started.
    pub(crate) fn pass(&self, bytes: Bytes) -> Passing<'_> {
        let mut waiting = self.waiting.lock();
        if !waiting.begun {
            waiting.bytes = bytes;
        }
        drop(waiting);
        Passing { interims: self }
    }

    /// Writes the waiting response to the client with `write`: all of it if `may_begin` is set, otherwise only the rest
    /// of a started one. Ready when nothing is left that must be written first. An error means that the connection
    /// accepts no more bytes.
    pub(crate) fn poll_write(
        &self,
        may_begin: bool,
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        let mut waiting = self.waiting.lock();
        while waiting.begun || may_begin && !waiting.bytes.is_empty() {
            match ready!(write(&waiting.bytes))? {
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
    use std::pin::Pin;
    use tokio::io::{AsyncReadExt, AsyncWrite, DuplexStream, duplex};
    use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};

    const HINTS: &[u8] = b"HTTP/1.1 103 Early Hints\r\n\r\n";

    async fn read(client: &mut DuplexStream, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        client.read_exact(&mut bytes).await.expect("as many");
        bytes
    }

    fn write(interims: &Interims, server: &mut DuplexStream, may_begin: bool) -> Poll<io::Result<()>> {
        let write = |bytes: &[u8]| task::spawn(()).enter(|cx, _| Pin::new(&mut *server).poll_write(cx, bytes));
        interims.poll_write(may_begin, write)
    }

    /// Goal: no interim response starts where it must not, and a started one ends before anything else.
    #[tokio::test]
    async fn a_started_interim_response_is_completed_before_anything_else() {
        let (mut client, mut server) = duplex(10);
        let interims = Interims::default();
        let passing = interims.pass(Bytes::from_static(HINTS));
        let mut waits = task::spawn(());
        assert_pending!(waits.enter(|cx, _| passing.poll(cx)));
        assert_ready_ok!(write(&interims, &mut server, false));
        assert_pending!(write(&interims, &mut server, true), "there is no room for all of it");
        assert_pending!(write(&interims, &mut server, false), "its rest goes first");
        let mut received = read(&mut client, 10).await;
        assert_pending!(write(&interims, &mut server, false));
        received.extend(read(&mut client, 10).await);
        assert!(!waits.is_woken());
        assert_ready_ok!(write(&interims, &mut server, false));
        received.extend(read(&mut client, HINTS.len() - 20).await);
        assert_eq!(received, HINTS);
        assert!(waits.is_woken());
        assert_ready!(waits.enter(|cx, _| passing.poll(cx)));
        drop(passing);
        assert_ready_ok!(write(&interims, &mut server, true));
        drop(server);
        assert_eq!(client.read(&mut [0]).await.expect("open"), 0, "once");
    }

    /// Goal: a cancelled wait takes back a response that was not started. A started one is completed.
    #[tokio::test]
    async fn a_cancelled_interim_response_is_withdrawn_unless_started() {
        let (mut client, mut server) = duplex(10);
        let interims = Interims::default();
        drop(interims.pass(Bytes::from_static(HINTS)));
        assert_ready_ok!(write(&interims, &mut server, true));
        let passing = interims.pass(Bytes::from_static(HINTS));
        assert_pending!(write(&interims, &mut server, true));
        drop(passing);
        let mut received = Vec::new();
        while received.len() < HINTS.len() {
            received.extend(read(&mut client, (HINTS.len() - received.len()).min(10)).await);
            let _ = write(&interims, &mut server, false);
        }
        assert_eq!(received, HINTS);
        assert_ready_ok!(write(&interims, &mut server, false));
    }
}
