//! Metrics of each decider, under upstream's names. A revision's [`Values`] are created once. A decision updates them,
//! and a scrape writes them out ([`series`]).
//!
//! Our own metrics are `zeroscale_scale_from_zero_seconds` (this process's part of a cold start; the activator reports
//! the other phases), wakes and the time of their pods ([`lived`]), and for the whole process the lateness of ticks
//! and the outcomes of evaluations.
//!
//! There may be thousands of revisions with a dozen series each, so a revision's values are one small block. Labels
//! are added when the values are written out.

mod lived;
mod series;

use super::scrapes::{self, Scrapes};
use super::{PodCounts, SubjectLabels};
use autoscaler_core::decider::{Decision, Recommendation, Unknown};
use common::RevisionKey;
use common::scaling::ScalingMetric;
use common_runtime::telemetry::{Metrics, catalog};
use lived::Lived;
use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Bucket bounds in seconds, same as the activator's.
const COLD_START_BOUNDS: [f64; 14] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

/// Bucket bounds of the lateness of ticks, in seconds; phases are 10 ms apart.
const LATENESS_BOUNDS: [f64; 12] = [0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0];

/// Time after which an unfulfilled request for pods is considered given up.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// Outcomes of evaluations.
const DECISIONS: [&str; 5] = ["scale", "pods", "not-collecting", "no-data", "not-attested"];

type Table = Arc<RwLock<HashMap<RevisionKey, Arc<Values>>>>;

/// Metrics of all revisions of one process. Cheap to clone.
#[derive(Clone)]
pub struct DeciderMetrics {
    table: Table,
    lateness: Histogram,
    decisions: [Counter; DECISIONS.len()],
    scrapes: Scrapes,
}

/// Metrics of one revision. Its series end when this is dropped.
pub struct RevisionMetrics {
    table: Table,
    key: RevisionKey,
    values: Arc<Values>,
    scrapes: Scrapes,
    /// Histogram of its configuration, from its first scrape on.
    scraped: OnceLock<Arc<scrapes::Series>>,
    /// Time at which a stat asked for pods while there were none.
    asked: Mutex<Option<Instant>>,
}

/// Values of one revision's series.
#[derive(Debug)]
struct Values {
    service: Box<str>,
    configuration: Box<str>,
    metric: ScalingMetric,
    panic_mode: AtomicBool,
    desired: AtomicI32,
    requested: AtomicI32,
    excess: AtomicI32,
    ready: AtomicI32,
    not_ready: AtomicI32,
    pending: AtomicI32,
    terminating: AtomicI32,
    stable: Float,
    panic: Float,
    target: Float,
    /// Created with the first cold start.
    scale_phase: Mutex<Option<Box<Durations>>>,
    lived: Mutex<Lived>,
}

/// Floating-point number stored as bits.
#[derive(Debug, Default)]
struct Float(AtomicU64);

impl Float {
    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
}

/// Histogram over [`COLD_START_BOUNDS`].
#[derive(Clone, Copy, Debug, Default)]
struct Durations {
    sum_seconds: f64,
    /// Counts per bucket; the last one is beyond all bounds.
    counts: [u64; COLD_START_BOUNDS.len() + 1],
}

impl Durations {
    fn observe(&mut self, seconds: f64) {
        self.sum_seconds += seconds;
        self.counts[COLD_START_BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
    }
}

impl DeciderMetrics {
    /// Registers the metrics.
    pub fn new(metrics: &Metrics) -> Self {
        let table = Table::default();
        let shown = table.clone();
        metrics.collect(move || series::families(&shown));
        let lateness = metrics.register(catalog::TICK_LATENESS, Histogram::new(LATENESS_BOUNDS));
        let decisions = Family::<[(&str, &str); 1], Counter>::default();
        let decisions = metrics.register(catalog::DECISIONS, decisions);
        let decisions = DECISIONS.map(|outcome| decisions.get_or_create_owned(&[("outcome", outcome)]));
        let scrapes = Scrapes::new();
        metrics.family(catalog::SCRAPE_DURATION, scrapes.family());
        Self { table, lateness, decisions, scrapes }
    }

    /// Records that all revisions of a phase were evaluated this long after the phase's time.
    pub fn ticked(&self, late: Duration) {
        self.lateness.observe(late.as_secs_f64());
    }

    /// Counts an evaluation.
    pub fn decided(&self, decision: &Decision) {
        let outcome = match decision {
            Decision::Scale(_) => 0,
            Decision::Unknown(Unknown::Pods) => 1,
            Decision::Unknown(Unknown::NotCollecting) => 2,
            Decision::Unknown(Unknown::NoData) => 3,
            Decision::Unknown(Unknown::NotAttested) => 4,
        };
        self.decisions[outcome].inc();
    }

    /// Creates the series of one revision. Former series under this key must have been dropped before.
    pub fn revision(&self, key: &RevisionKey, labels: &SubjectLabels, metric: ScalingMetric) -> RevisionMetrics {
        let values = Arc::new(Values {
            service: labels.service.as_str().into(),
            configuration: labels.configuration.as_str().into(),
            metric,
            panic_mode: AtomicBool::default(),
            desired: AtomicI32::default(),
            requested: AtomicI32::default(),
            excess: AtomicI32::default(),
            ready: AtomicI32::default(),
            not_ready: AtomicI32::default(),
            pending: AtomicI32::default(),
            terminating: AtomicI32::default(),
            stable: Float::default(),
            panic: Float::default(),
            target: Float::default(),
            scale_phase: Mutex::default(),
            lived: Mutex::default(),
        });
        self.table.write().insert(key.clone(), values.clone());
        let (table, scrapes) = (self.table.clone(), self.scrapes.clone());
        RevisionMetrics { table, key: key.clone(), values, scrapes, scraped: OnceLock::new(), asked: Mutex::default() }
    }
}

impl RevisionMetrics {
    /// Records that a stat asks for pods while there are none.
    pub fn asked(&self, now: Instant) {
        self.values.lived.lock().asked();
        let mut asked = self.asked.lock();
        if asked.is_none_or(|at| now.saturating_duration_since(at) > GIVEN_UP) {
            *asked = Some(now);
        }
    }

    /// Records that a change from zero replicas was accepted. Returns the time since a stat asked for pods, if one
    /// did.
    pub fn woken(&self, now: Instant) -> Option<Duration> {
        self.values.lived.lock().raised();
        let took = now.saturating_duration_since(self.asked.lock().take()?);
        self.values.scale_phase.lock().get_or_insert_default().observe(took.as_secs_f64());
        Some(took)
    }

    /// Records that no pods are wanted. `slept`: the API server has accepted zero replicas.
    pub fn unasked(&self, slept: bool) {
        self.values.lived.lock().unasked(slept);
    }

    /// Returns the histogram of its scrape durations.
    pub fn scrapes(&self) -> Histogram {
        let series = self.scraped.get_or_init(|| {
            let (service, configuration) = (self.values.service.to_string(), self.values.configuration.to_string());
            self.scrapes.of(self.key.namespace(), &SubjectLabels { service, configuration })
        });
        series.histogram()
    }

    /// Sets all values of a decision.
    pub fn set(&self, decision: &Recommendation) {
        let values = &*self.values;
        values.desired.store(decision.desired, Relaxed);
        values.excess.store(decision.excess_burst_capacity, Relaxed);
        values.panic_mode.store(decision.panicking, Relaxed);
        values.stable.set(decision.inputs.stable);
        values.panic.set(decision.inputs.panic);
        values.target.set(decision.inputs.target);
    }

    /// Sets the requested scale of the target.
    pub fn set_requested(&self, replicas: i32) {
        self.values.requested.store(replicas, Relaxed);
    }

    /// Sets the number of pods in each state.
    pub fn set_pods(&self, counts: PodCounts, now: Instant) {
        self.values.lived.lock().counted(counts, now);
        let (values, PodCounts { ready, not_ready, pending, terminating }) = (&*self.values, counts);
        values.ready.store(ready, Relaxed);
        values.not_ready.store(not_ready, Relaxed);
        values.pending.store(pending, Relaxed);
        values.terminating.store(terminating, Relaxed);
    }
}

impl Drop for RevisionMetrics {
    fn drop(&mut self) {
        let mut table = self.table.write();
        // A revision that was re-created meanwhile has new series.
        if table.get(&self.key).is_some_and(|values| Arc::ptr_eq(values, &self.values)) {
            table.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REVISION: &str = "{k8s_namespace_name=\"ns\",kn_service_name=\"shop\",kn_configuration_name=\"web\",\
                            kn_revision_name=\"web-1\"}";
    const CONFIGURATION: &str = "k8s_namespace_name=\"ns\",kn_service_name=\"shop\",kn_configuration_name=\"web\"";

    /// Goal: every instrument of upstream's autoscaler and reconcilers is on the text page, with its name, type and
    /// exact labels.
    #[test]
    fn instruments_are_upstreams() {
        let metrics = Metrics::default();
        let families = DeciderMetrics::new(&metrics);
        let labels = SubjectLabels { service: "shop".into(), configuration: "web".into() };
        let key = RevisionKey::new("ns", "web-1");
        let gauges = [
            "pods_desired",
            "capacity_excess",
            "panic_mode",
            "pods_requested",
            "pods_count",
            "pods_not_ready_count",
            "pods_pending_count",
            "pods_terminating_count",
        ];
        for (metric, trio) in [
            (ScalingMetric::Concurrency, ["concurrency_stable", "concurrency_panic", "concurrency_target"]),
            (ScalingMetric::Rps, ["rps_stable_per_second", "rps_panic_per_second", "rps_target_per_second"]),
        ] {
            let revision = families.revision(&key, &labels, metric);
            revision.scrapes().observe(0.3);
            let text = metrics.encode().expect("text");
            for name in gauges.iter().chain(&trio) {
                assert!(text.contains(&format!("# TYPE kn_revision_{name} gauge\n")), "{name} in\n{text}");
                assert!(text.contains(&format!("\nkn_revision_{name}{REVISION} 0")), "{name} in\n{text}");
            }
            let scrapes = "kn_autoscaler_scrape_duration_seconds";
            assert!(text.contains(&format!("# TYPE {scrapes} histogram\n")), "{text}");
            assert!(text.contains(&format!("\n{scrapes}_count{{{CONFIGURATION}}} 1\n")), "{text}");
            for (bound, count) in [("0.005", 0), ("0.25", 0), ("0.5", 1), ("10.0", 1), ("+Inf", 1)] {
                let bucket = format!("\n{scrapes}_bucket{{le=\"{bound}\",{CONFIGURATION}}} {count}\n");
                assert!(text.contains(&bucket), "{bucket} in\n{text}");
            }
            drop(revision);
            assert!(!metrics.encode().expect("text").contains("k8s_namespace_name"), "series end with the revision");
        }
    }
}
