//! Metrics of the controller, under upstream's names, and two additional ones.
//!
//! The series `desired_replicas` of an object ends with the object, or when another controller acts on it. Upstream's
//! never ends.
//!
//! Not here: the metrics of a work queue.

use common::RevisionKey as Key;
use common_runtime::telemetry::{self, Metrics, catalog};
use hpa_core::reconcile::Conclusion;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use std::time::Duration;

type ReconcileLabels = [(&'static str, &'static str); 2];
/// Labels for the evaluation of one metric.
type ComputationLabels = [(&'static str, String); 3];
type ObjectLabels = [(&'static str, String); 2];

fn object_labels(key: &Key) -> ObjectLabels {
    [("namespace", key.namespace().to_owned()), ("hpa_name", key.name().to_owned())]
}

type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

/// Metric families of the controller.
#[derive(Clone)]
pub(crate) struct Series {
    reconciliations: Family<ReconcileLabels, Counter>,
    reconciliation_seconds: Durations<ReconcileLabels>,
    computations: Family<ComputationLabels, Counter>,
    computation_seconds: Durations<ComputationLabels>,
    pub(crate) objects: Gauge,
    desired: telemetry::Family<ObjectLabels, Gauge>,
    foreign: telemetry::Family<ObjectLabels, Gauge>,
    pub(crate) panics: Counter,
}

impl Series {
    /// Registers the families.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        // From a millisecond to 16 s.
        let new: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, 15));
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

    /// Removes the series of an object that this process no longer leads.
    pub(crate) fn remove_series(&self, key: &Key) {
        self.desired.remove(&object_labels(key));
        self.foreign.remove(&object_labels(key));
    }

    /// Records whether another manager blocks an object. The desired replicas are then the concern of that manager.
    pub(crate) fn set_foreign(&self, key: &Key, foreign: bool) {
        if foreign {
            self.desired.remove(&object_labels(key));
            self.foreign.get_or_create(&object_labels(key)).set(1);
        } else {
            self.foreign.remove(&object_labels(key));
        }
    }

    /// Records a completed reconcile. `measured` are the times taken to read each metric, in order.
    pub(crate) fn record_reconcile(&self, key: &Key, conclusion: &Conclusion, took: Duration, measured: &[Duration]) {
        let labels = [("action", conclusion.action.as_str()), ("error", conclusion.error_label.as_str())];
        self.reconciliations.get_or_create(&labels).inc();
        self.reconciliation_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        for (run, took) in conclusion.metrics.iter().zip(measured) {
            let (action, error) = (run.action.as_str().to_owned(), run.error.as_str().to_owned());
            let labels = [("action", action), ("error", error), ("metric_type", run.kind.clone())];
            self.computations.get_or_create(&labels).inc();
            self.computation_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        }
        if let Some(replicas) = conclusion.desired_replicas {
            self.desired.get_or_create(&object_labels(key)).set(i64::from(replicas));
        }
    }
}
