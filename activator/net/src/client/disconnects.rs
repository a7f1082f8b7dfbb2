//! Clients that disconnect while their request waits.
//!
//! Over HTTP/2 the connection tells at once. Over HTTP/1 the end of a client's side (FIN) is taken for its going, as
//! upstream takes it: whether a client has gone, or only says that it will send no more, could be told only by sending
//! it something, and nothing is sent that HTTP does not ask for.
//!
//! Standalone makes one exception, for clients that end their side right behind a whole request and then read. An end
//! within [`HALF_CLOSE_MAX`] of the last data does not count; clients that give up do so later. If such a client has gone
//! after all, its kernel answers keep-alive with a reset about a minute later, which counts.
//!
//! While nothing of the request is left to be read, the connection reads on and meets that end. While a body lies
//! unread, or something waits that was read behind the request, nobody reads the socket. So one task looks every 100 ms
//! at the connections whose requests are held with an unread body, and at those where something waits behind a request:
//! a reset or an end, as the kernel knows it, ends the request.

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

/// Time between two looks.
const TICK: Duration = Duration::from_millis(100);

/// Longest time between the last data of a client that half-closes its connection and the end of its side.
pub const HALF_CLOSE_MAX: Duration = Duration::from_millis(500);

/// All clients that are looked after.
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

/// A client that is looked after, for as long as this lives.
#[derive(Debug)]
pub struct Disconnect {
    all: Arc<Disconnects>,
    place: usize,
    gone: Arc<AtomicBool>,
    /// That of its entry. Here, so that who asks again with the same one takes no lock: all clients share it.
    waker: Waker,
}

/// Room for so many clients is kept when the last has gone or was answered.
const PLACES_KEPT: usize = 64;

impl Disconnects {
    /// Nobody yet. Looks until `shutdown`. A client's end within `half_close` of its last data does not count.
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

    /// Looks after a client.
    pub(crate) fn watch(self: &Arc<Self>, socket: &Arc<SharedSocket>) -> Disconnect {
        let mut waiting = self.waiting.lock();
        let (gone, waker) = (Arc::<AtomicBool>::default(), Waker::noop().clone());
        let place = waiting.insert(Entry { socket: socket.clone(), gone: gone.clone(), waker: waker.clone() });
        if waiting.len() == 1 {
            self.first.notify_one();
        }
        Disconnect { all: self.clone(), place, gone, waker }
    }

    /// Returns whether the client of this socket has gone.
    pub(crate) fn has_left(&self, socket: &SharedSocket) -> bool {
        socket.has_left(self.half_close)
    }

    async fn run(&self) {
        loop {
            while self.waiting.lock().is_empty() {
                self.first.notified().await;
            }
            tokio::time::sleep(TICK).await;
            // Asking the kernel takes a microsecond each: not under the lock.
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
        // Its place may have been given to another one meanwhile.
        if let Some(entry) = waiting.get_mut(place).filter(|entry| Arc::ptr_eq(&entry.socket, socket)) {
            entry.gone.store(true, Ordering::Release);
            entry.waker.wake_by_ref();
        }
    }
}

impl Disconnect {
    /// Ready when the client has gone.
    pub(crate) fn poll_gone(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.has_gone() && !self.waker.will_wake(cx.waker()) {
            self.waker.clone_from(cx.waker());
            if let Some(entry) = self.all.waiting.lock().get_mut(self.place) {
                entry.waker.clone_from(cx.waker());
            }
        }
        // It may have gone just before the table had this waker.
        if self.has_gone() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until the client has gone.
    pub async fn gone(&mut self) {
        poll_fn(|cx| self.poll_gone(cx)).await;
    }

    /// Whether it has gone.
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
        // SAFETY: nobody looks at it: the task that would is not started here.
        let socket = Arc::new(unsafe { SharedSocket::new(&client) });
        (all.watch(&socket), socket, client)
    }

    /// Goal: a client's going wakes whoever asked last, and is told to whoever asks after it.
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

    /// Goal: a task that asks again and again, as a client's connection does with each flush, does nothing in the
    /// table, which all clients share. Method: another waker is put there, and stays.
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
