//! Status of the planes' Pods: the readiness of each plane, in the form that a kubelet writes. No node runs these Pods
//! ([`super::pod`]), but users look at `kubectl get pods`. Restarts of a plane are not counted; the log names them.

use super::pod;
use super::system::{Member, NAMESPACE};
use common_runtime::failure_log::FailureLog;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Maximum duration of a write, since the caller has other work to do.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// Writes the status of the planes' Pods.
pub(super) struct PodStatuses {
    pods: Api<Pod>,
    /// Number and readiness of each plane at the last write, by Pod name.
    written: BTreeMap<String, (u64, bool)>,
    /// Time of the last failed write, by Pod name.
    failed: BTreeMap<String, Instant>,
    failures: FailureLog,
}

impl PodStatuses {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            pods: Api::namespaced(client.clone(), NAMESPACE),
            written: BTreeMap::new(),
            failed: BTreeMap::new(),
            failures: FailureLog::for_operation("the update of the status of the planes' Pods"),
        }
    }

    /// Writes the status of plane `number`, which runs as `account`, if it has changed. A later call repeats a failed
    /// write.
    pub(super) async fn show(&mut self, account: &str, number: u64, plane: &Member) {
        let is_too_soon = self.failed.get(&plane.name).is_some_and(|at| at.elapsed() < RETRY);
        if is_too_soon || self.written.get(&plane.name) == Some(&(number, plane.ready)) {
            return;
        }
        let (params, patch) = (PatchParams::default(), Patch::Merge(status(account, plane, Timestamp::now())));
        let failure = match timeout(WRITE_TIMEOUT, self.pods.patch_status(&plane.name, &params, &patch)).await {
            Ok(Ok(_)) => None,
            // The Pod is not created yet or was deleted. A missing Pod already counts as not ready.
            Ok(Err(kube::Error::Api(answer))) if answer.code == 404 && !plane.ready => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(unanswered) => Some(unanswered.to_string()),
        };
        match failure {
            None => {
                self.written.insert(plane.name.clone(), (number, plane.ready));
                self.failed.remove(&plane.name);
                self.failures.recovered();
            }
            Some(error) => {
                self.failed.insert(plane.name.clone(), Instant::now());
                self.failures.failed(&error);
            }
        }
    }
}

/// Returns the status of a plane's Pod. Its readiness changes `now`.
fn status(account: &str, plane: &Member, now: Timestamp) -> Value {
    let Member { address, ready, .. } = plane;
    let truth = if *ready { "True" } else { "False" };
    let condition = |kind: &str| json!({"type": kind, "status": truth, "lastTransitionTime": Time(now)});
    json!({"status": {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [condition("Ready"), condition("ContainersReady")],
        "containerStatuses": [{
            "name": account, "image": pod::image(account), "imageID": "", "ready": ready, "started": true,
            "restartCount": 0, "state": {"running": {}},
        }],
    }})
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

    fn plane(ready: bool) -> Member {
        Member { name: "activator-0".into(), address: Ipv4Addr::LOCALHOST.into(), ready }
    }

    /// Goal: an API server that does not respond delays a caller by at most one second, and not on each call.
    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_answers_is_given_up_and_made_again_later() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", silent.local_addr().expect("an address"));
        let mut statuses = PodStatuses::new(&client(&url, "t"));
        for (pause, expected) in [(Duration::ZERO, 1), (Duration::ZERO, 0), (RETRY, 1)] {
            tokio::time::sleep(pause).await;
            let begun = Instant::now();
            statuses.show("activator", 1, &plane(true)).await;
            assert_eq!(begun.elapsed().as_secs(), expected);
        }
    }

    /// Goal: a Pod shows the readiness of each plane that it has, also of one that replaces another, and a new Pod shows
    /// it again.
    #[tokio::test]
    async fn a_pod_shows_whether_its_plane_is_ready() {
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
            statuses.show("activator", number, &plane(false)).await;
            PlanePod::make(&client, "activator", "activator-0").await.expect("a Pod");
            statuses.show("activator", number, &plane(true)).await;
            let status = pods.get("activator-0").await.expect("a Pod").status.expect("a status");
            assert!(status.container_statuses.expect("containers")[0].ready, "plane {number}");
        }
        server.shutdown().await;
    }
}
