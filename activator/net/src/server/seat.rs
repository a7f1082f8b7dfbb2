//! One client connection's part of what all may have: whose it is, whether anything runs on it, and what it is told.
//!
//! It costs no lock that connections share but at its beginning and its end, and where a request over HTTP/2 needs one more
//! connection to pods than were counted before. Each connection's task looks at two flags whenever it is polled anyway.

use super::client_connections::{COST, ClientConnections};
use crate::client::peer::{Claims, OwnPort};
use crate::error::ProxyError;
use crate::memory::{Charge, Kind, Memory, Party};
use activator_core::ledger::{Holder, Of};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Poll, Waker};

/// Requests at once that are counted in one step.
const STEP: u32 = 8;

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

/// A connection, as those see it who have to choose among all.
#[derive(Debug)]
pub(super) struct Standing {
    told: AtomicU8,
    /// Of its task, once that has looked at what it is told.
    waker: Mutex<Option<Waker>>,
    /// Exchanges that have begun and not ended.
    running: AtomicU32,
    /// The most of them at once.
    most: AtomicU32,
    /// It is HTTP no longer.
    tunnel: AtomicBool,
    /// The second in which it was accepted.
    pub(super) since: u32,
    /// The second in which the last exchange ended, or it was accepted.
    idle_since: AtomicU32,
    /// In which second it is cut if nothing runs on it; 0: it is not.
    pub(super) cut_in: AtomicU32,
    /// Others need its place: in that second it is cut whatever runs.
    pub(super) is_needed: AtomicBool,
    /// Whom its latest request was for; 0: nobody knows.
    pub(super) workload: AtomicU64,
    /// It waits in the reserve, to say what it wants.
    is_reserved: AtomicBool,
    /// The workload's port that it came to.
    port: Option<Arc<OwnPort>>,
}

impl Standing {
    /// One that was accepted in this second.
    pub(super) fn new(second: u32, workload: u64, port: Option<Arc<OwnPort>>) -> Arc<Self> {
        Arc::new(Self {
            told: AtomicU8::new(0),
            waker: Mutex::new(None),
            running: AtomicU32::new(0),
            most: AtomicU32::new(0),
            tunnel: AtomicBool::new(false),
            since: second,
            idle_since: AtomicU32::new(second),
            cut_in: AtomicU32::new(0),
            is_needed: AtomicBool::new(false),
            workload: AtomicU64::new(workload),
            is_reserved: AtomicBool::new(false),
            port,
        })
    }

    /// Tells it. Where it is served within the same poll, nobody need be woken.
    pub(super) fn tell(&self, phase: Phase) {
        self.told.fetch_max(phase as u8, Ordering::AcqRel);
    }

    /// Has its task look.
    pub(super) fn wake(&self) {
        self.waker.lock().iter().for_each(Waker::wake_by_ref);
    }

    /// Tells it from elsewhere.
    pub(super) fn order(&self, phase: Phase) {
        self.tell(phase);
        self.wake();
    }

    /// Whether it has had a request.
    pub(super) fn was_used(&self) -> bool {
        self.most.load(Ordering::Relaxed) > 0
    }

    /// Whether clients of its port are to come anew.
    pub(super) fn is_left(&self) -> bool {
        self.port.as_ref().is_some_and(|port| port.is_left())
    }
}

impl Holder for Standing {
    fn idle_since(&self) -> Option<u32> {
        let is_idle = self.running.load(Ordering::Acquire) == 0 && !self.tunnel.load(Ordering::Relaxed);
        is_idle.then(|| self.idle_since.load(Ordering::Relaxed))
    }
}

impl Party for Standing {
    fn give_way(&self) {
        self.order(Phase::Cut);
    }
}

/// A connection's part. Dropping it gives it back, so it goes where the socket goes.
#[derive(Debug)]
pub(crate) struct Seat {
    all: ClientConnections,
    pub(super) standing: Arc<Standing>,
    address: IpAddr,
    /// Its key, among those in the reserve or the others.
    key: Mutex<usize>,
    /// Requests at once that are counted.
    counted: AtomicU32,
}

impl Seat {
    /// With this key.
    pub(super) fn new(
        all: ClientConnections,
        standing: Arc<Standing>,
        address: IpAddr,
        key: usize,
        reserved: bool,
    ) -> Self {
        standing.is_reserved.store(reserved, Ordering::Release);
        Self { all, standing, address, key: Mutex::new(key), counted: AtomicU32::new(1) }
    }

    /// Whether it waits in the reserve.
    pub(super) fn is_reserved(&self) -> bool {
        self.standing.is_reserved.load(Ordering::Acquire)
    }

    /// Whether answers over HTTP/1 are the last of their connections.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_reserved() || self.all.phase() == Phase::Leaving
    }

    /// Whether it came to a workload's own port.
    pub(super) fn is_on_own_port(&self) -> bool {
        self.standing.port.is_some()
    }

    /// An exchange begins; false: there is no room for it beside the others on its connection.
    pub(super) fn begins(&self) -> bool {
        let running = self.standing.running.fetch_add(1, Ordering::Relaxed) + 1;
        if running > self.standing.most.load(Ordering::Relaxed) {
            self.standing.most.store(running, Ordering::Relaxed);
        }
        running <= self.counted.load(Ordering::Relaxed) || self.count_more()
    }

    #[cold]
    fn count_more(&self) -> bool {
        let key = self.key.lock();
        let has_room = self.is_reserved() || self.all.grow(*key, STEP.into());
        if has_room {
            self.counted.fetch_add(STEP, Ordering::Relaxed);
        }
        has_room
    }

    /// Why there is no room for one more.
    pub(super) fn full(&self) -> ProxyError {
        ProxyError::NoRoom { bound: self.all.admitted().limit() / COST }
    }

    /// One has ended.
    pub(super) fn ended(&self) {
        self.standing.idle_since.store(self.all.second(), Ordering::Relaxed);
        let is_last = self.standing.running.fetch_sub(1, Ordering::Release) == 1;
        if is_last && self.counted.load(Ordering::Relaxed) > 1 {
            let key = self.key.lock();
            if self.standing.running.load(Ordering::Acquire) > 0 {
                return;
            }
            let less = self.counted.swap(1, Ordering::Relaxed) - 1;
            if !self.is_reserved() {
                self.all.admitted().shrink(*key, less.into());
            }
        }
    }

    /// A charge of its workload and its client, for which it is cut if need be.
    pub(super) fn charge(&self, memory: &Memory, kind: Kind) -> Charge {
        let of = Of { workload: self.standing.workload.load(Ordering::Relaxed), address: self.address };
        memory.charge(kind, of, self.standing.clone())
    }

    /// Since which second no exchange has run, if none does.
    pub(super) fn idle_since(&self) -> Option<u32> {
        self.standing.idle_since()
    }

    /// The most exchanges that have run at once.
    pub(super) fn most_at_once(&self) -> u32 {
        self.standing.most.load(Ordering::Relaxed)
    }

    /// From now on nobody looks at what is read.
    pub(super) fn becomes_tunnel(&self) {
        self.standing.tunnel.store(true, Ordering::Relaxed);
    }

    /// Whether it is HTTP no longer.
    pub(super) fn is_tunnel(&self) -> bool {
        self.standing.tunnel.load(Ordering::Relaxed)
    }

    /// Its task's ear. There is one at a time.
    pub(super) fn listener(self: &Arc<Self>) -> Listener {
        Listener { seat: self.clone(), listens: false }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let key = *self.key.get_mut();
        match self.is_reserved() {
            true => self.all.reserve().leave(key),
            false => self.all.admitted().leave(key),
        }
    }
}

impl Claims for Seat {
    /// It carries a request for this workload. One that waits in the reserve gets its place now.
    ///
    /// # Errors
    /// No other workload, and none of its clients, has more.
    fn claim(&self, workload: u64) -> Result<(), ProxyError> {
        let standing = &self.standing;
        if standing.workload.load(Ordering::Relaxed) != workload {
            standing.workload.store(workload, Ordering::SeqCst);
            if self.all.is_tight() {
                let key = self.key.lock(); // Before the ledger's, as everywhere.
                if !self.is_reserved() {
                    self.all.admitted().regroup(*key, workload);
                }
            }
        }
        if !self.is_reserved() {
            return Ok(());
        }
        let mut key = self.key.lock();
        if self.is_reserved() {
            // In the reserve, further requests were counted here alone.
            let cost = COST + u64::from(self.counted.load(Ordering::Relaxed) - 1);
            let admitted = self.all.admit(workload, self.address, standing, cost, false);
            let admitted = admitted.inspect_err(|_| self.all.refuse())?;
            self.all.reserve().leave(std::mem::replace(&mut key, admitted));
            standing.is_reserved.store(false, Ordering::Release);
        }
        Ok(())
    }
}

/// One that nothing bounds.
impl Default for Seat {
    fn default() -> Self {
        let all = ClientConnections::default();
        let (standing, address) = (Standing::new(0, 0, None), Ipv4Addr::LOCALHOST.into());
        let key = all.admit(0, address, &standing, COST, true).unwrap_or(usize::MAX);
        Self::new(all, standing, address, key, false)
    }
}

/// Hears what a connection is told.
pub(crate) struct Listener {
    seat: Arc<Seat>,
    listens: bool,
}

impl Listener {
    /// The phase. `waker` is woken when it changes; it is taken at the first call, so the caller must stay in one task.
    pub(crate) fn phase(&mut self, waker: &Waker) -> Phase {
        if !std::mem::replace(&mut self.listens, true) {
            *self.seat.standing.waker.lock() = Some(waker.clone());
        }
        // Read after the waker is in place: an order given in between either finds the waker or is seen here.
        let alone = Phase::from_order(self.seat.standing.told.load(Ordering::Acquire));
        self.seat.all.phase().max(alone)
    }

    /// Waits for [`Phase::Cut`].
    pub(crate) async fn cut(&mut self) {
        poll_fn(|cx| if self.phase(cx.waker()) == Phase::Cut { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}
