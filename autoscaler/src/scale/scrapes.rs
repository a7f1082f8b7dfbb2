//! Durations of scrapes: one histogram for each configuration, as upstream. A series lives as long as any revision of
//! its configuration ([`super::metrics`]).

use super::SubjectLabels;
use common_runtime::telemetry::Family;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::histogram::Histogram;

/// Upstream's bucket bounds, in seconds.
const BOUNDS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Labels as upstream renders its attributes; the revision's own is not among them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Labels {
    k8s_namespace_name: String,
    kn_service_name: String,
    kn_configuration_name: String,
}

impl Labels {
    /// Returns the labels of a revision's configuration.
    pub(super) fn new(namespace: &str, labels: &SubjectLabels) -> Self {
        Self {
            k8s_namespace_name: namespace.to_owned(),
            kn_service_name: labels.service.clone(),
            kn_configuration_name: labels.configuration.clone(),
        }
    }
}

/// Histograms of all configurations.
pub(super) type Scrapes = Family<Labels, Histogram>;

/// Creates an empty family.
pub(super) fn new() -> Scrapes {
    Family::with_constructor(|| Histogram::new(BOUNDS))
}
