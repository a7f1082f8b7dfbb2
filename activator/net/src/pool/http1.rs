//! Idle HTTP/1.1 connections to one address.
//!
//! The most recently used one is taken first, so that a falling load lets the others grow old; those of the caller's
//! worker go before others, which move to it ([`crate::tcp::rebind`]).
//!
//! # Memory
//!
//! - At most `idle_max` are kept (upstream: 100 for each address); the surplus is closed on return.
//! - One that is idle for 90 s is closed (upstream's figure).
//! - Each sweep also closes three in four of those that nobody has needed since the one before, the youngest, a few
//!   aside: a burst leaves little behind.

#![expect(clippy::vec_box, reason = "a connection is large and changes hands twice for each request")]

use super::sweep::SWEEP_INTERVAL;
use crate::http1::connection::Http1;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// How long a connection may stay idle.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(90);

/// Longest idle time of a connection that is used for a request which must not run twice. The pod may be closing an idle
/// connection, and then nothing tells whether it has read the request. Programs keep connections for longer than this;
/// and with this, at most 200 connections a second are made in place of idle ones.
const FRESH_MAX: Duration = Duration::from_millis(5);

/// Idle connections to one address that stay for all their time, however seldom they are needed: the next request finds
/// one. Each keeps a few of the allocator's pages, of which a burst may have left it the only tenant.
pub(super) const IDLE_KEPT: usize = 1;

/// What is idle.
pub(super) struct Http1Pool {
    idle_max: usize,
    pub(super) idle: Mutex<Vec<Box<Http1>>>,
}

impl Http1Pool {
    pub(super) fn new(idle_max: usize) -> Self {
        Self { idle_max, idle: Mutex::default() }
    }

    /// Takes one that the pod has not closed: of the caller's worker, else of any. With `once`, for a request that must
    /// not run twice: one that the pod is not about to close ([`FRESH_MAX`]).
    pub(super) fn take(&self, once: bool) -> Option<Box<Http1>> {
        let now = once.then(Instant::now);
        let is_fresh =
            |connection: &Http1| now.is_none_or(|now| now.saturating_duration_since(connection.idle_since) < FRESH_MAX);
        loop {
            let mut connection = {
                let mut idle = self.idle.lock();
                let here = idle.iter().rposition(|connection| connection.is_here() && is_fresh(connection));
                let place = here.or_else(|| idle.iter().rposition(|connection| is_fresh(connection)))?;
                idle.remove(place)
            };
            if connection.is_alive(once) {
                return Some(connection);
            }
        }
    }

    /// Takes one in, if there is room.
    pub(super) fn put(&self, mut connection: Box<Http1>) {
        connection.was_idle = true;
        let mut idle = self.idle.lock();
        if idle.len() < self.idle_max {
            idle.push(connection);
        }
    }

    /// Closes one that is not fresh: a program that serves one connection at a time accepts no other before.
    pub(super) fn close_one(&self) {
        let closed = self.idle.lock().pop();
        drop(closed);
    }

    /// Closes all of it.
    pub(super) fn clear(&self) {
        self.idle.lock().clear();
    }

    /// Whether nothing is idle.
    pub(super) fn is_empty(&self) -> bool {
        self.idle.lock().is_empty()
    }

    /// Since when each is idle.
    pub(super) fn idle_since(&self) -> Vec<Instant> {
        self.idle.lock().iter().map(|connection| connection.idle_since).collect()
    }

    /// Takes out what is idle since before `then`.
    pub(super) fn idle_before(&self, then: Instant) -> Vec<Box<Http1>> {
        self.idle.lock().extract_if(.., |connection| connection.idle_since < then).collect()
    }

    /// Takes out what is old, what nobody needs, and what the pod has closed.
    pub(super) fn sweep(&self, now: Instant) -> Vec<Box<Http1>> {
        let mut idle = self.idle.lock();
        let idle_for = |connection: &Http1| now.saturating_duration_since(connection.idle_since);
        let is_unneeded = |connection: &Http1| idle_for(connection) >= SWEEP_INTERVAL;
        let unneeded = idle.iter().filter(|connection| is_unneeded(connection));
        let mut unneeded: Vec<Instant> = unneeded.map(|connection| connection.made).collect();
        unneeded.sort_unstable();
        let surplus = unneeded.len().saturating_sub(IDLE_KEPT);
        let mut surplus = surplus - surplus / 4;
        // The oldest ones stay: those of one burst have its memory to themselves, and an allocator gives nothing back
        // of what is shared with one that stays.
        let youngest = unneeded.get(unneeded.len() - surplus).copied();
        let goes = |connection: &mut Box<Http1>| {
            let is_young = youngest.is_some_and(|youngest| connection.made >= youngest);
            let is_surplus = surplus > 0 && is_young && is_unneeded(connection);
            surplus -= usize::from(is_surplus);
            is_surplus || idle_for(connection) >= IDLE_MAX || !connection.is_alive(false)
        };
        let old = idle.extract_if(.., goes).collect();
        idle.shrink_to(8);
        old
    }
}
