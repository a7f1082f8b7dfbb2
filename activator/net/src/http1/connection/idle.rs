//! Idle HTTP/1.1 connections to one address.
//!
//! The most recently used connection is taken first, so that the others age when the load falls. Connections of the
//! caller's worker go before others, which move to that worker ([`crate::pod::stream::PodStream`]).
//!
//! # Memory
//!
//! - At most `idle_max` are kept (upstream: 100 for each address). The surplus is closed on return.
//! - A connection that is idle for 90 s is closed, as upstream.
//! - Each sweep also closes the connections that were unused since the previous sweep, except [`IDLE_KEPT`]. So a burst
//!   leaves little memory behind.

#![expect(clippy::vec_box, reason = "a connection is large and changes hands twice for each request")]

use super::Http1;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum idle time of a connection.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(90);

/// Maximum idle time of a connection that is used for a request that must not run twice. The pod may be closing an idle
/// connection, and then it is unknown whether it has read the request. Programs keep connections longer than this. At
/// most 200 connections per second are created instead of reused.
const FRESH_MAX: Duration = Duration::from_millis(5);

/// Number of idle connections per address that stay for all of `IDLE_MAX` even if unused, so that the next request
/// finds one. More would cost memory: after a burst, a single connection may keep pages of the allocator in use.
pub(crate) const IDLE_KEPT: usize = 1;

pub(crate) struct Http1Pool {
    idle_max: usize,
    pub(crate) idle: Mutex<Vec<Box<Http1>>>,
}

impl Http1Pool {
    pub(crate) fn new(idle_max: usize) -> Arc<Self> {
        Arc::new(Self { idle_max, idle: Mutex::default() })
    }

    /// Takes a connection that the pod has not closed, preferably of the caller's worker. With `must_not_repeat`, for a
    /// request that must not run twice: one that the pod is not about to close ([`FRESH_MAX`]).
    #[inline]
    pub(crate) fn take(&self, must_not_repeat: bool) -> Option<Box<Http1>> {
        let now = must_not_repeat.then(Instant::now);
        let is_fresh =
            |connection: &Http1| now.is_none_or(|now| now.saturating_duration_since(connection.idle_since) < FRESH_MAX);
        loop {
            let mut connection = {
                let mut idle = self.idle.lock();
                let here = idle.iter().rposition(|connection| connection.is_here() && is_fresh(connection));
                let place = here.or_else(|| idle.iter().rposition(|connection| is_fresh(connection)))?;
                idle.remove(place)
            };
            if connection.is_alive(must_not_repeat) {
                return Some(connection);
            }
        }
    }

    /// Adds a connection after an exchange, if another one may follow and there is room.
    pub(crate) fn return_idle(&self, mut connection: Box<Http1>) {
        // Unexpected bytes would be taken for the next response.
        if !connection.spent && connection.input.bytes.is_empty() {
            connection.exchange_over();
            self.put(connection);
        }
    }

    pub(crate) fn put(&self, mut connection: Box<Http1>) {
        connection.was_idle = true;
        let mut idle = self.idle.lock();
        if idle.len() < self.idle_max {
            idle.push(connection);
        }
    }

    /// Closes one idle connection, because a program that serves one connection at a time accepts a new one only then.
    pub(crate) fn close_one(&self) {
        let closed = self.idle.lock().pop();
        drop(closed);
    }

    pub(crate) fn clear(&self) {
        self.idle.lock().clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.idle.lock().is_empty()
    }

    /// Returns the time since when each connection is idle.
    pub(crate) fn idle_since(&self) -> Vec<Instant> {
        self.idle.lock().iter().map(|connection| connection.idle_since).collect()
    }

    /// Removes and returns the connections that are idle since before `then`.
    pub(crate) fn take_idle_before(&self, then: Instant) -> Vec<Box<Http1>> {
        self.idle.lock().extract_if(.., |connection| connection.idle_since < then).collect()
    }

    /// Removes and returns connections that are old, closed by the pod, or unused since the previous sweep.
    pub(crate) fn sweep(&self, now: Instant, interval: Duration) -> Vec<Box<Http1>> {
        let mut idle = self.idle.lock();
        let idle_for = |connection: &Http1| now.saturating_duration_since(connection.idle_since);
        let is_unneeded = |connection: &Http1| idle_for(connection) >= interval;
        let unneeded = idle.iter().filter(|connection| is_unneeded(connection)).count();
        let mut surplus = unneeded.saturating_sub(IDLE_KEPT);
        let is_removed = |connection: &mut Box<Http1>| {
            let is_surplus = surplus > 0 && is_unneeded(connection);
            surplus -= usize::from(is_surplus);
            is_surplus || idle_for(connection) >= IDLE_MAX || !connection.is_alive(false)
        };
        let old = idle.extract_if(.., is_removed).collect();
        idle.shrink_to(8);
        old
    }
}
