//! Tells every open connection to finish, or to stop, or one of them, without a cost to those that are not told yet.
//!
//! Each connection registers the waker of its task once and looks at two flags each time it is polled anyway. A
//! cancellation token in a `select!` would instead take a lock that all connections share, at each poll of each.

use super::crowd::{CrowdBounds, Idle, Order};
use super::progress::Progress;
use parking_lot::Mutex;
use slab::Slab;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
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

impl Phase {
    /// Of its number.
    pub(super) fn from_order(order: u8) -> Self {
        match order {
            0 => Self::Open,
            1 => Self::Leaving,
            2 => Self::Finish,
            _ => Self::Cut,
        }
    }
}

/// The order to all connections.
#[derive(Clone, Default)]
pub(crate) struct Drain {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    phase: AtomicU8,
    /// Seconds that have been counted.
    second: AtomicU32,
    /// To which second it is looked for those whose port is left.
    looks: AtomicU32,
    places: Mutex<Slab<Place>>,
}

/// One that is to be told.
struct Place {
    waker: Waker,
    /// What happens there; none: it is no connection but a tunnel.
    progress: Option<Arc<Progress>>,
    /// In which second it was told alone.
    told: Option<u32>,
}

/// For so many seconds those are looked for whose port is left. Who gets a longer answer in that time is not found.
const LOOKS: u32 = 10;

/// Room for so many connections is kept when the last has ended.
const PLACES_KEPT: usize = 64;

/// One connection's place among those to be told. Dropping it gives the place back.
pub(crate) struct Listener {
    shared: Arc<Shared>,
    progress: Option<Arc<Progress>>,
    place: Option<usize>,
}

impl Drain {
    /// Moves on to `phase` and wakes every listener.
    pub(crate) fn advance(&self, phase: Phase) {
        self.shared.phase.fetch_max(phase as u8, Ordering::AcqRel);
        let wakers: Vec<Waker> = self.shared.places.lock().iter().map(|(_, place)| place.waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The second in which it is.
    pub(super) fn second(&self) -> u32 {
        self.shared.second.load(Ordering::Relaxed)
    }

    /// A workload's port is left: those who idle there are told in the seconds to come.
    pub(super) fn look(&self) {
        self.shared.looks.store(self.second() + LOOKS, Ordering::Relaxed);
    }

    /// Another second has passed, and so many connections and tunnels are open. Returns what connections were told.
    pub(super) fn tick(&self, bounds: &CrowdBounds, open: usize) -> Vec<Order> {
        let second = self.shared.second.fetch_add(1, Ordering::Relaxed) + 1;
        let looks = second <= self.shared.looks.load(Ordering::Relaxed);
        if !looks && !bounds.asks(second, open) {
            return Vec::new();
        }
        let mut places = self.shared.places.lock();
        let idle = places.iter().filter_map(|(at, place)| {
            let progress = place.progress.as_ref()?;
            let (since, was_used) = (progress.idle_since()?, progress.was_used());
            Some(Idle { place: at, since, was_used, is_left: progress.is_left(), told: place.told })
        });
        let orders = bounds.orders(second, open, idle.collect());
        let mut wakers = Vec::with_capacity(orders.len());
        for (at, order) in &orders {
            let place = &mut places[*at];
            place.told.get_or_insert(second);
            if let Some(progress) = &place.progress {
                progress.tell(if *order == Order::Cut { Phase::Cut } else { Phase::Finish });
            }
            wakers.push(place.waker.clone());
        }
        drop(places);
        wakers.into_iter().for_each(Waker::wake);
        orders.into_iter().map(|(_, order)| order).collect()
    }

    /// What is told now.
    pub(crate) fn phase(&self) -> Phase {
        self.shared.phase()
    }

    /// A place for one connection, on which this happens.
    pub(super) fn listener(&self, progress: Arc<Progress>) -> Listener {
        Listener { shared: self.shared.clone(), progress: Some(progress), place: None }
    }

    /// A place for one tunnel.
    pub(super) fn tunnel(&self) -> Listener {
        Listener { shared: self.shared.clone(), progress: None, place: None }
    }

    /// Connections that listen.
    #[cfg(test)]
    pub(crate) fn listening(&self) -> usize {
        self.shared.places.lock().len()
    }
}

impl Shared {
    fn phase(&self) -> Phase {
        Phase::from_order(self.phase.load(Ordering::Acquire))
    }
}

impl Listener {
    /// The phase. `waker` is woken when it changes; it is taken at the first call, so the caller must stay in one task.
    pub(crate) fn phase(&mut self, waker: &Waker) -> Phase {
        if self.place.is_none() {
            let place = Place { waker: waker.clone(), progress: self.progress.clone(), told: None };
            self.place = Some(self.shared.places.lock().insert(place));
        }
        // Read after the waker is in place: an order given in between either finds the waker or is seen here.
        let alone = self.progress.as_ref().map_or(Phase::Open, |progress| progress.told());
        self.shared.phase().max(alone)
    }

    /// Waits for [`Phase::Cut`].
    pub(crate) async fn cut(&mut self) {
        poll_fn(|cx| if self.phase(cx.waker()) == Phase::Cut { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut places = self.shared.places.lock();
            places.remove(place);
            if places.is_empty() && places.capacity() > PLACES_KEPT {
                places.shrink_to_fit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::peer::OwnPort;
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
        let (mut staying, mut leaving) = (drain.listener(Arc::default()), drain.tunnel());
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

    /// Goal: of many connections those are told that nothing runs on, and no other is woken.
    #[test]
    fn an_idle_connection_is_told_alone() {
        const BOUNDS: CrowdBounds = CrowdBounds { connections: 1, idle: None };
        let drain = Drain::default();
        let woken = [(); 3].map(|()| Arc::new(Woken::default()));
        let [idle, busy, tunnel] = woken.each_ref().map(|woken| Waker::from(woken.clone()));
        let progress = Arc::new(Progress::new(0));
        progress.begins();
        let mut places = [drain.listener(Arc::default()), drain.listener(progress.clone()), drain.tunnel()];
        for (place, waker) in places.iter_mut().zip([&idle, &busy, &tunnel]) {
            assert_eq!(place.phase(waker), Phase::Open);
        }
        let counts = || woken.each_ref().map(|woken| woken.0.load(Ordering::Relaxed));
        assert_eq!((drain.tick(&BOUNDS, 3), drain.second()), (Vec::new(), 1));
        assert_eq!(drain.tick(&BOUNDS, 3), [Order::MakeRoom]);
        assert_eq!((counts(), places[0].phase(&idle)), ([1, 0, 0], Phase::Finish));
        assert_eq!((places[1].phase(&busy), places[2].phase(&tunnel)), (Phase::Open, Phase::Open));
        // What it runs has ended, in second 2, and it is idle from then on.
        progress.ended(drain.second());
        assert_eq!(drain.tick(&BOUNDS, 3), []);
        assert_eq!(drain.tick(&BOUNDS, 3), [Order::MakeRoom]);
        assert_eq!(counts(), [1, 1, 0]);
        let cut: Vec<_> = std::iter::repeat_with(|| drain.tick(&BOUNDS, 3)).take(3).collect();
        assert_eq!(cut.concat(), [Order::Cut], "five seconds after it was told");
        assert_eq!((places[0].phase(&idle), drain.phase()), (Phase::Cut, Phase::Open));
    }

    /// Goal: who idles at a port whose clients are to come anew is told, though there is room, and nobody else is.
    #[test]
    fn who_idles_at_a_port_that_is_left_is_told() {
        const BOUNDS: CrowdBounds = CrowdBounds { connections: 100, idle: None };
        let drain = Drain::default();
        let [left, stays] = ["left", "stays"].map(|name| OwnPort::new(Arc::new(name)));
        let on = |port: &Arc<OwnPort>| Arc::new(Progress::new(0).on(Some(port.clone())));
        let busy = on(&left);
        busy.begins();
        let mut places = [on(&left), busy, on(&stays), Arc::default()].map(|progress| drain.listener(progress));
        let mut phases = || places.each_mut().map(|place| place.phase(Waker::noop()));
        assert_eq!(phases(), [Phase::Open; 4]);
        let told: Vec<_> = std::iter::repeat_with(|| drain.tick(&BOUNDS, 4)).take(3).collect();
        assert_eq!(told.concat(), []);
        left.leave();
        drain.look();
        assert_eq!(drain.tick(&BOUNDS, 4), [Order::Left]);
        assert_eq!(phases(), [Phase::Finish, Phase::Open, Phase::Open, Phase::Open]);
        assert_eq!(drain.tick(&BOUNDS, 4), [], "it is told once");
    }
}
