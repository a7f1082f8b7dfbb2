//! All connections of clients: how many there may be, and who is told to end.
//!
//! # Room
//!
//! A connection counts for [`COST`] descriptors as soon as it is accepted, its own and that of the pod which its request goes
//! to, and for one more for each further request at once. It counts to the workload whose port it came to, or else to the
//! one that its latest request was for; and to its client's address. When all are taken, the largest holder gives way
//! ([`activator_core::ledger`]): an idle connection ends in its protocol's gentle way, a busy one is cut.
//!
//! # The reserve
//!
//! Whoever asks whether this process works takes a refused connection for a no. So who would have to give way itself is let
//! in beyond that, for as long as it takes to say what it wants. Who asks for the activator itself is answered;
//! anybody else gets a place now, if its workload has fewer than others ([`Seat::claim`]), or an answer that says why not.
//! Either answer is the last of its connection, which ends after [`STAY`] seconds in any case. Of these places, too, the address
//! that has most gives way.
//!
//! # Other ends
//!
//! An idle connection that gives way is cut after [`ROOM_GRACE`] seconds even if it is busy again, and at once while many are
//! about to give way ([`Ledger::is_pressed`]).
//!
//! A connection on which nothing has run for long is told to finish, and so is one whose port's clients are to come anew. One
//! that was told and does not end is cut: soon if it never had a request, so that a head that comes byte by byte keeps
//! nothing; else late, since the end of an answer may be on its way to a slow reader.
//!
//! # What nobody asks for each request
//!
//! On a port that all share, a connection's workload is noted with each request, and told to the ledger only while more
//! than half of everything is taken; when that begins, all are sorted once.

use super::seat::{Phase, Seat, Standing};
use crate::client::host::host_of;
use crate::client::peer::OwnPort;
use crate::error::ProxyError;
use crate::memory::Memory;
use activator_core::ledger::{Holder, Ledger, Of};
use common_runtime::failure_log::FailureLog;
use parking_lot::{Mutex, MutexGuard};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Descriptors that a connection is counted for.
pub(super) const COST: u64 = 2;

/// Connections in the reserve: an autoscaler has 64 probes under way at once, and while a new version of it takes over there
/// are two. Kubelets and ingresses, which send a few in a second, find room among them.
const RESERVED: u64 = 128;

/// Seconds that one may stay there, at most.
const STAY: u32 = 2;

/// Part of the limit that those may hold beyond it who are about to give way.
const LEEWAY: u64 = 16;

/// Seconds from the gentle end to the other one: of who was used, of who never was, and where the place is needed.
const GRACE: u32 = 60;
const HEAD_GRACE: u32 = 5;
const ROOM_GRACE: u32 = 2;

/// Seconds without an exchange after which a connection counts as idle.
const IDLE_MIN: u32 = 2;

/// Seconds without a failure to accept after which the next one is news.
const SHORT_QUIET: u32 = 60;

/// How many looks fall into the time that a connection may be idle.
const LOOKS: u32 = 60;

/// For so many seconds those are looked for whose port is left. Who gets a longer answer in that time is not found.
const LEFT_LOOKS: u32 = 10;

/// Bounds on the connections of all clients together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientBounds {
    /// Connections and tunnels with one request each.
    pub connections: usize,
    /// Descriptors that they, their requests and the listeners of workloads' ports may use.
    pub descriptors: u64,
    /// How long a connection may be without an exchange, to the second; none: as long as there is room.
    pub idle: Option<Duration>,
}

/// All connections of clients. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ClientConnections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    phase: AtomicU8,
    /// Seconds that have been counted.
    second: AtomicU32,
    /// Told each second.
    memory: OnceLock<Memory>,
    /// Until which second it is looked for those whose port is left, and for those who are to be cut.
    left_looks: AtomicU32,
    cut_looks: AtomicU32,
    /// What [`ClientBounds`] allow, and what listeners take of that.
    bounds: Mutex<(u64, u64)>,
    listeners: AtomicUsize,
    is_tight: AtomicBool,
    /// The second in which accepting failed last, and one.
    short_in: AtomicU32,
    admitted: Mutex<Ledger<Standing>>,
    reserve: Mutex<Ledger<Standing>>,
    refused: AtomicU64,
    room: AtomicU64,
    idle: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            phase: AtomicU8::new(0),
            second: AtomicU32::new(0),
            memory: OnceLock::new(),
            left_looks: AtomicU32::new(0),
            cut_looks: AtomicU32::new(0),
            bounds: Mutex::new((u64::MAX, u64::MAX)),
            listeners: AtomicUsize::new(0),
            is_tight: AtomicBool::new(false),
            short_in: AtomicU32::new(0),
            admitted: Mutex::new(Ledger::new(u64::MAX, 0)),
            reserve: Mutex::new(Ledger::new(RESERVED, RESERVED)),
            refused: AtomicU64::new(0),
            room: AtomicU64::new(0),
            idle: AtomicU64::new(0),
        }
    }
}

impl ClientConnections {
    /// Connections and tunnels, but for those in the reserve.
    pub fn open(&self) -> usize {
        self.admitted().holders()
    }

    /// How many were turned away for want of room.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// How many were told to end because others needed their place.
    pub fn ended_for_room(&self) -> u64 {
        self.0.room.load(Ordering::Relaxed)
    }

    /// How many were told to end because they were idle for too long.
    pub fn ended_idle(&self) -> u64 {
        self.0.idle.load(Ordering::Relaxed)
    }

    pub(super) fn admitted(&self) -> MutexGuard<'_, Ledger<Standing>> {
        self.0.admitted.lock()
    }

    pub(super) fn reserve(&self) -> MutexGuard<'_, Ledger<Standing>> {
        self.0.reserve.lock()
    }

    /// What all are told.
    pub(super) fn phase(&self) -> Phase {
        Phase::from_order(self.0.phase.load(Ordering::Acquire))
    }

    /// The second in which it is.
    pub(super) fn second(&self) -> u32 {
        self.0.second.load(Ordering::Relaxed)
    }

    /// Has `memory` count the same seconds.
    pub(super) fn set_clock_of(&self, memory: Memory) {
        let _ = self.0.memory.set(memory); // A server has one.
    }

    /// Whether the ledger is told whom connections are for.
    pub(super) fn is_tight(&self) -> bool {
        self.0.is_tight.load(Ordering::SeqCst)
    }

    /// A seat for a connection that was accepted from there; none: it is turned away. `workload`: whom it is for, 0 where its
    /// requests will tell. `port`: that workload's. `speaks`: it can say that it asks for something else.
    pub(super) fn enter(
        &self,
        address: IpAddr,
        workload: u64,
        port: Option<Arc<OwnPort>>,
        speaks: bool,
    ) -> Option<Seat> {
        let (standing, address) = (Standing::new(self.second(), workload, port), host_of(address));
        let (key, is_reserved) = match self.admit(workload, address, &standing, COST, workload == 0) {
            Ok(key) => (Some(key), false),
            Err(_) if speaks => {
                let of = Of { workload: 0, address };
                let (taken, others) = self.reserve().take(of, 1, standing.clone(), self.second(), false);
                others.iter().for_each(|other| other.order(Phase::Cut));
                (taken.ok(), true)
            }
            Err(_) => (None, false),
        };
        if key.is_none() {
            self.refuse();
        }
        Some(Seat::new(self.clone(), standing, address, key?, is_reserved))
    }

    /// A place among the admitted; with `of_idle`, where it costs idle ones alone.
    ///
    /// # Errors
    /// It would be the one to give way.
    pub(super) fn admit(
        &self,
        workload: u64,
        address: IpAddr,
        standing: &Arc<Standing>,
        cost: u64,
        of_idle: bool,
    ) -> Result<usize, ProxyError> {
        let mut admitted = self.admitted();
        let (taken, others) = admitted.take(Of { workload, address }, cost, standing.clone(), self.second(), of_idle);
        self.give_way(admitted, &others);
        taken.map_err(|full| ProxyError::NoRoom { bound: full.limit / COST })
    }

    /// Counts more for one that is admitted.
    pub(super) fn grow(&self, key: usize, more: u64) -> bool {
        let mut admitted = self.admitted();
        let (grown, others) = admitted.grow(key, more, self.second(), false);
        self.give_way(admitted, &others);
        grown.is_ok()
    }

    /// The process, or the system, has no room for one more, whatever was counted.
    pub(super) fn short(&self, error: &impl std::fmt::Display) {
        if self.0.short_in.swap(self.second() + 1, Ordering::Relaxed) + SHORT_QUIET <= self.second() + 1 {
            tracing::warn!(%error, open = self.open(), "accept failed; those who hold most give way");
        }
        let mut admitted = self.admitted();
        let free = admitted.limit().saturating_sub(admitted.held()) + COST * LEEWAY;
        let others = admitted.give_way(free, self.second());
        self.give_way(admitted, &others);
    }

    /// Tells those who are to give way, and has all be sorted when it becomes tight.
    fn give_way(&self, mut admitted: MutexGuard<'_, Ledger<Standing>>, others: &[Arc<Standing>]) {
        let (held, limit) = (admitted.held(), admitted.limit());
        if held > limit / 2 && !self.is_tight() {
            self.0.is_tight.store(true, Ordering::SeqCst);
            admitted.regroup_all(|standing| standing.workload.load(Ordering::SeqCst));
        } else if held < limit / 4 && self.is_tight() {
            self.0.is_tight.store(false, Ordering::SeqCst);
        }
        let is_pressed = admitted.is_pressed();
        drop(admitted);
        self.0.room.fetch_add(others.len() as u64, Ordering::Relaxed);
        for other in others {
            match other.idle_since() {
                Some(_) if other.was_used() && !is_pressed => {
                    other.is_needed.store(true, Ordering::Relaxed);
                    self.finish(other, ROOM_GRACE);
                }
                _ => other.order(Phase::Cut),
            }
        }
    }

    /// Tells an idle one to finish, and in so many seconds to stop.
    fn finish(&self, standing: &Standing, grace: u32) {
        let cut_in = self.second() + grace;
        standing.cut_in.store(cut_in, Ordering::Relaxed);
        self.0.cut_looks.fetch_max(cut_in, Ordering::Relaxed);
        standing.order(Phase::Finish);
    }

    /// One more was turned away.
    pub(super) fn refuse(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// So many listeners of workloads' ports are open.
    pub(super) fn set_listeners(&self, number: usize) {
        self.0.listeners.store(number, Ordering::Relaxed);
        self.set_limit();
    }

    /// Bounds all.
    pub(super) fn bound(&self, bounds: ClientBounds) {
        *self.0.bounds.lock() = (COST.saturating_mul(bounds.connections as u64), bounds.descriptors);
        self.set_limit();
    }

    fn set_limit(&self) {
        let (most, descriptors) = *self.0.bounds.lock();
        let listeners = self.0.listeners.load(Ordering::Relaxed) as u64;
        let free = descriptors.saturating_sub(listeners).max(descriptors / LEEWAY);
        let limit = most.min(free - free / LEEWAY);
        self.admitted().set_limit(limit, (limit / LEEWAY).max(RESERVED.min(limit)));
    }

    /// Moves all on to `phase`.
    pub(super) fn advance(&self, phase: Phase) {
        self.0.phase.fetch_max(phase as u8, Ordering::AcqRel);
        let all: Vec<_> = self.admitted().each().chain(self.reserve().each()).cloned().collect();
        all.iter().for_each(|standing| standing.wake());
    }

    /// A workload's port is left: those who idle there are told in the seconds to come.
    pub(super) fn look(&self) {
        self.0.left_looks.store(self.second() + LEFT_LOOKS, Ordering::Relaxed);
    }

    /// Another second has passed.
    fn tick(&self, idle: Option<Duration>) {
        let second = self.0.second.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.memory.get().into_iter().for_each(|memory| memory.set_second(second));
        let stays = |standing: &&Arc<Standing>| second.saturating_sub(standing.since) >= STAY;
        let over: Vec<_> = self.reserve().each().filter(stays).cloned().collect();
        over.iter().for_each(|standing| standing.order(Phase::Cut));
        let idle = idle.map(|idle| u32::try_from(idle.as_secs()).unwrap_or(u32::MAX));
        let is_due = idle.is_some_and(|idle| second.is_multiple_of((idle / LOOKS).max(1)));
        let looks = |until: &AtomicU32| second <= until.load(Ordering::Relaxed);
        if !is_due && !looks(&self.0.left_looks) && !looks(&self.0.cut_looks) {
            return;
        }
        let all: Vec<_> = self.admitted().each().cloned().collect();
        for standing in all {
            let (since, cut_in) = (standing.idle_since(), standing.cut_in.load(Ordering::Relaxed));
            if cut_in > 0 && second >= cut_in && (since.is_some() || standing.is_needed.load(Ordering::Relaxed)) {
                standing.order(Phase::Cut);
            }
            let Some(since) = since.filter(|_| cut_in == 0) else { continue };
            let idles = second.saturating_sub(since);
            let grace = if standing.was_used() { GRACE } else { HEAD_GRACE };
            if idles >= IDLE_MIN && standing.is_left() {
                self.finish(&standing, grace);
            } else if idle.is_some_and(|idle| idles >= idle.max(IDLE_MIN)) {
                self.finish(&standing, grace);
                self.0.idle.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Looks after them, until `until`.
    pub(super) async fn look_after(self, idle: Option<Duration>, until: CancellationToken) {
        let mut failures = FailureLog::of("room for clients' connections");
        let mut refused = 0;
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        seconds.tick().await; // The first one comes at once.
        loop {
            tokio::select! {
                () = until.cancelled() => return,
                _ = seconds.tick() => self.tick(idle),
            }
            let before = std::mem::replace(&mut refused, self.refused());
            if refused == before {
                failures.recovered();
            } else {
                let limit = self.admitted().limit() / COST;
                failures.failed(&format!("{limit} may be open, and whoever has most of them is turned away"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
