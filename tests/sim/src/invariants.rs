//! Invariants at every event, judged by the true state of the model and never by the view of a process.

use crate::autoscaler::Autoscaler;
use crate::cluster::ENTRIES_APART;
use crate::model::{Endpoint, Id, Object};
use crate::plan::Revision;
use crate::simulation::{Change, SimulatedPod, Simulation};
use autoscaler_core::decider::{Recommendation, Rule};
use autoscaler_core::path_mode::PathMode;
use std::time::Duration;

/// Age from which an attestation shows that an activator cannot report: the limit of the autoscaler plus network delay.
const STALE_AFTER: Duration = Duration::from_millis(3100);
/// Time for which an activator must have been ready before it counts. Every process that still holds a lease knows of
/// it by then.
const SETTLED: Duration = Duration::from_secs(20);
/// Maximum delay of a measurement and its result.
const NOTICED: Duration = Duration::from_millis(500);
/// Promises of the rules for contested replicas: immediate rewrites, then pauses from the first to the longest.
const FREE: u32 = 3;
const PAUSE: Duration = Duration::from_secs(5);
const REASSERT: Duration = Duration::from_secs(1);
const PEACE: Duration = Duration::from_secs(600);
/// Time beyond the stable window for which traffic without a gap must have kept the last pod.
const SLACK: Duration = Duration::from_secs(8);
/// Maximum time from a waiting request to a patch, or to a response of a pod, without faults.
const PATIENCE: Duration = Duration::from_secs(20);

impl Simulation {
    /// Checks when a write reaches the API server: at most one writer, bounds, and no scale to zero during traffic.
    pub(crate) fn judge_write(&mut self, by: usize, revision: usize, object: &Object) {
        let bucket = self.plan.revisions[revision].bucket;
        let now = self.time.instant();
        let mut others = (0..self.autoscalers.len()).filter(|other| *other != by);
        let holds = |other: &usize| {
            let other = &self.autoscalers[*other];
            !other.process.down && other.election.held_until(bucket).is_some_and(|until| now < until)
        };
        if let Some(other) = others.find(holds) {
            self.time.break_rule(format!(
                "at most one writer: autoscaler {by} writes {object:?} for revision {revision} while {other} holds bucket {bucket}"
            ));
        }
        let Object::Target(to) = object else { return };
        let Revision { bounds, spec, .. } = &self.plan.revisions[revision];
        let (bounds, stable_window) = (*bounds, spec.stable_window);
        if *to < bounds.min || bounds.max.is_some_and(|max| *to > max) || *to < 0 {
            self.time.break_rule(format!(
                "desired within bounds: revision {revision} is scaled to {to}, outside {bounds:?}"
            ));
        }
        let since = self.traffic_since[revision];
        if *to == 0
            && let Some(since) = since.filter(|since| self.time.now > *since + stable_window + SLACK)
        {
            self.time.break_rule(format!(
                "missing data is never zero load: revision {revision} is put to sleep with requests going on since {since:?}"
            ));
        }
    }

    /// Checks that no decision lowers the scale while an activator with traffic cannot report.
    pub(crate) fn judge_decision(&mut self, by: usize, revision: usize, before: Option<i32>, now: &Recommendation) {
        let spec = &self.plan.revisions[revision].spec;
        let most = (spec.max_scale_up_rate * f64::from(now.inputs.ready.max(1))).ceil() as i32;
        let held = matches!(now.rule, Rule::PanicFloor | Rule::ScaleDownDelay);
        if now.desired < 0 || (!held && now.desired > most.max(spec.activation_scale)) {
            self.time.break_rule(format!("desired within bounds: revision {revision} is to have {now:?}"));
        }
        let proxied = self.store.path(revision).is_some_and(|path| path.mode == PathMode::Proxy);
        if before.is_none_or(|before| now.desired >= before) || !proxied || !self.may_write(by, revision) {
            return;
        }
        for index in self.store.ready_activators().to_vec() {
            let settled = self.ready_since[index].is_some_and(|since| self.time.now > since + SETTLED);
            let attested_at = self.autoscalers[by].attested_at[index];
            let busy = self.activators[index]
                .requests
                .values()
                .any(|request| request.revision == revision && self.time.now > request.since + STALE_AFTER);
            if settled && busy && attested_at.is_none_or(|at| self.time.now > at + STALE_AFTER) {
                self.time.break_rule(format!(
                    "missing data is never zero load: autoscaler {by} wants {} instead of {before:?} for revision \
                     {revision}, last heard activator {index} at {attested_at:?}, and it carries requests",
                    now.desired
                ));
            }
        }
    }

    /// Checks a decision for fewer pods: no metric may have been failing for longer than a measurement takes.
    pub(crate) fn judge_doubt(&mut self, by: usize, revision: usize, current: i32, to: i32) {
        let Revision { metric: Some(metric), bounds, .. } = &self.plan.revisions[revision] else { return };
        let by_command = bounds.max.is_some_and(|max| current > max && to == max);
        let failing = self.links.metrics_cut(by).then_some(self.metrics_cut_at[by]).flatten();
        // A paused process has made no measurements meanwhile.
        let resumed = self.autoscalers[by].process.resumed;
        let noticed = failing.is_some_and(|since| self.time.now > since.max(resumed) + metric.period + NOTICED);
        if to < current && noticed && !by_command {
            self.time.break_rule(format!(
                "doubt takes nothing away: autoscaler {by} wants {to} instead of {current} for revision {revision}, \
                 whose metric has failed since {failing:?}"
            ));
        }
    }

    /// Checks repeated writes of the same replicas by the same process: after [`FREE`] repetitions each pause is twice
    /// the one before. Pods for which requests may wait are requested every second ([`REASSERT`]).
    pub(crate) fn judge_repetition(&mut self, by: usize, revision: usize, to: i32) {
        let life = self.autoscalers[by].process.life;
        let before = self.last_writes.insert((by, life, revision), (to, 0, self.time.now));
        let Some((_, times, at)) = before.filter(|(last, _, at)| *last == to && self.time.now < *at + PEACE) else {
            return;
        };
        self.last_writes.insert((by, life, revision), (to, times + 1, self.time.now));
        let pause =
            (times >= FREE).then(|| if to > 0 { REASSERT } else { PAUSE.saturating_mul(1 << (times - FREE).min(6)) });
        if let Some(pause) = pause.filter(|pause| self.time.now < at + *pause) {
            self.time.break_rule(format!(
                "a contested scale waits: autoscaler {by} asks for {to} pods of revision {revision} for the {times}. time \
                 again, {:?} after the last and not {pause:?}",
                self.time.now - at
            ));
        }
    }

    /// Checks that a request at any entry can reach an activator or a pod. (A dead activator is a fault; a pod is
    /// removed only by scaling.)
    pub(crate) fn judge_entries(&mut self) {
        let gone = |endpoint: &Endpoint| matches!(endpoint, Endpoint::Pod(pod) if !self.pods.contains_key(pod));
        let lost = self.entries.iter().enumerate().find_map(|(entry, lists)| {
            let dead = |endpoints: &Vec<Endpoint>| !endpoints.is_empty() && endpoints.iter().all(gone);
            let mut revisions = lists.endpoints.iter().enumerate();
            Some((entry, revisions.position(|(revision, endpoints)| dead(endpoints) && !self.is_outpaced(revision))?))
        });
        if let Some((entry, revision)) = lost {
            self.time.break_rule(format!(
                "the last pod leaves after the activator is in the path: entry {entry} leads revision {revision} to pods that are gone"
            ));
        }
    }

    /// Returns true if a metric removes pods faster than slow entries learn of the remaining ones.
    fn is_outpaced(&self, revision: usize) -> bool {
        let stays = |pod: &SimulatedPod| pod.revision == revision && pod.ready && !pod.leaving;
        let metric = self.plan.revisions[revision].metric.is_some();
        let learns = |change: &Change| self.time.now < change.from + Duration::from_millis(ENTRIES_APART);
        metric && self.changes[revision].last().is_some_and(learns) && self.pods.values().any(stays)
    }

    /// Checks that every poke leads to a patch, and every held request to a pod, without faults. Called every `step`.
    pub(crate) fn judge_waits(&mut self, step: Duration) {
        for revision in 0..self.plan.revisions.len() {
            let mut held = (0..self.activators.len()).filter(|index| {
                let requests = &self.activators[*index].requests;
                requests.values().any(|request| request.revision == revision && request.is_held())
            });
            let asleep = self.store.target(revision) == Some(0);
            let starved = asleep || !self.store.ready_pods(revision).is_empty();
            let waits = held.any(|index| starved && self.nothing_is_wrong(index, revision));
            let waits = waits && !self.is_rivalled(revision);
            let waited = &mut self.waited[revision];
            *waited = match waited {
                (was_asleep, time) if waits && *was_asleep == asleep => (asleep, *time + step),
                _ => (asleep, Duration::ZERO),
            };
            // With a concurrency limit, a request may also wait because the pods are busy for long.
            let limit = self.plan.revisions[revision].concurrency > 0;
            if waited.1 > PATIENCE && (asleep || !limit) {
                let what = if asleep { "a patch" } else { "a pod" };
                self.time.break_rule(format!(
                    "every poke leads to a patch: a request for revision {revision} has waited {PATIENCE:?} for {what}"
                ));
            }
        }
    }

    /// Returns true if an activator, the revision's owner and everything between them are free of faults.
    fn nothing_is_wrong(&self, index: usize, revision: usize) -> bool {
        let activator = &self.activators[index];
        let bucket = self.plan.revisions[revision].bucket;
        let owner = (0..self.autoscalers.len()).find(|i| self.owns_bucket(*i, bucket));
        let (Some(owner), Some(socket)) = (owner, activator.socket) else { return false };
        let well = |i: usize| self.autoscalers[i].process.runs() && self.links.api_is_well(i);
        activator.process.runs()
            && self.links.stats_are_well(index)
            && well(owner)
            && well(socket)
            && !self.links.peers_cut(owner, socket)
    }

    /// Returns true if another writer changes the replicas, or did until recently: a stated reason.
    fn is_rivalled(&self, revision: usize) -> bool {
        let now = self.time.instant();
        let waits = |autoscaler: &Autoscaler| {
            let conflict = autoscaler.conflicts.get(&revision).copied().unwrap_or_default();
            (0..=i32::from(u8::MAX)).any(|to| conflict.pause(to, false, now).is_some())
        };
        self.links.rival(revision).is_some() || self.autoscalers.iter().any(waits)
    }

    /// Updates the time since which each revision has had requests without a gap. Requests that went directly to pods
    /// without a reporter do not count, since nothing reports them.
    pub(crate) fn follow_traffic(&mut self) {
        for revision in 0..self.plan.revisions.len() {
            let scraped = self.plan.revisions[revision].scraped;
            let busy = (scraped && self.direct.values().any(|of| *of == revision))
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
