//! Metrics of the activator, under Knative's names.
//!
//! Handles are registered once per revision, which holds them. A request touches atomics, and histograms at its
//! response and at its end. Histograms are found by method, status, version and scheme ([`series`]); in practice there
//! are few combinations.
//!
//! The [`catalog`] lists the metrics and their meaning. The phases of a cold start are all measured here, one after the
//! other, and add up to the total. The autoscaler has a metric of its own for its part of `pod`.
//!
//! OpenTelemetry has changed since Knative adopted it. In knative mode, HTTP/2 is `2.0`, QUERY is not a known method, and
//! errors have no type. In standalone mode, HTTP/2 is `2`, QUERY is a method, and errors have a type.
//!
//! # Differences from Knative
//!
//! - No `server_address` and `server_port`, because both grow without bound. A status that HTTP does not name is
//!   counted by its class, such as `7xx`, for the same reason.
//! - In knative mode an exchange without a response has no client series.
//! - A revision's series begin with its first request or pod. They end with the revision, or when it has had neither
//!   for five minutes.

pub(crate) mod clients;
pub(crate) mod cold_start;
pub(crate) mod ending;
mod series;

use crate::discovery::Spec;
use activator_net::Ended;
use cold_start::{ColdStart, OnColdStart};
use common_runtime::environment::Mode;
use common_runtime::telemetry::{self, Instrument, catalog};
use ending::Ending;
use http::{Method, Version};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use series::{Measure, Side, Sides};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

pub(crate) type Labels = Vec<(&'static str, String)>;
type Histograms = telemetry::Family<Labels, Histogram>;

/// Knative's buckets for request durations, in seconds.
const DURATION_BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Knative's buckets for body sizes, in bytes.
const SIZE_BUCKETS: [f64; 15] =
    [0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2500.0, 5000.0, 7500.0, 10000.0];

/// Buckets for cold starts, from milliseconds to minutes, in seconds.
const COLD_START_BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

const PHASES: [&str; 4] = ["signal", "pod", "probe", "forward"];

/// Label of a method that HTTP does not define.
const OTHER: &str = "_OTHER";

/// Label values for the ends of relayed connections.
const ENDS: [(Ended, &str); 6] = [
    (Ended::Closed, "closed"),
    (Ended::Client, "client"),
    (Ended::Pod, "pod"),
    (Ended::Request, "request"),
    (Ended::Idle, "idle-timeout"),
    (Ended::Cut, "drain"),
];

/// All metric families of one activator. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    concurrency: telemetry::Family<Labels, Gauge<f64, AtomicU64>>,
    queued: telemetry::Family<Labels, Gauge>,
    active: telemetry::Family<Labels, Gauge>,
    /// Duration, request size, response size.
    server: Sides<3>,
    /// Exchanges that belong to no revision.
    unknown: Arc<Side<3>>,
    /// Duration, request size.
    client: Sides<2>,
    held: Histograms,
    cold_start: Histograms,
    cold_start_phase: Histograms,
    connections_ended: telemetry::Family<Labels, Counter>,
    /// Error responses of the activator, by reason.
    pub(crate) refused: WordCounter,
    /// Responses without a pod, by kind.
    pub(crate) answered: WordCounter,
    /// Requests and connections that were relayed to other activators.
    pub(crate) relayed: Counter,
    on_cold_start: Option<OnColdStart>,
    /// 1 while the stat link is up.
    pub(crate) link_reachable: Gauge,
    /// Number of lost connections of the stat link.
    pub(crate) link_errors: Counter,
}

/// Attributes that select the series of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExchangeKind {
    /// Method of the request; `_OTHER` if HTTP does not define it.
    method: Method,
    version: Version,
    tls: bool,
}

impl ExchangeKind {
    pub(crate) fn new(method: &Method, version: Version, tls: bool) -> Self {
        let method = match is_standard(method) {
            true => method.clone(),
            false => Method::from_bytes(OTHER.as_bytes()).unwrap_or(Method::GET),
        };
        Self { method, version, tls }
    }

    /// Returns the labels of its series with `ending`, after `base`. Statuses from `errors_from` on are errors.
    fn labels(&self, base: &Labels, ending: Ending, mode: Mode, errors_from: u16) -> Labels {
        let version = match (self.version, mode) {
            (Version::HTTP_10, _) => "1.0",
            (Version::HTTP_2, Mode::Knative) => "2.0",
            (Version::HTTP_2, Mode::Standalone) => "2",
            _ => "1.1",
        };
        let method = match mode {
            Mode::Knative if self.method == Method::QUERY => OTHER,
            _ => self.method.as_str(),
        };
        let mut labels = base.clone();
        labels.push(("http_request_method", method.to_owned()));
        labels.extend(ending.status().map(|status| ("http_response_status_code", status)));
        labels.push(("network_protocol_name", "http".to_owned()));
        labels.push(("network_protocol_version", version.to_owned()));
        labels.push(("url_scheme", if self.tls { "https" } else { "http" }.to_owned()));
        if mode == Mode::Standalone {
            labels.extend(ending.error(errors_from).map(|error| ("error_type", error)));
        }
        labels
    }
}

/// Counters by the values of one label. Cheap to clone.
#[derive(Clone)]
pub(crate) struct WordCounter {
    label: &'static str,
    family: Family<Labels, Counter>,
}

impl WordCounter {
    /// Registers a counter for each of the label's values at once, so that the first event is visible as an increase.
    fn register(registry: &telemetry::Metrics, instrument: Instrument, label: &'static str) -> Self {
        let counter = Self { label, family: registry.register(instrument, Family::default()) };
        for (value, _) in instrument.values {
            counter.counter(value);
        }
        counter
    }

    pub(crate) fn count(&self, value: &str) {
        self.counter(value).inc();
    }

    fn counter(&self, value: &str) -> Counter {
        self.family.get_or_create_owned(&vec![(self.label, value.to_owned())])
    }
}

pub(crate) struct RevisionMetrics {
    families: Metrics,
    revision: Labels,
    all: Labels,
    /// Last reported average concurrency.
    pub(crate) concurrency: Gauge<f64, AtomicU64>,
    queued: Gauge,
    /// Number of requests that began to wait since the last call of `waiting`.
    waited: AtomicU32,
    /// Number of requests at pods.
    pub(crate) active: Gauge,
    held: Histogram,
    server: Arc<Side<3>>,
    client: Arc<Side<2>>,
    forgotten: AtomicBool,
}

impl Metrics {
    /// Registers all families. `on_cold_start` is called for every cold start.
    pub(crate) fn new(registry: &telemetry::Metrics, mode: Mode, on_cold_start: Option<OnColdStart>) -> Self {
        let cold_start: fn() -> Histogram = || Histogram::new(COLD_START_BUCKETS);
        let seconds = |instrument| registry.family(instrument, telemetry::Family::with_constructor(cold_start));
        let duration = |instrument| Measure { instrument, bounds: &DURATION_BUCKETS };
        let size = |instrument| Measure { instrument, bounds: &SIZE_BUCKETS };
        let server = [
            duration(catalog::SERVER_DURATION),
            size(catalog::SERVER_REQUEST_SIZE),
            size(catalog::SERVER_RESPONSE_SIZE),
        ];
        let server = Sides::register(registry, mode, 500, server);
        let client = [duration(catalog::CLIENT_DURATION), size(catalog::CLIENT_REQUEST_SIZE)];
        let peer = vec![("peer", "autoscaler".to_owned())];
        let link: Family<Labels, Gauge> = Family::default();
        let errors: Family<Labels, Counter> = Family::default();
        Self {
            concurrency: registry.family(catalog::REQUEST_CONCURRENCY, telemetry::Family::default()),
            queued: registry.family(catalog::REQUEST_QUEUED, telemetry::Family::default()),
            active: registry.family(catalog::REQUEST_ACTIVE, telemetry::Family::default()),
            unknown: server.side(Vec::new()),
            server,
            client: Sides::register(registry, mode, 400, client),
            held: seconds(catalog::HELD),
            cold_start: seconds(catalog::COLD_START),
            cold_start_phase: seconds(catalog::COLD_START_PHASE),
            connections_ended: registry.family(catalog::TCP_ENDED, telemetry::Family::default()),
            refused: WordCounter::register(registry, catalog::REFUSED, "reason"),
            answered: WordCounter::register(registry, catalog::ANSWERED, "kind"),
            relayed: registry.register(catalog::RELAYED, Counter::default()),
            on_cold_start,
            link_reachable: registry.register(catalog::STATS_REACHABLE, link).get_or_create_owned(&peer),
            link_errors: registry.register(catalog::STATS_ERRORS, errors).get_or_create_owned(&peer),
        }
    }

    pub(crate) fn revision(&self, spec: &Spec) -> RevisionMetrics {
        let revision = vec![
            ("k8s_namespace_name", spec.key.namespace().to_owned()),
            ("kn_revision_name", spec.key.name().to_owned()),
        ];
        let mut all = revision.clone();
        all.push(("kn_configuration_name", spec.configuration.to_string()));
        all.push(("kn_service_name", spec.service.to_string()));
        RevisionMetrics {
            concurrency: self.concurrency.get_or_create(&all),
            queued: self.queued.get_or_create(&revision),
            waited: AtomicU32::new(0),
            active: self.active.get_or_create(&revision),
            held: self.held.get_or_create(&revision),
            server: self.server.side(all.clone()),
            client: self.client.side(all.clone()),
            forgotten: AtomicBool::new(false),
            families: self.clone(),
            revision,
            all,
        }
    }

    /// Records a refused exchange that belongs to no revision.
    pub(crate) fn refused_unknown(&self, kind: &ExchangeKind, ending: Ending, took: Duration) {
        self.unknown.observe(kind, ending, [took.as_secs_f64(), 0.0, 0.0]);
    }
}

impl RevisionMetrics {
    /// Returns the number of requests that began to wait since the last call, and the number that wait now.
    pub(crate) fn waiting(&self) -> [u32; 2] {
        [self.waited.swap(0, Ordering::Relaxed), u32::try_from(self.queued.get()).unwrap_or_default()]
    }

    /// Reports whether a request waits for a pod.
    pub(crate) fn is_held(&self) -> bool {
        self.queued.get() > 0
    }

    /// Removes the series of a revision that has ended. Its running requests are still counted, but not exported:
    /// another revision may have taken its name.
    pub(crate) fn forget(&self) {
        self.forgotten.store(true, Ordering::Release);
        self.families.concurrency.remove(&self.all);
        self.families.queued.remove(&self.revision);
        self.families.active.remove(&self.revision);
        self.families.held.remove(&self.revision);
        self.families.cold_start.remove(&self.revision);
        for phase in PHASES {
            self.families.cold_start_phase.remove(&self.with_label("phase", phase));
        }
        for (_, word) in ENDS {
            self.families.connections_ended.remove(&self.with_label("reason", word));
        }
        self.families.server.remove(&self.server);
        self.families.client.remove(&self.client);
    }

    /// Records a finished exchange, from the client's perspective. Body sizes in bytes.
    pub(crate) fn finished(&self, kind: &ExchangeKind, ending: Ending, took: Duration, [request, response]: [u64; 2]) {
        self.server.observe(kind, ending, [took.as_secs_f64(), request as f64, response as f64]);
    }

    /// Records the outcome of a request at a pod. `length`: size of the request body, if known.
    pub(crate) fn sent(&self, kind: &ExchangeKind, ending: Ending, took: Duration, length: Option<u64>) {
        let length = length.map_or(f64::NAN, |length| length as f64);
        self.client.observe(kind, ending, [took.as_secs_f64(), length]);
    }

    /// Records the time that a request waited for a slot.
    pub(crate) fn held(&self, waited: Duration) {
        self.held.observe(waited.as_secs_f64());
    }

    pub(crate) fn cold_start(&self, cold: &ColdStart) {
        if self.forgotten.load(Ordering::Acquire) {
            return;
        }
        let p = cold.phases();
        self.families.cold_start.get_or_create(&self.revision).observe(cold.total().as_secs_f64());
        for (phase, length) in PHASES.into_iter().zip([p.signal, p.scale, p.probe, p.release + p.answer]) {
            let labels = self.with_label("phase", phase);
            self.families.cold_start_phase.get_or_create(&labels).observe(length.as_secs_f64());
        }
    }

    pub(crate) fn notify(&self, cold: &ColdStart) {
        if let Some(on_cold_start) = &self.families.on_cold_start {
            on_cold_start(cold);
        }
    }

    pub(crate) fn connection_ended(&self, how: Ended) {
        if self.forgotten.load(Ordering::Acquire) {
            return;
        }
        for (_, word) in ENDS.iter().filter(|(end, _)| *end == how) {
            self.families.connections_ended.get_or_create(&self.with_label("reason", word)).inc();
        }
    }

    fn with_label(&self, label: &'static str, value: &str) -> Labels {
        let mut labels = self.revision.clone();
        labels.push((label, value.to_owned()));
        labels
    }
}

/// Returns the method as in OpenTelemetry: `_OTHER` if HTTP does not define it.
pub(crate) fn method_name(method: &Method) -> &str {
    if is_standard(method) { method.as_str() } else { OTHER }
}

fn is_standard(method: &Method) -> bool {
    const STANDARD: [&str; 10] =
        ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "CONNECT", "TRACE", "QUERY"];
    STANDARD.contains(&method.as_str())
}

pub(crate) struct Queued(Gauge);

impl Queued {
    pub(crate) fn new(metrics: &RevisionMetrics) -> Self {
        metrics.queued.inc();
        metrics.waited.fetch_add(1, Ordering::Relaxed);
        Self(metrics.queued.clone())
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.dec();
    }
}
