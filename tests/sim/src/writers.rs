//! Pending writes. Each begins under a lease and ends before the lease. The lease is not handed over meanwhile.
//!
//! Writes wait for the process's token bucket, in the order of their classes. Writes of the same process for many
//! revisions outside the model arrive at once from time to time, in the class of objects. They take tokens like the
//! modeled ones.

use crate::events::{Local, ProcessId};
use crate::lease::LeaseAnswer;
use crate::reconcile::Controller;
use crate::simulation::Simulation;
use crate::summary::Without;
use common::election::{Op, WRITE_MARGIN};
use common::write_rate::{TokenBucket, WriteClass};
use rand::RngExt;
use std::collections::BTreeMap;
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

/// Maximum number of writes outside the model at once, in seconds of the write rate.
const FOREIGN_MAX: f64 = 3.0;

#[derive(Debug)]
pub(crate) struct WriteQueue {
    bucket: TokenBucket,
    /// Waiting writes in serving order; `None` for a write of a revision outside the model.
    waiting: BTreeMap<(WriteClass, u64), Option<(Controller, usize)>>,
    count: u64,
    retry_at: Option<Duration>,
}

impl WriteQueue {
    pub(crate) fn new(bucket: TokenBucket) -> Self {
        Self { bucket, waiting: BTreeMap::new(), count: 0, retry_at: None }
    }

    fn push(&mut self, class: WriteClass, key: Option<(Controller, usize)>) {
        self.count += 1;
        self.waiting.insert((class, self.count), key);
    }
}

impl Simulation {
    /// Queues a write of a reconciliation until there is a token for it.
    pub(crate) fn queue_write(&mut self, index: usize, key: (Controller, usize), class: WriteClass) {
        self.autoscalers[index].write_queue.push(class, Some(key));
        self.serve_writes(index);
    }

    /// Queues writes of revisions outside the model.
    pub(crate) fn foreign_writes(&mut self, index: usize) {
        let pause = Duration::from_millis(self.rng.random_range(2_000..20_000));
        self.schedule(ProcessId::Autoscaler(index), pause, Local::ForeignWrites);
        let count = (self.plan.rate.qps * self.rng.random_range(0.0..FOREIGN_MAX)) as u32;
        let queue = &mut self.autoscalers[index].write_queue;
        (0..count).for_each(|_| queue.push(WriteClass::Object, None));
        self.serve_writes(index);
    }

    /// Moves the write of a reconciliation to the most urgent class, because a decision waits for its end.
    pub(crate) fn promote_write(&mut self, index: usize, revision: usize) {
        let queue = &mut self.autoscalers[index].write_queue;
        let key = Some((Controller::Autoscaler, revision));
        let position = queue.waiting.iter().find(|((class, _), other)| **other == key && *class > WriteClass::Wake);
        if let Some(position) = position.map(|(position, _)| *position) {
            queue.waiting.remove(&position);
            queue.push(WriteClass::Wake, key);
            self.summary.promoted += 1;
            self.serve_writes(index);
        }
    }

    pub(crate) fn retry_writes(&mut self, index: usize) {
        self.autoscalers[index].write_queue.retry_at = None;
        self.serve_writes(index);
    }

    /// Serves the writes in order as long as there are tokens.
    fn serve_writes(&mut self, index: usize) {
        let now = self.time.instant();
        loop {
            let queue = &mut self.autoscalers[index].write_queue;
            let Some((&(class, count), &key)) = queue.waiting.first_key_value() else { return };
            if !queue.bucket.take(class, now) {
                break;
            }
            queue.waiting.remove(&(class, count));
            if let Some(key) = key {
                self.begin_step(index, key);
            }
        }
        self.summary.writes_waited += 1;
        let queue = &mut self.autoscalers[index].write_queue;
        let Some((&(class, _), _)) = queue.waiting.first_key_value() else { return };
        let at = self.time.now + queue.bucket.ready_at(class).saturating_duration_since(now);
        if queue.retry_at.is_none_or(|known| at < known) {
            queue.retry_at = Some(at);
            self.schedule(ProcessId::Autoscaler(index), at - self.time.now, Local::TokensReady);
        }
    }
}
