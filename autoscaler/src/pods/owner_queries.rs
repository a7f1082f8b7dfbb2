//! Queries the API server for the owner of a pod controller, if its name does not reveal it ([`super::ownership`]).
//!
//! Only metadata is read. While the controller has pods, the query is repeated now and then, because a Deployment may
//! adopt a ReplicaSet later.

use super::index::PodIndex;
use super::ownership::{Controller, KnownOwner};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Longest wait for a response.
const WITHIN: Duration = Duration::from_secs(5);
/// Time until the next query about the same controller after a result. `SOON`: after a failure.
const AGAIN: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(1);

/// Queries the owner of a controller, until the controller has no pods any more.
pub(super) async fn query(
    client: Client,
    index: Arc<PodIndex>,
    permits: Arc<Semaphore>,
    namespace: String,
    controller: Controller,
) {
    let Some(plural) = controller.resource() else { return };
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("apps", "v1", ""), plural);
    let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &resource);
    while index.is_controller(&controller.uid) {
        let answer = {
            let Ok(_permit) = permits.acquire().await else { return };
            timeout(WITHIN, api.get_metadata_opt(&controller.name)).await
        };
        let owner = match answer {
            Ok(Ok(found)) => {
                let found = found.filter(|found| found.metadata.uid.as_deref() == Some(controller.uid.as_str()));
                let next = found.and_then(|found| Controller::from_metadata(&found.metadata));
                next.map_or(KnownOwner::None, |next| KnownOwner::Controller(Arc::new(next)))
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                tracing::debug!(%namespace, plural, name = controller.name, "its controller may not be read");
                KnownOwner::Unreadable
            }
            failed => {
                tracing::debug!(%namespace, plural, name = controller.name, ?failed, "its controller is not known");
                sleep(SOON).await;
                continue;
            }
        };
        index.controlled_by(&controller.uid, owner);
        sleep(AGAIN).await;
    }
}
