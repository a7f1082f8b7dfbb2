//! Status of the planes' Pods: the readiness of each plane, in the form that a kubelet writes. No node runs these Pods
//! ([`super::pod`]), but users look at `kubectl get pods`. The Pod of a stopped plane is complete. Restarts of a plane
//! are not counted, but logged.

use super::pod;
use super::system::NAMESPACE;
use common_runtime::failure_log::FailureLog;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Maximum duration of a write, since the caller has other work to do.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// State of a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaneState {
    /// Its readiness probe passes.
    Ready,
    /// Its readiness probe does not pass.
    NotReady,
    /// It was drained or killed.
    Stopped,
}

/// Content of the status of a plane's Pod.
#[derive(Clone, Debug)]
pub(super) struct PlaneStatus {
    /// Name of the Pod.
    pub(super) name: String,
    /// Name of the plane's ServiceAccount.
    pub(super) account: &'static str,
    /// Address of the plane.
    pub(super) address: IpAddr,
    /// State of the plane.
    pub(super) state: PlaneState,
}

/// Writes the status of the planes' Pods.
pub(super) struct PodStatuses {
    pods: Api<Pod>,
    /// Last write of each Pod, by its name: number and state of the plane, or the time of a failure.
    writes: BTreeMap<String, Result<(u64, PlaneState), Instant>>,
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

    /// Writes the status of plane `number` if it has changed. A later call repeats a failed write.
    pub(super) async fn update(&mut self, number: u64, plane: &PlaneStatus) {
        let state = (number, plane.state);
        match self.writes.get(&plane.name) {
            Some(Ok(written)) if *written == state => return,
            Some(Err(failed)) if failed.elapsed() < RETRY => return,
            _ => {}
        }
        let failure = match timeout(WRITE_TIMEOUT, plane.write(&self.pods)).await {
            Ok(Ok(_)) => None,
            // The Pod is not created yet or was deleted. A missing Pod already counts as not ready.
            Ok(Err(kube::Error::Api(answer))) if answer.code == 404 && plane.state != PlaneState::Ready => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(unanswered) => Some(unanswered.to_string()),
        };
        match &failure {
            None => self.failures.recovered(),
            Some(error) => self.failures.failed(error),
        }
        self.writes.insert(plane.name.clone(), if failure.is_none() { Ok(state) } else { Err(Instant::now()) });
    }
}

impl PlaneStatus {
    /// Writes the status. The current time is the transition time of its conditions.
    ///
    /// # Errors
    /// Fails if there is no such Pod, or with another error of the API server.
    async fn write(&self, pods: &Api<Pod>) -> kube::Result<()> {
        let Self { name, account, address, state } = self;
        let is_ready = *state == PlaneState::Ready;
        let (truth, now) = (if is_ready { "True" } else { "False" }, Time(Timestamp::now()));
        let condition = |kind: &str| json!({"type": kind, "status": truth, "lastTransitionTime": now});
        let status = json!({"status": {
            "phase": if *state == PlaneState::Stopped { "Succeeded" } else { "Running" },
            "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [condition("Ready"), condition("ContainersReady")],
            "containerStatuses": [{
                "name": account, "image": pod::image(account), "imageID": "", "ready": is_ready, "started": true,
                "restartCount": 0, "state": {"running": {}},
            }],
        }});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pod::PlanePod;
    use super::super::system::create_if_missing;
    use super::*;
    use crate::api::{ApiOptions, ApiServer};
    use k8s_openapi::api::core::v1::Namespace;
    use kube::Config;
    use kube::api::DeleteParams;
    use std::net::{Ipv4Addr, TcpListener};

    fn client(url: &str, token: &str) -> Client {
        let mut config = Config::new(url.parse().expect("a URL"));
        config.auth_info.token = Some(token.to_owned().into());
        Client::try_from(config).expect("a client")
    }

    fn plane(state: PlaneState) -> PlaneStatus {
        PlaneStatus { name: "activator-0".into(), account: "activator", address: Ipv4Addr::LOCALHOST.into(), state }
    }

    /// Goal: an API server that does not respond delays a caller by at most one second, and not on each call.
    #[tokio::test(start_paused = true)]
    async fn an_unanswered_write_times_out_and_is_retried_after_a_pause() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", silent.local_addr().expect("an address"));
        let mut statuses = PodStatuses::new(&client(&url, "t"));
        for (pause, expected) in [(Duration::ZERO, 1), (Duration::ZERO, 0), (RETRY, 1)] {
            tokio::time::sleep(pause).await;
            let begun = Instant::now();
            statuses.update(1, &plane(PlaneState::Ready)).await;
            assert_eq!(begun.elapsed().as_secs(), expected);
        }
    }

    /// Goal: the status of a Pod has the readiness of its plane, also if another plane or a new Pod replaces the former
    /// one.
    #[tokio::test]
    async fn the_status_of_a_pod_has_the_readiness_of_its_plane() {
        let server = ApiServer::start(ApiOptions::new("10.96.0.0/16".parse().expect("a range"))).await;
        let server = server.expect("a free port");
        let client = client(&server.url(), server.token());
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).expect("one");
        create_if_missing(&Api::all(client.clone()), &namespace).await.expect("made");
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let mut statuses = PodStatuses::new(&client);
        for (number, is_new) in [(3, true), (4, false), (8, true)] {
            if is_new {
                let _ = pods.delete("activator-0", &DeleteParams::default()).await; // The first time there is none.
            }
            statuses.update(number, &plane(PlaneState::NotReady)).await;
            PlanePod::make(&client, "activator", "activator-0").await.expect("a Pod");
            statuses.update(number, &plane(PlaneState::Ready)).await;
            let status = pods.get("activator-0").await.expect("a Pod").status.expect("a status");
            assert!(status.container_statuses.expect("containers")[0].ready, "plane {number}");
        }
        server.shutdown().await;
    }
}
