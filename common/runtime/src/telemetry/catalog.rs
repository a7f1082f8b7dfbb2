//! Every metric there is.
//!
//! Names under `kn.` and `http.` are Knative's, those of the HorizontalPodAutoscaler controller Kubernetes', `process.`
//! Prometheus's for every process; the others are ours.

use super::instrument::Kind::{Counter, Gauge, Histogram, UpDownCounter};
use super::instrument::Plane::{Activator, Autoscaler, Hpa};
use super::instrument::{Instrument, label};
use super::otlp::text;
use std::collections::BTreeSet;

/// What the process is: not a metric.
const TARGET: &str = "target";

const NAMESPACE: &str = "k8s.namespace.name";
const REVISION: &str = "kn.revision.name";
const SERVICE: &str = "kn.service.name";
const CONFIGURATION: &str = "kn.configuration.name";

/// One revision.
const ONE: &[&str] = &[NAMESPACE, REVISION];
/// One revision, and what it belongs to.
const WHOLE: &[&str] = &[NAMESPACE, SERVICE, CONFIGURATION, REVISION];
/// One kind of exchange of a revision, or of none.
const EXCHANGE: &[&str] = &[
    NAMESPACE,
    SERVICE,
    CONFIGURATION,
    REVISION,
    "http.request.method",
    "http.response.status_code",
    "network.protocol.name",
    "network.protocol.version",
    "url.scheme",
];
const REASON: &[&str] = &["reason"];
const OBJECT: &[&str] = &["namespace", "hpa_name"];
const PASS: &[&str] = &["action", "error"];
const COMPUTATION: &[&str] = &["action", "error", "metric_type"];

macro_rules! catalog {
    ($($name:ident = $instrument:expr;)*) => {
        $(#[allow(missing_docs, reason = "it says itself what it means")] pub const $name: Instrument = $instrument;)*

        /// All of them, in the manual's order.
        pub const ALL: &[Instrument] = &[$($name),*];
    };
}

catalog! {
    REQUEST_CONCURRENCY = Instrument::new(Gauge, "kn.revision.request.concurrency",
        "Requests in flight, as last reported to the autoscaler").in_unit("{request}").by(WHOLE).of(Activator);
    REQUEST_QUEUED = Instrument::new(UpDownCounter, "kn.revision.request.queued",
        "Requests that are held").in_unit("{request}").by(ONE).of(Activator);
    REQUEST_ACTIVE = Instrument::new(UpDownCounter, "kn.revision.request.active",
        "Requests at a pod").in_unit("{request}").by(ONE).of(Activator);
    SERVER_DURATION = Instrument::new(Histogram, "http.server.request.duration",
        "From a request's head to the end of its response, holding included").in_unit("s").by(EXCHANGE).of(Activator);
    SERVER_REQUEST_SIZE = Instrument::new(Histogram, "http.server.request.body.size",
        "Bodies of requests, as far as they were passed on").in_unit("By").by(EXCHANGE).of(Activator);
    SERVER_RESPONSE_SIZE = Instrument::new(Histogram, "http.server.response.body.size",
        "Bodies of responses, as far as they were passed on").in_unit("By").by(EXCHANGE).of(Activator);
    CLIENT_DURATION = Instrument::new(Histogram, "http.client.request.duration",
        "From the hand-over to a pod to its response's head").in_unit("s").by(EXCHANGE).of(Activator);
    CLIENT_REQUEST_SIZE = Instrument::new(Histogram, "http.client.request.body.size",
        "Bodies of requests to pods, of a length that was told").in_unit("By").by(EXCHANGE).of(Activator);
    STATS_REACHABLE = Instrument::new(Gauge, "kn.activator.stats.conn.reachable",
        "1 while the connection to the autoscaler is up, else 0").in_unit("{reachable}").by(&["peer"]).of(Activator);
    STATS_ERRORS = Instrument::new(Counter, "kn.activator.stats.conn.errors",
        "Lost connections to the autoscaler").in_unit("{error}").by(&["peer"]).of(Activator);
    HELD = Instrument::new(Histogram, "zeroscale.held",
        "How long requests waited for a place").in_unit("s").by(ONE).of(Activator);
    COLD_START = Instrument::new(Histogram, "zeroscale.cold_start",
        "Requests that found no capacity: from the head read to the response's head").in_unit("s").by(ONE)
        .of(Activator);
    COLD_START_PHASE = Instrument::new(Histogram, "zeroscale.cold_start_phase",
        "What cold starts are made of: `signal` until the autoscaler is told, `pod` until an address is known, `probe` \
         until it answers, `forward` until the response's head").in_unit("s")
        .by(&[NAMESPACE, REVISION, "phase"]).of(Activator);
    REFUSED = Instrument::new(Counter, "zeroscale.refused",
        "Requests that the activator answered itself, and connections that it reset instead of passing them on")
        .by(REASON).of(Activator);
    ANSWERED = Instrument::new(Counter, "zeroscale.answered",
        "Requests that were answered without a pod, as their workload asks for it: `page`, `page-events` (those who wait \
         for its end), `page-events-full` (too many of them), `placeholder`, `static`, `fallback` (by another Service)").by(&["kind"]).of(Activator);
    TCP_ENDED = Instrument::new(Counter, "zeroscale.tcp.connections_ended",
        "Connections that were passed on as bytes, by how they ended").by(&[NAMESPACE, REVISION, "reason"])
        .of(Activator);
    CLIENT_CONNECTIONS = Instrument::new(Gauge, "zeroscale.client_connections",
        "Connections and tunnels of clients that are open").of(Activator);
    CLIENT_CONNECTIONS_ENDED = Instrument::new(Counter, "zeroscale.client_connections_ended",
        "Connections of clients that were refused (`limit`) or ended, because others needed their place (`room`) or \
         nothing happened on them (`idle`)").by(REASON).of(Activator);

    PODS_DESIRED = Instrument::new(Gauge, "kn.revision.pods.desired",
        "Pods that the autoscaler wants, min and max scale aside").in_unit("{item}").by(WHOLE).of(Autoscaler);
    CAPACITY_EXCESS = Instrument::new(Gauge, "kn.revision.capacity.excess",
        "Excess burst capacity; negative: activators are in the path").in_unit("{concurrency}").by(WHOLE)
        .of(Autoscaler);
    PANIC_MODE = Instrument::new(Gauge, "kn.revision.panic.mode",
        "1 while the autoscaler panics, else 0").by(WHOLE).of(Autoscaler);
    CONCURRENCY_STABLE = Instrument::new(Gauge, "kn.revision.concurrency.stable",
        "Requests in flight of the whole revision, averaged over the stable window").in_unit("{concurrency}").by(WHOLE)
        .of(Autoscaler);
    CONCURRENCY_PANIC = Instrument::new(Gauge, "kn.revision.concurrency.panic",
        "Requests in flight of the whole revision, averaged over the panic window").in_unit("{concurrency}").by(WHOLE)
        .of(Autoscaler);
    CONCURRENCY_TARGET = Instrument::new(Gauge, "kn.revision.concurrency.target",
        "Requests in flight that one pod should see").in_unit("{concurrency}").by(WHOLE).of(Autoscaler);
    RPS_STABLE = Instrument::new(Gauge, "kn.revision.rps.stable",
        "Requests a second of the whole revision, averaged over the stable window").in_unit("{request}/s").by(WHOLE)
        .of(Autoscaler);
    RPS_PANIC = Instrument::new(Gauge, "kn.revision.rps.panic",
        "Requests a second of the whole revision, averaged over the panic window").in_unit("{request}/s").by(WHOLE)
        .of(Autoscaler);
    RPS_TARGET = Instrument::new(Gauge, "kn.revision.rps.target",
        "Requests a second that one pod should see").in_unit("{request}/s").by(WHOLE).of(Autoscaler);
    PODS_REQUESTED = Instrument::new(Gauge, "kn.revision.pods.requested",
        "Pods asked of the target, bounds and grace periods applied").in_unit("{pod}").by(WHOLE).of(Autoscaler);
    PODS_COUNT = Instrument::new(Gauge, "kn.revision.pods.count", "Ready pods").in_unit("{pod}").by(WHOLE)
        .of(Autoscaler);
    PODS_NOT_READY = Instrument::new(Gauge, "kn.revision.pods.not_ready.count", "Pods that are not ready")
        .in_unit("{pod}").by(WHOLE).of(Autoscaler);
    PODS_PENDING = Instrument::new(Gauge, "kn.revision.pods.pending.count", "Pods that have not started yet")
        .in_unit("{pod}").by(WHOLE).of(Autoscaler);
    PODS_TERMINATING = Instrument::new(Gauge, "kn.revision.pods.terminating.count", "Pods on their way out")
        .in_unit("{pod}").by(WHOLE).of(Autoscaler);
    SCRAPE_DURATION = Instrument::new(Histogram, "kn.autoscaler.scrape.duration",
        "How long it took to ask the pods of one revision").in_unit("s").by(&[NAMESPACE, SERVICE, CONFIGURATION])
        .of(Autoscaler);
    SCALE_FROM_ZERO = Instrument::new(Histogram, "zeroscale.scale_from_zero",
        "From the stat that asked for a pod to the API server's answer to the patch").in_unit("s").by(ONE)
        .of(Autoscaler);
    TICK_LATENESS = Instrument::new(Histogram, "zeroscale.tick_lateness",
        "From when a phase of revisions was due until the last of them was decided").in_unit("s").of(Autoscaler);
    STAT_CONNECTIONS = Instrument::new(Gauge, "zeroscale.stat_connections", "Open stat connections").of(Autoscaler);
    STAT_FRAMES = Instrument::new(Counter, "zeroscale.stat_frames", "Binary frames read from stat connections")
        .of(Autoscaler);
    STAT_BAD_FRAMES = Instrument::new(Counter, "zeroscale.stat_bad_frames", "Frames that hold no stats").by(REASON)
        .of(Autoscaler);
    STAT_TLS_REFUSALS = Instrument::new(Counter, "zeroscale.stat_tls_refusals",
        "Stat connections refused for want of TLS").of(Autoscaler);
    STAT_REFUSALS = Instrument::new(Counter, "zeroscale.stat_refusals",
        "Handshakes for stats that were refused for want of a good token").of(Autoscaler);
    STATS_RECORDED = Instrument::new(Counter, "zeroscale.stats_recorded",
        "Stats that count in a window of this process").of(Autoscaler);
    STATS_FORWARDED = Instrument::new(Counter, "zeroscale.stats_forwarded",
        "Stats sent on to the instance that owns them").of(Autoscaler);
    STATS_DROPPED = Instrument::new(Counter, "zeroscale.stats_dropped", "Stats that count nowhere").by(REASON)
        .of(Autoscaler);

    HPA_RECONCILIATIONS = Instrument::new(Counter, "horizontal_pod_autoscaler_controller.reconciliations",
        "Reconciliations").by(PASS).of(Hpa);
    HPA_RECONCILIATION_DURATION = Instrument::new(Histogram,
        "horizontal_pod_autoscaler_controller.reconciliation_duration", "How long a reconciliation took").in_unit("s")
        .by(PASS).of(Hpa);
    HPA_COMPUTATIONS = Instrument::new(Counter, "horizontal_pod_autoscaler_controller.metric_computation",
        "Computations of one metric").by(COMPUTATION).of(Hpa);
    HPA_COMPUTATION_DURATION = Instrument::new(Histogram,
        "horizontal_pod_autoscaler_controller.metric_computation_duration", "How long it took to read one metric")
        .in_unit("s").by(COMPUTATION).of(Hpa);
    HPA_OBJECTS = Instrument::new(Gauge, "horizontal_pod_autoscaler_controller.num_horizontal_pod_autoscalers",
        "HorizontalPodAutoscalers").of(Hpa);
    HPA_DESIRED = Instrument::new(Gauge, "horizontal_pod_autoscaler_controller.desired_replicas",
        "Replicas decided on").by(OBJECT).of(Hpa);
    HPA_FOREIGN = Instrument::new(Gauge, "zeroscale.hpa_foreign_manager",
        "1 where nothing is done because another manager writes the status").by(OBJECT).of(Hpa);
    HPA_PANICS = Instrument::new(Counter, "zeroscale.hpa_panics",
        "Reconciliations that ended by a fault of the program").of(Hpa);

    CONFIG_REFUSED = Instrument::new(Gauge, "zeroscale.config_refused",
        "1 while a ConfigMap breaks a rule and what was before it, or the default, is in force").by(&["config_map"]);
}

/// The instrument behind a family of Prometheus's text.
pub(super) fn by_family(family: &str) -> Option<&'static Instrument> {
    ALL.iter().find(|instrument| instrument.family() == family)
}

/// The attribute behind a label.
pub(super) fn attribute(label: &str) -> &str {
    let same = |name: &str| {
        name.len() == label.len() && name.bytes().zip(label.bytes()).all(|(n, l)| n == l || (n == b'.' && l == b'_'))
    };
    let all = ALL.iter().flat_map(|instrument| instrument.attributes);
    all.copied().find(|name| same(name)).unwrap_or(label)
}

/// What of a plane's text is not as it stands here: families that are not listed or of another kind, and attributes that
/// theirs do not list. None, if all is well.
pub fn strangers(text: &str) -> Vec<String> {
    let mut strangers = Vec::new();
    for family in text::families(text).iter().filter(|family| family.name != TARGET) {
        let Some(instrument) = by_family(family.name) else {
            strangers.push(format!("{} is not listed", family.name));
            continue;
        };
        let (kind, listed) = (family.kind.as_str(), instrument.kind.prometheus());
        if kind != listed {
            strangers.push(format!("{} is a {kind}, not a {listed}", family.name));
        }
        let labels: BTreeSet<&str> =
            family.samples.iter().flat_map(|sample| &sample.labels).map(|(name, _)| *name).collect();
        let known: BTreeSet<String> = instrument.attributes.iter().map(|attribute| label(attribute)).collect();
        let is_known = |name: &str| known.contains(name) || (name == "le" && instrument.kind == Histogram);
        strangers
            .extend(labels.into_iter().filter(|name| !is_known(name)).map(|name| format!("{}: {name}", family.name)));
    }
    strangers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is not listed is named, whatever it is that differs.
    #[test]
    fn what_is_not_listed_is_named() {
        let text = "# TYPE zeroscale_held_seconds histogram\nzeroscale_held_seconds_bucket{le=\"1\",k8s_namespace_name=\"a\"} 1\n\
            # TYPE zeroscale_refused gauge\nzeroscale_refused{reason=\"a\",pod=\"b\"} 1\n# TYPE unheard_of gauge\n\
            # TYPE target info\ntarget_info{a=\"b\"} 1\n# EOF\n";
        let expected =
            ["zeroscale_refused is a gauge, not a counter", "zeroscale_refused: pod", "unheard_of is not listed"];
        assert_eq!(strangers(text), expected);
    }

    /// Goal: nothing is listed twice, and each says what it is in one sentence.
    #[test]
    fn every_name_is_one_instruments() {
        let families: BTreeSet<String> = ALL.iter().map(Instrument::family).collect();
        assert_eq!(families.len(), ALL.len());
        for instrument in ALL {
            assert!(!instrument.meaning.is_empty() && !instrument.meaning.ends_with('.'), "{instrument:?}");
            assert_eq!(by_family(&instrument.family()), Some(instrument));
        }
        assert_eq!(attribute("http_response_status_code"), "http.response.status_code");
        assert_eq!((attribute("metric_type"), attribute("unheard_of")), ("metric_type", "unheard_of"));
    }
}
