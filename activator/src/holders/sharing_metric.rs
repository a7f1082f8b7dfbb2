//! Metric for the current use of pods with a hard limit.

use super::Holders;
use activator_core::holders::sharing_mode::SharingMode;
use common_runtime::telemetry::{self, FamilyText, catalog};
use std::sync::Arc;

/// Label values of the modes.
const MODES: [(SharingMode, &str); 4] = [
    (SharingMode::Undecided, "undecided"),
    (SharingMode::Alone, "alone"),
    (SharingMode::Divided, "divided"),
    (SharingMode::Shared, "shared"),
];

/// Registers the metric.
pub(crate) fn register(registry: &telemetry::Metrics, holders: &Arc<Holders>) {
    let holders = holders.clone();
    registry.collect(move || {
        let now = holders.sharing_mode();
        vec![FamilyText::new(catalog::POD_SHARING, MODES, move |(mode, word), encoder| {
            let labels = [("standing", word)];
            encoder.encode_family(&labels)?.encode_gauge(&i64::from(mode == now))
        })]
    });
}
