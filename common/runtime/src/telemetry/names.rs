//! The names of upstream's instruments: OpenTelemetry's, and what its Prometheus exporter makes of them.
//!
//! Handles are registered under the Prometheus name; what is sent over OTLP bears the other. What is not in the tables
//! is ours, and has one name.

/// How OpenTelemetry calls a value that Prometheus calls a gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstrumentKind {
    /// As Prometheus says.
    Same,
    /// A sum that may fall.
    UpDown,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Instrument {
    /// Of its family in Prometheus's text, without a counter's `_total`.
    pub(super) prometheus: &'static str,
    pub(super) name: &'static str,
    /// UCUM unit.
    pub(super) unit: &'static str,
    pub(super) kind: InstrumentKind,
}

const fn row(prometheus: &'static str, name: &'static str, unit: &'static str) -> Instrument {
    Instrument { prometheus, name, unit, kind: InstrumentKind::Same }
}

const INSTRUMENTS: [Instrument; 28] = [
    row("kn_revision_request_concurrency", "kn.revision.request.concurrency", "{request}"),
    Instrument {
        kind: InstrumentKind::UpDown,
        ..row("kn_revision_request_queued", "kn.revision.request.queued", "{request}")
    },
    Instrument {
        kind: InstrumentKind::UpDown,
        ..row("kn_revision_request_active", "kn.revision.request.active", "{request}")
    },
    row("kn_activator_stats_conn_reachable", "kn.activator.stats.conn.reachable", "{reachable}"),
    row("kn_activator_stats_conn_errors", "kn.activator.stats.conn.errors", "{error}"),
    row("http_server_request_duration_seconds", "http.server.request.duration", "s"),
    row("http_server_request_body_size_bytes", "http.server.request.body.size", "By"),
    row("http_server_response_body_size_bytes", "http.server.response.body.size", "By"),
    row("http_client_request_duration_seconds", "http.client.request.duration", "s"),
    row("http_client_request_body_size_bytes", "http.client.request.body.size", "By"),
    row("kn_revision_pods_desired", "kn.revision.pods.desired", "{item}"),
    row("kn_revision_capacity_excess", "kn.revision.capacity.excess", "{concurrency}"),
    row("kn_revision_panic_mode", "kn.revision.panic.mode", ""),
    row("kn_revision_concurrency_stable", "kn.revision.concurrency.stable", "{concurrency}"),
    row("kn_revision_concurrency_panic", "kn.revision.concurrency.panic", "{concurrency}"),
    row("kn_revision_concurrency_target", "kn.revision.concurrency.target", "{concurrency}"),
    row("kn_revision_rps_stable_per_second", "kn.revision.rps.stable", "{request}/s"),
    row("kn_revision_rps_panic_per_second", "kn.revision.rps.panic", "{request}/s"),
    row("kn_revision_rps_target_per_second", "kn.revision.rps.target", "{request}/s"),
    row("kn_revision_pods_requested", "kn.revision.pods.requested", "{pod}"),
    row("kn_revision_pods_count", "kn.revision.pods.count", "{pod}"),
    row("kn_revision_pods_not_ready_count", "kn.revision.pods.not_ready.count", "{pod}"),
    row("kn_revision_pods_pending_count", "kn.revision.pods.pending.count", "{pod}"),
    row("kn_revision_pods_terminating_count", "kn.revision.pods.terminating.count", "{pod}"),
    row("kn_autoscaler_scrape_duration_seconds", "kn.autoscaler.scrape.duration", "s"),
    row("zeroscale_held_seconds", "zeroscale_held", "s"),
    row("zeroscale_cold_start_phase_seconds", "zeroscale_cold_start_phase", "s"),
    row("zeroscale_tick_lateness_seconds", "zeroscale_tick_lateness", "s"),
];

const ATTRIBUTES: [&str; 11] = [
    "k8s.namespace.name",
    "kn.service.name",
    "kn.configuration.name",
    "kn.revision.name",
    "http.request.method",
    "http.response.status_code",
    "network.protocol.name",
    "network.protocol.version",
    "server.address",
    "server.port",
    "url.scheme",
];

/// The instrument behind a family of Prometheus's text.
pub(super) fn instrument(prometheus: &str) -> Option<&'static Instrument> {
    INSTRUMENTS.iter().find(|instrument| instrument.prometheus == prometheus)
}

/// The attribute behind a label.
pub(super) fn attribute(label: &str) -> &str {
    let same = |name: &str| {
        name.len() == label.len() && name.bytes().zip(label.bytes()).all(|(n, l)| n == l || (n == b'.' && l == b'_'))
    };
    ATTRIBUTES.iter().copied().find(|name| same(name)).unwrap_or(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule by which OpenTelemetry's exporter names what Prometheus sees.
    fn exported(instrument: &Instrument) -> String {
        let suffix = match instrument.unit {
            "s" => "_seconds",
            "By" => "_bytes",
            "{request}/s" => "_per_second",
            _ => "",
        };
        format!("{}{suffix}", instrument.name.replace('.', "_"))
    }

    #[test]
    fn both_names_of_an_instrument_belong_together() {
        for instrument in &INSTRUMENTS {
            assert_eq!(exported(instrument), instrument.prometheus);
        }
        assert_eq!(attribute("http_response_status_code"), "http.response.status_code");
        assert_eq!(attribute("k8s_namespace_name"), "k8s.namespace.name");
        assert_eq!(attribute("peer"), "peer");
    }
}
