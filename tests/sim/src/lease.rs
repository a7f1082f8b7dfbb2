//! Leases: the writes of an autoscaler's election, their results, and ownership.

use crate::events::{Event, Local};
use crate::model::{Id, Object};
use crate::process::Who;
use crate::reconcile::Controller;
use crate::simulation::Simulation;
use crate::summary::Without;
use common::election::{Op, Record, Timing, WRITE_MARGIN};
use std::time::Duration;

/// Maximum wait for the response to a write of a lease.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Timing of leases.
pub(crate) const TIMING: Timing = Timing::STANDALONE;

/// Result of a write of a lease.
#[derive(Clone, Debug)]
pub(crate) enum LeaseAnswer {
    Written(Record),
    Read(Option<Record>),
    Claimed,
    Conflict,
    Failed,
}

impl Simulation {
    /// Writes what is due, publishes changes, and schedules the next call.
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
            self.tell(Who::Autoscaler(index), at - self.time.now, Local::Elect);
        }
        if changed {
            self.time.say(|| format!("autoscaler {index} sees leases {views:?}"));
            self.autoscalers[index].published = views;
            for revision in 0..self.plan.revisions.len() {
                self.ask(index, (Controller::Autoscaler, revision));
                self.ask(index, (Controller::Serverless, revision));
            }
            let waiting = std::mem::take(&mut self.autoscalers[index].ownerless);
            let now = self.time.now;
            for (_, message, came) in waiting.into_iter().filter(|(until, ..)| now < *until) {
                self.route(index, vec![message], came.as_ref());
            }
        }
    }

    pub(crate) fn write_lease(&mut self, index: usize, lease: usize, op: Op) {
        let sent = self.time.now;
        if self.links.api_request_lost(index) {
            let answer = LeaseAnswer::Failed;
            return self.tell(Who::Autoscaler(index), LEASE_TIMEOUT, Local::LeaseAnswer { lease, sent, answer });
        }
        let delay = self.api_delay() + self.api_work(self.links.api_slow()).min(LEASE_TIMEOUT);
        let life = self.autoscalers[index].process.life;
        self.time.at(delay, Event::WriteLease { by: index, life, lease, op, sent });
    }

    /// Handles a write of a lease that has reached the API server.
    pub(crate) fn lease_written(&mut self, by: usize, life: u32, lease: usize, op: Op, sent: Duration) {
        let me = self.autoscalers[by].identity.clone();
        let known = self.store.lease(lease).cloned();
        let version = self.store_version + 1;
        let fresh = |holder: String| Record {
            duration: if holder.is_empty() { Duration::from_secs(1) } else { TIMING.lease_duration },
            holder,
            renewal: version.to_string(),
            claim: None,
            version: version.to_string(),
        };
        let (answer, next) = match (op, known) {
            (Op::Create, None) => (LeaseAnswer::Written(fresh(me.clone())), Some(fresh(me))),
            (Op::Write { version, holder, .. }, Some(old)) if version == old.version => {
                (LeaseAnswer::Written(fresh(holder.clone())), Some(fresh(holder)))
            }
            (Op::Claim, Some(old)) => {
                let claimed = Record { claim: Some(me), version: version.to_string(), ..old };
                (LeaseAnswer::Claimed, Some(claimed))
            }
            (Op::Claim, None) => (LeaseAnswer::Failed, None),
            (Op::Read, known) => (LeaseAnswer::Read(known), None),
            (Op::Create | Op::Write { .. }, _) => (LeaseAnswer::Conflict, None),
        };
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
        self.tell(Who::Autoscaler(by), delay, Local::LeaseAnswer { lease, sent, answer });
    }

    pub(crate) fn settle_lease(&mut self, index: usize, lease: usize, sent: Duration, answer: LeaseAnswer) {
        let (now, sent) = (self.time.instant(), self.time.epoch + sent);
        let election = &mut self.autoscalers[index].election;
        match answer {
            LeaseAnswer::Written(record) => election.written(lease, record, sent, now, &mut self.rng),
            LeaseAnswer::Read(record) => election.read(lease, record, now, &mut self.rng),
            LeaseAnswer::Claimed => election.done(lease),
            LeaseAnswer::Conflict => election.conflict(lease),
            LeaseAnswer::Failed => election.failed(lease, now),
        }
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

    /// Returns true if a process holds a bucket by its own clock. Without the lease check: if it knows of no other
    /// holder.
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
