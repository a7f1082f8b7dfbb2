//! One revision's life in an activator's reports.
//!
//! # The rule
//!
//! - Idle: nothing is reported. The first request makes it tracked, and at once owes the autoscaler the **first
//!   signal** `{concurrency 1, count 1}`: a sleeping revision must not wait for the reporting second.
//! - Tracked: each report says the window's average and arrivals. The first report after a signal that was sent says
//!   one less of each, since the signal said them already.
//! - A window with an average of exactly 0 and nothing in flight is reported, and then the revision is idle again.
//!
//! - A request that was given to a pod, lost it and found no other may be said once more, by a **reminder** `{1, 0}`:
//!   at most one for each report, which then says one less of concurrency.
//!
//! # The signal arrives
//!
//! A signal that nobody received wakes nobody. It is therefore owed until a connection has carried it: the sender takes
//! it as a [`Signal`], confirms it once written, and by dropping it unconfirmed owes it again. A report made while
//! the signal is owed carries it (says the whole truth, without discount), and confirms it in the same way.
//!
//! ```text
//! Idle --enter--> Owed --signal()/report()--> Sending --confirm--> Sent --zero window--> Idle
//!                  ^---------- dropped ----------'
//! ```
//!
//! # Better than Knative
//!
//! Knative discounts the first report although its signal may have been lost, which costs a waking service up to two
//! seconds; and its count can come out as -1, because making the entry and counting the request are two steps. Here
//! they are one, under one short lock.
//!
//! # Not here
//!
//! The reporting second, and the table of revisions: the shell holds one [`RevisionStats`] for each and asks all of
//! them.

use std::fmt;
use std::sync::Arc;

use common::time::Timestamp;
use parking_lot::Mutex;

use super::request_stats::RequestStats;

/// Where the time at a request's end comes from: a guard can end anywhere, so it must be able to ask. Any monotonic
/// nanoseconds will do, since only differences count.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

impl<F: Fn() -> Timestamp + Send + Sync> Clock for F {
    fn now(&self) -> Timestamp {
        self()
    }
}

/// One revision's counts. An operation is a clock reading and a lock of a few nanoseconds.
pub struct RevisionStats {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    /// Tells one tracked life from an earlier one, whose signal may still be on its way.
    life: u64,
}

#[derive(Debug)]
enum State {
    Idle,
    Tracked(Tracked),
}

#[derive(Debug)]
struct Tracked {
    stats: RequestStats,
    signal: SignalState,
    /// What was sent by itself, and no report has discounted yet.
    discount: Discount,
    /// The window in which the first request arrived has been reported, whether or not anybody received it.
    first_window_over: bool,
}

/// What the next report must not say again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Discount {
    #[default]
    None,
    /// The first signal: a request's presence and its arrival.
    Arrival,
    /// A reminder: a request's presence.
    Presence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignalState {
    Owed,
    Sending,
    Sent,
}

/// A request's part in the counts, taken out again on drop.
pub struct InFlight {
    stats: Arc<RevisionStats>,
}

/// What [`RevisionStats::enter`] answers.
#[derive(Debug)]
pub struct Entered {
    /// Keep it until the answer is complete or the client is gone.
    pub in_flight: InFlight,
    /// This request woke the revision: have its [`signal`](RevisionStats::signal) sent now.
    pub first: bool,
}

/// What a report says.
#[derive(Debug)]
pub struct Report {
    /// Mean of requests in flight, held ones included.
    pub average_concurrency: f64,
    /// Requests that arrived.
    pub request_count: f64,
    /// Set if this report carries the first signal: confirm it once the report is written.
    pub signal: Option<Signal>,
}

/// The first signal, on its way. Owed again if dropped without [`Signal::confirm`].
#[must_use = "a signal that is dropped unconfirmed is owed again"]
pub struct Signal {
    stats: Arc<RevisionStats>,
    life: u64,
    confirmed: bool,
}

impl RevisionStats {
    /// An idle revision.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, inner: Mutex::new(Inner { state: State::Idle, life: 0 }) })
    }

    /// Counts a request in.
    pub fn enter(self: &Arc<Self>) -> Entered {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        let first = match &mut inner.state {
            // Idle => Tracked
            State::Idle => {
                let mut stats = RequestStats::new(now);
                stats.enter(now);
                inner.state = State::Tracked(Tracked {
                    stats,
                    signal: SignalState::Owed,
                    discount: Discount::None,
                    first_window_over: false,
                });
                inner.life += 1;
                true
            }
            State::Tracked(tracked) => {
                tracked.stats.enter(now);
                false
            }
        };
        drop(inner);
        Entered { in_flight: InFlight { stats: Arc::clone(self) }, first }
    }

    /// Takes the first signal, if it is owed. What it says is always concurrency 1 and count 1.
    pub fn signal(self: &Arc<Self>) -> Option<Signal> {
        let mut inner = self.inner.lock();
        let life = inner.life;
        let State::Tracked(tracked) = &mut inner.state else { return None };
        let signal = tracked.take_signal(self, life)?;
        // Later windows never count the first arrival, so there is nothing to take out of them.
        if !tracked.first_window_over {
            tracked.discount = Discount::Arrival;
        }
        Some(signal)
    }

    /// Takes a reminder, unless there was a signal or one since the last report. What it says is always concurrency 1
    /// and count 0. If it is dropped unconfirmed, the first signal is owed again.
    pub fn reminder(self: &Arc<Self>) -> Option<Signal> {
        let mut inner = self.inner.lock();
        let life = inner.life;
        let State::Tracked(tracked) = &mut inner.state else { return None };
        let due = tracked.signal == SignalState::Sent && tracked.discount == Discount::None;
        due.then(|| {
            tracked.signal = SignalState::Sending;
            tracked.discount = Discount::Presence;
            Signal { stats: Arc::clone(self), life, confirmed: false }
        })
    }

    /// Ends the window; `None` while idle.
    pub fn report(self: &Arc<Self>) -> Option<Report> {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        let life = inner.life;
        let State::Tracked(tracked) = &mut inner.state else { return None };
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
            signal: tracked.take_signal(self, life),
        };
        if window.average_concurrency == 0.0 && tracked.stats.concurrency() == 0 {
            inner.state = State::Idle; // Tracked => Idle
        }
        Some(report)
    }

    /// Requests in flight, held ones included.
    pub fn concurrency(&self) -> u64 {
        match &self.inner.lock().state {
            State::Idle => 0,
            State::Tracked(tracked) => u64::try_from(tracked.stats.concurrency()).unwrap_or(0),
        }
    }

    /// Whether a report would say anything.
    pub fn is_tracked(&self) -> bool {
        matches!(self.inner.lock().state, State::Tracked(_))
    }

    fn leave(&self) {
        let now = self.clock.now();
        // Never idle here: a revision becomes idle only with nothing in flight.
        if let State::Tracked(tracked) = &mut self.inner.lock().state {
            tracked.stats.leave(now);
        }
    }
}

impl Tracked {
    fn take_signal(&mut self, stats: &Arc<RevisionStats>, life: u64) -> Option<Signal> {
        (self.signal == SignalState::Owed).then(|| {
            self.signal = SignalState::Sending;
            Signal { stats: Arc::clone(stats), life, confirmed: false }
        })
    }
}

impl Signal {
    /// A connection has carried it.
    pub fn confirm(mut self) {
        self.confirmed = true;
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        let mut inner = self.stats.inner.lock();
        let same_life = inner.life == self.life;
        let State::Tracked(tracked) = &mut inner.state else { return };
        if same_life && tracked.signal == SignalState::Sending {
            tracked.signal = if self.confirmed { SignalState::Sent } else { SignalState::Owed };
            // What was not sent needs no discount; if a report took it already, the signal said again makes up for it.
            if !self.confirmed {
                tracked.discount = Discount::None;
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.stats.leave();
    }
}

impl fmt::Debug for RevisionStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevisionStats").field("inner", &*self.inner.lock()).finish_non_exhaustive()
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InFlight")
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signal")
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
