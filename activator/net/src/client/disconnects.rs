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
use parking_lot::Mutex;
use slab::Slab;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
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
    waiting: Mutex<Slab<Entry>>,
    first: Notify,
}

#[derive(Debug)]
struct Entry {
    socket: Arc<SharedSocket>,
    gone: Arc<AtomicBool>,
    waker: Waker,
}

/// A watched client. Dropping it ends the watch.
#[derive(Debug)]
pub struct Disconnect {
    all: Arc<Disconnects>,
    place: usize,
    gone: Arc<AtomicBool>,
    /// Waker of its entry. It is kept here too, so that a repeated poll with the same waker needs no lock, which all
    /// clients share.
    waker: Waker,
}

/// Number of entries for which memory is kept when no client is watched.
const PLACES_KEPT: usize = 64;

impl Disconnects {
    /// Starts without clients and checks until `shutdown`. A client's FIN within `half_close` of its last data does not
    /// count.
    pub fn start(shutdown: CancellationToken, half_close: Duration) -> Arc<Self> {
        let all = Arc::new(Self { half_close, ..Self::default() });
        let looking = all.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = looking.run() => {}
                () = shutdown.cancelled() => {}
            }
        });
        all
    }

    /// Watches a client.
    pub(crate) fn watch(self: &Arc<Self>, socket: &Arc<SharedSocket>) -> Disconnect {
        let mut waiting = self.waiting.lock();
        let (gone, waker) = (Arc::<AtomicBool>::default(), Waker::noop().clone());
        let place = waiting.insert(Entry { socket: socket.clone(), gone: gone.clone(), waker: waker.clone() });
        if waiting.len() == 1 {
            self.first.notify_one();
        }
        Disconnect { all: self.clone(), place, gone, waker }
    }

    /// Reports whether the client of this socket has gone.
    pub(crate) fn has_left(&self, socket: &SharedSocket) -> bool {
        socket.has_left(self.half_close)
    }

    async fn run(&self) {
        loop {
            while self.waiting.lock().is_empty() {
                self.first.notified().await;
            }
            tokio::time::sleep(TICK).await;
            // The kernel's state takes a microsecond each, so do not hold the lock.
            let sockets: Vec<(usize, Arc<SharedSocket>)> =
                self.waiting.lock().iter().map(|(place, entry)| (place, entry.socket.clone())).collect();
            for (place, socket) in sockets {
                if self.has_left(&socket) {
                    self.set_gone(place, &socket);
                }
            }
        }
    }

    fn set_gone(&self, place: usize, socket: &Arc<SharedSocket>) {
        let mut waiting = self.waiting.lock();
        // The entry may belong to another client by now.
        if let Some(entry) = waiting.get_mut(place).filter(|entry| Arc::ptr_eq(&entry.socket, socket)) {
            entry.gone.store(true, Ordering::Release);
            entry.waker.wake_by_ref();
        }
    }
}

impl Disconnect {
    /// Becomes ready when the client has gone.
    pub(crate) fn poll_gone(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.has_gone() && !self.waker.will_wake(cx.waker()) {
            self.waker.clone_from(cx.waker());
            if let Some(entry) = self.all.waiting.lock().get_mut(self.place) {
                entry.waker.clone_from(cx.waker());
            }
        }
        // The client may have gone just before the table had this waker.
        if self.has_gone() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until the client has gone.
    pub async fn gone(&mut self) {
        poll_fn(|cx| self.poll_gone(cx)).await;
    }

    /// Reports whether the client has gone.
    pub fn has_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl Drop for Disconnect {
    fn drop(&mut self) {
        let mut waiting = self.all.waiting.lock();
        waiting.try_remove(self.place);
        if waiting.is_empty() && waiting.capacity() > PLACES_KEPT {
            waiting.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use tokio_test::{assert_pending, assert_ready, task::spawn};

    fn watched(all: &Arc<Disconnects>) -> (Disconnect, Arc<SharedSocket>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        // SAFETY: the socket is never inspected, because the task that does so is not started here.
        let socket = Arc::new(unsafe { SharedSocket::new(&client) });
        (all.watch(&socket), socket, client)
    }

    /// Goal: a disconnect wakes the last task that polled, and is reported to later polls.
    #[test]
    fn who_asked_last_is_woken() {
        let all = Arc::<Disconnects>::default();
        let (mut disconnect, socket, _client) = watched(&all);
        let place = disconnect.place;
        let mut first = spawn(poll_fn(|cx| disconnect.poll_gone(cx)));
        assert_pending!(first.poll());
        drop(first);
        let mut last = spawn(poll_fn(|cx| disconnect.poll_gone(cx)));
        assert_pending!(last.poll());
        all.set_gone(place, &socket);
        assert!(last.is_woken());
        assert_ready!(last.poll());
        drop(last);
        assert_ready!(spawn(disconnect.gone()).poll());
    }

    /// Goal: repeated polls by the same task, as a client's connection makes with each flush, do not touch the table,
    /// which all clients share. Method: another waker is put there, and stays.
    #[test]
    fn who_asks_again_leaves_the_table_alone() {
        let all = Arc::<Disconnects>::default();
        let (mut disconnect, _socket, _client) = watched(&all);
        let place = disconnect.place;
        let mut asking = spawn(poll_fn(|cx| disconnect.poll_gone(cx)));
        assert_pending!(asking.poll());
        let other = spawn(poll_fn(|cx| Poll::Ready(cx.waker().clone()))).poll();
        let Poll::Ready(other) = other else { panic!("it is ready") };
        all.waiting.lock()[place].waker = other.clone();
        assert_pending!(asking.poll());
        assert!(all.waiting.lock()[place].waker.will_wake(&other));
    }
}
