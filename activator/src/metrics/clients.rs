//! Metrics of client connections, from the counts of `activator-net`.

use activator_net::ClientConnections;
use common_runtime::telemetry::{self, catalog};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;

/// Registers the metrics.
pub(crate) fn show(registry: &telemetry::Metrics, connections: &ClientConnections) {
    let (open, ended) = (Open(connections.clone()), Ended(connections.clone()));
    registry.register(catalog::CLIENT_CONNECTIONS, open);
    registry.register(catalog::CLIENT_CONNECTIONS_ENDED, ended);
}

#[derive(Clone)]
struct Open(ClientConnections);

#[derive(Clone)]
struct Ended(ClientConnections);

impl EncodeMetric for Open {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&i64::try_from(self.0.open()).unwrap_or(i64::MAX))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

impl EncodeMetric for Ended {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Self(connections) = self;
        let counts = [
            ("limit", connections.refused()),
            ("room", connections.ended_for_room()),
            ("idle", connections.ended_idle()),
        ];
        for (reason, count) in counts {
            let labels = [("reason", reason)];
            encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").finish_non_exhaustive()
    }
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ended").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_shown_from_the_start() {
        let registry = telemetry::Metrics::default();
        show(&registry, &ClientConnections::default());
        let text = registry.encode().expect("text");
        assert!(text.contains("\nzeroscale_client_connections 0\n"), "{text}");
        for reason in ["limit", "room", "idle"] {
            let series = format!("\nzeroscale_client_connections_ended_total{{reason=\"{reason}\"}} 0\n");
            assert!(text.contains(&series), "{text}");
        }
    }
}
