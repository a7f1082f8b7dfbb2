//! Work queues and writes of the two controllers of an autoscaler. Each reconciliation reads copies, applies the rules,
//! and writes one object after the other.
//!
//! Order and conditions are those of the shell. Replicas are written first and without a precondition. The lease is
//! checked before each write. A failed reconciliation is repeated after a back-off. There is one at a time for each
//! revision and controller.

use crate::events::{Event, Local, ProcessId};
use crate::model::{Id, Object};
use crate::simulation::Simulation;
use crate::writers::{CANCEL_MARGIN, WriteTiming};
use common::write_rate::WriteClass;
use rand::RngExt;
use std::collections::VecDeque;
use std::time::Duration;

/// First and longest back-off after a failed reconciliation.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(300));

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Controller {
    Autoscaler,
    Serverless,
}

/// State of one key in a controller's queue.
#[derive(Debug, Default)]
pub(crate) struct Work {
    queued: bool,
    /// Remaining writes of a running reconciliation.
    running: Option<VecDeque<Step>>,
    again: bool,
    /// True if the repetition acts on a decision.
    urgent: bool,
    timer: Option<Duration>,
    failures: u32,
}

/// Write of an object, based on a version. Writes of replicas are based on none.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) id: Id,
    pub(crate) base: Option<u64>,
    pub(crate) object: Object,
}

#[derive(Clone, Debug)]
pub(crate) enum WriteAnswer {
    Written(Id, u64, Object),
    Conflict,
    Lost,
}

impl Simulation {
    /// Requests a reconciliation.
    pub(crate) fn enqueue(&mut self, index: usize, key: (Controller, usize)) {
        let work = self.autoscalers[index].works.entry(key).or_default();
        if work.running.is_some() {
            work.again = true;
        } else if !work.queued {
            work.queued = true;
            let delay = Duration::from_micros(self.rng.random_range(100..3000));
            self.schedule(ProcessId::Autoscaler(index), delay, Local::Pass(key.0, key.1));
        }
    }

    /// Requests a reconciliation that acts on a decision.
    pub(crate) fn enqueue_urgent(&mut self, index: usize, revision: usize) {
        let key = (Controller::Autoscaler, revision);
        self.enqueue(index, key);
        let work = self.autoscalers[index].works.entry(key).or_default();
        work.urgent |= work.running.is_some();
        if work.urgent {
            self.promote_write(index, revision);
        }
    }

    /// Requests a reconciliation after a delay; the earliest request counts.
    pub(crate) fn enqueue_after(&mut self, index: usize, key: (Controller, usize), delay: Duration) {
        let at = self.time.now + delay;
        let work = self.autoscalers[index].works.entry(key).or_default();
        if work.timer.is_none_or(|known| at < known) {
            work.timer = Some(at);
            self.schedule(ProcessId::Autoscaler(index), delay, Local::Timer(key.0, key.1));
        }
    }

    pub(crate) fn timer(&mut self, index: usize, controller: Controller, revision: usize) {
        let key = (controller, revision);
        let work = self.autoscalers[index].works.entry(key).or_default();
        if work.timer.is_some_and(|at| at <= self.time.now) {
            work.timer = None;
            self.enqueue(index, key);
        }
    }

    pub(crate) fn pass(&mut self, index: usize, controller: Controller, revision: usize) {
        let key = (controller, revision);
        let work = self.autoscalers[index].works.entry(key).or_default();
        (work.queued, work.urgent) = (false, false);
        let steps = if !self.owns(index, revision) {
            if controller == Controller::Autoscaler {
                self.drop_revision(index, revision);
            }
            None
        } else if controller == Controller::Autoscaler {
            self.plan_scale(index, revision)
        } else {
            self.plan_endpoints(index, revision)
        };
        self.autoscalers[index].works.entry(key).or_default().running = Some(steps.unwrap_or_default());
        self.next_step(index, key);
    }

    /// Queues the next write of a reconciliation, or ends the reconciliation.
    fn next_step(&mut self, index: usize, key: (Controller, usize)) {
        let work = self.autoscalers[index].works.entry(key).or_default();
        if let Some(step) = work.running.as_ref().and_then(VecDeque::front) {
            let class = match step.object {
                _ if work.urgent => WriteClass::Wake,
                Object::Target(_) => match self.autoscalers[index].cache.target(key.1) {
                    Some(0) => WriteClass::Wake,
                    _ => WriteClass::Scale,
                },
                Object::Public(_) => WriteClass::Scale,
                _ => WriteClass::Object,
            };
            return self.queue_write(index, key, class);
        }
        work.running = None;
        work.failures = 0;
        if std::mem::take(&mut work.again) {
            self.enqueue(index, key);
        }
    }

    /// Begins a write that has a token.
    pub(crate) fn begin_step(&mut self, index: usize, key: (Controller, usize)) {
        let work = self.autoscalers[index].works.entry(key).or_default();
        let Some(step) = work.running.as_mut().and_then(VecDeque::pop_front) else {
            work.running = None;
            return;
        };
        let Some(timing) = self.begin_write(index, key.1) else {
            return self.fail(index, key, "the lease ends too soon");
        };
        if matches!(step.object, Object::Target(0)) {
            self.autoscalers[index].last_pod_removals.insert(key.1, timing.deadline + CANCEL_MARGIN);
        }
        if self.links.api_request_lost(index) {
            let delay = Duration::from_millis(self.rng.random_range(5..3000)).min(timing.deadline - self.time.now);
            let answer = Local::WriteAnswer { controller: key.0, revision: key.1, answer: WriteAnswer::Lost };
            return self.schedule(ProcessId::Autoscaler(index), delay, answer);
        }
        let life = self.autoscalers[index].process.life;
        let write = Event::Write { by: index, life, timing, controller: key.0, revision: key.1, step };
        self.time.after(timing.delay, write);
    }

    /// Handles a write that has reached the API server.
    pub(crate) fn written(&mut self, by: usize, life: u32, timing: WriteTiming, key: (Controller, usize), step: Step) {
        let (Step { id, base, object }, (controller, revision)) = (step, key);
        let answer = if timing.too_late {
            WriteAnswer::Lost
        } else if base.is_some_and(|base| base != self.store.version(id)) {
            self.summary.conflicts += 1;
            WriteAnswer::Conflict
        } else {
            self.judge_write(by, revision, &object);
            if let Object::Target(to) = object {
                self.summary.patches += 1;
                self.time.trace(|| format!("autoscaler {by} scales revision {revision} to {to}"));
            }
            let version = self.put(id, object.clone());
            WriteAnswer::Written(id, version, object)
        };
        if self.autoscalers[by].process.life != life {
            return;
        }
        let delay = self.api_delay();
        let patience = timing.deadline.saturating_sub(self.time.now);
        let lost = self.links.api_answer_lost(by) || matches!(answer, WriteAnswer::Lost) || delay > patience;
        let (answer, delay) = if lost { (WriteAnswer::Lost, patience) } else { (answer, delay) };
        self.schedule(ProcessId::Autoscaler(by), delay, Local::WriteAnswer { controller, revision, answer });
    }

    pub(crate) fn settle_write(&mut self, index: usize, key: (Controller, usize), answer: WriteAnswer) {
        let (controller, revision) = key;
        let bucket = self.plan.revisions[revision].bucket;
        match answer {
            WriteAnswer::Lost => self.abandon_write(index, bucket),
            WriteAnswer::Written(..) | WriteAnswer::Conflict => self.end_write(index, bucket),
        }
        if controller == Controller::Autoscaler {
            self.settle_last_pod_removal(index, revision, matches!(answer, WriteAnswer::Lost));
        }
        match answer {
            WriteAnswer::Written(id, version, object) => {
                if let Object::Target(to) = object {
                    self.record_scale(index, revision, to);
                }
                self.autoscalers[index].cache.put(id, version, object);
                self.next_step(index, key);
            }
            WriteAnswer::Conflict => self.fail(index, key, "conflict"),
            WriteAnswer::Lost => self.fail(index, key, "no answer"),
        }
    }

    /// Handles a change of replicas that the API server has accepted.
    fn record_scale(&mut self, index: usize, revision: usize, to: i32) {
        let now = self.time.instant();
        self.judge_repetition(index, revision, to);
        let autoscaler = &mut self.autoscalers[index];
        autoscaler.conflicts.entry(revision).or_default().written(to, now);
        let from = autoscaler.cache.target(revision).unwrap_or(0);
        if let Some(state) = autoscaler.deciders.get_mut(&revision) {
            state.replicas = Some(to);
        }
        self.remember_scale(index, revision, from, to);
    }

    /// Handles the end of a write that may have removed the last pod. If the response was lost, the write may still be
    /// carried out for a while.
    fn settle_last_pod_removal(&mut self, index: usize, revision: usize, lost: bool) {
        let Some(until) = self.autoscalers[index].last_pod_removals.get(&revision).copied() else { return };
        let key = (Controller::Serverless, revision);
        if lost {
            self.enqueue_after(index, key, until.saturating_sub(self.time.now));
        } else {
            self.autoscalers[index].last_pod_removals.remove(&revision);
            self.enqueue(index, key);
        }
    }

    fn fail(&mut self, index: usize, key: (Controller, usize), why: &str) {
        self.time.trace(|| format!("autoscaler {index} gives up a pass over {key:?}: {why}"));
        let work = self.autoscalers[index].works.entry(key).or_default();
        work.running = None;
        work.failures += 1;
        let delay = BACKOFF.0.saturating_mul(1 << (work.failures - 1).min(20)).min(BACKOFF.1);
        if std::mem::take(&mut work.again) {
            self.enqueue(index, key);
        } else {
            self.enqueue_after(index, key, delay);
        }
    }
}
