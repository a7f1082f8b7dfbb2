//! Catalog of all metrics.
//!
//! Names under `kn.` and `http.` are Knative's. Those of the HorizontalPodAutoscaler controller are Kubernetes'.
//! `process.` is OpenTelemetry's, for which Prometheus has its own names. The others are Zeroscale's and follow
//! OpenTelemetry's naming rules. Attributes of one word (`reason`, `outcome`) have a meaning specific to their metric,
//! as is usual in Prometheus.

use super::instrument::Kind::{Counter, Gauge, Histogram, UpDownCounter};
use super::instrument::Plane::{Activator, Autoscaler, Hpa};
use super::instrument::{Instrument, label};
use super::otlp::text;
use super::values;
use std::collections::BTreeSet;

/// Description of the process, which is not a metric.
const TARGET: [&str; 2] = ["target", "target_info"];

const NAMESPACE: &str = "k8s.namespace.name";
const REVISION: &str = "kn.revision.name";
const SERVICE: &str = "kn.service.name";
const CONFIGURATION: &str = "kn.configuration.name";

/// Attributes of one revision.
const ONE: &[&str] = &[NAMESPACE, REVISION];
/// Attributes of one revision and its owners.
const WHOLE: &[&str] = &[NAMESPACE, SERVICE, CONFIGURATION, REVISION];
/// Attributes of one kind of exchange, of a revision or of none.
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
    "error.type",
];
const REASON: &[&str] = &["reason"];
const OBJECT: &[&str] = &["namespace", "hpa_name"];
const PASS: &[&str] = &["action", "error"];
const COMPUTATION: &[&str] = &["action", "error", "metric_type"];

macro_rules! catalog {
    ($($name:ident = $instrument:expr;)*) => {
        $(#[allow(missing_docs, reason = "it says itself what it means")] pub const $name: Instrument = $instrument;)*

        /// All instruments, in the manual's order.
        pub const ALL: &[Instrument] = &[$($name),*];
    };
}

catalog! {
    REQUEST_CONCURRENCY = Instrument::new(Gauge, "kn.revision.request.concurrency",
        "Requests in flight, as last reported to the autoscaler").in_unit("{request}").by(WHOLE).in_plane(Activator);
    REQUEST_QUEUED = Instrument::new(UpDownCounter, "kn.revision.request.queued",
        "Held requests").in_unit("{request}").by(ONE).in_plane(Activator);
    REQUEST_ACTIVE = Instrument::new(UpDownCounter, "kn.revision.request.active",
        "Requests at a pod").in_unit("{request}").by(ONE).in_plane(Activator);
    SERVER_DURATION = Instrument::new(Histogram, "http.server.request.duration",
        "Time from a request's head to the end of its response, holding included").in_unit("s").by(EXCHANGE).in_plane(Activator);
    SERVER_REQUEST_SIZE = Instrument::new(Histogram, "http.server.request.body.size",
        "Size of request bodies, as far as they were forwarded").in_unit("By").by(EXCHANGE).in_plane(Activator);
    SERVER_RESPONSE_SIZE = Instrument::new(Histogram, "http.server.response.body.size",
        "Size of response bodies, as far as they were forwarded").in_unit("By").by(EXCHANGE).in_plane(Activator);
    CLIENT_DURATION = Instrument::new(Histogram, "http.client.request.duration",
        "Time from the start of sending to a pod to its response's head").in_unit("s").by(EXCHANGE).in_plane(Activator);
    CLIENT_REQUEST_SIZE = Instrument::new(Histogram, "http.client.request.body.size",
        "Size of request bodies to pods with a declared length").in_unit("By").by(EXCHANGE).in_plane(Activator);
    STATS_REACHABLE = Instrument::new(Gauge, "kn.activator.stats.conn.reachable",
        "1 while the connection to the autoscaler is up, otherwise 0").in_unit("{reachable}").by(&["peer"]).in_plane(Activator);
    STATS_ERRORS = Instrument::new(Counter, "kn.activator.stats.conn.errors",
        "Lost connections to the autoscaler").in_unit("{error}").by(&["peer"]).in_plane(Activator);
    HELD = Instrument::new(Histogram, "zeroscale.held",
        "Time that requests waited for a slot").in_unit("s").by(ONE).in_plane(Activator);
    COLD_START = Instrument::new(Histogram, "zeroscale.cold_start",
        "Time from a request's head to its response's head, for requests that found no capacity").in_unit("s").by(ONE)
        .in_plane(Activator);
    COLD_START_PHASE = Instrument::new(Histogram, "zeroscale.cold_start_phase",
        "Phases of cold starts; they add up to the total time").in_unit("s")
        .by(&[NAMESPACE, REVISION, "phase"]).saying(values::PHASES).in_plane(Activator);
    REFUSED = Instrument::new(Counter, "zeroscale.refused",
        "Requests that the activator refused itself, and connections that it reset instead of forwarding them")
        .in_unit("{request}").by(REASON).saying(values::REFUSALS).in_plane(Activator);
    ANSWERED = Instrument::new(Counter, "zeroscale.answered",
        "Requests that got a response without a pod, as configured by their workload").in_unit("{request}").by(&["kind"])
        .saying(values::ANSWERS).in_plane(Activator);
    TCP_ENDED = Instrument::new(Counter, "zeroscale.tcp.connections_ended",
        "Connections that were forwarded as bytes, by the reason of their end").in_unit("{connection}")
        .by(&[NAMESPACE, REVISION, "reason"]).saying(values::TCP_ENDS).in_plane(Activator);
    RELAYED = Instrument::new(Counter, "zeroscale.relayed",
        "Requests and connections relayed to the activator that holds their workload").in_unit("{request}")
        .in_plane(Activator);
    POD_SHARING = Instrument::new(Gauge, "zeroscale.pod_sharing",
        "Use of pods with a hard limit: 1 for the current state, 0 for the others").by(&["standing"]).saying(values::STANDINGS)
        .in_plane(Activator);
    CLIENT_CONNECTIONS = Instrument::new(Gauge, "zeroscale.client.connections",
        "Open connections and tunnels of clients").in_unit("{connection}").in_plane(Activator);
    CLIENT_CONNECTIONS_ENDED = Instrument::new(Counter, "zeroscale.client.connections_ended",
        "Client connections that the activator refused or closed").in_unit("{connection}").by(REASON)
        .saying(values::CLIENT_ENDS).in_plane(Activator);

    PODS_DESIRED = Instrument::new(Gauge, "kn.revision.pods.desired",
        "Pods that the autoscaler recommends, before minimum and maximum are applied").in_unit("{item}").by(WHOLE).in_plane(Autoscaler);
    CAPACITY_EXCESS = Instrument::new(Gauge, "kn.revision.capacity.excess",
        "Excess burst capacity; if negative, activators are in the path").in_unit("{concurrency}").by(WHOLE)
        .in_plane(Autoscaler);
    PANIC_MODE = Instrument::new(Gauge, "kn.revision.panic.mode",
        "1 in panic mode, otherwise 0").by(WHOLE).in_plane(Autoscaler);
    CONCURRENCY_STABLE = Instrument::new(Gauge, "kn.revision.concurrency.stable",
        "Requests in flight of the whole revision, averaged over the stable window").in_unit("{concurrency}").by(WHOLE)
        .in_plane(Autoscaler);
    CONCURRENCY_PANIC = Instrument::new(Gauge, "kn.revision.concurrency.panic",
        "Requests in flight of the whole revision, averaged over the panic window").in_unit("{concurrency}").by(WHOLE)
        .in_plane(Autoscaler);
    CONCURRENCY_TARGET = Instrument::new(Gauge, "kn.revision.concurrency.target",
        "Target of requests in flight per pod").in_unit("{concurrency}").by(WHOLE).in_plane(Autoscaler);
    RPS_STABLE = Instrument::new(Gauge, "kn.revision.rps.stable",
        "Requests per second of the whole revision, averaged over the stable window").in_unit("{request}/s").by(WHOLE)
        .in_plane(Autoscaler);
    RPS_PANIC = Instrument::new(Gauge, "kn.revision.rps.panic",
        "Requests per second of the whole revision, averaged over the panic window").in_unit("{request}/s").by(WHOLE)
        .in_plane(Autoscaler);
    RPS_TARGET = Instrument::new(Gauge, "kn.revision.rps.target",
        "Target of requests per second and pod").in_unit("{request}/s").by(WHOLE).in_plane(Autoscaler);
    PODS_REQUESTED = Instrument::new(Gauge, "kn.revision.pods.requested",
        "Pods requested from the target, with bounds and grace periods applied").in_unit("{pod}").by(WHOLE).in_plane(Autoscaler);
    PODS_COUNT = Instrument::new(Gauge, "kn.revision.pods.count", "Ready pods").in_unit("{pod}").by(WHOLE)
        .in_plane(Autoscaler);
    PODS_NOT_READY = Instrument::new(Gauge, "kn.revision.pods.not_ready.count", "Pods that are not ready")
        .in_unit("{pod}").by(WHOLE).in_plane(Autoscaler);
    PODS_PENDING = Instrument::new(Gauge, "kn.revision.pods.pending.count", "Pods that have not started yet")
        .in_unit("{pod}").by(WHOLE).in_plane(Autoscaler);
    PODS_TERMINATING = Instrument::new(Gauge, "kn.revision.pods.terminating.count", "Terminating pods")
        .in_unit("{pod}").by(WHOLE).in_plane(Autoscaler);
    SCRAPE_DURATION = Instrument::new(Histogram, "kn.autoscaler.scrape.duration",
        "Time to scrape the pods of one revision").in_unit("s").by(&[NAMESPACE, SERVICE, CONFIGURATION])
        .in_plane(Autoscaler);
    SCALE_FROM_ZERO = Instrument::new(Histogram, "zeroscale.scale_from_zero",
        "Time from the stat that requested a pod to the API server's response to the patch").in_unit("s").by(ONE)
        .in_plane(Autoscaler);
    TICK_LATENESS = Instrument::new(Histogram, "zeroscale.tick.lateness",
        "Delay from the due time of a group of revisions to the decision about the last of them").in_unit("s").in_plane(Autoscaler);
    WAKES = Instrument::new(Counter, "zeroscale.wakes",
        "Scales from zero, by their result").in_unit("{wake}")
        .by(&[NAMESPACE, REVISION, "outcome"]).saying(values::WAKES).in_plane(Autoscaler);
    POD_TIME = Instrument::new(Counter, "zeroscale.pod.time",
        "Time that pods ran, ready or not, and time that was saved").in_unit("s")
        .by(&[NAMESPACE, REVISION, "state"]).saying(values::POD_TIMES).in_plane(Autoscaler);
    DECISIONS = Instrument::new(Counter, "zeroscale.decisions", "Evaluations of load, by their result")
        .in_unit("{decision}").by(&["outcome"]).saying(values::DECISIONS).in_plane(Autoscaler);
    LEASE_HELD = Instrument::new(Gauge, "zeroscale.lease.held",
        "1 while this process decides about the workloads of the lease, otherwise 0").by(&["lease"]).in_plane(Autoscaler);
    LEASE_OWNED = Instrument::new(Gauge, "zeroscale.lease.owned",
        "1 while this process or another, also Knative's, decides about the workloads of the lease, as far as this process sees; \
         otherwise 0").by(&["lease"]).in_plane(Autoscaler);
    API_WRITES = Instrument::new(Counter, "zeroscale.api.writes",
        "Writes to the API server by class (`wake`: replicas from zero; `scale`: other changes of replicas and of the \
         path; `object`: objects and statuses) and by result; of Events only those that a ZeroScaler's status waits for")
        .in_unit("{write}").by(&["class", "outcome"]).saying(values::WRITES).in_plane(Autoscaler);
    API_WAITING = Instrument::new(Gauge, "zeroscale.api.writes_waiting",
        "Writes that wait for the rate limit").in_unit("{write}").in_plane(Autoscaler);
    STAT_CONNECTIONS = Instrument::new(Gauge, "zeroscale.stat.connections", "Open stat connections")
        .in_unit("{connection}").in_plane(Autoscaler);
    STAT_FRAMES = Instrument::new(Counter, "zeroscale.stat.frames", "Binary frames read from stat connections")
        .in_unit("{frame}").in_plane(Autoscaler);
    STAT_BAD_FRAMES = Instrument::new(Counter, "zeroscale.stat.bad_frames", "Frames without valid stats")
        .in_unit("{frame}").by(REASON).saying(values::BAD_FRAMES).in_plane(Autoscaler);
    STAT_TLS_REFUSALS = Instrument::new(Counter, "zeroscale.stat.tls_refusals",
        "Stat connections refused because they do not use TLS").in_unit("{connection}").in_plane(Autoscaler);
    STAT_REFUSALS = Instrument::new(Counter, "zeroscale.stat.refusals",
        "Stat handshakes refused because they have no valid token").in_unit("{connection}").in_plane(Autoscaler);
    STATS_RECORDED = Instrument::new(Counter, "zeroscale.stats.recorded",
        "Stats recorded in a window of this process").in_unit("{stat}").in_plane(Autoscaler);
    STATS_FORWARDED = Instrument::new(Counter, "zeroscale.stats.forwarded",
        "Stats forwarded to the instance that owns them").in_unit("{stat}").in_plane(Autoscaler);
    STATS_DROPPED = Instrument::new(Counter, "zeroscale.stats.dropped", "Dropped stats").in_unit("{stat}")
        .by(REASON).saying(values::DROPPED).in_plane(Autoscaler);

    HPA_RECONCILIATIONS = Instrument::new(Counter, "horizontal_pod_autoscaler_controller.reconciliations",
        "Reconciliations").by(PASS).in_plane(Hpa);
    HPA_RECONCILIATION_DURATION = Instrument::new(Histogram,
        "horizontal_pod_autoscaler_controller.reconciliation_duration", "Duration of a reconciliation").in_unit("s")
        .by(PASS).in_plane(Hpa);
    HPA_COMPUTATIONS = Instrument::new(Counter, "horizontal_pod_autoscaler_controller.metric_computation",
        "Computations of one metric").by(COMPUTATION).in_plane(Hpa);
    HPA_COMPUTATION_DURATION = Instrument::new(Histogram,
        "horizontal_pod_autoscaler_controller.metric_computation_duration", "Time to read one metric")
        .in_unit("s").by(COMPUTATION).in_plane(Hpa);
    HPA_OBJECTS = Instrument::new(Gauge, "horizontal_pod_autoscaler_controller.num_horizontal_pod_autoscalers",
        "HorizontalPodAutoscalers").in_plane(Hpa);
    HPA_DESIRED = Instrument::new(Gauge, "horizontal_pod_autoscaler_controller.desired_replicas",
        "Desired replicas").by(OBJECT).in_plane(Hpa);
    HPA_FOREIGN = Instrument::new(Gauge, "zeroscale.hpa.foreign_manager",
        "1 if the object is left alone because another manager writes its status").by(OBJECT).in_plane(Hpa);
    HPA_PANICS = Instrument::new(Counter, "zeroscale.hpa.panics",
        "Reconciliations that ended with an internal error").in_plane(Hpa);

    CONFIG_REFUSED = Instrument::new(Gauge, "zeroscale.config.refused",
        "1 while a ConfigMap breaks a rule and its previous values, or the defaults, are in force").by(&["config_map"]);
    BUILD = Instrument::new(Gauge, "zeroscale.build.info", "Always 1; the attributes identify the build")
        .by(&["component", "version", "architecture"]);
    PROCESS_CPU = Instrument::new(Counter, "process.cpu.time", "CPU time in user mode and in the kernel")
        .in_unit("s").shown_as("process_cpu");
    PROCESS_RESIDENT = Instrument::new(UpDownCounter, "process.memory.usage", "Resident memory").in_unit("By")
        .shown_as("process_resident_memory");
    PROCESS_VIRTUAL = Instrument::new(UpDownCounter, "process.memory.virtual", "Virtual memory").in_unit("By")
        .shown_as("process_virtual_memory");
    PROCESS_OPEN = Instrument::new(UpDownCounter, "process.unix.file_descriptor.count", "Open file descriptors")
        .in_unit("{file_descriptor}").shown_as("process_open_fds");
    PROCESS_OPEN_MAX = Instrument::new(Gauge, "process.unix.file_descriptor.limit", "Maximum number of open file descriptors")
        .in_unit("{file_descriptor}").shown_as("process_max_fds");
    PROCESS_STARTED = Instrument::new(Gauge, "process.start_time", "Start time in seconds since 1970").in_unit("s");
}

/// Returns the instrument of a family in Prometheus's text.
pub(super) fn by_family(family: &str) -> Option<&'static Instrument> {
    ALL.iter().find(|instrument| instrument.family() == family)
}

/// Returns the attribute of a label.
pub(super) fn attribute(label: &str) -> &str {
    let same = |name: &str| {
        name.len() == label.len() && name.bytes().zip(label.bytes()).all(|(n, l)| n == l || (n == b'.' && l == b'_'))
    };
    let all = ALL.iter().flat_map(|instrument| instrument.attributes);
    all.copied().find(|name| same(name)).unwrap_or(label)
}

/// Returns differences between a plane's text, in either format, and this catalog: families that are not listed or have
/// another kind, unlisted attributes, and values that an attribute cannot have. Empty if there are none.
pub fn strangers(text: &str) -> Vec<String> {
    let mut strangers = Vec::new();
    for family in text::families(text).iter().filter(|family| !TARGET.contains(&family.name)) {
        // In Prometheus's own format a family has the name of its series.
        let shown = |instrument: &&Instrument| instrument.prometheus() == family.name;
        let Some(instrument) = by_family(family.name).or_else(|| ALL.iter().find(shown)) else {
            strangers.push(format!("{} is not listed", family.name));
            continue;
        };
        let (kind, listed) = (family.kind.as_str(), instrument.kind.prometheus());
        if kind != listed {
            strangers.push(format!("{} is a {kind}, not a {listed}", family.name));
        }
        let said: BTreeSet<(&str, &str)> =
            family.samples.iter().flat_map(|sample| &sample.labels).map(|(name, value)| (*name, &**value)).collect();
        let labels: BTreeSet<&str> = said.iter().map(|(name, _)| *name).collect();
        if let (Some(last), values @ [_, ..]) = (instrument.attributes.last(), instrument.values) {
            let unknown = |value: &str| values.iter().all(|(known, _)| *known != value);
            let said = said.iter().filter(|(name, value)| *name == label(last) && unknown(value));
            strangers.extend(said.map(|(name, value)| format!("{}: {name} says {value}", family.name)));
        }
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

    /// Goal: every kind of difference from the catalog is reported.
    #[test]
    fn what_is_not_listed_is_named() {
        let text = "# TYPE zeroscale_held_seconds histogram\nzeroscale_held_seconds_bucket{le=\"1\",k8s_namespace_name=\"a\"} 1\n\
            # TYPE zeroscale_refused gauge\nzeroscale_refused{reason=\"a\",pod=\"b\"} 1\nzeroscale_refused{reason=\"pod\"} 1\n# TYPE unheard_of gauge\n\
            # TYPE target info\ntarget_info{a=\"b\"} 1\n# EOF\n";
        let expected = [
            "zeroscale_refused is a gauge, not a counter",
            "zeroscale_refused: reason says a",
            "zeroscale_refused: pod",
            "unheard_of is not listed",
        ];
        assert_eq!(strangers(text), expected);
        let own = "# TYPE zeroscale_refused_total counter\nzeroscale_refused_total{reason=\"pod\"} 1\n# TYPE target_info gauge\n";
        assert_eq!(strangers(own), <[String; 0]>::default());
    }

    /// Goal: no instrument is listed twice, and each has a description of one sentence.
    #[test]
    fn every_name_is_one_instruments() {
        let families: BTreeSet<String> = ALL.iter().map(Instrument::family).collect();
        assert_eq!(families.len(), ALL.len());
        for instrument in ALL {
            assert!(!instrument.meaning.is_empty() && !instrument.meaning.ends_with('.'), "{instrument:?}");
            // Characters that would have to be escaped in `# HELP`.
            assert!(!instrument.meaning.contains(['"', '\\', '\n']), "{instrument:?}");
            assert!(instrument.values.is_empty() || !instrument.attributes.is_empty(), "{instrument:?}");
            assert_eq!(by_family(&instrument.family()), Some(instrument));
        }
        assert_eq!(attribute("http_response_status_code"), "http.response.status_code");
        assert_eq!((attribute("metric_type"), attribute("unheard_of")), ("metric_type", "unheard_of"));
    }
}
