//! What frames may occupy until they are complete.
//!
//! A frame may be large, and connections are many: peers that stop one byte short of the end would hold what all of
//! them together may send. So each connection has [`FREE`] bytes for nothing, which is more than most frames take;
//! beyond that, all share [`TOTAL_MAX`], and a frame has [`PATIENCE`] to end. Whoever oversteps either bound loses its
//! connection. An activator dials again and reports anew.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Bytes of an unfinished frame that are not charged.
pub const FREE: usize = 16 * 1024;
/// Bytes that the unfinished frames of all connections may take together, beyond what is free.
pub const TOTAL_MAX: usize = 64 * 1024 * 1024;
/// Longest time between the first byte that is charged and the frame's end.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Why a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfinished {
    /// It dawdles.
    #[error("a frame of more than {FREE} bytes was not complete after {PATIENCE:?}")]
    Late,
    /// There are too many of its kind.
    #[error("unfinished frames take more than the {max} bytes that they may together")]
    TooMany {
        /// The bound.
        max: usize,
    },
}

/// What the unfinished frames of all connections take.
#[derive(Debug)]
pub struct Budget {
    max: usize,
    taken: AtomicUsize,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: AtomicUsize::new(0) })
    }

    fn take(&self, bytes: usize) -> Result<(), Unfinished> {
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.max { Err(Unfinished::TooMany { max: self.max }) } else { Ok(()) }
    }
}

/// What one connection was charged. Given back when it is dropped.
struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Charge {
    fn raise_to(&mut self, bytes: usize) -> Result<(), Unfinished> {
        let more = bytes.saturating_sub(self.bytes);
        self.bytes += more;
        self.budget.take(more)
    }

    fn give_back(&mut self) {
        self.budget.taken.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// A connection whose unfinished frames are charged. An error of its own is an [`Unfinished`].
pub struct Metered<S> {
    stream: S,
    read: usize,
    charge: Charge,
    patience: Option<Pin<Box<Sleep>>>,
}

impl<S> Metered<S> {
    /// Charges what comes through `stream` to `budget`.
    pub fn new(stream: S, budget: Arc<Budget>) -> Self {
        Self { stream, read: 0, charge: Charge { budget, bytes: 0 }, patience: None }
    }

    /// A frame is complete: what was read until now is free again.
    pub fn finished(&mut self) {
        self.read = 0;
        self.charge.give_back();
        self.patience = None;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.patience.as_mut().is_some_and(|patience| patience.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Err(io::Error::other(Unfinished::Late)));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        this.read += buf.filled().len() - before;
        if this.read > FREE {
            this.patience.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
            this.charge.raise_to(this.read - FREE).map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn refusal(error: &io::Error) -> Option<Unfinished> {
        error.get_ref().and_then(|inner| inner.downcast_ref()).copied()
    }

    /// Goal: what is free is charged to nobody, what is beyond is, until the frame ends or its connection does.
    #[tokio::test]
    async fn what_is_beyond_the_free_part_is_charged() {
        let budget = Budget::new(100);
        let (mut peer, stream) = tokio::io::duplex(2 * FREE);
        let mut metered = Metered::new(stream, budget.clone());
        let taken = || budget.taken.load(Ordering::Relaxed);
        let mut bytes = vec![0; FREE];
        for (sent, charged) in [(FREE, 0), (60, 60), (40, 100)] {
            peer.write_all(&vec![0; sent]).await.expect("room");
            metered.read_exact(&mut bytes[..sent]).await.expect("within bounds");
            assert_eq!(taken(), charged);
        }
        metered.finished();
        assert_eq!(taken(), 0);

        peer.write_all(&vec![0; FREE + 101]).await.expect("room");
        metered.read_exact(&mut bytes).await.expect("the free part");
        let error = metered.read_exact(&mut bytes[..101]).await.expect_err("one byte more than there is");
        assert_eq!(refusal(&error), Some(Unfinished::TooMany { max: 100 }));
        drop(metered);
        assert_eq!(taken(), 0);
    }

    /// Goal: a large frame has its time and no more; a frame's end ends it.
    #[tokio::test(start_paused = true)]
    async fn a_large_frame_has_its_time() {
        let (mut peer, stream) = tokio::io::duplex(2 * FREE);
        let mut metered = Metered::new(stream, Budget::new(FREE));
        let mut bytes = vec![0; FREE + 1];
        for _ in 0..2 {
            peer.write_all(&bytes).await.expect("room");
            metered.read_exact(&mut bytes).await.expect("within bounds");
            metered.finished();
            sleep(2 * PATIENCE).await;
        }
        peer.write_all(&bytes).await.expect("room");
        metered.read_exact(&mut bytes).await.expect("within bounds");
        let begun = tokio::time::Instant::now();
        let error = metered.read_u8().await.expect_err("the rest never comes");
        assert_eq!((refusal(&error), begun.elapsed().as_secs()), (Some(Unfinished::Late), PATIENCE.as_secs()));
    }
}
