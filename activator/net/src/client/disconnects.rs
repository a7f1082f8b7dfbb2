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
//! or bytes wait that were read after the request, the socket is not read. So one task checks every 100 ms the
//! connections of held requests with an unread body, and those with bytes after a request. A reset or FIN in the
//! kernel's state ends the request.

use crate::tcp::state::SharedSocket;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use slab::Slab;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Time between two checks.
const TICK: Duration = Duration::from_millis(100);

/// Maximum time between a client's last data and its FIN to count as a half-close.
pub const HALF_CLOSE_MAX: Duration = Duration::from_millis(500);

/// All watched clients.
#[derive(Debug, Default)]
pub struct Disconnects {
    half_close: Duration,
    watched: Mutex<Slab<Arc<Watched>>>,
    first: Notify,
}

#[derive(Debug)]
struct Watched {
    socket: Arc<SharedSocket>,
    gone: AtomicBool,
    waker: AtomicWaker,
}

/// A watched client. Dropping it ends the watch.
#[derive(Debug)]
pub struct Disconnect {
    all: Arc<Disconnects>,
    place: usize,
    watched: Arc<Watched>,
}

impl Disconnects {
    /// Starts without clients and checks until `shutdown`. A client's FIN within `half_close` of its last data does not
    /// count.
    pub fn start(shutdown: CancellationToken, half_close: Duration) -> Arc<Self> {
        let all = Arc::new(Self { half_close, ..Self::default() });
        let looking = all.clone();
        tokio::spawn(async move { shutdown.run_until_cancelled(looking.run()).await });
        all
    }

    /// Watches a client.
    pub(crate) fn watch(self: &Arc<Self>, socket: &Arc<SharedSocket>) -> Disconnect {
        let (gone, waker) = (AtomicBool::new(false), AtomicWaker::new());
        let watched = Arc::new(Watched { socket: socket.clone(), gone, waker });
        let mut all = self.watched.lock();
        let place = all.insert(watched.clone());
        if all.len() == 1 {
            self.first.notify_one();
        }
        Disconnect { all: self.clone(), place, watched }
    }

    /// Reports whether the client of this socket has gone.
    pub(crate) fn has_left(&self, socket: &SharedSocket) -> bool {
        socket.has_left(self.half_close)
    }

    async fn run(&self) {
        loop {
            while self.watched.lock().is_empty() {
                self.first.notified().await;
            }
            tokio::time::sleep(TICK).await;
            // The kernel's state takes a microsecond each, so do not hold the lock.
            let watched: Vec<Arc<Watched>> = self.watched.lock().iter().map(|(_, watched)| watched.clone()).collect();
            watched.iter().filter(|watched| self.has_left(&watched.socket)).for_each(|watched| watched.set_gone());
        }
    }
}

impl Watched {
    fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Disconnect {
    /// Becomes ready when the client has gone.
    pub(crate) fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        self.watched.waker.register(cx.waker());
        if self.has_gone() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until the client has gone.
    pub async fn gone(&mut self) {
        poll_fn(|cx| self.poll_gone(cx)).await;
    }

    /// Reports whether the client has gone.
    pub fn has_gone(&self) -> bool {
        self.watched.gone.load(Ordering::Acquire)
    }
}

impl Drop for Disconnect {
    fn drop(&mut self) {
        self.all.watched.lock().try_remove(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use tokio_test::{assert_pending, assert_ready, task::spawn};

    fn watched(all: &Arc<Disconnects>) -> (Disconnect, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        // SAFETY: the socket is never inspected, because the task that does so is not started here.
        let socket = Arc::new(unsafe { SharedSocket::new(&client) });
        (all.watch(&socket), client)
    }

    /// Goal: a disconnect wakes the last task that polled, and is reported to later polls.
    #[test]
    fn who_asked_last_is_woken() {
        let all = Arc::<Disconnects>::default();
        let (mut disconnect, _client) = watched(&all);
        let mut first = spawn(poll_fn(|cx| disconnect.poll_gone(cx)));
        assert_pending!(first.poll());
        drop(first);
        let mut last = spawn(poll_fn(|cx| disconnect.poll_gone(cx)));
        assert_pending!(last.poll());
        let gone = disconnect.watched.clone();
        gone.set_gone();
        assert!(last.is_woken());
        assert_ready!(last.poll());
        drop(last);
        assert_ready!(spawn(disconnect.gone()).poll());
    }
}
