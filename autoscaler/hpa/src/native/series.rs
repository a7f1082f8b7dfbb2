//! The controller's own metrics, under upstream's names, and two of ours.
//!
//! `desired_replicas` ends with its object, or when somebody else acts on that; upstream's never does. Not here: the
//! series of a work queue.

use common::RevisionKey as Key;
use common_runtime::telemetry::{self, Metrics, catalog};
use hpa_core::reconcile::{Action, Conclusion, ErrorLabel};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use std::time::Duration;

/// How a reconciliation went.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    action: &'static str,
    error: &'static str,
}

/// How the computation of one metric went.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ComputationLabels {
    action: &'static str,
    error: &'static str,
    metric_type: String,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    namespace: String,
    hpa_name: String,
}

impl ObjectLabels {
    fn of(key: &Key) -> Self {
        Self { namespace: key.namespace().to_owned(), hpa_name: key.name().to_owned() }
    }
}

type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

/// The families.
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

/// 15 bounds from a millisecond to 16 s.
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

    /// An object has come into sight.
    pub(crate) fn appeared(&self) {
        self.objects.inc();
    }

    /// An object has gone.
    pub(crate) fn gone(&self, key: &Key) {
        self.objects.dec();
        self.ended(key);
    }

    /// Nothing is said of an object any more.
    pub(crate) fn ended(&self, key: &Key) {
        self.desired.remove(&ObjectLabels::of(key));
        self.foreign.remove(&ObjectLabels::of(key));
    }

    /// Whether another manager keeps us from an object. What is desired is for that one to say.
    pub(crate) fn foreign(&self, key: &Key, foreign: bool) {
        if foreign {
            self.desired.remove(&ObjectLabels::of(key));
            self.foreign.get_or_create(&ObjectLabels::of(key)).set(1);
        } else {
            self.foreign.remove(&ObjectLabels::of(key));
        }
    }

    /// A fault of the program.
    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    /// A pass has ended. `measured`: how long each metric took to read, in order.
    pub(crate) fn concluded(&self, key: &Key, conclusion: &Conclusion, took: Duration, measured: &[Duration]) {
        let (action, error) = texts(conclusion.action, conclusion.error_label);
        let labels = ReconcileLabels { action, error };
        self.reconciliations.get_or_create(&labels).inc();
        self.reconciliation_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        for (i, run) in conclusion.metrics.iter().enumerate() {
            let (action, error) = texts(run.action, run.error);
            let labels = ComputationLabels { action, error, metric_type: run.kind.clone() };
            self.computations.get_or_create(&labels).inc();
            let took = measured.get(i).copied().unwrap_or_default();
            self.computation_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        }
        if let Some(replicas) = conclusion.desired_replicas {
            self.desired.get_or_create(&ObjectLabels::of(key)).set(i64::from(replicas));
        }
    }
}

fn texts(action: Action, error: ErrorLabel) -> (&'static str, &'static str) {
    (action.as_str(), error.as_str())
}
