//! The two controllers of an autoscaler: each pass reads copies, asks the rules, and writes one object after the other.
//!
//! Order and conditions are the shell's: the replicas first and without a precondition, the lease looked at before
//! each write, a pass that fails comes again after a back-off, one pass at a time for each revision and controller.

use crate::autoscaler::Initial;
use crate::model::{Id, Object, Place, Status};
use crate::process::Who;
use crate::world::{Event, Local, Without, World};
use crate::writers::{CANCEL_MARGIN, Passage};
use autoscaler_core::active;
use autoscaler_core::bounds;
use autoscaler_core::num_activators::num_activators;
use autoscaler_core::path_mode::{self, PathMode};
use autoscaler_core::scale_conflict;
use autoscaler_core::scale_to_zero::{self, ProbeNeed, ProbeResult, Reason};
use common::ownership;
use common::write_rate::WriteClass;
use rand::RngExt;
use std::collections::VecDeque;
use std::time::Duration;

/// Back-off after a failed pass: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(300));
const ACTIVATION_TIMEOUT: Duration = Duration::from_secs(60);
const PROBE_PERIOD: Duration = Duration::from_secs(1);
const ROUND: Duration = Duration::from_secs(45);
const PROBE_HOLDS: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Controller {
    Autoscaler,
    Serverless,
}

/// One key of one controller's queue.
#[derive(Debug, Default)]
pub(crate) struct Work {
    queued: bool,
    /// The writes that are left of a pass under way.
    running: Option<VecDeque<Step>>,
    again: bool,
    /// What it is asked for again for is a decision.
    hurried: bool,
    timer: Option<Duration>,
    failures: u32,
}

/// One write, based on a version; the replicas on none.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    id: Id,
    base: Option<u64>,
    object: Object,
}

/// Probes of one revision's path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Round {
    Running { failed: bool, until: Duration },
    Proven(Duration),
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Written(Id, u64, Object),
    Conflict,
    Lost,
}

impl World {
    pub(crate) fn ask(&mut self, index: usize, key: (Controller, usize)) {
        let work = self.autoscalers[index].works.entry(key).or_default();
        if work.running.is_some() {
            work.again = true;
        } else if !work.queued {
            work.queued = true;
            let delay = Duration::from_micros(self.rng.random_range(100..3000));
            self.tell(Who::Autoscaler(index), delay, Local::Pass(key.0, key.1));
        }
    }

    /// Asks for a pass that acts on a decision.
    pub(crate) fn ask_urgently(&mut self, index: usize, revision: usize) {
        let key = (Controller::Autoscaler, revision);
        self.ask(index, key);
        let work = self.autoscalers[index].works.entry(key).or_default();
        work.hurried |= work.running.is_some();
        if work.hurried {
            self.hurry_turn(index, revision);
        }
    }

    /// Asks for a pass later; the earliest wish counts.
    fn ask_after(&mut self, index: usize, key: (Controller, usize), delay: Duration) {
        let at = self.now + delay;
        let work = self.autoscalers[index].works.entry(key).or_default();
        if work.timer.is_none_or(|known| at < known) {
            work.timer = Some(at);
            self.tell(Who::Autoscaler(index), delay, Local::Timer(key.0, key.1));
        }
    }

    pub(crate) fn timer(&mut self, index: usize, controller: Controller, revision: usize) {
        let key = (controller, revision);
        let work = self.autoscalers[index].works.entry(key).or_default();
        if work.timer.is_some_and(|at| at <= self.now) {
            work.timer = None;
            self.ask(index, key);
        }
    }

    pub(crate) fn pass(&mut self, index: usize, controller: Controller, revision: usize) {
        let key = (controller, revision);
        let work = self.autoscalers[index].works.entry(key).or_default();
        (work.queued, work.hurried) = (false, false);
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

    /// What the PodAutoscaler's pass writes. None before everything was listed.
    fn plan_scale(&mut self, index: usize, revision: usize) -> Option<VecDeque<Step>> {
        let now = self.timestamp();
        let cache = &self.autoscalers[index].cache;
        let (current, status, path) =
            (cache.target(revision)?, cache.status(revision)?.clone(), cache.path(revision)?.clone());
        let ready = cache.ready_pods(revision).len() as u32;
        let versions = [Id::Status(revision), Id::Path(revision)].map(|id| cache.version(id));
        self.ensure_loop(
            index,
            revision,
            if status.desired.is_some() { Initial::TakenOver } else { Initial::Adopted(current) },
        );
        let answer = self.blend(index, revision, current);
        let plan = &self.plan.revisions[revision];
        let autoscaler = &mut self.autoscalers[index];
        let state = autoscaler.loops.get_mut(&revision)?;
        let proxy_for = path.proxy_since.map(|since| now.saturating_since(since)).unwrap_or_default();
        state.activators_in_path = path.mode == PathMode::Proxy || !proxy_for.is_zero();
        state.replicas = Some(current);
        let active = status.active(now);
        let held = (active.is_activating() && current > 0).then_some(current);
        let desired = answer.as_ref().map_or(state.status.desired, |answer| answer.desired);
        let probe = match autoscaler.rounds.get(&revision) {
            Some(Round::Running { failed: true, .. }) => ProbeResult::NotInPath,
            Some(Round::Proven(at)) if self.now < *at + PROBE_HOLDS => ProbeResult::InPath,
            _ => ProbeResult::NotAsked,
        };
        let outcome = scale_to_zero::decide(&scale_to_zero::Input {
            desired: desired.or(held),
            current_replicas: current,
            bounds: bounds::with_initial_scale(plan.bounds, 1, status.initialized, true),
            scale_to_zero: true,
            active,
            stable_window: plan.spec.stable_window,
            activation_timeout: ACTIVATION_TIMEOUT,
            grace_period: plan.grace_period,
            pod_retention: plan.pod_retention,
            path: path.mode,
            proxy_for,
            probe_needed: self.without != Some(Without::Proof) && current > 0,
            probe,
            warm_in: state.warm_in,
            unheard: state.unheard,
        });
        let mode = path_mode::path_mode(&path_mode::Input {
            want: outcome.want,
            excess_burst_capacity: state.status.excess_burst_capacity,
            present: Some(path.mode),
            keep_when_unknown: true,
            warming: state.warm_in.is_some(),
        });
        let spec = &plan.spec;
        let activators = num_activators(ready, spec.total_value, spec.target_burst_capacity, spec.activator_capacity);
        let conditions = active::decide(&active::Input {
            want: outcome.want,
            ready,
            min_ready: bounds::min_ready(plan.bounds, plan.found, status.initialized),
            service_known: true,
            active,
        });
        let mut next = Status { desired: outcome.want.or(status.desired), ..status.clone() };
        next.initialized |= conditions.initialized;
        if let Some(verdict) = conditions.active.filter(|verdict| next.active.map(|(known, _)| known) != Some(*verdict))
        {
            next.active = Some((verdict, now));
        }
        let mut steps = VecDeque::new();
        if let Some(to) = outcome.patch
            && !self.is_contested(index, revision, to)
        {
            self.judge_doubt(index, revision, current, to);
            steps.push_back(Step { id: Id::Target(revision), base: None, object: Object::Target(to) });
        }
        if (mode, activators) != (path.mode, path.activators) {
            let object = Object::Path(crate::model::Path { mode, activators, ..path });
            steps.push_back(Step { id: Id::Path(revision), base: Some(versions[1]), object });
        }
        if next != status {
            let object = Object::Status(next);
            steps.push_back(Step { id: Id::Status(revision), base: Some(versions[0]), object });
        }
        self.say(|| format!("autoscaler {index} looks at revision {revision}: {outcome:?}, {mode:?}, {active:?}"));
        self.explain(outcome.reason);
        if outcome.probe != ProbeNeed::None {
            self.start_round(index, revision);
        }
        if let Some(after) = outcome.requeue {
            self.ask_after(index, (Controller::Autoscaler, revision), after);
        }
        Some(steps)
    }

    /// Whether somebody else keeps changing the replicas back, so that it is not time to ask for them again.
    fn is_contested(&mut self, index: usize, revision: usize, to: i32) -> bool {
        let conflict = self.autoscalers[index].conflicts.get(&revision).copied().unwrap_or_default();
        match conflict.attempt(to, self.instant()) {
            scale_conflict::Attempt::After(left) if self.without != Some(Without::Contest) => {
                self.summary.contested += 1;
                self.ask_after(index, (Controller::Autoscaler, revision), left);
                true
            }
            _ => false,
        }
    }

    fn explain(&mut self, reason: Reason) {
        *self.summary.reasons.entry(format!("{reason:?}")).or_default() += 1;
    }

    /// What the ServerlessService's pass writes.
    fn plan_endpoints(&mut self, index: usize, revision: usize) -> Option<VecDeque<Step>> {
        let now = self.timestamp();
        let cache = &self.autoscalers[index].cache;
        let path = cache.path(revision)?.clone();
        let (pods, activators) = (cache.ready_pods(revision), cache.ready_activators());
        let through = match path.mode {
            _ if activators.is_empty() => false,
            _ if pods.is_empty() => true,
            mode => mode == PathMode::Proxy,
        };
        // Nobody is led back to pods that are on their way out.
        let leaving = self.autoscalers[index].leaving.get(&revision).is_some_and(|until| self.now < *until)
            || cache.target(revision) == Some(0);
        if !through && path.mode == PathMode::Proxy && !pods.is_empty() && leaving {
            self.summary.not_led_back += 1;
            return None;
        }
        let places: Vec<Place> = if through {
            let names: Vec<String> = activators.iter().map(|activator| format!("10.0.1.{activator}")).collect();
            let number = usize::try_from(path.activators).unwrap_or(0);
            let chosen = ownership::subset(&names, number, self.plan.revisions[revision].key.name());
            let index = |name: &str| names.iter().position(|known| known == name);
            chosen.into_iter().filter_map(index).map(|at| Place::Activator(activators[at])).collect()
        } else {
            pods.iter().map(|pod| Place::Pod(*pod)).collect()
        };
        let mut steps = VecDeque::new();
        let id = Id::Public(revision);
        if cache.public(revision) != places {
            steps.push_back(Step { id, base: Some(cache.version(id)), object: Object::Public(places) });
        }
        if path.proxy_since.is_some() != through {
            let (id, base) = (Id::Path(revision), cache.version(Id::Path(revision)));
            let object = Object::Path(crate::model::Path { proxy_since: through.then_some(now), ..path });
            steps.push_back(Step { id, base: Some(base), object });
        }
        Some(steps)
    }

    /// The next write of a pass, or its end.
    fn next_step(&mut self, index: usize, key: (Controller, usize)) {
        let work = self.autoscalers[index].works.entry(key).or_default();
        if let Some(step) = work.running.as_ref().and_then(VecDeque::front) {
            let line = match step.object {
                _ if work.hurried => WriteClass::Wake,
                Object::Target(_) => match self.autoscalers[index].cache.target(key.1) {
                    Some(0) => WriteClass::Wake,
                    _ => WriteClass::Scale,
                },
                Object::Public(_) => WriteClass::Scale,
                _ => WriteClass::Object,
            };
            return self.queue_write(index, key, line);
        }
        work.running = None;
        work.failures = 0;
        if std::mem::take(&mut work.again) {
            self.ask(index, key);
        }
    }

    /// It is a write's turn.
    pub(crate) fn begin_step(&mut self, index: usize, key: (Controller, usize)) {
        let work = self.autoscalers[index].works.entry(key).or_default();
        let Some(step) = work.running.as_mut().and_then(VecDeque::pop_front) else {
            work.running = None;
            return;
        };
        let Some(passage) = self.begin_write(index, key.1) else {
            self.summary.lease_ends += 1;
            return self.fail(index, key, "the lease ends too soon");
        };
        if matches!(step.object, Object::Target(0)) {
            self.autoscalers[index].leaving.insert(key.1, passage.deadline + CANCEL_MARGIN);
        }
        if self.links.api_request_lost(index) {
            let delay = Duration::from_millis(self.rng.random_range(5..3000)).min(passage.deadline - self.now);
            let answer = Answer::Lost;
            let answer = Local::Answer { controller: key.0, revision: key.1, answer };
            return self.tell(Who::Autoscaler(index), delay, answer);
        }
        let life = self.autoscalers[index].process.life;
        self.at(passage.delay, Event::Write { by: index, life, passage, controller: key.0, revision: key.1, step });
    }

    /// A write reaches the API server.
    pub(crate) fn written(&mut self, by: usize, life: u32, passage: Passage, key: (Controller, usize), step: Step) {
        let (Step { id, base, object }, (controller, revision)) = (step, key);
        let answer = if passage.too_late {
            Answer::Lost
        } else if base.is_some_and(|base| base != self.store.version(id)) {
            self.summary.conflicts += 1;
            Answer::Conflict
        } else {
            self.judge_write(by, revision, &object);
            if let Object::Target(to) = object {
                self.summary.patches += 1;
                self.say(|| format!("autoscaler {by} scales revision {revision} to {to}"));
            }
            let version = self.put(id, object.clone());
            Answer::Written(id, version, object)
        };
        if self.autoscalers[by].process.life != life {
            return;
        }
        let delay = self.api_delay();
        let patience = passage.deadline.saturating_sub(self.now);
        let lost = self.links.api_answer_lost(by) || matches!(answer, Answer::Lost) || delay > patience;
        let (answer, delay) = if lost { (Answer::Lost, patience) } else { (answer, delay) };
        self.tell(Who::Autoscaler(by), delay, Local::Answer { controller, revision, answer });
    }

    pub(crate) fn answered(&mut self, index: usize, controller: Controller, revision: usize, answer: Answer) {
        let key = (controller, revision);
        let bucket = self.plan.revisions[revision].bucket;
        match answer {
            Answer::Lost => self.write_given_up(index, bucket),
            Answer::Written(..) | Answer::Conflict => self.write_over(index, bucket),
        }
        if controller == Controller::Autoscaler {
            self.last_pod_answered(index, revision, matches!(answer, Answer::Lost));
        }
        match answer {
            Answer::Written(id, version, object) => {
                if let Object::Target(to) = object {
                    self.scaled(index, revision, to);
                }
                self.autoscalers[index].cache.put(id, version, object);
                self.next_step(index, key);
            }
            Answer::Conflict => self.fail(index, key, "conflict"),
            Answer::Lost => self.fail(index, key, "no answer"),
        }
    }

    /// The API server has agreed to other replicas.
    fn scaled(&mut self, index: usize, revision: usize, to: i32) {
        let now = self.instant();
        self.judge_repetition(index, revision, to);
        let autoscaler = &mut self.autoscalers[index];
        autoscaler.conflicts.entry(revision).or_default().written(to, now);
        let from = autoscaler.cache.target(revision).unwrap_or(0);
        if let Some(state) = autoscaler.loops.get_mut(&revision) {
            state.replicas = Some(to);
        }
        self.remember_scale(index, revision, from, to);
    }

    /// A write that may have taken the last pod is over; without an answer it may still be carried out for a while.
    fn last_pod_answered(&mut self, index: usize, revision: usize, lost: bool) {
        let Some(until) = self.autoscalers[index].leaving.get(&revision).copied() else { return };
        let key = (Controller::Serverless, revision);
        if lost {
            self.ask_after(index, key, until.saturating_sub(self.now));
        } else {
            self.autoscalers[index].leaving.remove(&revision);
            self.ask(index, key);
        }
    }

    fn fail(&mut self, index: usize, key: (Controller, usize), why: &str) {
        self.say(|| format!("autoscaler {index} gives up a pass over {key:?}: {why}"));
        let work = self.autoscalers[index].works.entry(key).or_default();
        work.running = None;
        work.failures += 1;
        let delay = BACKOFF.0.saturating_mul(1 << (work.failures - 1).min(20)).min(BACKOFF.1);
        if std::mem::take(&mut work.again) {
            self.ask(index, key);
        } else {
            self.ask_after(index, key, delay);
        }
    }

    // --- the probe ---

    fn start_round(&mut self, index: usize, revision: usize) {
        let until = self.now + ROUND;
        let rounds = &mut self.autoscalers[index].rounds;
        if !matches!(rounds.get(&revision), Some(Round::Running { .. })) {
            rounds.insert(revision, Round::Running { failed: false, until });
            self.tell(Who::Autoscaler(index), Duration::from_millis(2), Local::Probe(revision));
        }
    }

    /// A probe comes to some entry, as any request would.
    pub(crate) fn probe(&mut self, index: usize, revision: usize) {
        let Some(Round::Running { until, .. }) = self.autoscalers[index].rounds.get(&revision).copied() else { return };
        let entry = self.rng.random_range(0..self.entries.len());
        let places = &self.entries[entry].places[revision];
        let place = (!places.is_empty()).then(|| places[self.rng.random_range(0..places.len())]);
        let proven = matches!(place, Some(Place::Activator(activator)) if self.activators[activator].process.runs());
        self.say(|| format!("autoscaler {index} probes revision {revision} at entry {entry}: {place:?}"));
        let over = proven || self.now >= until;
        let now = self.now;
        let rounds = &mut self.autoscalers[index].rounds;
        if proven {
            rounds.insert(revision, Round::Proven(now));
        } else if over {
            rounds.remove(&revision);
        } else {
            rounds.insert(revision, Round::Running { failed: true, until });
        }
        if over {
            self.ask(index, (Controller::Autoscaler, revision));
        } else {
            self.tell(Who::Autoscaler(index), PROBE_PERIOD, Local::Probe(revision));
        }
    }
}
