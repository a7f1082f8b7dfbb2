//! Queues of a front end that the shared reconcilers feed.

use common::RevisionKey as Key;
use common_controller::Priority;
use std::time::Duration;

/// Queues of a front end, apart from the queue of scale decisions.
pub(crate) trait FrontEndQueues: Send + Sync + 'static {
    /// Requests a check of the workload's measurement.
    fn queue_measurement(&self, _key: &Key, _priority: Priority) {}

    /// Requests a check of the workload's routing.
    fn queue_path(&self, _key: &Key, _priority: Priority) {}

    /// Requests a check of the workload's routing after `delay`.
    fn queue_path_after(&self, _key: &Key, _delay: Duration) {}
}
