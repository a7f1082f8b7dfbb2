//! Leases: the writes of an autoscaler's election, their results, and ownership.

use crate::events::{Event, Local, ProcessId};
use crate::model::{Id, Object};
use crate::plan::Fault;
use crate::reconcile::Controller;
use crate::simulation::Simulation;
use crate::summary::Without;
use common::election::{Election, Op, Record, Timing, WRITE_MARGIN};
use rand::Rng;
use std::time::{Duration, Instant};

/// Maximum wait for the response to a write of a lease.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);
pub(crate) const TIMING: Timing = Timing::STANDALONE;

/// Result of an operation on a lease.
#[derive(Clone, Debug)]
pub(crate) enum LeaseAnswer {
    Written(Record),
    Read(Option<Record>),
    Claimed,
    Conflict,
    Failed,
}

/// Performs an operation at the API server, as `version`. Returns the answer, and the new record if there is one.
pub(crate) fn perform(op: Op, known: Option<Record>, by: &str, version: u64) -> (LeaseAnswer, Option<Record>) {
    let version = version.to_string();
    let written = |holder: String| {
        let duration = if holder.is_empty() { Duration::from_secs(1) } else { TIMING.lease_duration };
        let record = Record { duration, holder, renewal: version.clone(), claim: None, version: version.clone() };
        (LeaseAnswer::Written(record.clone()), Some(record))
    };
    match (op, known) {
        (Op::Create, None) => written(by.to_owned()),
        (Op::Write { version, holder, .. }, Some(old)) if version == old.version => written(holder),
        (Op::Claim, Some(old)) => (LeaseAnswer::Claimed, Some(Record { claim: Some(by.to_owned()), version, ..old })),
        (Op::Claim, None) => (LeaseAnswer::Failed, None),
        (Op::Read, known) => (LeaseAnswer::Read(known), None),
        (Op::Create | Op::Write { .. }, _) => (LeaseAnswer::Conflict, None),
    }
}

/// Passes an answer to the election.
pub(crate) fn settle(
    election: &mut Election,
    lease: usize,
    answer: LeaseAnswer,
    (sent, now): (Instant, Instant),
    rng: &mut impl Rng,
) {
    match answer {
        LeaseAnswer::Written(record) => election.written(lease, record, sent, now, rng),
        LeaseAnswer::Read(record) => election.read(lease, record, now, rng),
        LeaseAnswer::Claimed => election.done(lease),
        LeaseAnswer::Conflict => election.conflict(lease),
        LeaseAnswer::Failed => election.failed(lease, now),
    }
}

impl Simulation {
    /// Starts the operations that are due, publishes changed holders, and schedules the next call.
    pub(crate) fn elect(&mut self, index: usize) {
        let now = self.time.instant();
        let ops = self.autoscalers[index].election.due(now);
        for (lease, op) in ops {
            match &op {
                Op::Write { holder, .. } if *holder != self.autoscalers[index].identity => {
                    self.hand_over(index, lease, op)
                }
                _ => self.write_lease(index, lease, op),
            }
        }
        let autoscaler = &mut self.autoscalers[index];
        let election = &autoscaler.election;
        let view = |lease| (election.holder(lease).map(str::to_owned), election.held_until(lease).is_some());
        let views: Vec<_> = (0..autoscaler.published.len()).map(view).collect();
        let changed = views != autoscaler.published;
        let wake = autoscaler.election.wake(now).map(|at| at.saturating_duration_since(self.time.epoch));
        if let Some(at) = wake.filter(|at| autoscaler.elect_at.is_none_or(|known| *at < known)) {
            let at = at.max(self.time.now + Duration::from_millis(1));
            autoscaler.elect_at = Some(at);
            self.schedule(ProcessId::Autoscaler(index), at - self.time.now, Local::Elect);
        }
        if changed {
            self.time.trace(|| format!("autoscaler {index} observes leases {views:?}"));
            self.autoscalers[index].published = views;
            for revision in 0..self.plan.revisions.len() {
                self.enqueue(index, (Controller::Autoscaler, revision));
                self.enqueue(index, (Controller::Serverless, revision));
            }
            let waiting = std::mem::take(&mut self.autoscalers[index].ownerless);
            let now = self.time.now;
            for (_, message, forwarded) in waiting.into_iter().filter(|(until, ..)| now < *until) {
                self.route(index, vec![message], forwarded.as_ref());
            }
        }
    }

    pub(crate) fn write_lease(&mut self, index: usize, lease: usize, op: Op) {
        let sent = self.time.now;
        if self.links.api_request_lost(index) {
            let answer = LeaseAnswer::Failed;
            let answer = Local::LeaseAnswer { lease, sent, answer };
            return self.schedule(ProcessId::Autoscaler(index), LEASE_TIMEOUT, answer);
        }
        let delay = self.api_delay() + self.api_processing(self.links.is_active(Fault::SlowApi)).min(LEASE_TIMEOUT);
        let life = self.autoscalers[index].process.life;
        self.time.after(delay, Event::WriteLease { by: index, life, lease, op, sent });
    }

    /// Handles an operation on a lease that has reached the API server.
    pub(crate) fn lease_written(&mut self, by: usize, life: u32, lease: usize, op: Op, sent: Duration) {
        let known = self.store.lease(lease).cloned();
        let (answer, next) = perform(op, known, &self.autoscalers[by].identity, self.store_version + 1);
        if let Some(record) = next {
            self.put(Id::Lease(lease), Object::Lease(record));
        }
        if self.autoscalers[by].process.life != life {
            return;
        }
        let delay = self.api_delay();
        let patience = (sent + LEASE_TIMEOUT).saturating_sub(self.time.now);
        let lost = self.links.api_answer_lost(by) || delay > patience;
        let (answer, delay) = if lost { (LeaseAnswer::Failed, patience) } else { (answer, delay) };
        self.schedule(ProcessId::Autoscaler(by), delay, Local::LeaseAnswer { lease, sent, answer });
    }

    pub(crate) fn settle_lease(&mut self, index: usize, lease: usize, sent: Duration, answer: LeaseAnswer) {
        let (now, sent) = (self.time.instant(), self.time.epoch + sent);
        settle(&mut self.autoscalers[index].election, lease, answer, (sent, now), &mut self.rng);
        self.elect(index);
    }

    /// Releases all leases at a graceful exit, except those with pending writes.
    pub(crate) fn release_leases(&mut self, index: usize) {
        let now = self.time.instant();
        let ops = self.autoscalers[index].election.release(now);
        for (lease, op) in ops {
            self.hand_over(index, lease, op);
        }
    }

    /// Returns true if a process holds a bucket by its own clock. Without the check, the last known holder counts.
    pub(crate) fn owns_bucket(&self, index: usize, bucket: usize) -> bool {
        self.holds_for(index, bucket, Duration::ZERO)
    }

    pub(crate) fn owns(&self, index: usize, revision: usize) -> bool {
        self.owns_bucket(index, self.plan.revisions[revision].bucket)
    }

    /// Returns true if the lease is certain to outlast a write.
    pub(crate) fn may_write(&self, index: usize, revision: usize) -> bool {
        self.holds_for(index, self.plan.revisions[revision].bucket, WRITE_MARGIN)
    }

    fn holds_for(&self, index: usize, bucket: usize, margin: Duration) -> bool {
        let autoscaler = &self.autoscalers[index];
        if self.without == Some(Without::Lease) {
            return autoscaler.election.holder(bucket) == Some(&autoscaler.identity);
        }
        !autoscaler.process.down
            && autoscaler.election.held_until(bucket).is_some_and(|until| self.time.instant() + margin < until)
    }
}
