//! A front end's reactions to events.

use common::RevisionKey as Key;
use common_controller::Priority;
use std::time::Duration;

/// Front end's reactions to events of a workload, beside its scale.
pub(crate) trait Beside: Send + Sync + 'static {
    /// Requests a new look at the workload's measurement.
    fn look_at_measurement(&self, _key: &Key, _priority: Priority) {}

    /// Requests a new look at the workload's routing.
    fn look_at_path(&self, _key: &Key, _priority: Priority) {}

    /// Requests the same after `delay`.
    fn look_at_path_after(&self, _key: &Key, _delay: Duration) {}
}
