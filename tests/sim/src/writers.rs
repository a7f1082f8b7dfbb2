//! Pending writes. Each begins under a lease and ends before the lease. The lease is not handed over meanwhile.

use crate::events::Local;
use crate::lease::LeaseAnswer;
use crate::process::ProcessId;
use crate::simulation::Simulation;
use crate::summary::Without;
use common::election::{Op, WRITE_MARGIN};
use rand::RngExt;
use std::time::Duration;

/// Maximum wait for the response to a write, and maximum time for which the API server processes it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after abandoning a write by which it is certain that it will not be carried out.
pub(crate) const CANCEL_MARGIN: Duration = Duration::from_millis(500);
/// Maximum wait for pending writes before a lease is handed over.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum transit time of a request, in milliseconds.
const TRANSIT: u64 = 40;
/// Maximum processing time of a slow API server, in milliseconds.
const SLOW: u64 = 6_000;

/// Pending writes of one autoscaler for one bucket, and a hand-over that waits for their end.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    pending: u32,
    /// Write that hands the lease over.
    hand_over: Option<Op>,
    /// Number of hand-overs that have waited.
    waits: u32,
}

/// Timing of one write to the API server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteTiming {
    /// Time at which the sender abandons the write, a little before the API server.
    pub(crate) deadline: Duration,
    /// Delay from sending to processing.
    pub(crate) delay: Duration,
    /// True if the API server abandons the write instead of carrying it out.
    pub(crate) too_late: bool,
}

impl Simulation {
    /// Begins a write for a revision. Returns `None` if its lease may end too soon.
    pub(crate) fn begin_write(&mut self, index: usize, revision: usize) -> Option<WriteTiming> {
        if !self.may_write(index, revision) {
            return None;
        }
        let bucket = self.plan.revisions[revision].bucket;
        let left = self.autoscalers[index].election.held_until(bucket).map(|until| until - self.time.instant());
        let within = match left {
            Some(left) if self.without.is_none_or(|without| !matches!(without, Without::Guard | Without::Lease)) => {
                (left - CANCEL_MARGIN).min(WRITE_TIMEOUT)
            }
            _ => WRITE_TIMEOUT,
        };
        debug_assert!(self.without.is_some() || within >= WRITE_MARGIN - CANCEL_MARGIN);
        self.autoscalers[index].writers[bucket].pending += 1;
        let transit = Duration::from_millis(self.rng.random_range(1..=TRANSIT));
        let busy = self.api_processing(self.links.writes_slow());
        Some(WriteTiming { deadline: self.time.now + within, delay: transit + busy, too_late: busy > within })
    }

    /// Returns the processing time of the API server.
    pub(crate) fn api_processing(&mut self, slow: bool) -> Duration {
        let most = if slow { SLOW } else { 5 };
        Duration::from_millis(self.rng.random_range(0..=most))
    }

    /// Ends a write that got a response, or that is certain to have no further effect.
    pub(crate) fn end_write(&mut self, index: usize, bucket: usize) {
        let writers = &mut self.autoscalers[index].writers[bucket];
        writers.pending -= 1;
        if writers.pending == 0
            && let Some(op) = writers.hand_over.take()
        {
            self.write_lease(index, bucket, op);
        }
    }

    /// Ends a write without a response once it can no longer be carried out.
    pub(crate) fn abandon_write(&mut self, index: usize, bucket: usize) {
        self.schedule(ProcessId::Autoscaler(index), CANCEL_MARGIN, Local::WriteEnded(bucket));
    }

    /// Hands a lease over once no write is pending under it.
    pub(crate) fn hand_over(&mut self, index: usize, bucket: usize, op: Op) {
        let writers = &mut self.autoscalers[index].writers[bucket];
        if writers.pending == 0 || self.without == Some(Without::Guard) {
            return self.write_lease(index, bucket, op);
        }
        writers.hand_over = Some(op);
        writers.waits += 1;
        let wait = writers.waits;
        self.summary.hand_over_waits += 1;
        self.time.trace(|| format!("autoscaler {index} waits for writes before it hands bucket {bucket} over"));
        self.schedule(ProcessId::Autoscaler(index), IDLE_TIMEOUT, Local::IdleTimeout { bucket, wait });
    }

    /// Gives up a hand-over that has waited too long. The process keeps the lease.
    pub(crate) fn idle_timeout(&mut self, index: usize, bucket: usize, wait: u32) {
        let writers = &mut self.autoscalers[index].writers[bucket];
        if writers.waits == wait && writers.hand_over.take().is_some() {
            let sent = self.time.now;
            self.settle_lease(index, bucket, sent, LeaseAnswer::Failed);
        }
    }
}
