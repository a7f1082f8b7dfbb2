//! A front end's part in what is watched.

use super::Stores;
use common::RevisionKey as Key;
use common_controller::Priority;
use futures::future::BoxFuture;
use kube::Client;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Watches of a front end.
pub(crate) trait Watches: Send + Sync + 'static {
    /// Starts to fill `stores`, and its own stores, until `shutdown`. Waits until each kind has been listed once, and has
    /// targets prepared as soon as it is known which are named.
    fn follow<'a>(
        &'a self,
        stores: &'a Stores,
        client: &'a Client,
        shutdown: &'a CancellationToken,
    ) -> BoxFuture<'a, ()>;
}

/// What a front end looks at beside the scale of a workload, when something happens to that.
pub(crate) trait Beside: Send + Sync + 'static {
    /// Asks for a look at how a workload is measured.
    fn look_at_measurement(&self, _key: &Key, _priority: Priority) {}

    /// Asks for a look at where the traffic of a workload goes.
    fn look_at_path(&self, _key: &Key, _priority: Priority) {}

    /// Asks for the same after `delay`.
    fn look_at_path_after(&self, _key: &Key, _delay: Duration) {}
}
