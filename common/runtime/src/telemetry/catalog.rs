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
    ($($plane:ident { $($name:ident = $kind:ident($otel:expr, $meaning:expr)$(.$field:ident($value:expr))*;)* })*) => {
        $($(
            #[allow(missing_docs, reason = "each constant contains its meaning")]
            pub const $name: Instrument = Instrument {
                $($field: $value,)*
                plane: Plane::$plane,
                ..Instrument::new(Kind::$kind, $otel, $meaning)
            };
        )*)*

        /// All instruments, in the manual's order.
        pub const ALL: &[Instrument] = &[$($($name),*),*];
    };
}

catalog! {
    Activator {
        REQUEST_CONCURRENCY = Gauge("kn.revision.request.concurrency",
            "Requests in flight, as last reported to the autoscaler").unit("{request}").attributes(WHOLE);
        REQUEST_QUEUED = UpDownCounter("kn.revision.request.queued", "Held requests").unit("{request}").attributes(ONE);
        REQUEST_ACTIVE = UpDownCounter("kn.revision.request.active", "Requests at a pod").unit("{request}")
            .attributes(ONE);
        SERVER_DURATION = Histogram("http.server.request.duration",
            "Time from a request's head to the end of its response, holding included").unit("s").attributes(EXCHANGE);
        SERVER_REQUEST_SIZE = Histogram("http.server.request.body.size",
            "Size of request bodies, as far as they were forwarded").unit("By").attributes(EXCHANGE);
        SERVER_RESPONSE_SIZE = Histogram("http.server.response.body.size",
            "Size of response bodies, as far as they were forwarded").unit("By").attributes(EXCHANGE);
        CLIENT_DURATION = Histogram("http.client.request.duration",
            "Time from the start of sending to a pod to its response's head").unit("s").attributes(EXCHANGE);
        CLIENT_REQUEST_SIZE = Histogram("http.client.request.body.size",
            "Size of request bodies to pods with a declared length").unit("By").attributes(EXCHANGE);
        STATS_REACHABLE = Gauge("kn.activator.stats.conn.reachable",
            "1 while the connection to the autoscaler is up, otherwise 0").unit("{reachable}").attributes(&["peer"]);
        STATS_ERRORS = Counter("kn.activator.stats.conn.errors", "Lost connections to the autoscaler")
            .unit("{error}").attributes(&["peer"]);
        HELD = Histogram("zeroscale.held", "Time that requests waited for a slot").unit("s").attributes(ONE);
        COLD_START = Histogram("zeroscale.cold_start",
            "Time from a request's head to its response's head, for requests that found no capacity").unit("s")
            .attributes(ONE);
        COLD_START_PHASE = Histogram("zeroscale.cold_start_phase",
            "Phases of cold starts; they add up to the total time").unit("s")
            .attributes(&[NAMESPACE, REVISION, "phase"])
            .values(values::PHASES);
        REFUSED = Counter("zeroscale.refused",
            "Requests that the activator refused itself, and connections that it reset instead of forwarding them")
            .unit("{request}").attributes(REASON).values(values::REFUSALS);
        ANSWERED = Counter("zeroscale.answered",
            "Requests that got a response without a pod, as configured by their workload").unit("{request}")
            .attributes(&["kind"]).values(values::ANSWERS);
        TCP_ENDED = Counter("zeroscale.tcp.connections_ended",
            "Connections that were forwarded as bytes, by the reason of their end").unit("{connection}")
            .attributes(&[NAMESPACE, REVISION, "reason"]).values(values::TCP_ENDS);
        RELAYED = Counter("zeroscale.relayed",
            "Requests and connections relayed to the activator that holds their workload").unit("{request}");
        POD_SHARING = Gauge("zeroscale.pod_sharing",
            "Use of pods with a hard limit: 1 for the current state, 0 for the others").attributes(&["standing"])
            .values(values::SHARING_MODES);
        CLIENT_CONNECTIONS = Gauge("zeroscale.client.connections", "Open connections and tunnels of clients")
            .unit("{connection}");
        CLIENT_CONNECTIONS_ENDED = Counter("zeroscale.client.connections_ended",
            "Client connections that the activator refused or closed").unit("{connection}").attributes(REASON)
            .values(values::CLIENT_ENDS);
    }
    Autoscaler {
        PODS_DESIRED = Gauge("kn.revision.pods.desired",
            "Pods that the autoscaler recommends, before minimum and maximum are applied").unit("{item}")
            .attributes(WHOLE);
        CAPACITY_EXCESS = Gauge("kn.revision.capacity.excess",
            "Excess burst capacity; if negative, activators are in the path").unit("{concurrency}").attributes(WHOLE);
        PANIC_MODE = Gauge("kn.revision.panic.mode", "1 in panic mode, otherwise 0").attributes(WHOLE);
        CONCURRENCY_STABLE = Gauge("kn.revision.concurrency.stable",
            "Requests in flight of the whole revision, averaged over the stable window").unit("{concurrency}")
            .attributes(WHOLE);
        CONCURRENCY_PANIC = Gauge("kn.revision.concurrency.panic",
            "Requests in flight of the whole revision, averaged over the panic window").unit("{concurrency}")
            .attributes(WHOLE);
        CONCURRENCY_TARGET = Gauge("kn.revision.concurrency.target", "Target of requests in flight per pod")
            .unit("{concurrency}").attributes(WHOLE);
        RPS_STABLE = Gauge("kn.revision.rps.stable",
            "Requests per second of the whole revision, averaged over the stable window").unit("{request}/s")
            .attributes(WHOLE);
        RPS_PANIC = Gauge("kn.revision.rps.panic",
            "Requests per second of the whole revision, averaged over the panic window").unit("{request}/s")
            .attributes(WHOLE);
        RPS_TARGET = Gauge("kn.revision.rps.target", "Target of requests per second and pod").unit("{request}/s")
            .attributes(WHOLE);
        PODS_REQUESTED = Gauge("kn.revision.pods.requested",
            "Pods requested from the target, with bounds and grace periods applied").unit("{pod}").attributes(WHOLE);
        PODS_COUNT = Gauge("kn.revision.pods.count", "Ready pods").unit("{pod}").attributes(WHOLE);
        PODS_NOT_READY = Gauge("kn.revision.pods.not_ready.count", "Pods that are not ready").unit("{pod}")
            .attributes(WHOLE);
        PODS_PENDING = Gauge("kn.revision.pods.pending.count", "Pods that have not started yet").unit("{pod}")
            .attributes(WHOLE);
        PODS_TERMINATING = Gauge("kn.revision.pods.terminating.count", "Terminating pods").unit("{pod}")
            .attributes(WHOLE);
        SCRAPE_DURATION = Histogram("kn.autoscaler.scrape.duration", "Time to scrape the pods of one revision")
            .unit("s").attributes(&[NAMESPACE, SERVICE, CONFIGURATION]);
        SCALE_FROM_ZERO = Histogram("zeroscale.scale_from_zero",
            "Time from the stat that requested a pod to the API server's response to the patch").unit("s")
            .attributes(ONE);
        TICK_LATENESS = Histogram("zeroscale.tick.lateness",
            "Delay from the due time of a group of revisions to the decision about the last of them").unit("s");
        WAKES = Counter("zeroscale.wakes", "Scales from zero, by their result").unit("{wake}")
            .attributes(&[NAMESPACE, REVISION, "outcome"]).values(values::WAKES);
        POD_TIME = Counter("zeroscale.pod.time", "Time that pods ran, ready or not, and time that was saved")
            .unit("s").attributes(&[NAMESPACE, REVISION, "state"]).values(values::POD_TIMES);
        DECISIONS = Counter("zeroscale.decisions", "Evaluations of load, by their result").unit("{decision}")
            .attributes(&["outcome"]).values(values::DECISIONS);
        LEASE_HELD = Gauge("zeroscale.lease.held",
            "1 while this process decides about the workloads of the lease, otherwise 0").attributes(&["lease"]);
        LEASE_OWNED = Gauge("zeroscale.lease.owned",
            "1 while this process or another, also Knative's, decides about the workloads of the lease, as far as this process sees; \
         otherwise 0").attributes(&["lease"]);
        API_WRITES = Counter("zeroscale.api.writes",
            "Writes to the API server by class (`wake`: replicas from zero; `scale`: other changes of replicas and of the \
         path; `object`: objects and statuses) and by result; of Events only those that a ZeroScaler's status waits for")
            .unit("{write}").attributes(&["class", "outcome"]).values(values::WRITES);
        API_WAITING = Gauge("zeroscale.api.writes_waiting", "Writes that wait for the rate limit").unit("{write}");
        STAT_CONNECTIONS = Gauge("zeroscale.stat.connections", "Open stat connections").unit("{connection}");
        STAT_FRAMES = Counter("zeroscale.stat.frames", "Binary frames read from stat connections").unit("{frame}");
        STAT_BAD_FRAMES = Counter("zeroscale.stat.bad_frames", "Frames without valid stats").unit("{frame}")
            .attributes(REASON).values(values::BAD_FRAMES);
        STAT_TLS_REFUSALS = Counter("zeroscale.stat.tls_refusals",
            "Stat connections refused because they do not use TLS").unit("{connection}");
        STAT_REFUSALS = Counter("zeroscale.stat.refusals", "Stat handshakes refused because they have no valid token")
            .unit("{connection}");
        STATS_RECORDED = Counter("zeroscale.stats.recorded", "Stats recorded in a window of this process")
            .unit("{stat}");
        STATS_FORWARDED = Counter("zeroscale.stats.forwarded", "Stats forwarded to the instance that owns them")
            .unit("{stat}");
        STATS_DROPPED = Counter("zeroscale.stats.dropped", "Dropped stats").unit("{stat}").attributes(REASON)
            .values(values::DROPPED);
    }
    Hpa {
        HPA_RECONCILIATIONS = Counter("horizontal_pod_autoscaler_controller.reconciliations", "Reconciliations")
            .attributes(PASS);
        HPA_RECONCILIATION_DURATION = Histogram("horizontal_pod_autoscaler_controller.reconciliation_duration",
            "Duration of a reconciliation").unit("s").attributes(PASS);
        HPA_COMPUTATIONS = Counter("horizontal_pod_autoscaler_controller.metric_computation",
            "Computations of one metric").attributes(COMPUTATION);
        HPA_COMPUTATION_DURATION = Histogram("horizontal_pod_autoscaler_controller.metric_computation_duration",
            "Time to read one metric").unit("s").attributes(COMPUTATION);
        HPA_OBJECTS = Gauge("horizontal_pod_autoscaler_controller.num_horizontal_pod_autoscalers",
            "HorizontalPodAutoscalers");
        HPA_DESIRED = Gauge("horizontal_pod_autoscaler_controller.desired_replicas", "Desired replicas")
            .attributes(OBJECT);
        HPA_FOREIGN = Gauge("zeroscale.hpa.foreign_manager",
            "1 if the object is left alone because another manager writes its status").attributes(OBJECT);
        HPA_PANICS = Counter("zeroscale.hpa.panics", "Reconciliations that ended with an internal error");
    }
    All {
        CONFIG_REFUSED = Gauge("zeroscale.config.refused",
            "1 while a ConfigMap breaks a rule and its previous values, or the defaults, are in force")
            .attributes(&["config_map"]);
        BUILD = Gauge("zeroscale.build.info", "Always 1; the attributes identify the build")
            .attributes(&["component", "version", "architecture"]);
        PROCESS_CPU = Counter("process.cpu.time", "CPU time in user mode and in the kernel").unit("s")
            .prometheus_base(Some("process_cpu"));
        PROCESS_RESIDENT = UpDownCounter("process.memory.usage", "Resident memory").unit("By")
            .prometheus_base(Some("process_resident_memory"));
        PROCESS_VIRTUAL = UpDownCounter("process.memory.virtual", "Virtual memory").unit("By")
            .prometheus_base(Some("process_virtual_memory"));
        PROCESS_OPEN = UpDownCounter("process.unix.file_descriptor.count", "Open file descriptors")
            .unit("{file_descriptor}").prometheus_base(Some("process_open_fds"));
        PROCESS_OPEN_MAX = Gauge("process.unix.file_descriptor.limit", "Maximum number of open file descriptors")
            .unit("{file_descriptor}").prometheus_base(Some("process_max_fds"));
        PROCESS_STARTED = Gauge("process.start_time", "Start time in seconds since 1970").unit("s");
    }
}

/// Returns differences between a plane's text, in either format, and this catalog: families that are not listed or have
/// another kind, unlisted attributes, and values that an attribute cannot have. Empty if there are none.
pub fn differences(text: &str) -> Vec<String> {
    let mut differences = Vec::new();
    for family in text.split("# TYPE ").skip(1) {
        let (head, lines) = family.split_once('\n').unwrap_or((family, ""));
        let (name, kind) = head.split_once(' ').unwrap_or((head, ""));
        if TARGET.contains(&name) {
            continue;
        }
        // In Prometheus's own format a family has the name of its series.
        let has_name = |instrument: &&Instrument| instrument.family() == name || instrument.prometheus() == name;
        let Some(instrument) = ALL.iter().find(has_name) else {
            differences.push(format!("{name} is not listed"));
            continue;
        };
        let listed = MetricType::from(instrument.kind);
        if kind != listed.as_str() {
            differences.push(format!("{name} is a {kind}, not a {}", listed.as_str()));
        }
        let samples: Vec<Sample<'_>> = lines.lines().filter_map(|line| Sample::parse(line, name)).collect();
        let reported: BTreeSet<(&str, &str)> =
            samples.iter().flat_map(|sample| &sample.labels).map(|(label, value)| (*label, &**value)).collect();
        let labels: BTreeSet<&str> = reported.iter().map(|(name, _)| *name).collect();
        if let (Some(last), values @ [_, ..]) = (instrument.attributes.last(), instrument.values) {
            let unknown = |value: &str| values.iter().all(|(known, _)| *known != value);
            let reported = reported.iter().filter(|(name, value)| *name == label(last) && unknown(value));
            differences.extend(reported.map(|(label, value)| format!("{name}: {label} cannot be {value}")));
        }
        let known: BTreeSet<String> = instrument.attributes.iter().map(|attribute| label(attribute)).collect();
        let is_known = |label: &str| known.contains(label) || (label == "le" && instrument.kind == Kind::Histogram);
        let unknown = labels.into_iter().filter(|label| !is_known(label));
        differences.extend(unknown.map(|label| format!("{name} has no label {label}")));
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_from_the_catalog_is_reported() {
        let text = "# TYPE zeroscale_held_seconds histogram\nzeroscale_held_seconds_bucket{le=\"1\",k8s_namespace_name=\"a\"} 1\n\
            # TYPE zeroscale_refused gauge\nzeroscale_refused{reason=\"a\",pod=\"b\"} 1\nzeroscale_refused{reason=\"pod\"} 1\n# TYPE unheard_of gauge\n\
            # TYPE target info\ntarget_info{a=\"b\"} 1\n# EOF\n";
        let expected = [
            "zeroscale_refused is a gauge, not a counter",
            "zeroscale_refused: reason cannot be a",
            "zeroscale_refused has no label pod",
            "unheard_of is not listed",
        ];
        assert_eq!(differences(text), expected);
        let own = "# TYPE zeroscale_refused_total counter\nzeroscale_refused_total{reason=\"pod\"} 1\n# TYPE target_info gauge\n";
        assert_eq!(differences(own), <[String; 0]>::default());
    }

    /// Goal: no instrument is listed twice, and each has a description of one sentence.
    #[test]
    fn names_are_unique_and_descriptions_are_valid() {
        let families: BTreeSet<String> = ALL.iter().map(Instrument::family).collect();
        assert_eq!(families.len(), ALL.len());
        for instrument in ALL {
            assert!(!instrument.meaning.is_empty() && !instrument.meaning.ends_with('.'), "{instrument:?}");
            // Characters that would have to be escaped in `# HELP`.
            assert!(!instrument.meaning.contains(['"', '\\', '\n']), "{instrument:?}");
            assert!(instrument.values.is_empty() || !instrument.attributes.is_empty(), "{instrument:?}");
        }
        assert_eq!(CLIENT_DURATION.attribute("http_response_status_code"), "http.response.status_code");
        let attribute = |label| HPA_COMPUTATIONS.attribute(label);
        assert_eq!((attribute("metric_type"), attribute("unheard_of")), ("metric_type", "unheard_of"));
    }
}
