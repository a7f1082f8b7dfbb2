//! A front end's part in watching.

use super::Stores;
use common::RevisionKey as Key;
use common_controller::Priority;
use futures::future::BoxFuture;
use kube::Client;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Watches of a front end.
pub(crate) trait Watches: Send + Sync + 'static {
    /// Starts to fill `stores` and the front end's own stores, until `shutdown`. Waits until each kind has been listed
    /// once, and prepares targets as soon as the named targets are known.
    fn follow<'a>(
        &'a self,
        stores: &'a Stores,
        client: &'a Client,
        shutdown: &'a CancellationToken,
    ) -> BoxFuture<'a, ()>;
}

/// Front end's reactions to events of a workload, beside its scale.
pub(crate) trait Beside: Send + Sync + 'static {
    /// Requests a new look at the workload's measurement.
    fn look_at_measurement(&self, _key: &Key, _priority: Priority) {}

    /// Requests a new look at the workload's routing.
    fn look_at_path(&self, _key: &Key, _priority: Priority) {}

    /// Requests the same after `delay`.
    fn look_at_path_after(&self, _key: &Key, _delay: Duration) {}
}
