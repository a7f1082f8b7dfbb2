//! Invariants, checked at every event against the state of the model and not against the view of a process.

use crate::autoscaler::Autoscaler;
use crate::cluster::ENTRIES_APART;
use crate::model::{Endpoint, Id, Object};
use crate::plan::{Fault, Revision};
use crate::simulation::{Change, SimulatedPod, Simulation};
use autoscaler_core::decider::{Recommendation, Rule};
use autoscaler_core::path_mode::PathMode;
use std::time::Duration;

/// Age from which an attestation counts as missing: the autoscaler's limit plus network delay.
const STALE_AFTER: Duration = Duration::from_millis(3100);
/// Time for which an activator must have been ready before it counts. By then every process that holds a lease knows of
/// the activator.
const KNOWN_AFTER: Duration = Duration::from_secs(20);
/// Maximum time from a measurement to its result.
const MEASUREMENT_DELAY: Duration = Duration::from_millis(500);
/// Number of times that contested replicas are rewritten at once. The pauses after that double from [`FIRST_PAUSE`].
const IMMEDIATE_REWRITES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// Pause between rewrites of more than zero pods, for which clients may wait.
const AWAITED_PAUSE: Duration = Duration::from_secs(1);
/// Time without a rewrite after which a conflict has ended.
const CONFLICT_MAX: Duration = Duration::from_secs(600);
/// Traffic without a gap for the stable window and this time must keep the last pod.
const SLACK: Duration = Duration::from_secs(8);
/// Maximum time for which a request waits for a patch or for a pod without faults.
const WAIT_MAX: Duration = Duration::from_secs(20);

impl Simulation {
    /// Checks a write at the API server: at most one writer, within bounds, no scale to zero during traffic.
    pub(crate) fn judge_write(&mut self, by: usize, revision: usize, object: &Object) {
        let bucket = self.plan.revisions[revision].bucket;
        let now = self.time.instant();
        let mut others = (0..self.autoscalers.len()).filter(|other| *other != by);
        let holds = |other: &usize| {
            let other = &self.autoscalers[*other];
            !other.process.down && other.election.held_until(bucket).is_some_and(|until| now < until)
        };
        if let Some(other) = others.find(holds) {
            self.time.violate(format!(
                "at most one writer: autoscaler {by} writes {object:?} for revision {revision} while {other} holds \
                 bucket {bucket}"
            ));
        }
        let Object::Target(to) = object else { return };
        let Revision { bounds, spec, .. } = &self.plan.revisions[revision];
        let (bounds, stable_window) = (*bounds, spec.stable_window);
        if *to < bounds.min || bounds.max.is_some_and(|max| *to > max) || *to < 0 {
            self.time
                .violate(format!("desired within bounds: revision {revision} is scaled to {to}, outside {bounds:?}"));
        }
        let since = self.traffic_since[revision];
        if *to == 0
            && let Some(since) = since.filter(|since| self.time.now > *since + stable_window + SLACK)
        {
            self.time.violate(format!(
                "missing data is never zero load: revision {revision} is scaled to zero with requests since {since:?}"
            ));
        }
    }

    /// Checks that no decision lowers the scale while an activator with traffic cannot report.
    pub(crate) fn judge_decision(&mut self, by: usize, revision: usize, before: Option<i32>, now: &Recommendation) {
        let spec = &self.plan.revisions[revision].spec;
        let most = (spec.max_scale_up_rate * f64::from(now.inputs.ready.max(1))).ceil() as i32;
        let held = matches!(now.rule, Rule::PanicFloor | Rule::ScaleDownDelay);
        if now.desired < 0 || (!held && now.desired > most.max(spec.activation_scale)) {
            self.time.violate(format!("desired within bounds: the decision on revision {revision} is {now:?}"));
        }
        let proxied = self.store.path(revision).is_some_and(|path| path.mode == PathMode::Proxy);
        if before.is_none_or(|before| now.desired >= before) || !proxied || !self.may_write(by, revision) {
            return;
        }
        for index in self.store.ready_activators().to_vec() {
            let known = self.ready_since[index].is_some_and(|since| self.time.now > since + KNOWN_AFTER);
            let attested_at = self.autoscalers[by].attested_at[index];
            let busy = self.activators[index]
                .requests
                .values()
                .any(|request| request.revision == revision && self.time.now > request.since + STALE_AFTER);
            if known && busy && attested_at.is_none_or(|at| self.time.now > at + STALE_AFTER) {
                self.time.violate(format!(
                    "missing data is never zero load: autoscaler {by} wants {} instead of {before:?} for revision \
                     {revision}; activator {index} has requests and last attested at {attested_at:?}",
                    now.desired
                ));
            }
        }
    }

    /// Checks a decision for fewer pods: no metric may have been failing for longer than a measurement takes.
    pub(crate) fn judge_failing_metric(&mut self, by: usize, revision: usize, current: i32, to: i32) {
        let Revision { metric: Some(metric), bounds, .. } = &self.plan.revisions[revision] else { return };
        let by_maximum = bounds.max.is_some_and(|max| current > max && to == max);
        let failing = self.links.is_active(Fault::CutMetrics(by)).then_some(self.metrics_cut_at[by]).flatten();
        // A paused process makes no measurements.
        let resumed_at = self.autoscalers[by].process.resumed_at;
        let is_known = |since| self.time.now > resumed_at.max(since) + metric.period + MEASUREMENT_DELAY;
        if to < current && failing.is_some_and(is_known) && !by_maximum {
            self.time.violate(format!(
                "a failing metric never scales down: autoscaler {by} wants {to} instead of {current} for revision \
                 {revision}, whose metric has failed since {failing:?}"
            ));
        }
    }

    /// Checks the pauses between writes of the same replicas by the same process: after [`IMMEDIATE_REWRITES`]
    /// repetitions they double. Pods, for which clients may wait, are requested every [`AWAITED_PAUSE`].
    pub(crate) fn judge_repetition(&mut self, by: usize, revision: usize, to: i32) {
        let life = self.autoscalers[by].process.life;
        let before = self.last_writes.insert((by, life, revision), (to, 0, self.time.now));
        let is_repeated = |(last, _, at): &(i32, u32, Duration)| *last == to && self.time.now < *at + CONFLICT_MAX;
        let Some((_, times, at)) = before.filter(is_repeated) else { return };
        self.last_writes.insert((by, life, revision), (to, times + 1, self.time.now));
        let Some(paused) = times.checked_sub(IMMEDIATE_REWRITES) else { return };
        let pause = if to > 0 { AWAITED_PAUSE } else { FIRST_PAUSE.saturating_mul(1 << paused.min(6)) };
        if self.time.now < at + pause {
            self.time.violate(format!(
                "a contested scale waits: autoscaler {by} asks for {to} pods of revision {revision} again, repetition \
                 {times} after {:?} and not {pause:?}",
                self.time.now - at
            ));
        }
    }

    /// Checks that a request at any entry can reach an activator or a pod. (Activators die of faults. Pods are removed
    /// only by scaling.)
    pub(crate) fn judge_entries(&mut self) {
        let gone = |endpoint: &Endpoint| matches!(endpoint, Endpoint::Pod(pod) if !self.pods.contains_key(pod));
        let lost = self.entries.iter().enumerate().find_map(|(entry, lists)| {
            let dead = |endpoints: &Vec<Endpoint>| !endpoints.is_empty() && endpoints.iter().all(gone);
            let mut revisions = lists.endpoints.iter().enumerate();
            Some((entry, revisions.position(|(revision, endpoints)| dead(endpoints) && !self.is_outpaced(revision))?))
        });
        if let Some((entry, revision)) = lost {
            self.time.violate(format!(
                "the last pod leaves after the activator is in the path: entry {entry} routes revision {revision} \
                 only to pods that are gone"
            ));
        }
    }

    /// Returns true if a metric removes pods faster than slow entries learn of the remaining ones.
    fn is_outpaced(&self, revision: usize) -> bool {
        let stays = |pod: &SimulatedPod| pod.revision == revision && pod.ready && !pod.terminating;
        let metric = self.plan.revisions[revision].metric.is_some();
        let learns = |change: &Change| self.time.now < change.from + Duration::from_millis(ENTRIES_APART);
        metric && self.changes[revision].last().is_some_and(learns) && self.pods.values().any(stays)
    }

    /// Checks that no request waits for a patch or a pod for longer than [`WAIT_MAX`] without faults. Called every
    /// `step`.
    pub(crate) fn judge_waits(&mut self, step: Duration) {
        for revision in 0..self.plan.revisions.len() {
            let mut held = (0..self.activators.len()).filter(|index| {
                let requests = &self.activators[*index].requests;
                requests.values().any(|request| request.revision == revision && request.is_held())
            });
            let asleep = self.store.target(revision) == Some(0);
            let is_due = asleep || !self.store.ready_pods(revision).is_empty();
            let waits = held.any(|index| is_due && self.path_is_healthy(index, revision));
            let waits = waits && !self.is_contended(revision);
            let waited = &mut self.waited[revision];
            *waited = match waited {
                (was_asleep, time) if waits && *was_asleep == asleep => (asleep, *time + step),
                _ => (asleep, Duration::ZERO),
            };
            // With a concurrency limit, a request may also wait because all pods are busy.
            let limit = self.plan.revisions[revision].concurrency > 0;
            if waited.1 > WAIT_MAX && (asleep || !limit) {
                let awaited = if asleep { "a patch" } else { "a pod" };
                self.time.violate(format!(
                    "every poke leads to a patch: a request for revision {revision} has waited {WAIT_MAX:?} for \
                     {awaited}"
                ));
            }
        }
    }

    /// Returns true if an activator, the revision's owner and everything between them are free of faults.
    fn path_is_healthy(&self, index: usize, revision: usize) -> bool {
        let activator = &self.activators[index];
        let bucket = self.plan.revisions[revision].bucket;
        let owner = (0..self.autoscalers.len()).find(|i| self.owns_bucket(*i, bucket));
        let (Some(owner), Some(socket)) = (owner, activator.socket) else { return false };
        let is_healthy = |i: usize| self.autoscalers[i].process.runs() && self.links.api_is_healthy(i);
        activator.process.runs()
            && self.links.stats_are_healthy(index)
            && is_healthy(owner)
            && is_healthy(socket)
            && !self.links.peers_cut(owner, socket)
    }

    /// Returns true if another writer changes the replicas, or did until recently.
    fn is_contended(&self, revision: usize) -> bool {
        let now = self.time.instant();
        let waits = |autoscaler: &Autoscaler| {
            let conflict = autoscaler.conflicts.get(&revision).copied().unwrap_or_default();
            (0..=i32::from(u8::MAX)).any(|to| conflict.pause(to, false, now).is_some())
        };
        self.links.rival(revision).is_some() || self.autoscalers.iter().any(waits)
    }

    /// Updates [`Simulation::traffic_since`]. Requests that went directly to pods that do not report do not count.
    pub(crate) fn track_traffic(&mut self) {
        for revision in 0..self.plan.revisions.len() {
            let scraped = self.plan.revisions[revision].scraped;
            let busy = (scraped && self.direct.values().any(|other| *other == revision))
                || self.activators.iter().any(|activator| activator.load(revision).0 > 0);
            let since = &mut self.traffic_since[revision];
            *since = if busy { since.or(Some(self.time.now)) } else { None };
        }
    }

    /// Describes an object for the trace.
    pub(crate) fn describe(&self, id: Id) -> String {
        format!("{id:?} = {:?}", self.store.get(id))
    }
}
