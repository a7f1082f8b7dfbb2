//! Writes of a reconciliation by either controller, computed from the copies of its autoscaler.

use crate::autoscaler::Initial;
use crate::model::{Endpoint, Id, Object, Status};
use crate::probe::{PROBE_HOLDS, Round};
use crate::reconcile::{Controller, Step};
use crate::simulation::Simulation;
use crate::summary::Without;
use autoscaler_core::num_activators::num_activators;
use autoscaler_core::path_mode::{self, PathMode};
use autoscaler_core::scale_to_zero::{self, ProbeNeed, ProbeResult};
use autoscaler_core::{active, bounds};
use common::ownership;
use std::collections::VecDeque;
use std::time::Duration;

const ACTIVATION_TIMEOUT: Duration = Duration::from_secs(60);

impl Simulation {
    /// Returns the writes of a reconciliation of the ZeroScaler, or `None` if an object is not known yet.
    pub(crate) fn plan_scale(&mut self, index: usize, revision: usize) -> Option<VecDeque<Step>> {
        let now = self.timestamp();
        let cache = &self.autoscalers[index].cache;
        let (current, status, path) =
            (cache.target(revision)?, cache.status(revision)?.clone(), cache.path(revision)?.clone());
        let ready = cache.ready_pods(revision).len() as u32;
        let versions = [Id::Status(revision), Id::Path(revision)].map(|id| cache.version(id));
        let initial = if status.desired.is_some() { Initial::TakenOver } else { Initial::Adopted(current) };
        self.ensure_decider(index, revision, initial);
        let answer = self.blend(index, revision, current);
        let plan = &self.plan.revisions[revision];
        let autoscaler = &mut self.autoscalers[index];
        let state = autoscaler.deciders.get_mut(&revision)?;
        let proxy_for = path.proxy_since.map(|since| now.saturating_since(since)).unwrap_or_default();
        state.activators_in_path = path.mode == PathMode::Proxy || !proxy_for.is_zero();
        state.replicas = Some(current);
        let active = status.active(now);
        let held = (active.is_activating() && current > 0).then_some(current);
        let desired = answer.as_ref().map_or(state.status.desired, |answer| answer.desired);
        let probe = match autoscaler.rounds.get(&revision) {
            Some(Round::Running { failed: true, .. }) => ProbeResult::NotInPath,
            Some(Round::Proven(at)) if self.time.now < *at + PROBE_HOLDS => ProbeResult::InPath,
            _ => ProbeResult::NotProbed,
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
            warm_up_left: state.status.warm_up_left,
            unattested: state.status.unattested,
        });
        let mode = path_mode::path_mode(&path_mode::Input {
            wanted_scale: outcome.wanted_scale,
            excess_burst_capacity: state.status.excess_burst_capacity,
            present: Some(path.mode),
            keep_when_unknown: true,
            warming: state.status.warm_up_left.is_some(),
        });
        let spec = &plan.spec;
        let activators = num_activators(ready, spec.total_value, spec.target_burst_capacity, spec.activator_capacity);
        let conditions = active::decide(&active::Input {
            wanted_scale: outcome.wanted_scale,
            ready,
            min_ready: bounds::min_ready(plan.bounds, plan.found, status.initialized),
            service_known: true,
            active,
        });
        let mut next = Status { desired: outcome.wanted_scale.or(status.desired), ..status.clone() };
        next.initialized |= conditions.initialized;
        let known = next.active.map(|(known, _)| known);
        if let Some(condition) = conditions.active.filter(|condition| known != Some(*condition)) {
            next.active = Some((condition, now));
        }
        let mut steps = VecDeque::new();
        if let Some(to) = outcome.patch
            && !self.is_contested(index, revision, current, to)
        {
            self.judge_failing_metric(index, revision, current, to);
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
        self.time.trace(|| format!("autoscaler {index} plans revision {revision}: {outcome:?}, {mode:?}, {active:?}"));
        *self.summary.reasons.entry(format!("{:?}", outcome.reason)).or_default() += 1;
        if outcome.probe != ProbeNeed::None {
            self.start_round(index, revision);
        }
        if let Some(after) = outcome.requeue {
            self.enqueue_after(index, (Controller::Autoscaler, revision), after);
        }
        Some(steps)
    }

    /// Returns true if another writer keeps changing the replicas back, so that they must not be rewritten yet.
    fn is_contested(&mut self, index: usize, revision: usize, current: i32, to: i32) -> bool {
        let is_awaited = current == 0 && to > 0;
        let conflict = self.autoscalers[index].conflicts.get(&revision).copied().unwrap_or_default();
        match conflict.pause(to, is_awaited, self.time.instant()) {
            Some(left) if self.without != Some(Without::Contest) => {
                self.summary.contested += 1;
                self.enqueue_after(index, (Controller::Autoscaler, revision), left);
                true
            }
            _ => false,
        }
    }

    /// Returns the writes of a reconciliation of the ServerlessService, or `None` if nothing may be written yet.
    pub(crate) fn plan_endpoints(&mut self, index: usize, revision: usize) -> Option<VecDeque<Step>> {
        let now = self.timestamp();
        let cache = &self.autoscalers[index].cache;
        let path = cache.path(revision)?.clone();
        let (pods, activators) = (cache.ready_pods(revision), cache.ready_activators());
        let is_proxied = match path.mode {
            _ if activators.is_empty() => false,
            _ if pods.is_empty() => true,
            mode => mode == PathMode::Proxy,
        };
        // Do not route requests back to pods that are being removed.
        let removal = self.autoscalers[index].last_pod_removals.get(&revision);
        let is_removed = removal.is_some_and(|until| self.time.now < *until) || cache.target(revision) == Some(0);
        if !is_proxied && path.mode == PathMode::Proxy && !pods.is_empty() && is_removed {
            return None;
        }
        let endpoints: Vec<Endpoint> = if is_proxied {
            let names: Vec<String> = activators.iter().map(|activator| format!("10.0.1.{activator}")).collect();
            let number = usize::try_from(path.activators).unwrap_or(0);
            let chosen = ownership::subset(&names, number, self.plan.revisions[revision].key.name());
            let index = |name: &str| names.iter().position(|known| known == name);
            chosen.into_iter().filter_map(index).map(|at| Endpoint::Activator(activators[at])).collect()
        } else {
            pods.iter().map(|pod| Endpoint::Pod(*pod)).collect()
        };
        let mut steps = VecDeque::new();
        let id = Id::Public(revision);
        if cache.public(revision) != endpoints {
            steps.push_back(Step { id, base: Some(cache.version(id)), object: Object::Public(endpoints) });
        }
        if path.proxy_since.is_some() != is_proxied {
            let (id, base) = (Id::Path(revision), cache.version(Id::Path(revision)));
            let object = Object::Path(crate::model::Path { proxy_since: is_proxied.then_some(now), ..path });
            steps.push_back(Step { id, base: Some(base), object });
        }
        Some(steps)
    }
}
