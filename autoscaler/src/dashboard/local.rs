//! Rows of this process: complete for the workloads that it owns, and derived from the object alone for all others.
//!
//! A pass over ten thousand sleeping workloads is cheap: a hash for each, and a row for those that changed
//! ([`super::table`]). Passes and lists are computed in separate threads, at most [`COMPUTED_AT_ONCE`] at a time.

use super::records::{Record, Records, time};
use super::ring::{Rates, STEP, Scale};
use super::settings::{Price, Settings};
use super::table::{Changes, Table};
use super::wakes::Wake;
use super::why::{self, why};
use super::{Parts, replicas, ring};
use crate::reconcile::ObjectView;
use crate::scale::Pods;
use crate::scale::multiscaler::Explanation;
use autoscaler_core::history::EntryOutcome;
use common::RevisionKey;
use common_api::zeroscaler::conditions::{ConditionStatus, READY, find};
use common_controller::Leadership;
use common_controller::shares::Owner;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Number of workloads sampled between two yields to other tasks.
const SAMPLED_AT_ONCE: usize = 256;
/// Maximum number of concurrent computations over all workloads; further ones wait.
const COMPUTED_AT_ONCE: usize = 4;

/// Data source of this process.
pub(super) struct LocalReplica {
    pub(super) parts: Parts,
    pub(super) settings: Settings,
    pub(super) records: Arc<Records>,
    table: Mutex<Table>,
    permits: Semaphore,
}

impl LocalReplica {
    /// Creates the data source, and starts to record load and wakes.
    pub(super) fn new(settings: Settings, parts: Parts) -> Arc<Self> {
        let records = Arc::new(Records::new(parts.clock.clone()));
        let _ = parts.collector.observer.set(records.clone()); // The first one stays.
        let (table, permits) = (Mutex::default(), Semaphore::new(COMPUTED_AT_ONCE));
        Arc::new(Self { parts, settings, records, table, permits })
    }

    /// Adds a sample to every record each [`STEP`], until `shutdown`.
    pub(super) async fn record(self: Arc<Self>, shutdown: CancellationToken) {
        let mut ticks = interval(Duration::from_secs(STEP.into()));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
            let keys = self.parts.multiscaler.keys();
            for chunk in keys.chunks(SAMPLED_AT_ONCE) {
                chunk.iter().for_each(|key| self.sample(key));
                tokio::task::yield_now().await;
            }
            self.records.retain(&keys.into_iter().collect::<HashSet<_>>());
        }
    }

    fn sample(&self, key: &RevisionKey) {
        let Some(version) = self.parts.objects.version(key) else { return };
        let (summary, counts) = (self.parts.multiscaler.summary(key).unwrap_or_default(), self.parts.pods.counts(key));
        let scale = Scale {
            desired: summary.desired.unwrap_or(counts.ready),
            ready: counts.ready,
            actual: counts.ready.saturating_add(counts.not_ready),
            panicking: summary.panicking,
        };
        let baseline = || {
            let status = self.parts.objects.view(key)?.status;
            let found = status.adopted.and_then(|adopted| adopted.replicas).unwrap_or(1);
            Some(found.max(status.min.unwrap_or(0)))
        };
        self.records.sample(key, scale, version, baseline, self.records.now());
    }

    /// Runs a computation over all workloads.
    pub(super) async fn compute<T: Send + 'static>(
        self: &Arc<Self>,
        computation: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> T {
        let _permit = self.permits.acquire().await; // It is never closed.
        let own = self.clone();
        match tokio::task::spawn_blocking(move || computation(&own)).await {
            Ok(result) => result,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Returns the replica that owns a workload; none: no replica does at the moment.
    fn owner(&self, key: &RevisionKey) -> Option<String> {
        match self.parts.shares.owner(key) {
            Owner::Us => Some(self.parts.me.clone()),
            Owner::Other(instance) => Some(replicas::name(&instance)),
            Owner::Nobody => None,
        }
    }

    /// Returns the row of a workload for a list. `recent`: include the last minutes.
    fn row(&self, key: &RevisionKey, recent: bool) -> Option<Value> {
        let view = self.parts.objects.view(key)?;
        let explanation = self.explanation(key);
        Some(self.row_with(key, &view, explanation.as_ref(), recent, false))
    }

    /// Returns the state and history of a workload's decisions, if this process owns it.
    pub(super) fn explanation(&self, key: &RevisionKey) -> Option<Explanation> {
        if self.parts.shares.owns(key) { self.parts.multiscaler.explain(key) } else { None }
    }

    /// Returns the row with these data. Times are RFC 3339. `is_whole`: do not cut quoted texts.
    pub(super) fn row_with(
        &self,
        key: &RevisionKey,
        view: &ObjectView,
        explanation: Option<&Explanation>,
        recent: bool,
        is_whole: bool,
    ) -> Value {
        let ObjectView { object, status, since } = view;
        let (spec, now) = (&object.spec, self.records.now());
        let is_ours = self.parts.shares.owns(key);
        let counts = status.pods.unwrap_or_default();
        let summary = if is_ours { self.parts.multiscaler.summary(key) } else { None };
        let desired = summary.and_then(|summary| summary.desired).or(status.desired);
        let ready = find(&status.conditions, READY);
        let refused = ready.filter(|ready| ready.status == ConditionStatus::False.as_str());
        let present = explanation.and_then(|explanation| explanation.present.as_ref());
        let history: Vec<EntryOutcome> =
            explanation.iter().flat_map(|e| &e.history).map(|entry| entry.outcome.clone()).collect();
        let load = present.and_then(|present| {
            let load = self.parts.collector.load(key, present.subject.spec.metric, self.parts.clock.now()).ok()?;
            Some([load.stable, load.panic])
        });
        let began = since.as_ref().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let why = why(&why::Facts {
            state: status.state,
            ready: counts.ready,
            desired,
            min: status.min,
            max: status.max,
            is_deleted: object.metadata.deletion_timestamp.is_some(),
            is_paused: spec.paused,
            refused: refused.map(|ready| (ready.reason.as_str(), ready.message.as_str())),
            since: began.and_then(|at| u64::try_from(i64::from(now) - at.as_second()).ok()),
            spec: present.map(|present| &present.subject.spec),
            load,
            is_panicking: present.is_some_and(|present| present.panicking),
            is_whole,
            history: &history,
        });
        let mut row = json!({
            "namespace": key.namespace(),
            "name": key.name(),
            "target": format!("{}/{}", spec.target.kind, spec.target.name),
            "state": status.state,
            "since": since,
            "paused": spec.paused,
            "pods": {"ready": counts.ready, "actual": counts.actual, "desired": desired},
            "min": status.min,
            "max": status.max,
            "why": why,
            "ready": ready.map(|is| json!({"status": is.status, "reason": is.reason, "message": is.message})),
            "owner": self.owner(key).unwrap_or_default(),
            "nextChange": status.next_change,
        });
        let recorded = |record: &Record| {
            if recent {
                row["recent"] = json!(record.ring.recent());
            }
            row["lastWake"] = json!(record.wakes.last.back().map(Wake::to_json));
            row["saved"] = json!(self.saved(record, now));
            record.ring.rates(now)
        };
        let rates = is_ours.then(|| self.records.with(key, recorded)).flatten().unwrap_or_default();
        row["requestsPerSecond"] = json!(ring::rounded(rates.requests));
        row["concurrency"] = json!(ring::rounded(rates.concurrency));
        row["held"] = json!(rates.held);
        row.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, value| !value.is_null()));
        row
    }

    /// Returns the savings of a workload that sleeps; none: they are not counted yet. The client computes further
    /// savings from `pods`, the number of pods that are saved now, and the price of a pod.
    fn saved(&self, record: &Record, now: u32) -> Option<Value> {
        let pod_seconds = record.pod_seconds(now);
        let money = self.settings.price.as_ref().map(|Price { amount, currency }| {
            json!({"amount": amount * pod_seconds / 3600.0, "perHour": amount, "currency": currency})
        });
        let (pods, since) = (record.missing, time(record.since.into()));
        (record.since > 0).then(|| json!({"podSeconds": pod_seconds, "pods": pods, "since": since, "money": money}))
    }

    /// Returns the rows of these workloads, by their keys. `recent`: include the last minutes.
    pub(super) fn rows<'a>(
        &self,
        keys: impl Iterator<Item = &'a RevisionKey>,
        recent: bool,
    ) -> BTreeMap<String, Value> {
        keys.filter_map(|key| Some((key.to_string(), self.row(key, recent)?))).collect()
    }

    /// Returns the position of the last pass over all rows, and the changes after a position. Makes another pass unless
    /// one has just been made. Changed rows are those of this process.
    pub(super) fn changes(&self, after: Option<i64>) -> (i64, Changes) {
        let mut table = self.table.lock();
        let now = self.records.now_ms();
        if !table.is_fresh(now) {
            let objects = self.parts.objects.keys();
            table.pass(objects.into_iter().map(|key| (key.clone(), self.hash(&key))), now);
        }
        let mut changes = table.since(after);
        changes.changed.retain(|key| self.parts.shares.owns(key));
        (table.position, changes)
    }

    /// Returns a hash that differs if a row has something new to show, for the workloads that this process owns.
    /// Changes by time alone do not count: the client derives the duration of sleep, and its savings, from the rest.
    fn hash(&self, key: &RevisionKey) -> u64 {
        let (mut hasher, now) = (DefaultHasher::new(), self.records.now());
        if !self.parts.shares.owns(key) {
            return 0;
        }
        let (summary, counts) = (self.parts.multiscaler.summary(key), self.parts.pods.counts(key));
        let recorded =
            |record: &Record| (record.ring.rates(now), record.wakes.last.back().map(|wake| wake.at_ms), record.missing);
        let (rates, woke, missing) = self.records.with(key, recorded).unwrap_or_default();
        (self.parts.objects.version(key), summary, counts.ready, counts.not_ready, woke, missing).hash(&mut hasher);
        let is_wanted = summary.and_then(|summary| summary.desired).is_some_and(|desired| desired > 0);
        // Without pods and load the row follows from these inputs.
        if (is_wanted || counts.ready + counts.not_ready > 0 || rates != Rates::default())
            && let Some(mut row) = self.row(key, false)
        {
            row["saved"] = Value::Null;
            row.hash(&mut hasher);
        }
        hasher.finish()
    }
}
