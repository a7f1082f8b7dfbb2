//! Clients that go away while their request waits.
//!
//! Over HTTP/2 the connection tells at once. Over HTTP/1 a client's end (FIN) says only that it will send no more: it
//! has gone, or it has shut its sending side and waits. And while a body lies unread nobody reads the socket, so that
//! not even an end would be seen. So one task looks at the connections that wait, by what the kernel knows of them:
//!
//! - A reset: it has gone.
//! - An end: HTTP/1.1 clients are sent `100 Continue`, which each must accept at any time before the answer (RFC 9110,
//!   15.2). The kernel of one that has gone answers that with a reset.
//! - An end is taken for the client's going where it cannot be asked: HTTP/1.0 knows no 100, and after the answer's
//!   first byte there is no room for one. So is one that hyper meets while it holds a part of the body that no pod has
//!   asked for yet.
//!
//! The looks come every 100 ms and concern requests that are held with an unread body, and ended connections.

use crate::tcp::state::SharedSocket;
use parking_lot::Mutex;
use slab::Slab;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Time between two looks.
const TICK: Duration = Duration::from_millis(100);

/// What a client that has ended its side is asked with.
pub(crate) const ASK: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// All clients that are looked after.
#[derive(Debug, Default)]
pub struct Departures {
    waiting: Mutex<Slab<Entry>>,
    first: Notify,
}

#[derive(Debug)]
struct Entry {
    socket: Arc<SharedSocket>,
    end: AtEnd,
    gone: bool,
    waker: Waker,
}

/// What follows when a client ends its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// It has gone.
    Gone,
    /// It is asked.
    Ask,
    /// It was asked.
    Asked,
}

/// A client that is looked after, for as long as this lives.
#[derive(Debug)]
pub struct Departure {
    all: Arc<Departures>,
    place: usize,
}

/// Room for so many clients is kept when the last has gone or was answered.
const PLACES_KEPT: usize = 64;

impl Departures {
    /// Nobody yet. Looks until `shutdown`.
    pub fn start(shutdown: CancellationToken) -> Arc<Self> {
        let all = Arc::<Self>::default();
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
    pub(crate) fn watch(self: &Arc<Self>, socket: &Arc<SharedSocket>, end: AtEnd) -> Departure {
        let mut waiting = self.waiting.lock();
        let entry = Entry { socket: socket.clone(), end, gone: false, waker: Waker::noop().clone() };
        let place = waiting.insert(entry);
        if waiting.len() == 1 {
            self.first.notify_one();
        }
        Departure { all: self.clone(), place }
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
                let state = socket.state();
                let closed = state.is_none_or(|state| state.closed);
                if closed || state.is_some_and(|state| state.peer_finished) {
                    self.ended(place, &socket, closed);
                }
            }
        }
    }

    fn ended(&self, place: usize, socket: &Arc<SharedSocket>, closed: bool) {
        let mut waiting = self.waiting.lock();
        // Its place may have been given to another one meanwhile.
        let Some(entry) = waiting.get_mut(place).filter(|entry| Arc::ptr_eq(&entry.socket, socket)) else { return };
        if closed || entry.end == AtEnd::Gone {
            entry.gone = true;
            entry.waker.wake_by_ref();
        } else if entry.end == AtEnd::Ask {
            entry.end = AtEnd::Asked;
            socket.send(ASK);
        }
    }
}

impl Departure {
    /// Ready when the client has gone.
    pub fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        let mut waiting = self.all.waiting.lock();
        match waiting.get_mut(self.place) {
            Some(entry) if !entry.gone => {
                entry.waker.clone_from(cx.waker());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Waits until the client has gone.
    pub async fn gone(&self) {
        poll_fn(|cx| self.poll_gone(cx)).await;
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        let mut waiting = self.all.waiting.lock();
        waiting.try_remove(self.place);
        if waiting.is_empty() && waiting.capacity() > PLACES_KEPT {
            waiting.shrink_to_fit();
        }
    }
}
