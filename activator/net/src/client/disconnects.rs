//! Detects clients that disconnect while their request waits.
//!
//! Over HTTP/2 the connection reports a disconnect at once. Over HTTP/1 a FIN from the client counts as a disconnect,
//! as upstream. A client that has gone and one that only ends its side can be told apart only by sending something, and
//! HTTP allows no such message.
//!
//! Standalone mode makes one exception, for clients that half-close right after a complete request and then read. A FIN
//! within [`HALF_CLOSE_MAX`] of the last data does not count; clients that give up send it later. If such a client has
//! gone after all, its kernel answers a keep-alive probe with a reset about a minute later, which counts.
//!
//! While nothing of the request is left to read, the connection keeps reading and sees the FIN. While a body is unread,
//! or bytes wait that were read after the request, the socket is not read. So a held request with an unread body, and a
//! connection with bytes after its request, check the kernel's state: after 100 ms, and as the wait gets longer, once a
//! second. A reset or FIN there ends the request.

use crate::tcp::state::SharedSocket;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Time between two checks at first. It grows with the wait, so that thousands of long waits cost little.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time between two checks.
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Maximum time between a client's last data and its FIN to count as a half-close.
pub const HALF_CLOSE_MAX: Duration = Duration::from_millis(500);

/// A watched client.
#[derive(Debug)]
pub struct Disconnect {
    socket: Arc<SharedSocket>,
    /// A FIN within this time of the client's last data does not count.
    half_close: Duration,
    since: Instant,
    next_look: Pin<Box<Sleep>>,
}

impl Disconnect {
    /// Watches the client of a connection.
    pub(crate) fn new(socket: Arc<SharedSocket>, half_close: Duration) -> Self {
        Self { socket, half_close, since: Instant::now(), next_look: Box::pin(sleep(FIRST_INTERVAL)) }
    }

    /// Becomes ready when the client has gone.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.next_look.as_mut().poll(cx));
            let interval = self.since.elapsed().clamp(FIRST_INTERVAL, INTERVAL_MAX);
            self.next_look.as_mut().reset(Instant::now() + interval);
            if self.has_gone() {
                return Poll::Ready(());
            }
        }
    }

    /// Waits until the client has gone.
    pub async fn gone(&mut self) {
        poll_fn(|cx| self.poll_gone(cx)).await;
    }

    /// Reports whether the client has gone.
    pub fn has_gone(&self) -> bool {
        self.socket.has_left(self.half_close)
    }
}
