//! What the activator counts, under upstream's names.
//!
//! Handles are registered once for each revision and held by it; a request touches atomics and, when it is answered and
//! at its end, histograms, which it finds by method, status, version and scheme ([`series`]): few combinations
//! in practice.
//!
//! What there is, and what it means, stands in the [`catalog`]. The phases of a cold start are all measured here, one after
//! the other, and add up to the whole. The autoscaler's part of `pod` is a metric of its own there.
//!
//! # Differences from Knative
//!
//! No `server_address` and `server_port`: the one is the client's free choice, which would let anybody make as many
//! series as they like, the other grows with every pod. A status that HTTP does not name counts under its class, such as
//! `7xx`, for the same reason. In a drop-in an exchange without an answer has no client series. A revision's series begin
//! with its first request or pod, and end with it, or when it has had neither for five minutes.

pub(crate) mod clients;
pub(crate) mod cold_start;
pub(crate) mod ending;
mod series;

use crate::discovery::Spec;
use activator_net::Ended;
use cold_start::ColdStart;
use common_runtime::telemetry::{self, catalog, values};
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

/// Upstream's buckets for durations of requests, seconds.
const DURATION_BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Upstream's buckets for bodies, bytes.
const SIZE_BUCKETS: [f64; 15] =
    [0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2500.0, 5000.0, 7500.0, 10000.0];

/// Cold starts reach from milliseconds to minutes.
const COLD_START_BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

/// The phases of a cold start.
const PHASES: [&str; 4] = ["signal", "pod", "probe", "forward"];

/// A method that nobody knows.
const OTHER: &str = "_OTHER";

/// How relayed connections end, and the words for it.
const ENDS: [(Ended, &str); 6] = [
    (Ended::Closed, "closed"),
    (Ended::Client, "client"),
    (Ended::Pod, "pod"),
    (Ended::Request, "request"),
    (Ended::Idle, "idle-timeout"),
    (Ended::Cut, "drain"),
];

/// All families of one activator. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    concurrency: telemetry::Family<Labels, Gauge<f64, AtomicU64>>,
    queued: telemetry::Family<Labels, Gauge>,
    active: telemetry::Family<Labels, Gauge>,
    /// Duration, size of the request, size of the response.
    server: Sides<3>,
    /// Duration, size of the request.
    client: Sides<2>,
    held: Histograms,
    cold_start: Histograms,
    cold_start_phase: Histograms,
    connections_ended: telemetry::Family<Labels, Counter>,
    refused: Refused,
    answered: Answered,
    relayed: RelayCounter,
    /// Whether the stat link is up.
    pub(crate) link_reachable: Gauge,
    /// Lost connections of the stat link.
    pub(crate) link_errors: Counter,
}

/// How attributes are written where OpenTelemetry's conventions have moved on since Knative took them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Convention {
    /// As Knative's activator: HTTP/2 is `2.0`, QUERY is a method that nobody knows, errors have no type. The drop-in's.
    Knative,
    /// HTTP/2 is `2`, QUERY is a method, and errors have a type.
    OpenTelemetry,
}

/// What an exchange is found by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExchangeKind {
    /// As asked; `_OTHER` for what HTTP does not define.
    method: Method,
    /// As spoken on that side.
    version: Version,
    /// Whether that side speaks TLS.
    tls: bool,
}

impl ExchangeKind {
    /// Of one side of an exchange.
    pub(crate) fn new(method: &Method, version: Version, tls: bool) -> Self {
        let method = match is_standard(method) {
            true => method.clone(),
            false => Method::from_bytes(OTHER.as_bytes()).unwrap_or(Method::GET),
        };
        Self { method, version, tls }
    }

    /// The labels of its series with `ending`, after `base`. Statuses are errors from `errors_from` on.
    fn labels(&self, base: &Labels, ending: Ending, convention: Convention, errors_from: u16) -> Labels {
        let version = match (self.version, convention) {
            (Version::HTTP_10, _) => "1.0",
            (Version::HTTP_2, Convention::Knative) => "2.0",
            (Version::HTTP_2, Convention::OpenTelemetry) => "2",
            _ => "1.1",
        };
        let method = match convention {
            Convention::Knative if self.method == Method::QUERY => OTHER,
            _ => self.method.as_str(),
        };
        let mut labels = base.clone();
        labels.push(("http_request_method", method.to_owned()));
        labels.extend(ending.status().map(|status| ("http_response_status_code", status)));
        labels.push(("network_protocol_name", "http".to_owned()));
        labels.push(("network_protocol_version", version.to_owned()));
        labels.push(("url_scheme", if self.tls { "https" } else { "http" }.to_owned()));
        if convention == Convention::OpenTelemetry {
            labels.extend(ending.error(errors_from).map(|error| ("error_type", error)));
        }
        labels
    }
}

/// Exchanges that no revision answers for.
#[derive(Clone)]
pub(crate) struct Unknown(Arc<Side<3>>);

/// Answers of our own, by reason. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Refused(Family<Labels, Counter>);

impl Refused {
    /// One more.
    pub(crate) fn count(&self, reason: &'static str) {
        self.0.get_or_create_owned(&vec![("reason", reason.to_owned())]).inc();
    }
}

/// Requests and connections that were relayed to other activators. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RelayCounter(Counter);

impl RelayCounter {
    /// One more.
    pub(crate) fn count(&self) {
        self.0.inc();
    }
}

/// Answers that needed no pod, by kind. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Answered(Family<Labels, Counter>);

impl Answered {
    /// One more.
    pub(crate) fn count(&self, kind: &'static str) {
        self.0.get_or_create_owned(&vec![("kind", kind.to_owned())]).inc();
    }
}

/// One revision's handles.
pub(crate) struct RevisionMetrics {
    families: Metrics,
    revision: Labels,
    all: Labels,
    /// The last reported average.
    pub(crate) concurrency: Gauge<f64, AtomicU64>,
    queued: Gauge,
    /// Requests that began to wait since somebody asked.
    waited: AtomicU32,
    /// Requests at pods.
    pub(crate) active: Gauge,
    held: Histogram,
    server: Arc<Side<3>>,
    client: Arc<Side<2>>,
    forgotten: AtomicBool,
}

impl Metrics {
    /// Registers all families.
    pub(crate) fn new(registry: &telemetry::Metrics, convention: Convention) -> Self {
        let cold_start: fn() -> Histogram = || Histogram::new(COLD_START_BUCKETS);
        let seconds = |instrument| registry.family(instrument, telemetry::Family::of(cold_start));
        let duration = |instrument| Measure { instrument, bounds: &DURATION_BUCKETS };
        let size = |instrument| Measure { instrument, bounds: &SIZE_BUCKETS };
        let server = [
            duration(catalog::SERVER_DURATION),
            size(catalog::SERVER_REQUEST_SIZE),
            size(catalog::SERVER_RESPONSE_SIZE),
        ];
        let client = [duration(catalog::CLIENT_DURATION), size(catalog::CLIENT_REQUEST_SIZE)];
        let peer = vec![("peer", "autoscaler".to_owned())];
        let link: Family<Labels, Gauge> = Family::default();
        let errors: Family<Labels, Counter> = Family::default();
        Self {
            concurrency: registry.family(catalog::REQUEST_CONCURRENCY, telemetry::Family::default()),
            queued: registry.family(catalog::REQUEST_QUEUED, telemetry::Family::default()),
            active: registry.family(catalog::REQUEST_ACTIVE, telemetry::Family::default()),
            server: Sides::register(registry, convention, 500, server),
            client: Sides::register(registry, convention, 400, client),
            held: seconds(catalog::HELD),
            cold_start: seconds(catalog::COLD_START),
            cold_start_phase: seconds(catalog::COLD_START_PHASE),
            connections_ended: registry.family(catalog::TCP_ENDED, telemetry::Family::default()),
            refused: Refused(registry.register(catalog::REFUSED, from_zero("reason", values::REFUSALS))),
            answered: Answered(registry.register(catalog::ANSWERED, from_zero("kind", values::ANSWERS))),
            relayed: RelayCounter(registry.register(catalog::RELAYED, Counter::default())),
            link_reachable: registry.register(catalog::STATS_REACHABLE, link).get_or_create_owned(&peer),
            link_errors: registry.register(catalog::STATS_ERRORS, errors).get_or_create_owned(&peer),
        }
    }

    /// The handles of one revision.
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

    /// Answers of our own.
    pub(crate) fn refused(&self) -> Refused {
        self.refused.clone()
    }

    /// Answers that needed no pod.
    pub(crate) fn answered(&self) -> Answered {
        self.answered.clone()
    }

    /// Requests and connections that were relayed.
    pub(crate) fn relayed(&self) -> RelayCounter {
        self.relayed.clone()
    }

    /// The handles of exchanges that no revision answers for.
    pub(crate) fn unknown(&self) -> Unknown {
        Unknown(self.server.side(Vec::new()))
    }
}

/// Counters of each of `values`, shown from the start: what comes once is a rise then.
fn from_zero(label: &'static str, values: &[(&'static str, &'static str)]) -> Family<Labels, Counter> {
    let family: Family<Labels, Counter> = Family::default();
    for (value, _) in values {
        family.get_or_create_owned(&vec![(label, (*value).to_owned())]);
    }
    family
}

impl Unknown {
    /// Records an exchange that was refused.
    pub(crate) fn finished(&self, kind: &ExchangeKind, ending: Ending, took: Duration) {
        self.0.observe(kind, ending, [took.as_secs_f64(), 0.0, 0.0]);
    }
}

impl RevisionMetrics {
    /// Requests that began to wait since the last call, and those that wait.
    pub(crate) fn waiting(&self) -> [u32; 2] {
        [self.waited.swap(0, Ordering::Relaxed), u32::try_from(self.queued.get()).unwrap_or_default()]
    }

    /// Returns whether a request waits for a pod.
    pub(crate) fn is_held(&self) -> bool {
        self.queued.get() > 0
    }

    /// The revision is gone and shown no longer. Requests that still run count on, unseen: its name may already be
    /// another's.
    pub(crate) fn forget(&self) {
        self.forgotten.store(true, Ordering::Release);
        self.families.concurrency.remove(&self.all);
        self.families.queued.remove(&self.revision);
        self.families.active.remove(&self.revision);
        self.families.held.remove(&self.revision);
        self.families.cold_start.remove(&self.revision);
        for phase in PHASES {
            self.families.cold_start_phase.remove(&self.with("phase", phase));
        }
        for (_, word) in ENDS {
            self.families.connections_ended.remove(&self.with("reason", word));
        }
        self.families.server.remove(&self.server);
        self.families.client.remove(&self.client);
    }

    /// Records a finished exchange, seen from the client. Bodies in bytes.
    pub(crate) fn finished(&self, kind: &ExchangeKind, ending: Ending, took: Duration, [request, response]: [u64; 2]) {
        self.server.observe(kind, ending, [took.as_secs_f64(), request as f64, response as f64]);
    }

    /// Records what became of a request at a pod. `length` is that of the request's body, if it was told.
    pub(crate) fn sent(&self, kind: &ExchangeKind, ending: Ending, took: Duration, length: Option<u64>) {
        let told = length.map_or(f64::NAN, |length| length as f64);
        self.client.observe(kind, ending, [took.as_secs_f64(), told]);
    }

    /// Records how long a request waited for a place.
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
            self.families.cold_start_phase.get_or_create(&self.with("phase", phase)).observe(length.as_secs_f64());
        }
    }

    /// Counts a relayed connection.
    pub(crate) fn connection_ended(&self, how: Ended) {
        if self.forgotten.load(Ordering::Acquire) {
            return;
        }
        for (_, word) in ENDS.iter().filter(|(end, _)| *end == how) {
            self.families.connections_ended.get_or_create(&self.with("reason", word)).inc();
        }
    }

    fn with(&self, label: &'static str, value: &str) -> Labels {
        let mut labels = self.revision.clone();
        labels.push((label, value.to_owned()));
        labels
    }
}

/// As OpenTelemetry has it: `_OTHER` for what HTTP does not define.
pub(crate) fn method_name(method: &Method) -> &str {
    if is_standard(method) { method.as_str() } else { OTHER }
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
        Method::QUERY,
    ]
    .contains(method)
}

/// A request that is held, as long as this lives.
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
