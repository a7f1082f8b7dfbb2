//! Pod of a plane, to which its tokens are bound.
//!
//! The planes run in this process, so no node runs the Pod. Its scheduler does not exist. As in a cluster, deleting the
//! Pod ends the plane: its tokens are no longer valid, so the plane drains and counts as failed. The plane that
//! replaces it creates the Pod again. Users look at `kubectl get pods`, so [`PodStatuses`] writes the status: the
//! readiness of each plane, in the form that a kubelet writes. The Pod of a stopped plane is complete. Restarts of a
//! plane are not counted, but logged.

use super::system::{NAMESPACE, create_if_missing};
use common_runtime::failure_log::FailureLog;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Scheduler name of these Pods only. No scheduler has this name.
const SCHEDULER: &str = "none.zeroscale.dev";
/// Pause after the API server did not respond, or a write failed.
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

    /// Runs the plane while its Pod exists. `shutdown` asks the plane to drain. Returns the plane's error, or fails if
    /// the Pod is gone.
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
fn image(account: &str) -> String {
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

/// Maximum duration of a write, since the caller has other work to do.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// Writes the status of the planes' Pods.
pub(super) struct PodStatuses {
    pods: Api<Pod>,
    /// Last write of each Pod, by its name: number and readiness of the plane, or the time of a failure.
    writes: BTreeMap<String, Result<(u64, Option<bool>), Instant>>,
    failures: FailureLog,
}

impl PodStatuses {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            pods: Api::namespaced(client.clone(), NAMESPACE),
            writes: BTreeMap::new(),
            failures: FailureLog::for_operation("the update of the status of the planes' Pods"),
        }
    }

    /// Writes the status of the Pod of plane `number` if it has changed. `ready` is `None` for a stopped plane. A later
    /// call repeats a failed write.
    pub(super) async fn update(
        &mut self,
        number: u64,
        name: &str,
        account: &str,
        address: IpAddr,
        ready: Option<bool>,
    ) {
        match self.writes.get(name) {
            Some(Ok(written)) if *written == (number, ready) => return,
            Some(Err(failed)) if failed.elapsed() < RETRY => return,
            _ => {}
        }
        let status = Patch::Merge(status(account, address, ready));
        let parameters = PatchParams::default();
        let failure = match timeout(WRITE_TIMEOUT, self.pods.patch_status(name, &parameters, &status)).await {
            Ok(Ok(_)) => None,
            // The Pod is not created yet or was deleted. A missing Pod already counts as not ready.
            Ok(Err(kube::Error::Api(answer))) if answer.code == 404 && ready != Some(true) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(unanswered) => Some(unanswered.to_string()),
        };
        match &failure {
            None => self.failures.recovered(),
            Some(error) => self.failures.failed(error),
        }
        self.writes.insert(name.to_owned(), if failure.is_none() { Ok((number, ready)) } else { Err(Instant::now()) });
    }
}

/// Returns the status of a plane's Pod. The current time is the transition time of its conditions.
fn status(account: &str, address: IpAddr, ready: Option<bool>) -> Value {
    let (is_ready, now) = (ready == Some(true), Time(Timestamp::now()));
    let truth = if is_ready { "True" } else { "False" };
    let condition = |kind: &str| json!({"type": kind, "status": truth, "lastTransitionTime": now});
    json!({"status": {
        "phase": if ready.is_none() { "Succeeded" } else { "Running" },
        "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [condition("Ready"), condition("ContainersReady")],
        "containerStatuses": [{
            "name": account, "image": image(account), "imageID": "", "ready": is_ready, "started": true,
            "restartCount": 0, "state": {"running": {}},
        }],
    }})
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::Config;
    use std::net::{Ipv4Addr, TcpListener};

    /// Goal: an API server that does not respond delays a caller by at most one second, and not on each call.
    #[tokio::test(start_paused = true)]
    async fn an_unanswered_write_times_out_and_is_retried_after_a_pause() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", silent.local_addr().expect("an address")).parse().expect("a URL");
        let mut statuses = PodStatuses::new(&Client::try_from(Config::new(url)).expect("a client"));
        for (pause, expected) in [(Duration::ZERO, 1), (Duration::ZERO, 0), (RETRY, 1)] {
            tokio::time::sleep(pause).await;
            let begun = Instant::now();
            statuses.update(1, "activator-0", "activator", Ipv4Addr::LOCALHOST.into(), Some(true)).await;
            assert_eq!(begun.elapsed().as_secs(), expected);
        }
    }
}
