//! All client connections: their limit, and the choice of connections to close.
//!
//! # Limit
//!
//! A connection counts as [`COST`] descriptors once it is accepted: its own, and that of the pod's connection for its
//! request. Each further concurrent request counts as one more. A connection counts to its port's workload, or on a
//! shared port to that of its latest request, and to its client's address. If the limit is reached, the largest holder
//! gives way ([`activator_core::ledger`]): an idle connection is shut down gracefully, a busy one is cut.
//!
//! # Reserve
//!
//! A health check takes a rejected connection for a failure of this process. So a connection that would have to give
//! way itself is accepted into a reserve, for as long as it takes to read its request. A request for the activator
//! itself is answered. Any other request gets a place now, if its workload has fewer connections than others
//! ([`ConnectionPermit::count_to_workload`]), or else a response that says why not. Either response is the last of its
//! connection, which ends after [`STAY`] seconds in any case. If the reserve is full, the address with most of its
//! places gives way.
//!
//! # Closing
//!
//! An idle connection that gives way is cut after [`ROOM_GRACE`] seconds even if it is busy again. It is cut at once
//! while many connections are giving way ([`Ledger::is_pressed`]). The same applies to a busy connection to a shared
//! port with concurrent requests, which may belong to several workloads: one of them may have caused its size, and
//! requests of the others have time to finish. If the process has no descriptors left, busy connections are cut at
//! once.
//!
//! A connection that was idle for too long is told to finish, and so is an idle one whose port's clients must
//! reconnect. If it does not end, it is cut. A connection that never had a request is cut soon, so that a head that
//! arrives byte by byte holds no resources. Others are cut later, because a slow reader may still receive the end of a
//! response.
//!
//! # Cost per request
//!
//! On a shared port, each request stores its workload in the connection's state. The ledger is updated only while more
//! than half of the limit is used. When that begins, all connections are regrouped once.

use crate::client::connection_permit::{ConnectionPermit, ConnectionState, Phase};
use crate::client::peer::OwnPort;
use crate::error::ProxyError;
use crate::memory::{Memory, host_of};
use crate::tcp::is_shortage;
use activator_core::ledger::{Holder, HolderGroup, Ledger};
use common_runtime::failure_log::FailureLog;
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Number of descriptors that a connection counts as.
pub(crate) const COST: u64 = 2;

/// Maximum number of connections in the reserve. An autoscaler has up to 64 concurrent probes, and during an upgrade
/// there are two. Kubelets and ingresses, which send a few per second, fit in as well.
const RESERVED: u64 = 128;

/// Maximum time of a connection in the reserve, in seconds.
const STAY: u32 = 2;

/// Divisor of the limit: connections that are giving way may hold this part beyond it, or [`LEEWAY_MIN`] descriptors.
/// Otherwise a small limit would refuse a newcomer while the connections that it replaces are still ending.
const LEEWAY: u64 = 16;
const LEEWAY_MIN: u64 = 128;

/// Seconds from the order to finish until the connection is cut: after a request, without any request, and if its place
/// is needed.
const GRACE: u32 = 60;
const HEAD_GRACE: u32 = 5;
const ROOM_GRACE: u32 = 2;

/// Seconds without an exchange after which a connection counts as idle.
const IDLE_MIN: u32 = 2;

/// Seconds without a failed accept after which the next failure is logged.
const FAILURE_QUIET: u32 = 60;

/// Limits for all client connections together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientBounds {
    /// Maximum number of connections and tunnels with one request each.
    pub connections: usize,
    /// Maximum number of descriptors for them, their requests and the listeners of workloads' ports.
    pub descriptors: u64,
    /// Maximum time of a connection without an exchange, in whole seconds; `None`: unlimited while there is room.
    pub idle: Option<Duration>,
}

/// All client connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientConnections(Arc<ConnectionsShared>);

#[derive(Debug)]
struct ConnectionsShared {
    bounds: ClientBounds,
    /// Memory that the clients' data is charged to.
    memory: Memory,
    phase: AtomicU8,
    is_tight: AtomicBool,
    /// Second of the last failed accept, plus one.
    failed_accept_at: AtomicU32,
    admitted: Mutex<Ledger<ConnectionState>>,
    reserve: Mutex<Ledger<ConnectionState>>,
    /// Numbers of connections that were rejected, and told to end for others or because they were idle.
    refused: AtomicU64,
    ended_for_room: AtomicU64,
    ended_idle: AtomicU64,
}

impl ClientConnections {
    /// Starts without connections, and enforces these limits each second until `until`. The data of clients that is not
    /// a request yet, or not read, is charged to `memory`.
    pub fn start(bounds: ClientBounds, memory: Memory, until: CancellationToken) -> Self {
        let connections = Self::new(bounds, memory);
        tokio::spawn(connections.clone().run(until));
        connections
    }

    fn new(bounds: ClientBounds, memory: Memory) -> Self {
        let (admitted, reserve) = (Mutex::new(Ledger::new(0, 0)), Mutex::new(Ledger::new(RESERVED, RESERVED)));
        let (phase, is_tight, failed_accept_at, refused, ended_for_room, ended_idle) = Default::default();
        let connections = Self(Arc::new(ConnectionsShared {
            bounds,
            memory,
            phase,
            is_tight,
            failed_accept_at,
            admitted,
            reserve,
            refused,
            ended_for_room,
            ended_idle,
        }));
        connections.set_listeners(0);
        connections
    }

    /// Returns the number of connections and tunnels, without those in the reserve.
    pub fn open(&self) -> usize {
        self.admitted().holders()
    }

    /// Returns the number of connections that were rejected for lack of room.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that were told to end because others needed their place.
    pub fn ended_for_room(&self) -> u64 {
        self.0.ended_for_room.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that were told to end because they were idle for too long.
    pub fn ended_idle(&self) -> u64 {
        self.0.ended_idle.load(Ordering::Relaxed)
    }

    pub(crate) fn admitted(&self) -> MutexGuard<'_, Ledger<ConnectionState>> {
        self.0.admitted.lock()
    }

    pub(crate) fn reserve(&self) -> MutexGuard<'_, Ledger<ConnectionState>> {
        self.0.reserve.lock()
    }

    pub(crate) fn phase(&self) -> Phase {
        Phase::from_order(self.0.phase.load(Ordering::Acquire))
    }

    pub(crate) fn second(&self) -> u32 {
        self.0.memory.second()
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// Reports whether the ledger is updated with the workloads of requests.
    pub(crate) fn is_tight(&self) -> bool {
        self.0.is_tight.load(Ordering::SeqCst)
    }

    /// Returns a permit for an accepted connection from `address`, or `None` if it is rejected. `workload` is the
    /// number of its workload, or 0 if that depends on its requests. `port` is the workload's port. `may_be_http` is
    /// set if the connection may send a request for the activator.
    pub(crate) fn enter(
        &self,
        address: IpAddr,
        workload: u64,
        port: Option<Arc<OwnPort>>,
        may_be_http: bool,
    ) -> Option<ConnectionPermit> {
        let (state, address) = (ConnectionState::new(self.second(), workload, port), host_of(address));
        let (key, is_reserved) = match self.admit(workload, address, &state, COST, workload == 0) {
            Ok(key) => (Some(key), false),
            Err(_) if may_be_http => {
                let group = HolderGroup { workload: 0, address };
                let (taken, others) = self.reserve().take(group, 1, state.clone(), self.second(), false);
                others.iter().for_each(|other| other.advance_and_wake(Phase::Cut));
                (taken.ok(), true)
            }
            Err(_) => (None, false),
        };
        if key.is_none() {
            self.refuse();
        }
        state.is_reserved.store(is_reserved, Ordering::Release);
        let (all, key) = (self.clone(), Mutex::new(key?));
        Some(ConnectionPermit { all, state, address, key, counted: AtomicU32::new(1) })
    }

    /// Adds a connection to the ledger. With `only_idle`, only idle connections may give way for it. An error means
    /// that the connection itself would have to give way.
    pub(crate) fn admit(
        &self,
        workload: u64,
        address: IpAddr,
        state: &Arc<ConnectionState>,
        cost: u64,
        only_idle: bool,
    ) -> Result<usize, ProxyError> {
        let mut admitted = self.admitted();
        let (taken, others) =
            admitted.take(HolderGroup { workload, address }, cost, state.clone(), self.second(), only_idle);
        self.give_way(admitted, &others, true);
        taken.map_err(|full| ProxyError::NoRoom { bound: full.limit / COST })
    }

    /// Increases the cost of a connection in the ledger. Returns whether there was room.
    pub(crate) fn grow(&self, key: usize, more: u64) -> bool {
        let mut admitted = self.admitted();
        let (grown, others) = admitted.grow(key, more, self.second(), false);
        self.give_way(admitted, &others, true);
        grown.is_ok()
    }

    /// Handles a failed accept. If the process or the system has no resources, connections give way even below the
    /// limit: idle ones, and if they do not suffice, busy ones at once.
    pub(crate) fn accept_failed(&self, error: &io::Error) {
        if self.0.failed_accept_at.swap(self.second() + 1, Ordering::Relaxed) + FAILURE_QUIET <= self.second() + 1 {
            tracing::warn!(%error, open = self.open(), "cannot accept a connection");
        }
        if Errno::from_io_error(error).is_some_and(is_shortage) {
            let mut admitted = self.admitted();
            let free = admitted.limit().saturating_sub(admitted.held()) + COST * LEEWAY;
            let others = admitted.give_way(free, self.second());
            self.give_way(admitted, &others, false);
        }
    }

    /// Orders the chosen connections to give way, and regroups all connections when little room is left. Unless
    /// `gently`, busy connections are cut.
    fn give_way(
        &self,
        mut admitted: MutexGuard<'_, Ledger<ConnectionState>>,
        others: &[Arc<ConnectionState>],
        gently: bool,
    ) {
        let (held, limit) = (admitted.held(), admitted.limit());
        if held > limit / 2 && !self.is_tight() {
            self.0.is_tight.store(true, Ordering::SeqCst);
            admitted.regroup_all(|state| state.workload.load(Ordering::SeqCst));
        } else if held < limit / 4 && self.is_tight() {
            self.0.is_tight.store(false, Ordering::SeqCst);
        }
        let is_pressed = admitted.is_pressed();
        drop(admitted);
        self.0.ended_for_room.fetch_add(others.len() as u64, Ordering::Relaxed);
        for other in others {
            let ends_gently = match other.idle_since() {
                Some(_) => other.was_used(),
                None => gently && other.is_shared(),
            };
            if ends_gently && !is_pressed {
                other.is_needed.store(true, Ordering::Relaxed);
                self.finish(other, ROOM_GRACE);
            } else {
                other.advance_and_wake(Phase::Cut);
            }
        }
    }

    /// Orders a connection to finish, and to be cut in `grace` seconds.
    fn finish(&self, state: &ConnectionState, grace: u32) {
        state.cut_at.store(self.second() + grace, Ordering::Relaxed);
        state.advance_and_wake(Phase::Finish);
    }

    pub(crate) fn refuse(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Adjusts the limit of the connections to this number of open listeners of workloads' ports.
    pub(crate) fn set_listeners(&self, number: usize) {
        let ClientBounds { connections, descriptors, .. } = self.0.bounds;
        let free = descriptors.saturating_sub(number as u64).max(descriptors / LEEWAY);
        let limit = COST.saturating_mul(connections as u64).min(free - free / LEEWAY);
        self.admitted().set_limit(limit, (limit / LEEWAY).max(LEEWAY_MIN));
    }

    pub(crate) fn advance(&self, phase: Phase) {
        self.0.phase.fetch_max(phase as u8, Ordering::AcqRel);
        let all: Vec<_> = self.admitted().each().chain(self.reserve().each()).cloned().collect();
        all.iter().for_each(|state| state.wake());
    }

    /// Advances the clock by a second, and closes connections that are due.
    fn tick(&self) {
        let second = self.0.memory.next_second();
        let is_expired = |state: &&Arc<ConnectionState>| second.saturating_sub(state.since) >= STAY;
        let expired: Vec<_> = self.reserve().each().filter(is_expired).cloned().collect();
        expired.iter().for_each(|state| state.advance_and_wake(Phase::Cut));
        let idle = self.0.bounds.idle.map(|idle| u32::try_from(idle.as_secs()).unwrap_or(u32::MAX));
        let all: Vec<_> = self.admitted().each().cloned().collect();
        for state in all {
            let (since, cut_at) = (state.idle_since(), state.cut_at.load(Ordering::Relaxed));
            if cut_at > 0 && second >= cut_at && (since.is_some() || state.is_needed.load(Ordering::Relaxed)) {
                state.advance_and_wake(Phase::Cut);
            }
            let Some(since) = since.filter(|_| cut_at == 0) else { continue };
            let idle_for = second.saturating_sub(since);
            let grace = if state.was_used() { GRACE } else { HEAD_GRACE };
            if idle_for >= IDLE_MIN && state.must_reconnect() {
                self.finish(&state, grace);
            } else if idle.is_some_and(|idle| idle_for >= idle.max(IDLE_MIN)) {
                self.finish(&state, grace);
                self.0.ended_idle.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Runs the clock until `until`, and logs rejections.
    async fn run(self, until: CancellationToken) {
        let mut failures = FailureLog::for_operation("admission of client connections");
        let mut refused = 0;
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        seconds.tick().await; // The first tick is immediate.
        loop {
            tokio::select! {
                () = until.cancelled() => return,
                _ = seconds.tick() => self.tick(),
            }
            let before = std::mem::replace(&mut refused, self.refused());
            if refused == before {
                failures.recovered();
            } else {
                let limit = self.admitted().limit() / COST;
                failures.failed(&format!("all {limit} connections are in use; the largest holders get no more"));
            }
        }
    }
}

#[cfg(test)]
impl ClientConnections {
    pub(crate) fn without_limits(memory: Memory) -> Self {
        Self::new(ClientBounds { connections: usize::MAX, descriptors: u64::MAX, idle: None }, memory)
    }
}

#[cfg(test)]
pub(crate) mod tests;
