//! Metrics of client connections, from the counts of `activator-net`.

use activator_net::ClientConnections;
use common_runtime::telemetry::{self, FamilyText, catalog};
use prometheus_client::encoding::NoLabelSet;

/// Registers the metrics.
pub(crate) fn register(registry: &telemetry::Metrics, connections: &ClientConnections) {
    let connections = connections.clone();
    registry.collect(move || {
        let open = i64::try_from(connections.open()).unwrap_or(i64::MAX);
        let ended = [
            ("limit", connections.refused()),
            ("room", connections.ended_for_room()),
            ("idle", connections.ended_idle()),
        ];
        vec![
            FamilyText::new(catalog::CLIENT_CONNECTIONS, [open], |open, encoder| encoder.encode_gauge(&open)),
            FamilyText::new(catalog::CLIENT_CONNECTIONS_ENDED, ended, |(reason, count), encoder| {
                let labels = [("reason", reason)];
                encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&count, None)
            }),
        ]
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use activator_net::{ClientBounds, Memory};
    use tokio_util::sync::CancellationToken;

    #[tokio::test]
    async fn every_reason_is_exported_from_the_start() {
        let registry = telemetry::Metrics::default();
        let bounds = ClientBounds { connections: 1, descriptors: 1000, idle: None };
        register(&registry, &ClientConnections::start(bounds, Memory::new(None), CancellationToken::new()));
        let text = registry.encode().expect("text");
        assert!(text.contains("\nzeroscale_client_connections 0\n"), "{text}");
        for reason in ["limit", "room", "idle"] {
            let series = format!("\nzeroscale_client_connections_ended_total{{reason=\"{reason}\"}} 0\n");
            assert!(text.contains(&series), "{text}");
        }
    }
}
