//! Reactions of a front end to events.

use common::RevisionKey as Key;
use common_controller::Priority;
use std::time::Duration;

/// Reactions of a front end to events of a workload, apart from its scale.
pub(crate) trait Beside: Send + Sync + 'static {
    /// Requests a check of the workload's measurement.
    fn look_at_measurement(&self, _key: &Key, _priority: Priority) {}

    /// Requests a check of the workload's routing.
    fn look_at_path(&self, _key: &Key, _priority: Priority) {}

    /// Requests a check of the workload's routing after `delay`.
    fn look_at_path_after(&self, _key: &Key, _delay: Duration) {}
}
