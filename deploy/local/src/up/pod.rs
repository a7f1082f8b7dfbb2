//! Pod of a plane, to which its tokens are bound.
//!
//! The planes run in this process, so no node runs the Pod. Its scheduler does not exist, and [`super::pod_status`]
//! writes its status. As in a cluster, deleting the Pod ends the plane: its tokens are no longer valid, so the plane
//! drains and counts as failed. The plane that replaces it creates the Pod again.

use super::system::{NAMESPACE, create_if_missing};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::pin::pin;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Scheduler name of these Pods only. No scheduler has this name.
const SCHEDULER: &str = "none.zeroscale.dev";
/// Pause after the API server did not respond.
const RETRY: Duration = Duration::from_secs(1);

/// Pod of a plane, with an administrator's client.
pub(super) struct PlanePod {
    pub(super) name: String,
    pub(super) uid: String,
    api: Api<Pod>,
}

impl PlanePod {
    /// Creates the Pod of plane `name` with service account `account`, unless it exists.
    pub(super) async fn make(administrator: &Client, account: &str, name: &str) -> anyhow::Result<Self> {
        let api: Api<Pod> = Api::namespaced(administrator.clone(), NAMESPACE);
        let object: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": account}},
            "spec": {
                "serviceAccountName": account, "schedulerName": SCHEDULER,
                "containers": [{"name": account, "image": image(account)}],
            },
        }))?;
        create_if_missing(&api, &object).await?;
        let uid = api.get(name).await?.uid().unwrap_or_default();
        Ok(Self { name: name.to_owned(), uid, api })
    }

    /// Runs the plane while its Pod exists. `shutdown` asks the plane to drain.
    ///
    /// # Errors
    /// Returns the plane's error, or fails if the Pod is gone.
    pub(super) async fn run_plane(
        &self,
        plane: impl Future<Output = anyhow::Result<()>>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut plane = pin!(plane);
        tokio::select! {
            ended = &mut plane => return ended,
            () = self.deleted() => shutdown.cancel(),
        }
        plane.await?;
        anyhow::bail!("Pod {} was deleted, so the tokens of its plane are no longer valid", self.name)
    }

    /// Waits until the Pod is deleted or replaced by one with the same name.
    async fn deleted(&self) {
        // An error means that the API server does not respond.
        while await_condition(self.api.clone(), &self.name, conditions::is_deleted(&self.uid)).await.is_err() {
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Returns the image name in a plane's container. No image is used.
pub(super) fn image(account: &str) -> String {
    format!("zeroscale/{account}")
}

/// Deletes the Pods of all planes, since they would show as running after the end of this cluster.
pub(super) async fn withdraw(client: &Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let ours = ListParams::default().fields(&format!("spec.schedulerName={SCHEDULER}"));
    if let Err(error) = pods.delete_collection(&DeleteParams::default(), &ours).await {
        tracing::debug!(%error, "the Pods of the planes could not be deleted");
    }
}
