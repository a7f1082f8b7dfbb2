//! What a front end watches, and whom events concern there.

use super::Stores;
use super::target_key::TargetKey;
use common::RevisionKey as Key;
use common_api::{PodAutoscaler, ServerlessService};
use common_controller::Priority;
use common_runtime::namespaces::Namespaces;
use futures::future::BoxFuture;
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A front end's part in what is watched.
pub(crate) trait Watches: Send + Sync + 'static {
    /// Starts what fills `stores`, and its own watches, all of which end with `shutdown`. Waits until each kind of its
    /// own has been listed once.
    fn follow<'a>(
        &'a self,
        stores: &'a Stores,
        client: &'a Client,
        shutdown: &'a CancellationToken,
    ) -> BoxFuture<'a, ()>;

    /// Where targets are watched.
    fn namespaces(&self) -> Namespaces {
        Namespaces::default()
    }

    /// A target that one has taken up and has not given back, whatever its spec names by now.
    fn held(&self, _: &PodAutoscaler) -> Option<TargetKey> {
        None
    }

    /// A PodAutoscaler came, changed or went.
    fn autoscaler(&self, key: &Key, old: Option<&Arc<PodAutoscaler>>, new: Option<&Arc<PodAutoscaler>>);

    /// A ServerlessService came or changed; or went, if there is none any more.
    fn serverless(&self, key: &Key, new: Option<&Arc<ServerlessService>>);

    /// Asks for a look at where the traffic of a revision goes.
    fn look_at_path(&self, key: &Key, priority: Priority);

    /// Asks for the same after `delay`.
    fn look_at_path_after(&self, key: &Key, delay: Duration);
}
