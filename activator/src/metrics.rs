//! What the activator counts, under upstream's names.
//!
//! Handles are registered once for each revision and held by it; a request touches atomics and, once at its end, one
//! histogram.
//!
//! | metric | type |
//! |---|---|
//! | `kn_revision_request_concurrency` | gauge, the last reported second's average |
//! | `kn_revision_request_queued`, `kn_revision_request_active` | gauges |
//! | `http_server_request_duration_seconds` | histogram, by method and status; until the body's end |
//! | `kn_activator_stats_conn_reachable` | gauge, 0 or 1 |
//! | `kn_activator_stats_conn_errors_total` | counter of lost connections |
//! | `zeroscale_cold_start_phase_seconds` | histogram, by phase |
//!
//! # Not here
//!
//! Body sizes, client-side durations, server address and port as labels (unbounded).

use crate::cold_start::ColdStart;
use crate::discovery::Spec;
use common_runtime::telemetry;
use http::{Method, StatusCode};
use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

type Labels = Vec<(&'static str, String)>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Upstream's buckets for durations of requests, seconds.
const DURATION_BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Cold starts reach from milliseconds to minutes.
const COLD_START_BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

/// All families of one activator. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    concurrency: Family<Labels, Gauge<f64, AtomicU64>>,
    queued: Family<Labels, Gauge>,
    active: Family<Labels, Gauge>,
    duration: Histograms,
    cold_start: Histograms,
    /// Whether the stat link is up.
    pub(crate) link_reachable: Gauge,
    /// Lost connections of the stat link.
    pub(crate) link_errors: Counter,
}

/// One revision's handles.
pub(crate) struct RevisionMetrics {
    families: Metrics,
    revision: Labels,
    all: Labels,
    /// The last reported average.
    pub(crate) concurrency: Gauge<f64, AtomicU64>,
    /// Requests held.
    pub(crate) queued: Gauge,
    /// Requests at a pod.
    pub(crate) active: Gauge,
    /// By method and status, as they first occur: few in practice.
    duration: RwLock<SmallVec<[(Method, StatusCode, Histogram); 2]>>,
    forgotten: AtomicBool,
}

impl Metrics {
    /// Registers all families.
    pub(crate) fn new(registry: &telemetry::Metrics) -> Self {
        let duration: fn() -> Histogram = || Histogram::new(DURATION_BUCKETS);
        let cold_start: fn() -> Histogram = || Histogram::new(COLD_START_BUCKETS);
        let link: Gauge = Gauge::default();
        let errors: Counter = Counter::default();
        Self {
            concurrency: registry.register(
                "kn_revision_request_concurrency",
                "Requests in flight, as last reported to the autoscaler",
                Family::default(),
            ),
            queued: registry.register("kn_revision_request_queued", "Requests held", Family::default()),
            active: registry.register("kn_revision_request_active", "Requests at a pod", Family::default()),
            duration: registry.register_with_unit(
                "http_server_request_duration",
                "From a request's head to the end of its response",
                Unit::Seconds,
                Family::new_with_constructor(duration),
            ),
            cold_start: registry.register_with_unit(
                "zeroscale_cold_start_phase",
                "Phases of cold starts",
                Unit::Seconds,
                Family::new_with_constructor(cold_start),
            ),
            link_reachable: registry.register(
                "kn_activator_stats_conn_reachable",
                "Whether the connection to the autoscaler is up",
                link,
            ),
            link_errors: registry.register(
                "kn_activator_stats_conn_errors",
                "Lost connections to the autoscaler",
                errors,
            ),
        }
    }

    /// The handles of one revision.
    pub(crate) fn revision(&self, spec: &Spec) -> RevisionMetrics {
        let revision = vec![
            ("k8s_namespace_name", spec.key.namespace().to_owned()),
            ("kn_revision_name", spec.key.name().to_owned()),
        ];
        let mut all = revision.clone();
        all.push(("kn_configuration_name", spec.configuration.clone()));
        all.push(("kn_service_name", spec.service.clone()));
        RevisionMetrics {
            concurrency: self.concurrency.get_or_create(&all).clone(),
            queued: self.queued.get_or_create(&revision).clone(),
            active: self.active.get_or_create(&revision).clone(),
            duration: RwLock::default(),
            forgotten: AtomicBool::new(false),
            families: self.clone(),
            revision,
            all,
        }
    }

    /// Records a cold start.
    pub(crate) fn cold_start(&self, cold: &ColdStart) {
        let phases = cold.phases();
        for (phase, length) in [
            ("signal", phases.signal),
            ("scale", phases.scale),
            ("probe", phases.probe),
            ("release", phases.release),
            ("answer", phases.answer),
            ("total", cold.total()),
        ] {
            self.cold_start.get_or_create(&vec![("phase", phase.to_owned())]).observe(length.as_secs_f64());
        }
    }
}

impl RevisionMetrics {
    /// The revision is gone and shown no longer. Requests that still run count on, unseen: its name may already be
    /// another's.
    pub(crate) fn forget(&self) {
        let mut duration = self.duration.write();
        self.forgotten.store(true, Ordering::Release);
        self.families.concurrency.remove(&self.all);
        self.families.queued.remove(&self.revision);
        self.families.active.remove(&self.revision);
        for (method, status, _) in duration.drain(..) {
            self.families.duration.remove(&self.labels(&method, status));
        }
    }

    fn labels(&self, method: &Method, status: StatusCode) -> Labels {
        let shown = if is_standard(method) { method.as_str() } else { "_OTHER" };
        let mut labels = self.all.clone();
        labels.push(("http_request_method", shown.to_owned()));
        labels.push(("http_response_status_code", status.as_u16().to_string()));
        labels
    }

    /// Records a finished exchange.
    pub(crate) fn finished(&self, method: &Method, status: StatusCode, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some((.., histogram)) = self.duration.read().iter().find(|(m, s, _)| m == method && *s == status) {
            histogram.observe(seconds);
            return;
        }
        let mut duration = self.duration.write();
        if self.forgotten.load(Ordering::Acquire) {
            return;
        }
        let histogram = self.families.duration.get_or_create(&self.labels(method, status)).clone();
        histogram.observe(seconds);
        if is_standard(method) {
            duration.push((method.clone(), status, histogram));
        }
    }
}

fn is_standard(method: &Method) -> bool {
    [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::HEAD,
        Method::PATCH,
        Method::OPTIONS,
        Method::CONNECT,
        Method::TRACE,
    ]
    .contains(method)
}

/// A gauge that is one higher for as long as this lives.
pub(crate) struct Raised(Gauge);

impl Raised {
    /// Raises it.
    pub(crate) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        self.0.dec();
    }
}
