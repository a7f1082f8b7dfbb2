//! Catalog of all metrics.
//!
//! Names under `kn.` and `http.` are Knative's. Those of the HorizontalPodAutoscaler controller are Kubernetes'.
//! `process.` is OpenTelemetry's, for which Prometheus has its own names. The others are Zeroscale's and follow
//! OpenTelemetry's naming rules. Attributes of one word (`reason`, `outcome`) have a meaning specific to their metric,
//! as is usual in Prometheus.

use super::instrument::{Instrument, Kind, Plane, label};
use super::otlp::Sample;
use super::values;
use prometheus_client::metrics::MetricType;
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
    ($($plane:ident { $($name:ident = $kind:ident($otel:expr, $meaning:expr)$(.$method:ident($value:expr))*;)* })*) => {
        $($(
            #[allow(missing_docs, reason = "it says itself what it means")]
            pub const $name: Instrument =
                Instrument::new(Kind::$kind, $otel, $meaning)$(.$method($value))*.in_plane(Plane::$plane);
        )*)*

        /// All instruments, in the manual's order.
        pub const ALL: &[Instrument] = &[$($($name),*),*];
    };
}

catalog! {
    Activator {
        REQUEST_CONCURRENCY = Gauge("kn.revision.request.concurrency",
            "Requests in flight, as last reported to the autoscaler").in_unit("{request}").by(WHOLE);
        REQUEST_QUEUED = UpDownCounter("kn.revision.request.queued", "Held requests").in_unit("{request}").by(ONE);
        REQUEST_ACTIVE = UpDownCounter("kn.revision.request.active", "Requests at a pod").in_unit("{request}")
            .by(ONE);
        SERVER_DURATION = Histogram("http.server.request.duration",
            "Time from a request's head to the end of its response, holding included").in_unit("s").by(EXCHANGE);
        SERVER_REQUEST_SIZE = Histogram("http.server.request.body.size",
            "Size of request bodies, as far as they were forwarded").in_unit("By").by(EXCHANGE);
        SERVER_RESPONSE_SIZE = Histogram("http.server.response.body.size",
            "Size of response bodies, as far as they were forwarded").in_unit("By").by(EXCHANGE);
        CLIENT_DURATION = Histogram("http.client.request.duration",
            "Time from the start of sending to a pod to its response's head").in_unit("s").by(EXCHANGE);
        CLIENT_REQUEST_SIZE = Histogram("http.client.request.body.size",
            "Size of request bodies to pods with a declared length").in_unit("By").by(EXCHANGE);
        STATS_REACHABLE = Gauge("kn.activator.stats.conn.reachable",
            "1 while the connection to the autoscaler is up, otherwise 0").in_unit("{reachable}").by(&["peer"]);
        STATS_ERRORS = Counter("kn.activator.stats.conn.errors", "Lost connections to the autoscaler")
            .in_unit("{error}").by(&["peer"]);
        HELD = Histogram("zeroscale.held", "Time that requests waited for a slot").in_unit("s").by(ONE);
        COLD_START = Histogram("zeroscale.cold_start",
            "Time from a request's head to its response's head, for requests that found no capacity").in_unit("s")
            .by(ONE);
        COLD_START_PHASE = Histogram("zeroscale.cold_start_phase",
            "Phases of cold starts; they add up to the total time").in_unit("s").by(&[NAMESPACE, REVISION, "phase"])
            .saying(values::PHASES);
        REFUSED = Counter("zeroscale.refused",
            "Requests that the activator refused itself, and connections that it reset instead of forwarding them")
            .in_unit("{request}").by(REASON).saying(values::REFUSALS);
        ANSWERED = Counter("zeroscale.answered",
            "Requests that got a response without a pod, as configured by their workload").in_unit("{request}")
            .by(&["kind"]).saying(values::ANSWERS);
        TCP_ENDED = Counter("zeroscale.tcp.connections_ended",
            "Connections that were forwarded as bytes, by the reason of their end").in_unit("{connection}")
            .by(&[NAMESPACE, REVISION, "reason"]).saying(values::TCP_ENDS);
        RELAYED = Counter("zeroscale.relayed",
            "Requests and connections relayed to the activator that holds their workload").in_unit("{request}");
        POD_SHARING = Gauge("zeroscale.pod_sharing",
            "Use of pods with a hard limit: 1 for the current state, 0 for the others").by(&["standing"])
            .saying(values::STANDINGS);
        CLIENT_CONNECTIONS = Gauge("zeroscale.client.connections", "Open connections and tunnels of clients")
            .in_unit("{connection}");
        CLIENT_CONNECTIONS_ENDED = Counter("zeroscale.client.connections_ended",
            "Client connections that the activator refused or closed").in_unit("{connection}").by(REASON)
            .saying(values::CLIENT_ENDS);
    }
    Autoscaler {
        PODS_DESIRED = Gauge("kn.revision.pods.desired",
            "Pods that the autoscaler recommends, before minimum and maximum are applied").in_unit("{item}")
            .by(WHOLE);
        CAPACITY_EXCESS = Gauge("kn.revision.capacity.excess",
            "Excess burst capacity; if negative, activators are in the path").in_unit("{concurrency}").by(WHOLE);
        PANIC_MODE = Gauge("kn.revision.panic.mode", "1 in panic mode, otherwise 0").by(WHOLE);
        CONCURRENCY_STABLE = Gauge("kn.revision.concurrency.stable",
            "Requests in flight of the whole revision, averaged over the stable window").in_unit("{concurrency}")
            .by(WHOLE);
        CONCURRENCY_PANIC = Gauge("kn.revision.concurrency.panic",
            "Requests in flight of the whole revision, averaged over the panic window").in_unit("{concurrency}")
            .by(WHOLE);
        CONCURRENCY_TARGET = Gauge("kn.revision.concurrency.target", "Target of requests in flight per pod")
            .in_unit("{concurrency}").by(WHOLE);
        RPS_STABLE = Gauge("kn.revision.rps.stable",
            "Requests per second of the whole revision, averaged over the stable window").in_unit("{request}/s")
            .by(WHOLE);
        RPS_PANIC = Gauge("kn.revision.rps.panic",
            "Requests per second of the whole revision, averaged over the panic window").in_unit("{request}/s")
            .by(WHOLE);
        RPS_TARGET = Gauge("kn.revision.rps.target", "Target of requests per second and pod").in_unit("{request}/s")
            .by(WHOLE);
        PODS_REQUESTED = Gauge("kn.revision.pods.requested",
            "Pods requested from the target, with bounds and grace periods applied").in_unit("{pod}").by(WHOLE);
        PODS_COUNT = Gauge("kn.revision.pods.count", "Ready pods").in_unit("{pod}").by(WHOLE);
        PODS_NOT_READY = Gauge("kn.revision.pods.not_ready.count", "Pods that are not ready").in_unit("{pod}")
            .by(WHOLE);
        PODS_PENDING = Gauge("kn.revision.pods.pending.count", "Pods that have not started yet").in_unit("{pod}")
            .by(WHOLE);
        PODS_TERMINATING = Gauge("kn.revision.pods.terminating.count", "Terminating pods").in_unit("{pod}").by(WHOLE);
        SCRAPE_DURATION = Histogram("kn.autoscaler.scrape.duration", "Time to scrape the pods of one revision")
            .in_unit("s").by(&[NAMESPACE, SERVICE, CONFIGURATION]);
        SCALE_FROM_ZERO = Histogram("zeroscale.scale_from_zero",
            "Time from the stat that requested a pod to the API server's response to the patch").in_unit("s").by(ONE);
        TICK_LATENESS = Histogram("zeroscale.tick.lateness",
            "Delay from the due time of a group of revisions to the decision about the last of them").in_unit("s");
        WAKES = Counter("zeroscale.wakes", "Scales from zero, by their result").in_unit("{wake}")
            .by(&[NAMESPACE, REVISION, "outcome"]).saying(values::WAKES);
        POD_TIME = Counter("zeroscale.pod.time", "Time that pods ran, ready or not, and time that was saved")
            .in_unit("s").by(&[NAMESPACE, REVISION, "state"]).saying(values::POD_TIMES);
        DECISIONS = Counter("zeroscale.decisions", "Evaluations of load, by their result").in_unit("{decision}")
            .by(&["outcome"]).saying(values::DECISIONS);
        LEASE_HELD = Gauge("zeroscale.lease.held",
            "1 while this process decides about the workloads of the lease, otherwise 0").by(&["lease"]);
        LEASE_OWNED = Gauge("zeroscale.lease.owned",
            "1 while this process or another, also Knative's, decides about the workloads of the lease, as far as this process sees; \
         otherwise 0").by(&["lease"]);
        API_WRITES = Counter("zeroscale.api.writes",
            "Writes to the API server by class (`wake`: replicas from zero; `scale`: other changes of replicas and of the \
         path; `object`: objects and statuses) and by result; of Events only those that a ZeroScaler's status waits for")
            .in_unit("{write}").by(&["class", "outcome"]).saying(values::WRITES);
        API_WAITING = Gauge("zeroscale.api.writes_waiting", "Writes that wait for the rate limit").in_unit("{write}");
        STAT_CONNECTIONS = Gauge("zeroscale.stat.connections", "Open stat connections").in_unit("{connection}");
        STAT_FRAMES = Counter("zeroscale.stat.frames", "Binary frames read from stat connections").in_unit("{frame}");
        STAT_BAD_FRAMES = Counter("zeroscale.stat.bad_frames", "Frames without valid stats").in_unit("{frame}")
            .by(REASON).saying(values::BAD_FRAMES);
        STAT_TLS_REFUSALS = Counter("zeroscale.stat.tls_refusals",
            "Stat connections refused because they do not use TLS").in_unit("{connection}");
        STAT_REFUSALS = Counter("zeroscale.stat.refusals", "Stat handshakes refused because they have no valid token")
            .in_unit("{connection}");
        STATS_RECORDED = Counter("zeroscale.stats.recorded", "Stats recorded in a window of this process")
            .in_unit("{stat}");
        STATS_FORWARDED = Counter("zeroscale.stats.forwarded", "Stats forwarded to the instance that owns them")
            .in_unit("{stat}");
        STATS_DROPPED = Counter("zeroscale.stats.dropped", "Dropped stats").in_unit("{stat}").by(REASON)
            .saying(values::DROPPED);
    }
    Hpa {
        HPA_RECONCILIATIONS = Counter("horizontal_pod_autoscaler_controller.reconciliations", "Reconciliations")
            .by(PASS);
        HPA_RECONCILIATION_DURATION = Histogram("horizontal_pod_autoscaler_controller.reconciliation_duration",
            "Duration of a reconciliation").in_unit("s").by(PASS);
        HPA_COMPUTATIONS = Counter("horizontal_pod_autoscaler_controller.metric_computation",
            "Computations of one metric").by(COMPUTATION);
        HPA_COMPUTATION_DURATION = Histogram("horizontal_pod_autoscaler_controller.metric_computation_duration",
            "Time to read one metric").in_unit("s").by(COMPUTATION);
        HPA_OBJECTS = Gauge("horizontal_pod_autoscaler_controller.num_horizontal_pod_autoscalers",
            "HorizontalPodAutoscalers");
        HPA_DESIRED = Gauge("horizontal_pod_autoscaler_controller.desired_replicas", "Desired replicas").by(OBJECT);
        HPA_FOREIGN = Gauge("zeroscale.hpa.foreign_manager",
            "1 if the object is left alone because another manager writes its status").by(OBJECT);
        HPA_PANICS = Counter("zeroscale.hpa.panics", "Reconciliations that ended with an internal error");
    }
    All {
        CONFIG_REFUSED = Gauge("zeroscale.config.refused",
            "1 while a ConfigMap breaks a rule and its previous values, or the defaults, are in force")
            .by(&["config_map"]);
        BUILD = Gauge("zeroscale.build.info", "Always 1; the attributes identify the build")
            .by(&["component", "version", "architecture"]);
        PROCESS_CPU = Counter("process.cpu.time", "CPU time in user mode and in the kernel").in_unit("s")
            .shown_as("process_cpu");
        PROCESS_RESIDENT = UpDownCounter("process.memory.usage", "Resident memory").in_unit("By")
            .shown_as("process_resident_memory");
        PROCESS_VIRTUAL = UpDownCounter("process.memory.virtual", "Virtual memory").in_unit("By")
            .shown_as("process_virtual_memory");
        PROCESS_OPEN = UpDownCounter("process.unix.file_descriptor.count", "Open file descriptors")
            .in_unit("{file_descriptor}").shown_as("process_open_fds");
        PROCESS_OPEN_MAX = Gauge("process.unix.file_descriptor.limit", "Maximum number of open file descriptors")
            .in_unit("{file_descriptor}").shown_as("process_max_fds");
        PROCESS_STARTED = Gauge("process.start_time", "Start time in seconds since 1970").in_unit("s");
    }
}

/// Returns the instrument of a family in Prometheus's text.
pub(super) fn by_family(family: &str) -> Option<&'static Instrument> {
    ALL.iter().find(|instrument| instrument.family() == family)
}

/// Returns differences between a plane's text, in either format, and this catalog: families that are not listed or have
/// another kind, unlisted attributes, and values that an attribute cannot have. Empty if there are none.
pub fn strangers(text: &str) -> Vec<String> {
    let mut strangers = Vec::new();
    for family in text.split("# TYPE ").skip(1) {
        let (head, lines) = family.split_once('\n').unwrap_or((family, ""));
        let (name, kind) = head.split_once(' ').unwrap_or((head, ""));
        if TARGET.contains(&name) {
            continue;
        }
        // In Prometheus's own format a family has the name of its series.
        let shown = |instrument: &&Instrument| instrument.prometheus() == name;
        let Some(instrument) = by_family(name).or_else(|| ALL.iter().find(shown)) else {
            strangers.push(format!("{name} is not listed"));
            continue;
        };
        let listed = MetricType::from(instrument.kind);
        if kind != listed.as_str() {
            strangers.push(format!("{name} is a {kind}, not a {}", listed.as_str()));
        }
        let samples: Vec<Sample<'_>> = lines.lines().filter_map(|line| Sample::parse(line, name)).collect();
        let said: BTreeSet<(&str, &str)> =
            samples.iter().flat_map(|sample| &sample.labels).map(|(label, value)| (*label, &**value)).collect();
        let labels: BTreeSet<&str> = said.iter().map(|(name, _)| *name).collect();
        if let (Some(last), values @ [_, ..]) = (instrument.attributes.last(), instrument.values) {
            let unknown = |value: &str| values.iter().all(|(known, _)| *known != value);
            let said = said.iter().filter(|(name, value)| *name == label(last) && unknown(value));
            strangers.extend(said.map(|(label, value)| format!("{name}: {label} says {value}")));
        }
        let known: BTreeSet<String> = instrument.attributes.iter().map(|attribute| label(attribute)).collect();
        let is_known = |label: &str| known.contains(label) || (label == "le" && instrument.kind == Kind::Histogram);
        strangers.extend(labels.into_iter().filter(|label| !is_known(label)).map(|label| format!("{name}: {label}")));
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
        assert_eq!(CLIENT_DURATION.attribute("http_response_status_code"), "http.response.status_code");
        let attribute = |label| HPA_COMPUTATIONS.attribute(label);
        assert_eq!((attribute("metric_type"), attribute("unheard_of")), ("metric_type", "unheard_of"));
    }
}
