//! Metric for the current use of pods with a hard limit.

use super::Holders;
use activator_core::holders::standing::Standing;
use common_runtime::telemetry::{self, catalog};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use std::fmt;

/// Registers the metric.
pub(crate) fn show(registry: &telemetry::Metrics, holders: &Holders) {
    registry.register(catalog::POD_SHARING, Sharing(holders.clone()));
}

/// Label values of the standings.
const STANDINGS: [(Standing, &str); 4] = [
    (Standing::Undecided, "undecided"),
    (Standing::Alone, "alone"),
    (Standing::Divided, "divided"),
    (Standing::Shared, "shared"),
];

#[derive(Clone, Debug)]
struct Sharing(Holders);

impl EncodeMetric for Sharing {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let now = self.0.standing();
        for (standing, word) in STANDINGS {
            let labels = [("standing", word)];
            encoder.encode_family(&labels)?.encode_gauge(&i64::from(standing == now))?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}
