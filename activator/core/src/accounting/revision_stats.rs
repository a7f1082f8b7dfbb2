//! Reports of one revision by an activator.
//!
//! # The rule
//!
//! - Idle: nothing is reported. The first request makes the revision tracked and makes the **first signal**
//!   `{concurrency 1, count 1}` due at once: a revision at zero must not wait for the next periodic report.
//! - Tracked: each report contains the average and the arrivals of the window. The first report after a sent signal
//!   contains one less of each, since the signal already reported them.
//! - A window with an average of exactly 0 and nothing in flight is reported, and the revision becomes idle again.
//! - A request that lost its pod and found no other may be reported once more by a **reminder** `{1, 0}`. There is at
//!   most one per report, and the next report then contains one less of concurrency.
//!
//! # Delivery of the signal
//!
//! A lost signal would leave the revision at zero. It therefore stays due until a connection has carried it. The sender
//! takes it as a [`Signal`] and confirms it once it is written; a signal that is dropped unconfirmed is due again. A
//! report made while the signal is due carries it: it contains the full counts without discount, and is confirmed in
//! the same way.
//!
//! ```text
//! Idle --enter--> Due --signal()/report()--> Sending --confirm--> Sent --zero window--> Idle
//!                  ^---------- dropped ----------'
//! ```
//!
//! # Better than Knative
//!
//! Knative discounts the first report even if its signal was lost, which delays a scale from zero by up to two seconds.
//! Its count can become -1, because creating the entry and counting the request are two steps. Here they are one step,
//! under one short lock.
//!
//! # Not here
//!
//! The reporting interval and the table of revisions. The shell holds one [`RevisionStats`] per revision and collects
//! the reports of all of them.

use std::fmt;
use std::sync::Arc;

use common::time::Timestamp;
use parking_lot::Mutex;

use super::request_stats::RequestStats;

/// Function that returns the current time. Guards read it when they are dropped. Any monotonic nanoseconds will do,
/// since only differences count.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Counts of one revision. An operation costs a clock reading and a lock of a few nanoseconds.
pub struct RevisionStats {
    clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None` while the revision is idle.
    tracked: Option<Tracked>,
    /// Number of the tracked period. Distinguishes the current period from an earlier one whose signal may still be in
    /// delivery.
    period: u64,
}

#[derive(Debug)]
struct Tracked {
    stats: RequestStats,
    signal: SignalState,
    /// Part that a signal or reminder has reported and that no report has discounted yet.
    discount: Discount,
    /// True once the window in which the first request arrived has been reported, whether or not the report was
    /// delivered.
    first_window_over: bool,
}

/// Part that the next report must leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Discount {
    #[default]
    None,
    /// The first signal: one request's presence and its arrival.
    Arrival,
    /// A reminder: one request's presence.
    Presence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignalState {
    Due,
    Sending,
    Sent,
}

/// Guard of a counted request. Uncounts the request on drop.
#[derive(Debug)]
pub struct InFlight {
    stats: Arc<RevisionStats>,
}

/// Result of [`RevisionStats::enter`].
#[derive(Debug)]
pub struct Entered {
    /// Guard of the request. Keep it until the response is complete or the client has disconnected.
    pub in_flight: InFlight,
    /// True if this request made the revision tracked: send its [`signal`](RevisionStats::signal) now.
    pub first: bool,
}

/// Contents of a report.
#[derive(Debug)]
pub struct Report {
    /// Mean number of requests in flight, including held ones.
    pub average_concurrency: f64,
    /// Number of requests that arrived.
    pub request_count: f64,
    /// Set if this report carries the first signal. Confirm it once the report is written.
    pub signal: Option<Signal>,
}

/// First signal in delivery. Due again if dropped without [`Signal::confirm`].
#[must_use = "a signal that is dropped unconfirmed is due again"]
#[derive(Debug)]
pub struct Signal {
    stats: Arc<RevisionStats>,
    period: u64,
    confirmed: bool,
}

impl RevisionStats {
    /// Creates the counts of an idle revision.
    pub fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { clock, inner: Mutex::new(Inner { tracked: None, period: 0 }) })
    }

    /// Counts an arriving request.
    pub fn enter(self: &Arc<Self>) -> Entered {
        let now = (self.clock)();
        let mut inner = self.inner.lock();
        let first = inner.tracked.is_none();
        inner.period += u64::from(first);
        let begin = || Tracked {
            stats: RequestStats::new(now),
            signal: SignalState::Due,
            discount: Discount::None,
            first_window_over: false,
        };
        inner.tracked.get_or_insert_with(begin).stats.enter(now);
        drop(inner);
        Entered { in_flight: InFlight { stats: Arc::clone(self) }, first }
    }

    /// Takes the first signal if it is due. It always stands for concurrency 1 and count 1.
    pub fn signal(self: &Arc<Self>) -> Option<Signal> {
        let mut inner = self.inner.lock();
        let period = inner.period;
        let tracked = inner.tracked.as_mut()?;
        let signal = tracked.take_signal(self, period)?;
        // Later windows do not count the first arrival, so they need no discount.
        if !tracked.first_window_over {
            tracked.discount = Discount::Arrival;
        }
        Some(signal)
    }

    /// Takes a reminder, unless a signal or a reminder was sent since the last report. It always stands for concurrency
    /// 1 and count 0. If it is dropped unconfirmed, the first signal is due again.
    pub fn reminder(self: &Arc<Self>) -> Option<Signal> {
        let mut inner = self.inner.lock();
        let period = inner.period;
        let tracked = inner.tracked.as_mut()?;
        let due = tracked.signal == SignalState::Sent && tracked.discount == Discount::None;
        due.then(|| {
            tracked.signal = SignalState::Sending;
            tracked.discount = Discount::Presence;
            Signal { stats: Arc::clone(self), period, confirmed: false }
        })
    }

    /// Ends the window and returns its report, or `None` while idle.
    pub fn report(self: &Arc<Self>) -> Option<Report> {
        let now = (self.clock)();
        let mut inner = self.inner.lock();
        let period = inner.period;
        let tracked = inner.tracked.as_mut()?;
        let window = tracked.stats.report(now);
        tracked.first_window_over = true;
        let (presence, arrival) = match std::mem::take(&mut tracked.discount) {
            Discount::None => (0.0, 0.0),
            Discount::Arrival => (1.0, 1.0),
            Discount::Presence => (1.0, 0.0),
        };
        let report = Report {
            average_concurrency: (window.average_concurrency - presence).max(0.0),
            request_count: window.request_count - arrival,
            signal: tracked.take_signal(self, period),
        };
        if window.average_concurrency == 0.0 && tracked.stats.concurrency() == 0 {
            inner.tracked = None;
        }
        Some(report)
    }

    /// Returns the number of requests in flight, including held ones.
    pub fn concurrency(&self) -> u64 {
        let in_flight = self.inner.lock().tracked.as_ref().map_or(0, |tracked| tracked.stats.concurrency());
        u64::try_from(in_flight).unwrap_or(0)
    }

    /// Returns true if the revision is tracked, so a report would not be empty.
    pub fn is_tracked(&self) -> bool {
        self.inner.lock().tracked.is_some()
    }
}

impl Tracked {
    fn take_signal(&mut self, stats: &Arc<RevisionStats>, period: u64) -> Option<Signal> {
        (self.signal == SignalState::Due).then(|| {
            self.signal = SignalState::Sending;
            Signal { stats: Arc::clone(stats), period, confirmed: false }
        })
    }
}

impl Signal {
    /// Confirms that a connection has carried the signal.
    pub fn confirm(mut self) {
        self.confirmed = true;
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        let mut inner = self.stats.inner.lock();
        let is_current = inner.period == self.period;
        let Some(tracked) = &mut inner.tracked else { return };
        if is_current && tracked.signal == SignalState::Sending {
            tracked.signal = if self.confirmed { SignalState::Sent } else { SignalState::Due };
            // A signal that was not sent needs no discount. If a report has already discounted it, the repeated signal
            // makes up for that.
            if !self.confirmed {
                tracked.discount = Discount::None;
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let now = (self.stats.clock)();
        // Never idle here: a revision becomes idle only with nothing in flight.
        if let Some(tracked) = &mut self.stats.inner.lock().tracked {
            tracked.stats.leave(now);
        }
    }
}

impl fmt::Debug for RevisionStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevisionStats").field("inner", &*self.inner.lock()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
