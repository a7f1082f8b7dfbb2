//! Writes under way: each is begun under a lease, has to be over before that lease ends, and keeps it from being given
//! away.

use crate::events::Local;
use crate::lease::LeaseAnswer;
use crate::process::Who;
use crate::simulation::Simulation;
use crate::summary::Without;
use common::election::{Op, WRITE_MARGIN};
use rand::RngExt;
use std::time::Duration;

/// Longest wait for the answer to a write, and the API server's longest try.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// From the moment a write is given up to the moment when it is certain not to be carried out.
pub(crate) const CANCEL_MARGIN: Duration = Duration::from_millis(500);
/// Longest wait for writes under way before a lease is given away.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// A request is this long on its way, in milliseconds.
const TRANSIT: u64 = 40;
/// What an API server that is slow takes before it carries a request out, in milliseconds.
const SLOW: u64 = 6_000;

/// The writes of one autoscaler for one bucket, and what waits for their end.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    under_way: u32,
    /// A write that gives the lease away, and which wait it is.
    waiting: Option<Op>,
    waits: u32,
}

/// One write's way to the API server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage {
    /// When the sender, and a little later the API server, give it up.
    pub(crate) deadline: Duration,
    /// From being sent to being carried out.
    pub(crate) delay: Duration,
    /// Whether the API server has given it up by then.
    pub(crate) too_late: bool,
}

impl Simulation {
    /// Begins a write for a revision. None if its lease may end too soon.
    pub(crate) fn begin_write(&mut self, index: usize, revision: usize) -> Option<Passage> {
        if !self.may_write(index, revision) {
            return None;
        }
        let bucket = self.plan.revisions[revision].bucket;
        let left = self.autoscalers[index].election.held_until(bucket).map(|until| until - self.instant());
        let within = match left {
            Some(left) if self.without.is_none_or(|without| !matches!(without, Without::Guard | Without::Lease)) => {
                (left - CANCEL_MARGIN).min(WRITE_TIMEOUT)
            }
            _ => WRITE_TIMEOUT,
        };
        debug_assert!(self.without.is_some() || within >= WRITE_MARGIN - CANCEL_MARGIN);
        self.autoscalers[index].writers[bucket].under_way += 1;
        let transit = Duration::from_millis(self.rng.random_range(1..=TRANSIT));
        let busy = self.api_work(self.links.writes_slow());
        Some(Passage { deadline: self.now + within, delay: transit + busy, too_late: busy > within })
    }

    /// What the API server takes before it carries a request out.
    pub(crate) fn api_work(&mut self, slow: bool) -> Duration {
        let most = if slow { SLOW } else { 5 };
        Duration::from_millis(self.rng.random_range(0..=most))
    }

    /// A write was answered, or it is certain that nothing will come of it any more.
    pub(crate) fn write_over(&mut self, index: usize, bucket: usize) {
        let writers = &mut self.autoscalers[index].writers[bucket];
        writers.under_way -= 1;
        if writers.under_way == 0
            && let Some(op) = writers.waiting.take()
        {
            self.write_lease(index, bucket, op);
        }
    }

    /// A write was not answered: it counts until it can no longer be carried out.
    pub(crate) fn write_given_up(&mut self, index: usize, bucket: usize) {
        self.tell(Who::Autoscaler(index), CANCEL_MARGIN, Local::WriteOver(bucket));
    }

    /// Gives a lease away once nothing is being written under it.
    pub(crate) fn hand_over(&mut self, index: usize, bucket: usize, op: Op) {
        let writers = &mut self.autoscalers[index].writers[bucket];
        if writers.under_way == 0 || self.without == Some(Without::Guard) {
            return self.write_lease(index, bucket, op);
        }
        writers.waiting = Some(op);
        writers.waits += 1;
        let wait = writers.waits;
        self.summary.waits += 1;
        self.say(|| format!("autoscaler {index} waits for writes before it gives bucket {bucket} away"));
        self.tell(Who::Autoscaler(index), IDLE_TIMEOUT, Local::IdleTimeout { bucket, wait });
    }

    /// It has waited long enough, and keeps the lease.
    pub(crate) fn idle_timeout(&mut self, index: usize, bucket: usize, wait: u32) {
        let writers = &mut self.autoscalers[index].writers[bucket];
        if writers.waits == wait && writers.waiting.take().is_some() {
            let sent = self.now;
            self.settle_lease(index, bucket, sent, LeaseAnswer::Failed);
        }
    }
}
