//! Rows of this process: complete for the workloads that it owns, from the object alone for all others.
//!
//! A pass over ten thousand sleeping workloads is cheap: a hash for each, and a summary for those that changed
//! ([`super::table`]). Other tasks get a turn after every few dozen.

use super::Parts;
use super::records::{Record, Records, time};
use super::ring::{Rates, STEP, Scale};
use super::settings::{Price, Settings};
use super::summary::{Recent, Saved, Summary};
use super::table::Table;
use super::wakes::Wake;
use super::why::{self, why};
use crate::reconcile::display::ObjectView;
use crate::scale::Pods;
use crate::scale::multiscaler::Explanation;
use autoscaler_core::history::EntryOutcome;
use common::RevisionKey;
use common_api::zeroscaler::conditions::{Condition, ConditionStatus, READY, find};
use common_controller::Leadership;
use common_controller::shares::Owner;
use serde_json::json;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Number of workloads processed between two yields to other tasks.
const AT_ONCE: usize = 64;

/// Data source of this process. See the [module](self).
pub(super) struct LocalReplica {
    pub(super) parts: Parts,
    pub(super) settings: Settings,
    pub(super) records: Arc<Records>,
    /// Table of changes. One pass runs at a time.
    pub(super) table: Mutex<Table>,
}

impl LocalReplica {
    /// Adds a sample to every record each [`STEP`], until `shutdown`.
    pub(super) async fn record(self: Arc<Self>, shutdown: CancellationToken) {
        let mut ticks = interval(Duration::from_secs(STEP.into()));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let keys = self.parts.multiscaler.keys();
            for some in keys.chunks(AT_ONCE * 4) {
                some.iter().for_each(|key| self.sample(key));
                tokio::task::yield_now().await;
            }
            self.records.retain(&keys.into_iter().collect::<HashSet<_>>());
        }
    }

    fn sample(&self, key: &RevisionKey) {
        let Some(version) = self.parts.objects.version(key) else { return };
        let (glance, counts) = (self.parts.multiscaler.glance(key).unwrap_or_default(), self.parts.pods.counts(key));
        let scale = Scale {
            desired: glance.desired.unwrap_or(counts.ready),
            ready: counts.ready,
            actual: counts.ready.saturating_add(counts.not_ready),
            panicking: glance.panicking,
        };
        let baseline = || {
            let status = self.parts.objects.look(key)?.status;
            let found = status.adopted.and_then(|adopted| adopted.replicas).unwrap_or(1);
            Some(found.max(status.min.unwrap_or(0)))
        };
        self.records.sample(key, scale, version, baseline, self.records.now());
    }

    /// Returns the replica that owns a workload; none: no replica does at the moment.
    pub(super) fn owner(&self, key: &RevisionKey) -> Option<String> {
        match self.parts.shares.owner(key) {
            Owner::Us => Some(self.parts.me.clone()),
            Owner::Other(instance) => Some(super::replicas::name(&instance)),
            Owner::Nobody => None,
        }
    }

    /// Returns the summary of a workload for a list. `recent`: include the last minutes.
    pub(super) fn summary(&self, key: &RevisionKey, recent: bool) -> Option<Summary> {
        let looked = self.parts.objects.look(key)?;
        let explanation = if self.parts.shares.owns(key) { self.parts.multiscaler.explain(key) } else { None };
        Some(self.summary_of(key, &looked, explanation.as_ref(), recent, false))
    }

    /// Returns the summary of these data; `is_whole`: with reasons of any length.
    pub(super) fn summary_of(
        &self,
        key: &RevisionKey,
        looked: &ObjectView,
        explanation: Option<&Explanation>,
        recent: bool,
        is_whole: bool,
    ) -> Summary {
        let ObjectView { object, status, since } = looked;
        let now = self.records.now();
        let is_ours = self.parts.shares.owns(key);
        let counts = status.pods.unwrap_or_default();
        let glance = if is_ours { self.parts.multiscaler.glance(key) } else { None };
        let desired = glance.and_then(|glance| glance.desired).or(status.desired);
        let target = &object.spec.target;
        let ready = find(&status.conditions, READY);
        let mut summary = Summary {
            namespace: key.namespace().to_owned(),
            name: key.name().to_owned(),
            target: format!("{}/{}", target.kind, target.name),
            state: status.state,
            since: since.clone(),
            paused: object.spec.paused,
            pods: json!({"ready": counts.ready, "actual": counts.actual, "desired": desired}),
            min: status.min,
            max: status.max,
            requests_per_second: 0.0,
            concurrency: 0.0,
            held: 0,
            why: String::new(),
            ready: ready.map(|Condition { status, reason, message, .. }| {
                json!({"status": status, "reason": reason, "message": message})
            }),
            last_wake: None,
            owner: self.owner(key).unwrap_or_default(),
            saved: None,
            next_change: status.next_change.clone(),
            recent: None,
        };
        let present = explanation.and_then(|explanation| explanation.present.as_ref());
        let history: Vec<EntryOutcome> =
            explanation.iter().flat_map(|e| &e.history).map(|entry| entry.outcome.clone()).collect();
        let load = present.and_then(|present| {
            let load = self.parts.collector.load(key, present.subject.spec.metric, self.parts.clock.now()).ok()?;
            Some([load.stable, load.panic])
        });
        let since = since.as_ref().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let refused = ready.filter(|ready| ready.status == ConditionStatus::False.as_str());
        summary.why = why(&why::Facts {
            state: status.state,
            ready: counts.ready,
            desired,
            min: status.min,
            max: status.max,
            is_leaving: object.metadata.deletion_timestamp.is_some(),
            is_paused: summary.paused,
            refused: refused.map(|ready| (ready.reason.as_str(), ready.message.as_str())),
            since: since.and_then(|at| u64::try_from(i64::from(now) - at.as_second()).ok()),
            spec: present.map(|present| &present.subject.spec),
            load,
            is_panicking: present.is_some_and(|present| present.panicking),
            is_whole,
            history: &history,
        });
        if is_ours {
            self.add_record(key, &mut summary, recent, now);
        }
        summary
    }

    fn add_record(&self, key: &RevisionKey, summary: &mut Summary, recent: bool, now: u32) {
        self.records.with(key, |record| {
            summary.set_rates(record.ring.rates(now));
            if recent {
                summary.recent = Recent::from_samples(record.ring.samples());
            }
            summary.last_wake = last_wake(record).map(Wake::to_json);
            if record.since > 0 {
                let pod_seconds = record.pod_seconds(now);
                let money = self.settings.price.as_ref().map(|Price { amount, currency }| {
                    json!({"amount": amount * pod_seconds / 3600.0, "perHour": amount, "currency": currency})
                });
                let since = time(record.since.into());
                summary.saved = Some(Saved { pod_seconds, pods: record.missing, since, money });
            }
        });
    }

    /// Returns the rows of these workloads in their sent form. `recent`: include the last minutes.
    pub(super) async fn rows<'a>(
        &self,
        keys: impl Iterator<Item = &'a RevisionKey>,
        recent: bool,
    ) -> Vec<(RevisionKey, String)> {
        let mut rows = Vec::new();
        for (n, key) in keys.enumerate() {
            let row = self.summary(key, recent).and_then(|summary| serde_json::to_string(&summary).ok());
            rows.extend(row.map(|row| (key.clone(), row)));
            if n % AT_ONCE == AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
        }
        rows
    }

    /// Returns the table of changes, after a new pass over all rows unless one has just been made. If a client gives up
    /// meanwhile, other clients lose nothing: the next pass continues with the same table.
    pub(super) async fn pass(&self) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock().await;
        let now = self.records.now_ms();
        if table.is_fresh(now) {
            return table;
        }
        let objects: HashSet<RevisionKey> = self.parts.objects.keys().into_iter().collect();
        let own: Vec<_> = objects.iter().filter(|key| self.parts.shares.owns(key)).cloned().collect();
        table.begin(objects, |key| self.parts.shares.owns(key), now);
        for some in own.chunks(AT_ONCE) {
            for key in some {
                let (inputs, rests) = self.inputs(key);
                if table.needs_summary(key, inputs, rests)
                    && let Some(summary) = self.summary(key, false)
                {
                    table.summarized(key, summary.fingerprint());
                }
            }
            tokio::task::yield_now().await;
        }
        table
    }

    /// Returns a hash of the inputs of a summary, apart from time and averages, and whether there is neither pod nor
    /// load.
    fn inputs(&self, key: &RevisionKey) -> (u64, bool) {
        let (mut hasher, now) = (DefaultHasher::new(), self.records.now());
        let (glance, counts) = (self.parts.multiscaler.glance(key), self.parts.pods.counts(key));
        let recorded =
            |record: &Record| (record.ring.rates(now), last_wake(record).map(|wake| wake.at_ms), record.missing);
        let (rates, woke, missing) = self.records.with(key, recorded).unwrap_or_default();
        (self.parts.objects.version(key), glance, counts.ready, counts.not_ready, woke, missing).hash(&mut hasher);
        (rates.requests.to_bits(), rates.concurrency.to_bits(), rates.held).hash(&mut hasher);
        let is_wanted = glance.and_then(|glance| glance.desired).is_some_and(|desired| desired > 0);
        let rests = !is_wanted && counts.ready + counts.not_ready == 0 && rates == Rates::default();
        (hasher.finish(), rests)
    }
}

fn last_wake(record: &Record) -> Option<&Wake> {
    record.wakes.iter().next_back()
}
