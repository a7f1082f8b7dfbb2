//! The Pod of a plane, which its tokens are bound to.
//!
//! Planes run in this process, so no node runs the Pod: its scheduler does not exist, and its status is written by
//! [`super::pod_status`]. Whoever deletes it ends the plane, as in a cluster. Its tokens are good no longer, so it drains and
//! has failed; the plane that is started in its place makes the Pod anew.

use super::planes::{NAMESPACE, unless_there};
use common_runtime::watching::watch;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::pin::pin;
use tokio_util::sync::CancellationToken;

/// The scheduler of these Pods, and of no others. Nobody goes by that name.
const SCHEDULER: &str = "none.zeroscale.dev";

/// A plane's Pod, as an administrator sees it.
pub(super) struct PlanePod {
    pub(super) name: String,
    pub(super) uid: String,
    api: Api<Pod>,
}

impl PlanePod {
    /// The Pod of the plane `name`, which runs as `account`; made unless it is there.
    pub(super) async fn make(administrator: &Client, account: &str, name: &str) -> anyhow::Result<Self> {
        let api: Api<Pod> = Api::namespaced(administrator.clone(), NAMESPACE);
        let object: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": account}},
            "spec": {
                "serviceAccountName": account, "schedulerName": SCHEDULER,
                "containers": [{"name": account, "image": image(account)}],
            },
        }))?;
        unless_there(&api, &object).await?;
        let uid = api.get(name).await?.uid().unwrap_or_default();
        Ok(Self { name: name.to_owned(), uid, api })
    }

    /// Runs the plane, which `shutdown` asks to drain, for as long as its Pod is there.
    ///
    /// # Errors
    /// The plane's own; or the Pod is gone.
    pub(super) async fn hold(
        &self,
        plane: impl Future<Output = anyhow::Result<()>>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut plane = pin!(plane);
        tokio::select! {
            ended = &mut plane => return ended,
            () = self.gone() => shutdown.cancel(),
        }
        plane.await?;
        anyhow::bail!("Pod {} was deleted, and with it the rights of its plane", self.name)
    }

    /// Waits until the Pod is gone, or another one has its name.
    async fn gone(&self) {
        let mut events = watch(self.api.clone(), Config::default().fields(&format!("metadata.name={}", self.name)));
        let is_it = |pod: &Pod| pod.metadata.uid.as_ref() == Some(&self.uid);
        let mut is_listed = false;
        while let Some(event) = events.next().await {
            match event {
                Event::Init => is_listed = false,
                Event::InitApply(pod) => is_listed |= is_it(&pod),
                Event::InitDone if !is_listed => return,
                Event::Apply(pod) if !is_it(&pod) => return,
                Event::Delete(_) => return,
                Event::InitDone | Event::Apply(_) => {}
            }
        }
    }
}

/// The image that a plane's container names. None is used.
pub(super) fn image(account: &str) -> String {
    format!("zeroscale/{account}")
}

/// Takes the Pods of all planes away, as they would be shown as running after this cluster's end.
pub(super) async fn withdraw(client: &Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let ours = ListParams::default().fields(&format!("spec.schedulerName={SCHEDULER}"));
    if let Err(error) = pods.delete_collection(&DeleteParams::default(), &ours).await {
        tracing::debug!(%error, "Pods of planes not withdrawn");
    }
}
