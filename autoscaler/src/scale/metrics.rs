//! Metrics of each decider, under upstream's names. A revision's [`Values`] are created once. A decision updates them,
//! and a scrape writes them out ([`series`]).
//!
//! Our own metrics are `zeroscale_scale_from_zero_seconds` (this process's part of a cold start; the activator reports
//! the other phases), wakes and the time of their pods ([`wake_stats`]), and for the whole process the lateness of
//! ticks and the outcomes of evaluations.
//!
//! There may be thousands of revisions with a dozen series each, so a revision's values are one small block. Labels
//! are added when the values are written out.

mod series;
mod wake_stats;

use super::{PodCounts, SubjectLabels};
use autoscaler_core::decider::{Decision, Recommendation, Unknown};
use common::RevisionKey;
use common::scaling::ScalingMetric;
use common_runtime::telemetry::{Family as SeriesFamily, Metrics, catalog};
use parking_lot::{Mutex, RwLock};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;
use wake_stats::WakeStats;

/// Bucket bounds in seconds, same as the activator's.
const COLD_START_BOUNDS: [f64; 14] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

/// Upstream's bucket bounds of scrape durations, in seconds.
const SCRAPE_BOUNDS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Bucket bounds of the lateness of ticks, in seconds; phases are 10 ms apart.
const LATENESS_BOUNDS: [f64; 12] = [0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0];

/// Time after which an unfulfilled request for pods is considered given up.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// Outcomes of evaluations.
const DECISIONS: [&str; 5] = ["scale", "pods", "not-collecting", "no-data", "not-attested"];

type Table = Arc<RwLock<HashMap<RevisionKey, Arc<Values>>>>;

/// Durations of scrapes: one histogram for each configuration, as upstream. A series lives as long as any revision of
/// its configuration.
type Scrapes = SeriesFamily<ConfigurationLabels, Histogram>;

/// Labels as upstream renders its attributes; the revision's own is not among them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConfigurationLabels {
    k8s_namespace_name: String,
    kn_service_name: String,
    kn_configuration_name: String,
}

impl ConfigurationLabels {
    /// Returns the labels of a revision's configuration.
    fn new(namespace: &str, labels: &SubjectLabels) -> Self {
        Self {
            k8s_namespace_name: namespace.to_owned(),
            kn_service_name: labels.service.clone(),
            kn_configuration_name: labels.configuration.clone(),
        }
    }
}

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
    scraped: OnceLock<Histogram>,
}

/// Labels and values of one revision's series.
#[derive(Debug)]
struct Values {
    labels: SubjectLabels,
    metric: ScalingMetric,
    state: Mutex<MetricState>,
}

#[derive(Debug, Default)]
struct MetricState {
    decision: Option<Recommendation>,
    requested: i32,
    counts: PodCounts,
    /// Time at which a stat requested pods while there were none.
    wake_requested_at: Option<Instant>,
    /// Created with the first cold start.
    scale_phase: Option<Histogram>,
    wake_stats: WakeStats,
}

impl DeciderMetrics {
    /// Registers the metrics.
    pub fn new(metrics: &Metrics) -> Self {
        let table = Table::default();
        let collected = table.clone();
        metrics.collect(move || series::families(&collected));
        let lateness = metrics.register(catalog::TICK_LATENESS, Histogram::new(LATENESS_BOUNDS));
        let decisions = Family::<[(&str, &str); 1], Counter>::default();
        let decisions = metrics.register(catalog::DECISIONS, decisions);
        let decisions = DECISIONS.map(|outcome| decisions.get_or_create_owned(&[("outcome", outcome)]));
        let scrapes = Scrapes::with_constructor(|| Histogram::new(SCRAPE_BOUNDS));
        metrics.family(catalog::SCRAPE_DURATION, scrapes.clone());
        Self { table, lateness, decisions, scrapes }
    }

    /// Records that all revisions of a phase were evaluated this long after the phase's time.
    pub fn ticked(&self, late: Duration) {
        self.lateness.observe(late.as_secs_f64());
    }

    /// Counts an evaluation.
    pub fn decided(&self, decision: &Decision) {
        let outcome = match decision {
            Ok(_) => 0,
            Err(Unknown::Pods) => 1,
            Err(Unknown::NotCollecting) => 2,
            Err(Unknown::NoData) => 3,
            Err(Unknown::NotAttested) => 4,
        };
        self.decisions[outcome].inc();
    }

    /// Creates the series of one revision, which replace former ones under this key.
    pub fn revision(&self, key: &RevisionKey, labels: &SubjectLabels, metric: ScalingMetric) -> RevisionMetrics {
        let values = Arc::new(Values { labels: labels.clone(), metric, state: Mutex::default() });
        self.table.write().insert(key.clone(), values.clone());
        let (table, scrapes) = (self.table.clone(), self.scrapes.clone());
        RevisionMetrics { table, key: key.clone(), values, scrapes, scraped: OnceLock::new() }
    }
}

impl RevisionMetrics {
    /// Records that a stat requests pods while there are none.
    pub fn record_wake_request(&self, now: Instant) {
        let mut state = self.values.state.lock();
        state.wake_stats.record_wake_request();
        if state.wake_requested_at.is_none_or(|at| now.saturating_duration_since(at) > GIVEN_UP) {
            state.wake_requested_at = Some(now);
        }
    }

    /// Records that a change from zero replicas was accepted. Returns the time since a stat requested pods, if one
    /// did.
    pub fn woken(&self, now: Instant) -> Option<Duration> {
        let mut state = self.values.state.lock();
        state.wake_stats.record_scale_up();
        let took = now.saturating_duration_since(state.wake_requested_at.take()?);
        state.scale_phase.get_or_insert_with(|| Histogram::new(COLD_START_BOUNDS)).observe(took.as_secs_f64());
        Some(took)
    }

    /// Records that no pods are needed. `slept`: the API server has accepted zero replicas.
    pub fn record_no_demand(&self, slept: bool) {
        self.values.state.lock().wake_stats.record_no_demand(slept);
    }

    /// Returns the histogram of its scrape durations.
    pub fn scrapes(&self) -> Histogram {
        let labels = || ConfigurationLabels::new(self.key.namespace(), &self.values.labels);
        self.scraped.get_or_init(|| self.scrapes.get_or_create(&labels())).clone()
    }

    /// Sets all values of a decision.
    pub fn set(&self, decision: &Recommendation) {
        self.values.state.lock().decision = Some(*decision);
    }

    /// Sets the requested scale of the target.
    pub fn set_requested(&self, replicas: i32) {
        self.values.state.lock().requested = replicas;
    }

    /// Sets the number of pods in each state.
    pub fn set_pods(&self, counts: PodCounts, now: Instant) {
        let mut state = self.values.state.lock();
        state.wake_stats.counted(counts, now);
        state.counts = counts;
    }
}

impl Drop for RevisionMetrics {
    fn drop(&mut self) {
        let mut table = self.table.write();
        // A revision may have new series already.
        if table.get(&self.key).is_some_and(|values| Arc::ptr_eq(values, &self.values)) {
            table.remove(&self.key);
        }
        let (namespace, labels) = (self.key.namespace(), &self.values.labels);
        let is_shared = || table.iter().any(|(key, other)| key.namespace() == namespace && other.labels == *labels);
        if self.scraped.get().is_some() && !is_shared() {
            self.scrapes.remove(&ConfigurationLabels::new(namespace, labels));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REVISION: &str = "{k8s_namespace_name=\"ns\",kn_service_name=\"shop\",kn_configuration_name=\"web\",\
                            kn_revision_name=\"web-1\"}";
    const CONFIGURATION: &str = "k8s_namespace_name=\"ns\",kn_service_name=\"shop\",kn_configuration_name=\"web\"";

    fn create(families: &DeciderMetrics, namespace: &str, name: &str, metric: ScalingMetric) -> RevisionMetrics {
        let labels = SubjectLabels { service: "shop".into(), configuration: "web".into() };
        families.revision(&RevisionKey::new(namespace, name), &labels, metric)
    }

    /// Goal: revisions of one configuration share a histogram of scrapes, which ends with the last of them.
    #[test]
    fn scrapes_end_with_the_last_revision_of_a_configuration() {
        let metrics = Metrics::default();
        let families = DeciderMetrics::new(&metrics);
        let revisions = [("ns", "web-1"), ("ns", "web-2"), ("other", "web-1")]
            .map(|(namespace, name)| create(&families, namespace, name, ScalingMetric::Concurrency));
        revisions.iter().for_each(|revision| revision.scrapes().observe(0.3));
        let text = || metrics.encode().expect("text");
        let count = |count| format!("\nkn_autoscaler_scrape_duration_seconds_count{{{CONFIGURATION}}} {count}\n");
        let [first, second, _other] = revisions;
        assert!(text().contains(&count(2)), "{}", text());
        drop(first);
        assert!(text().contains(&count(2)));
        drop(second);
        let text = text();
        assert!(!text.contains(CONFIGURATION) && text.contains("k8s_namespace_name=\"other\""), "{text}");
    }

    /// Goal: every instrument of upstream's autoscaler and reconcilers is on the text page, with its name, type and
    /// exact labels.
    #[test]
    fn instruments_are_upstreams() {
        let metrics = Metrics::default();
        let families = DeciderMetrics::new(&metrics);
        let gauges = "pods_desired capacity_excess panic_mode pods_requested pods_count pods_not_ready_count \
                      pods_pending_count pods_terminating_count";
        for (metric, trio) in [
            (ScalingMetric::Concurrency, ["concurrency_stable", "concurrency_panic", "concurrency_target"]),
            (ScalingMetric::Rps, ["rps_stable_per_second", "rps_panic_per_second", "rps_target_per_second"]),
        ] {
            let revision = create(&families, "ns", "web-1", metric);
            revision.scrapes().observe(0.3);
            let text = metrics.encode().expect("text");
            for name in gauges.split(' ').chain(trio) {
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
