//! Nothing is watched beside Knative's own objects: its ServerlessService controller looks after the traffic.

use crate::reconcile::stores::Stores;
use crate::reconcile::stores::watches::Watches;
use common::RevisionKey as Key;
use common_api::{PodAutoscaler, ServerlessService};
use common_controller::Priority;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Knative's controllers hear of everything themselves.
#[derive(Debug)]
pub(crate) struct NoWatches;

impl Watches for NoWatches {
    fn follow<'a>(
        &'a self,
        stores: &'a Stores,
        client: &'a Client,
        shutdown: &'a CancellationToken,
    ) -> BoxFuture<'a, ()> {
        stores.follow_api_objects(client, shutdown);
        ready(()).boxed()
    }

    fn autoscaler(&self, _: &Key, _: Option<&Arc<PodAutoscaler>>, _: Option<&Arc<PodAutoscaler>>) {}

    fn serverless(&self, _: &Key, _: Option<&Arc<ServerlessService>>) {}

    fn look_at_path(&self, _: &Key, _: Priority) {}

    fn look_at_path_after(&self, _: &Key, _: Duration) {}
}
