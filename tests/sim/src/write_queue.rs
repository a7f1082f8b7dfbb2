//! Token bucket of a process, and its writes that wait for tokens, in the order of their classes.
//!
//! Writes of the same process for many revisions outside the model arrive at once from time to time, in the class of
//! objects. They take tokens like the modeled ones.

use crate::events::Local;
use crate::process::ProcessId;
use crate::reconcile::Controller;
use crate::simulation::Simulation;
use common::write_rate::{TokenBucket, WriteClass};
use rand::RngExt;
use std::collections::BTreeMap;
use std::time::Duration;

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
        self.summary.foreign_writes += u64::from(count);
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
