//! Bounds on the memory of incomplete frames.
//!
//! A frame may be large, and there may be many connections. Each peer that stops one byte short of a frame's end would
//! occupy the memory of a whole frame. Each connection therefore has [`FREE`] bytes that are not charged, which is
//! more than most frames need. Beyond that, all connections share [`TOTAL_MAX`] bytes; if these are used up, the
//! address with the most bytes gives way. A frame must end within [`PATIENCE`]. A connection that gives way or is late
//! is closed. An activator then reconnects and reports again.

use common_runtime::bounded_accept::{GivesWay, Limits, Share, Shares};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Bytes of an incomplete frame that are not charged.
pub const FREE: usize = 16 * 1024;
/// Maximum charged bytes of the incomplete frames of all connections together.
pub const TOTAL_MAX: usize = 64 * 1024 * 1024;
/// Longest time between the first charged byte and the frame's end.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Reason for closing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IncompleteFrameError {
    /// The frame was not complete in time.
    #[error("a frame of more than {FREE} bytes was still incomplete after {PATIENCE:?}")]
    Late,
    /// All incomplete frames together exceed their limit.
    #[error("the incomplete frames of all connections exceed {TOTAL_MAX} bytes, and this client address has the most")]
    TooMany,
}

/// Returns the shares of all connections' incomplete frames.
pub fn shares() -> Arc<Shares> {
    Shares::new(Limits { total: TOTAL_MAX, per_address: TOTAL_MAX }, GivesWay::Youngest)
}

/// Incoming half of a connection, whose incomplete frames are charged. Its own errors are [`IncompleteFrameError`].
pub struct MeteredStream<S> {
    stream: S,
    read: usize,
    address: IpAddr,
    shares: Arc<Shares>,
    /// Share of the connection, and its charged bytes.
    charged: Option<(Share, usize)>,
    patience: Option<Pin<Box<Sleep>>>,
}

impl<S> MeteredStream<S> {
    /// Charges the bytes that arrive through `stream` from `address` to `shares`.
    pub fn new(stream: S, address: IpAddr, shares: Arc<Shares>) -> Self {
        Self { stream, read: 0, address, shares, charged: None, patience: None }
    }

    /// Charges all bytes of the current frame so far.
    fn charge(&mut self) -> Result<(), IncompleteFrameError> {
        let Some(due) = self.read.checked_sub(FREE).filter(|due| *due > 0) else { return Ok(()) };
        self.patience.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        match &mut self.charged {
            None => {
                self.charged = Some((self.shares.take(self.address, due).ok_or(IncompleteFrameError::TooMany)?, due))
            }
            Some((share, charged)) => {
                if !share.grow(due - *charged) {
                    return Err(IncompleteFrameError::TooMany);
                }
                *charged = due;
            }
        }
        Ok(())
    }

    /// Records that a frame is complete, and releases its charge.
    pub fn finished(&mut self) {
        self.read = 0;
        self.charged = None;
        self.patience = None;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.patience.as_mut().is_some_and(|patience| patience.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Err(io::Error::other(IncompleteFrameError::Late)));
        }
        if this.charged.as_mut().is_some_and(|(share, _)| share.poll_lost(cx).is_ready()) {
            return Poll::Ready(Err(io::Error::other(IncompleteFrameError::TooMany)));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        this.read += buf.filled().len() - before;
        Poll::Ready(this.charge().map_err(io::Error::other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    fn refusal(error: &io::Error) -> Option<IncompleteFrameError> {
        error.get_ref().and_then(|inner| inner.downcast_ref()).copied()
    }

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const SMALL: Limits = Limits { total: 100, per_address: 100 };

    /// Peer, and its connection.
    type Connection = (DuplexStream, MeteredStream<DuplexStream>);

    fn connection(address: IpAddr, shares: &Arc<Shares>) -> Connection {
        let (peer, stream) = tokio::io::duplex(2 * FREE);
        (peer, MeteredStream::new(stream, address, shares.clone()))
    }

    /// Sends these bytes, and reads them.
    async fn transfer((peer, metered): &mut Connection, bytes: &mut [u8]) -> io::Result<usize> {
        peer.write_all(bytes).await.expect("room");
        metered.read_exact(bytes).await
    }

    /// Goal: the free part is not charged; the part beyond it is, until the frame or its connection ends.
    #[tokio::test]
    async fn bytes_beyond_the_free_part_are_charged() {
        let shares = Shares::new(SMALL, GivesWay::Youngest);
        let mut connection = connection(ADDRESS, &shares);
        let mut bytes = vec![0; FREE];
        for (sent, charged) in [(FREE, 0), (60, 60), (40, 100)] {
            transfer(&mut connection, &mut bytes[..sent]).await.expect("within bounds");
            assert_eq!(shares.held(), charged);
        }
        connection.1.finished();
        assert_eq!(shares.held(), 0);

        transfer(&mut connection, &mut bytes).await.expect("the free part");
        let error = transfer(&mut connection, &mut bytes[..101]).await.expect_err("one byte beyond the limit");
        assert_eq!(refusal(&error), Some(IncompleteFrameError::TooMany));
        drop(connection);
        assert_eq!(shares.held(), 0);
    }

    /// Goal: a frame of another address is read to its end, even if one address has used up the limit.
    #[tokio::test]
    async fn the_address_with_the_most_bytes_gives_way() {
        let shares = Shares::new(SMALL, GivesWay::Youngest);
        let mut bytes = vec![0; FREE + 100];
        let mut first = connection(ADDRESS, &shares);
        transfer(&mut first, &mut bytes).await.expect("within bounds");
        let mut second = connection([10, 0, 0, 1].into(), &shares);
        transfer(&mut second, &mut bytes[..FREE + 50]).await.expect("the first one has more");
        let error = first.1.read_u8().await.expect_err("it has given way");
        assert_eq!((refusal(&error), shares.held()), (Some(IncompleteFrameError::TooMany), 50));
    }

    /// Goal: a large frame has limited time, and its end stops the timer.
    #[tokio::test(start_paused = true)]
    async fn a_large_frame_has_limited_time() {
        let mut connection = connection(ADDRESS, &shares());
        let mut bytes = vec![0; FREE + 1];
        for _ in 0..2 {
            transfer(&mut connection, &mut bytes).await.expect("within bounds");
            connection.1.finished();
            sleep(2 * PATIENCE).await;
        }
        transfer(&mut connection, &mut bytes).await.expect("within bounds");
        let begun = tokio::time::Instant::now();
        let error = connection.1.read_u8().await.expect_err("the rest never arrives");
        assert_eq!(refusal(&error), Some(IncompleteFrameError::Late));
        assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
    }
}
