//! Rows of this process: complete for the workloads that it owns, from the object alone for all others.
//!
//! A pass over ten thousand sleeping workloads is cheap: a hash for each, and a summary for those that changed
//! ([`super::table`]). Other tasks get a turn after every few dozen.

use super::records::{Record, Records, time};
use super::ring::{Rates, STEP, Scale};
use super::settings::Price;
use super::summary::{Money, Pods as PodsView, Ready, Recent, SavedView, Summary};
use super::table::{Position, Table, Younger};
use super::wakes::Wake;
use super::why::{self, why};
use crate::collect::Collector;
use crate::pods::PodIndex;
use crate::reconcile::shown::{Looked, Objects};
use crate::scale::Pods;
use crate::scale::multiscaler::{Explanation, Multiscaler};
use autoscaler_core::history::Outcome;
use common::RevisionKey;
use common_api::zeroscaler::conditions::{ConditionStatus, READY, find};
use common_controller::Leadership;
use common_controller::shares::{Owner, Shares};
use common_runtime::clock::Clock;
use kube::Client;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Number of workloads processed between two yields to other tasks.
const AT_ONCE: usize = 64;
/// Minimum time between two passes over everything, for all clients together.
const LOOK_EVERY: Duration = Duration::from_millis(400);
/// Idle time after which the table is dropped.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Data source of this process. See the [module](self).
pub(super) struct Own {
    pub(super) objects: Arc<dyn Objects>,
    pub(super) client: Client,
    pub(super) multiscaler: Arc<Multiscaler>,
    pub(super) collector: Arc<Collector>,
    pub(super) pods: Arc<PodIndex>,
    pub(super) shares: Shares,
    pub(super) records: Arc<Records>,
    pub(super) clock: Clock,
    pub(super) price: Option<Price>,
    /// Port at which a browser on this machine reaches workloads by name.
    pub(super) entry: Option<u16>,
    /// Name of this replica.
    pub(super) me: String,
    pub(super) table: Looks,
}

/// Table of changes, while it is in use, and the time of the last pass. One pass runs at a time.
#[derive(Default)]
pub(super) struct Looks(Mutex<Option<(Table, Option<Instant>)>>);

impl Own {
    /// Adds a sample to every record each [`STEP`], until `shutdown`.
    pub(super) async fn record(self: Arc<Self>, shutdown: CancellationToken) {
        let mut ticks = interval(Duration::from_secs(STEP.into()));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let keys = self.multiscaler.keys();
            for some in keys.chunks(AT_ONCE * 4) {
                some.iter().for_each(|key| self.sample(key));
                tokio::task::yield_now().await;
            }
            self.records.retain(&keys.into_iter().collect::<HashSet<_>>());
            if let Ok(mut table) = self.table.0.try_lock()
                && table.as_ref().is_some_and(|(_, looked)| looked.is_none_or(|at| at.elapsed() > FORGET_AFTER))
            {
                *table = None;
            }
        }
    }

    fn sample(&self, key: &RevisionKey) {
        let Some(version) = self.objects.version(key) else { return };
        let (glance, counts) = (self.multiscaler.glance(key).unwrap_or_default(), self.pods.counts(key));
        let scale = Scale {
            desired: glance.desired.unwrap_or(counts.ready),
            ready: counts.ready,
            actual: counts.ready.saturating_add(counts.not_ready),
            panicking: glance.panicking,
        };
        let baseline = || {
            let status = self.objects.look(key)?.status;
            let found = status.adopted.and_then(|adopted| adopted.replicas).unwrap_or(1);
            Some(found.max(status.min.unwrap_or(0)))
        };
        self.records.sample(key, scale, version, baseline, self.records.now());
    }

    /// Returns the replica that owns a workload; none: no replica does at the moment.
    pub(super) fn owner(&self, key: &RevisionKey) -> Option<String> {
        match self.shares.owner(key) {
            Owner::Us => Some(self.me.clone()),
            Owner::Other(instance) => Some(super::replicas::name(&instance)),
            Owner::Nobody => None,
        }
    }

    /// Returns the summary of a workload for a list. `recent`: include the last minutes.
    pub(super) fn summary(&self, key: &RevisionKey, recent: bool) -> Option<Summary> {
        let looked = self.objects.look(key)?;
        let explanation = if self.shares.owns(key) { self.multiscaler.explain(key) } else { None };
        Some(self.summary_of(key, &looked, explanation.as_ref(), recent, false))
    }

    /// Returns the summary of these data; `is_whole`: with reasons of any length.
    pub(super) fn summary_of(
        &self,
        key: &RevisionKey,
        looked: &Looked,
        explanation: Option<&Explanation>,
        recent: bool,
        is_whole: bool,
    ) -> Summary {
        let Looked { object, status, since } = looked;
        let now = self.records.now();
        let is_ours = self.shares.owns(key);
        let counts = status.pods.unwrap_or_default();
        let glance = if is_ours { self.multiscaler.glance(key) } else { None };
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
            pods: PodsView { ready: counts.ready, actual: counts.actual, desired },
            min: status.min,
            max: status.max,
            requests_per_second: 0.0,
            concurrency: 0.0,
            held: 0,
            why: String::new(),
            ready: ready.map(|ready| Ready {
                status: ready.status.clone(),
                reason: ready.reason.clone(),
                message: ready.message.clone(),
            }),
            last_wake: None,
            owner: self.owner(key).unwrap_or_default(),
            saved: None,
            next_change: status.next_change.clone(),
            recent: None,
        };
        let present = explanation.and_then(|explanation| explanation.present.as_ref());
        let history: Vec<Outcome> =
            explanation.iter().flat_map(|e| &e.history).map(|entry| entry.outcome.clone()).collect();
        let load = present.and_then(|present| {
            let load = self.collector.load(key, present.subject.spec.metric, self.clock.now()).ok()?;
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
            summary.set_rates(record.rates(now));
            if let Some(ring) = record.ring.as_deref().filter(|_| recent) {
                summary.recent = Recent::of(ring.samples());
            }
            summary.last_wake = last_wake(record).map(Wake::to_json);
            if record.since > 0 {
                let pod_seconds = record.pod_seconds(now);
                let money = self.price.as_ref().map(|price| Money {
                    amount: price.amount * pod_seconds / 3600.0,
                    per_hour: price.amount,
                    currency: price.currency.clone(),
                });
                let since = time(record.since.into());
                summary.saved = Some(SavedView { pod_seconds, pods: record.missing, since, money });
            }
        });
    }

    /// Adds the rows of these workloads in their sent form. `recent`: include the last minutes.
    pub(super) async fn rows<'a>(
        &self,
        keys: impl Iterator<Item = &'a RevisionKey>,
        recent: bool,
        rows: &mut HashMap<RevisionKey, Arc<str>>,
    ) {
        for (n, key) in keys.enumerate() {
            if let Some(row) = self.summary(key, recent).and_then(|summary| serde_json::to_string(&summary).ok()) {
                rows.insert(key.clone(), row.into());
            }
            if n % AT_ONCE == AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Returns the changes since `after`, after a new pass over everything unless one has just been made. If a client
    /// gives up meanwhile, other clients lose nothing: the next pass continues with the same table.
    pub(super) async fn look(&self, after: Option<Position>) -> Younger {
        let mut table = self.table.0.lock().await;
        let (table, looked) = table.get_or_insert_with(|| (Table::new(rand::random()), None));
        if looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return table.since(after);
        }
        let objects: HashSet<RevisionKey> = self.objects.keys().into_iter().collect();
        let own: Vec<_> = objects.iter().filter(|key| self.shares.owns(key)).cloned().collect();
        table.begin(objects, |key| self.shares.owns(key));
        for some in own.chunks(AT_ONCE) {
            for key in some {
                let now = self.records.now();
                if table.needs_look(key, self.glance(key, now), now)
                    && let Some(summary) = self.summary(key, false)
                {
                    table.looked(key, summary.fingerprint());
                }
            }
            tokio::task::yield_now().await;
        }
        *looked = Some(Instant::now());
        table.since(after)
    }

    /// Returns a hash of everything that a summary depends on except time, and whether there is neither pod nor load.
    fn glance(&self, key: &RevisionKey, now: u32) -> (u64, bool) {
        let mut hasher = DefaultHasher::new();
        let (glance, counts) = (self.multiscaler.glance(key), self.pods.counts(key));
        let recorded = |record: &Record| (record.rates(now), last_wake(record).map(|wake| wake.at_ms), record.missing);
        let (rates, woke, missing) = self.records.with(key, recorded).unwrap_or_default();
        (self.objects.version(key), glance, counts.ready, counts.not_ready, woke, missing).hash(&mut hasher);
        (rates.requests.to_bits(), rates.concurrency.to_bits(), rates.held).hash(&mut hasher);
        let is_wanted = glance.and_then(|glance| glance.desired).is_some_and(|desired| desired > 0);
        let rests = !is_wanted && counts.ready + counts.not_ready == 0 && rates == Rates::default();
        (hasher.finish(), rests)
    }
}

fn last_wake(record: &Record) -> Option<&Wake> {
    record.wakes.as_deref()?.iter().next_back()
}
