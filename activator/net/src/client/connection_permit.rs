//! Permit of a client connection within the limit for all connections. It records what the connection counts to, its
//! activity, and the order to finish or end.
//!
//! The lock that all connections share is taken only at a connection's start and end, if its concurrent HTTP/2 requests
//! exceed the counted number or have all ended after that, and for a new workload while little room is left. Each
//! connection's task checks two flags at each poll.

use crate::client::connections::{COST, ClientConnections};
use crate::client::peer::OwnPort;
use crate::error::ProxyError;
use crate::memory::{Charge, GivesWay, Kind};
use activator_core::ledger::{Holder, HolderGroup};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Poll, Waker};

/// Number of concurrent requests that are counted in one step.
const STEP: u32 = 8;

/// Phase of a connection, or of all connections. It only advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Open,
    /// Normal operation, but clients must reconnect elsewhere: an HTTP/1 response is the last of its connection.
    CloseAfterResponse,
    /// Exchanges in flight are finished, then the connection ends.
    Finish,
    /// The connection ends at once.
    Cut,
}

impl Phase {
    pub(crate) fn from_order(order: u8) -> Self {
        [Self::Open, Self::CloseAfterResponse, Self::Finish, Self::Cut][usize::from(order)]
    }
}

/// State of a connection, by which connections are chosen to give way.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    phase: AtomicU8,
    /// Waker of the connection's task, once that has checked the phase.
    waker: Mutex<Option<Waker>>,
    pub(super) running: AtomicU32,
    /// Maximum number of concurrent exchanges so far.
    pub(crate) running_max: AtomicU32,
    /// The connection became a tunnel, whose bytes are not checked.
    pub(crate) tunnel: AtomicBool,
    /// Second of the accept.
    pub(crate) since: u32,
    /// Second in which the last exchange ended, or of the accept.
    idle_since: AtomicU32,
    /// Second in which the connection is cut if it is idle; 0: none.
    pub(crate) cut_at: AtomicU32,
    /// Its place is needed: in the second `cut_at` it is cut even if it is busy.
    pub(crate) is_needed: AtomicBool,
    /// Workload of its latest request; 0: unknown.
    pub(crate) workload: AtomicU64,
    /// The connection is in the reserve until its first request.
    pub(super) is_reserved: AtomicBool,
    /// Port of a workload that accepted the connection; `None`: a shared port.
    pub(crate) port: Option<Arc<OwnPort>>,
}

impl ConnectionState {
    /// Creates the state of a connection that was accepted in this second.
    pub(crate) fn new(second: u32, workload: u64, port: Option<Arc<OwnPort>>) -> Arc<Self> {
        let (idle_since, workload) = (AtomicU32::new(second), AtomicU64::new(workload));
        Arc::new(Self { since: second, idle_since, workload, port, ..Self::default() })
    }

    /// Advances the phase without a wake-up, for callers after which the connection's task is polled anyway.
    pub(crate) fn advance_phase(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
    }

    pub(crate) fn wake(&self) {
        self.waker.lock().iter().for_each(Waker::wake_by_ref);
    }

    pub(crate) fn advance_and_wake(&self, phase: Phase) {
        self.advance_phase(phase);
        self.wake();
    }

    pub(crate) fn was_used(&self) -> bool {
        self.running_max.load(Ordering::Relaxed) > 0
    }

    /// Reports whether the connection may have carried requests of several workloads at once.
    pub(super) fn is_shared(&self) -> bool {
        self.port.is_none() && self.running_max.load(Ordering::Relaxed) > 1
    }

    pub(crate) fn must_reconnect(&self) -> bool {
        self.port.as_ref().is_some_and(|port| port.must_reconnect.load(Ordering::Acquire))
    }
}

impl Holder for ConnectionState {
    fn idle_since(&self) -> Option<u32> {
        let is_idle = self.running.load(Ordering::Acquire) == 0 && !self.tunnel.load(Ordering::Relaxed);
        is_idle.then(|| self.idle_since.load(Ordering::Relaxed))
    }
}

impl GivesWay for ConnectionState {
    fn give_way(&self) {
        self.advance_and_wake(Phase::Cut);
    }
}

/// Permit of a connection within the limit for all. Dropping it frees the room, so it moves with the socket.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    pub(super) all: ClientConnections,
    pub(crate) state: Arc<ConnectionState>,
    pub(super) address: IpAddr,
    /// Key in the ledger of the reserve or of the other connections.
    pub(super) key: Mutex<usize>,
    /// Number of concurrent requests that are counted, at least one.
    pub(super) counted: AtomicU32,
}

impl ConnectionPermit {
    pub(crate) fn is_reserved(&self) -> bool {
        self.state.is_reserved.load(Ordering::Acquire)
    }

    /// Reports whether HTTP/1 responses are the last of their connections.
    pub(crate) fn closes_after_response(&self) -> bool {
        self.is_reserved() || self.all.phase() == Phase::CloseAfterResponse
    }

    /// Starts an exchange. Returns false if there is no room for it besides the others on its connection.
    pub(crate) fn begin_exchange(&self) -> bool {
        let running = self.state.running.fetch_add(1, Ordering::Relaxed) + 1;
        if running > self.state.running_max.load(Ordering::Relaxed) {
            self.state.running_max.store(running, Ordering::Relaxed);
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

    pub(crate) fn no_room_error(&self) -> ProxyError {
        ProxyError::NoRoom { bound: self.all.admitted().limit() / COST }
    }

    pub(crate) fn end_exchange(&self) {
        self.state.idle_since.store(self.all.second(), Ordering::Relaxed);
        let is_last = self.state.running.fetch_sub(1, Ordering::Release) == 1;
        if is_last && self.counted.load(Ordering::Relaxed) > 1 {
            let key = self.key.lock();
            if self.state.running.load(Ordering::Acquire) > 0 {
                return;
            }
            let surplus = self.counted.swap(1, Ordering::Relaxed) - 1;
            if !self.is_reserved() {
                self.all.admitted().shrink(*key, surplus.into());
            }
        }
    }

    /// Counts the connection to a workload, and admits a connection that is in the reserve. An error means that there
    /// is no room, and no other workload or client has more connections.
    pub(crate) fn count_to_workload(&self, workload: u64) -> Result<(), ProxyError> {
        let state = &self.state;
        if state.workload.load(Ordering::Relaxed) != workload {
            state.workload.store(workload, Ordering::SeqCst);
            if self.all.is_tight() {
                let key = self.key.lock(); // Lock order: before the ledger, as everywhere.
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
            // In the reserve, further requests were counted only here.
            let cost = COST + u64::from(self.counted.load(Ordering::Relaxed) - 1);
            let admitted = self.all.admit(workload, self.address, state, cost, false);
            let admitted = admitted.inspect_err(|_| self.all.refuse())?;
            self.all.reserve().leave(std::mem::replace(&mut key, admitted));
            state.is_reserved.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Creates a charge for the connection's workload and client. The connection is cut if the charge must give way.
    pub(crate) fn charge(&self, kind: Kind) -> Charge {
        let group = HolderGroup { workload: self.state.workload.load(Ordering::Relaxed), address: self.address };
        self.all.memory().charge(kind, group, self.state.clone())
    }

    /// Returns the second since when no exchange has run, if none is running.
    pub(crate) fn idle_since(&self) -> Option<u32> {
        self.state.idle_since()
    }

    pub(crate) fn is_tunnel(&self) -> bool {
        self.state.tunnel.load(Ordering::Relaxed)
    }

    /// Returns the receiver for the connection's task. There is one at a time.
    pub(crate) fn phase_receiver(self: &Arc<Self>) -> PhaseReceiver {
        PhaseReceiver { permit: self.clone(), is_registered: false }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let key = *self.key.get_mut();
        match self.is_reserved() {
            true => self.all.reserve().leave(key),
            false => self.all.admitted().leave(key),
        }
    }
}

#[cfg(test)]
impl ConnectionPermit {
    /// Creates a permit without limits, of a connection whose data is charged to `memory`.
    pub(crate) fn charged_to(memory: crate::memory::Memory) -> Self {
        let all = ClientConnections::without_limits(memory);
        all.enter(std::net::Ipv4Addr::LOCALHOST.into(), 0, None, false).expect("no limit")
    }
}

/// A permit without limits.
#[cfg(test)]
impl Default for ConnectionPermit {
    fn default() -> Self {
        Self::charged_to(crate::memory::Memory::new(None))
    }
}

/// Receiver of the orders to finish or end a connection.
pub(crate) struct PhaseReceiver {
    permit: Arc<ConnectionPermit>,
    /// The waker of the connection's task is stored.
    is_registered: bool,
}

impl PhaseReceiver {
    /// Returns the phase. `waker` is woken when the phase changes. It is stored at the first call, so the caller must
    /// stay in one task.
    pub(crate) fn phase(&mut self, waker: &Waker) -> Phase {
        if !std::mem::replace(&mut self.is_registered, true) {
            *self.permit.state.waker.lock() = Some(waker.clone());
        }
        // Read after the waker is stored: an order in between either finds the waker or is seen here.
        let own = Phase::from_order(self.permit.state.phase.load(Ordering::Acquire));
        self.permit.all.phase().max(own)
    }

    pub(crate) async fn cut(&mut self) {
        poll_fn(|cx| if self.phase(cx.waker()) == Phase::Cut { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}
