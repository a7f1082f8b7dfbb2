//! Tells every open connection to finish, or to stop, without a cost to those that are not told yet.
//!
//! Each connection registers the waker of its task once and looks at one flag each time it is polled anyway. A
//! cancellation token in a `select!` would instead take a lock that all connections share, at each poll of each.

use parking_lot::Mutex;
use slab::Slab;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Poll, Waker};

/// What connections are told. Only ever moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Go on.
    Open,
    /// Go on, and send clients elsewhere: an answer over HTTP/1 is the last of its connection.
    Leaving,
    /// Finish what is in flight.
    Finish,
    /// Stop at once.
    Cut,
}

/// The order to all connections.
#[derive(Clone, Default)]
pub(crate) struct Drain {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    phase: AtomicU8,
    wakers: Mutex<Slab<Waker>>,
}

/// Room for so many connections is kept when the last has ended.
const PLACES_KEPT: usize = 64;

/// One connection's place among those to be told. Dropping it gives the place back.
pub(crate) struct Listener {
    shared: Arc<Shared>,
    place: Option<usize>,
}

impl Drain {
    /// Moves on to `phase` and wakes every listener.
    pub(crate) fn advance(&self, phase: Phase) {
        self.shared.phase.fetch_max(phase as u8, Ordering::AcqRel);
        let wakers: Vec<Waker> = self.shared.wakers.lock().iter().map(|(_, waker)| waker.clone()).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// What is told now.
    pub(crate) fn phase(&self) -> Phase {
        self.shared.phase()
    }

    /// A place for one connection.
    pub(crate) fn listener(&self) -> Listener {
        Listener { shared: self.shared.clone(), place: None }
    }

    /// Connections that listen.
    #[cfg(test)]
    pub(crate) fn listening(&self) -> usize {
        self.shared.wakers.lock().len()
    }
}

impl Shared {
    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Open,
            1 => Phase::Leaving,
            2 => Phase::Finish,
            _ => Phase::Cut,
        }
    }
}

impl Listener {
    /// The phase. `waker` is woken when it changes; it is taken at the first call, so the caller must stay in one task.
    pub(crate) fn phase(&mut self, waker: &Waker) -> Phase {
        if self.place.is_none() {
            self.place = Some(self.shared.wakers.lock().insert(waker.clone()));
        }
        // Read after the waker is in place: an order given in between either finds the waker or is seen here.
        self.shared.phase()
    }

    /// Waits for [`Phase::Cut`].
    pub(crate) async fn cut(&mut self) {
        poll_fn(|cx| if self.phase(cx.waker()) == Phase::Cut { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut wakers = self.shared.wakers.lock();
            wakers.remove(place);
            if wakers.is_empty() && wakers.capacity() > PLACES_KEPT {
                wakers.shrink_to_fit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn every_listener_is_woken_and_a_dropped_one_leaves_nothing() {
        let drain = Drain::default();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let (mut staying, mut leaving) = (drain.listener(), drain.listener());
        for listener in [&mut staying, &mut leaving] {
            assert_eq!(listener.phase(&waker), Phase::Open);
            assert_eq!(listener.phase(&waker), Phase::Open);
        }
        assert_eq!(drain.listening(), 2, "a second look takes no second place");
        drop(leaving);
        assert_eq!(drain.phase(), Phase::Open);
        drain.advance(Phase::Finish);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(staying.phase(&waker), Phase::Finish);
        drain.advance(Phase::Cut);
        drain.advance(Phase::Finish);
        assert_eq!(staying.phase(&waker), Phase::Cut, "there is no way back");
        drop(staying);
        assert_eq!(drain.listening(), 0);
    }
}
