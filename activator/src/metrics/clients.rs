//! Metrics of client connections, from the counts of `activator-net`.

use activator_net::ClientConnections;
use common_runtime::telemetry::{self, FamilyText, catalog};
use prometheus_client::encoding::NoLabelSet;

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
