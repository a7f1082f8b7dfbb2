//! Metrics of the controller, under upstream's names, and two additional ones.
//!
//! `desired_replicas` ends with its object, or when another controller acts on the object; upstream's never ends. Not
//! here: the metrics of a work queue.

use common::RevisionKey as Key;
use common_runtime::telemetry::{self, Metrics, catalog};
use hpa_core::reconcile::Conclusion;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use std::time::Duration;

/// Labels for the result of a reconciliation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    action: &'static str,
    error: &'static str,
}

/// Labels for the evaluation of one metric.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ComputationLabels {
    action: &'static str,
    error: &'static str,
    metric_type: String,
}

/// Labels for one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    namespace: String,
    hpa_name: String,
}

impl ObjectLabels {
    fn for_key(key: &Key) -> Self {
        Self { namespace: key.namespace().to_owned(), hpa_name: key.name().to_owned() }
    }
}

type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

/// Metric families of the controller.
#[derive(Clone)]
pub(crate) struct Series {
    reconciliations: Family<ReconcileLabels, Counter>,
    reconciliation_seconds: Durations<ReconcileLabels>,
    computations: Family<ComputationLabels, Counter>,
    computation_seconds: Durations<ComputationLabels>,
    objects: Gauge,
    desired: telemetry::Family<ObjectLabels, Gauge>,
    foreign: telemetry::Family<ObjectLabels, Gauge>,
    panics: Counter,
}

/// Returns a histogram with 15 bounds from a millisecond to 16 s.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

impl Series {
    /// Registers the families.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let new: fn() -> Histogram = histogram;
        Self {
            reconciliations: metrics.register(catalog::HPA_RECONCILIATIONS, Family::default()),
            reconciliation_seconds: metrics
                .register(catalog::HPA_RECONCILIATION_DURATION, Durations::<_>::new_with_constructor(new)),
            computations: metrics.register(catalog::HPA_COMPUTATIONS, Family::default()),
            computation_seconds: metrics
                .register(catalog::HPA_COMPUTATION_DURATION, Durations::<_>::new_with_constructor(new)),
            objects: metrics.register(catalog::HPA_OBJECTS, Gauge::default()),
            desired: metrics.family(catalog::HPA_DESIRED, telemetry::Family::default()),
            foreign: metrics.family(catalog::HPA_FOREIGN, telemetry::Family::default()),
            panics: metrics.register(catalog::HPA_PANICS, Counter::default()),
        }
    }

    /// Counts a new object.
    pub(crate) fn appeared(&self) {
        self.objects.inc();
    }

    /// Removes a deleted object from all families.
    pub(crate) fn gone(&self, key: &Key) {
        self.objects.dec();
        self.ended(key);
    }

    /// Ends the series of an object.
    pub(crate) fn ended(&self, key: &Key) {
        self.desired.remove(&ObjectLabels::for_key(key));
        self.foreign.remove(&ObjectLabels::for_key(key));
    }

    /// Records whether another manager blocks an object. That manager then decides its desired replicas.
    pub(crate) fn foreign(&self, key: &Key, foreign: bool) {
        if foreign {
            self.desired.remove(&ObjectLabels::for_key(key));
            self.foreign.get_or_create(&ObjectLabels::for_key(key)).set(1);
        } else {
            self.foreign.remove(&ObjectLabels::for_key(key));
        }
    }

    /// Counts a panic.
    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    /// Records a completed reconcile. `measured` are the times taken to read each metric, in order.
    pub(crate) fn concluded(&self, key: &Key, conclusion: &Conclusion, took: Duration, measured: &[Duration]) {
        let (action, error) = (conclusion.action.as_str(), conclusion.error_label.as_str());
        let labels = ReconcileLabels { action, error };
        self.reconciliations.get_or_create(&labels).inc();
        self.reconciliation_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        for (i, run) in conclusion.metrics.iter().enumerate() {
            let (action, error) = (run.action.as_str(), run.error.as_str());
            let labels = ComputationLabels { action, error, metric_type: run.kind.clone() };
            self.computations.get_or_create(&labels).inc();
            let took = measured.get(i).copied().unwrap_or_default();
            self.computation_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        }
        if let Some(replicas) = conclusion.desired_replicas {
            self.desired.get_or_create(&ObjectLabels::for_key(key)).set(i64::from(replicas));
        }
    }
}
