//! Status of the planes' Pods: the readiness of each plane, in the form that a kubelet writes. No node runs these Pods
//! ([`super::pod`]), but users look at `kubectl get pods`.

use super::planes::NAMESPACE;
use super::pod;
use super::system::Member;
use common_runtime::failure_log::FailureLog;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum duration of a write, since the caller has other work to do.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// Writes the status of the planes' Pods.
pub(super) struct PodStatuses {
    pods: Api<Pod>,
    /// Last written status, by Pod name.
    written: BTreeMap<String, Written>,
    /// Time of the last failed write, by Pod name.
    failed: BTreeMap<String, Instant>,
    failures: FailureLog,
}

/// Status of a Pod at the last write.
#[derive(Clone, Copy)]
struct Written {
    /// Number of the plane, which no other plane has.
    number: u64,
    /// Written readiness. `None` if no write was confirmed.
    ready: Option<bool>,
    /// Start time of the plane.
    started: Timestamp,
    /// Start time of the Pod, and the number of planes it had before this one.
    pod_started: Timestamp,
    restarts: i32,
}

impl PodStatuses {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            pods: Api::namespaced(client.clone(), NAMESPACE),
            written: BTreeMap::new(),
            failed: BTreeMap::new(),
            failures: FailureLog::of("the status of the planes' Pods"),
        }
    }

    /// Writes the status of plane `number`, which runs as `account`, if it has changed. A later call repeats a failed
    /// write.
    pub(super) async fn show(&mut self, account: &str, number: u64, plane: &Member) {
        let before = self.written.get(&plane.name).copied().filter(|written| written.number == number);
        let is_too_soon = self.failed.get(&plane.name).is_some_and(|at| at.elapsed() < RETRY);
        if is_too_soon || before.is_some_and(|before| before.ready == Some(plane.ready)) {
            return;
        }
        match tokio::time::timeout(WRITE_TIMEOUT, self.write(account, number, plane, before)).await {
            Ok(Ok(())) => {
                self.failed.remove(&plane.name);
                self.failures.recovered();
            }
            Ok(Err(error)) => self.note_failure(plane, &error),
            Err(unanswered) => self.note_failure(plane, &unanswered),
        }
    }

    fn note_failure(&mut self, plane: &Member, error: &impl Display) {
        self.failed.insert(plane.name.clone(), Instant::now());
        self.failures.failed(error);
    }

    async fn write(&mut self, account: &str, number: u64, plane: &Member, before: Option<Written>) -> kube::Result<()> {
        let now = Timestamp::now();
        let shown = match before {
            Some(before) => before,
            None => self.first(number, &plane.name, now).await?,
        };
        // A write may succeed although its response is lost. The next write sends the same values.
        self.written.insert(plane.name.clone(), shown);
        let patch = Patch::Merge(status(account, plane, shown, now));
        match self.pods.patch_status(&plane.name, &PatchParams::default(), &patch).await {
            // The Pod is not created yet or was deleted. A missing Pod already counts as not ready.
            Err(kube::Error::Api(answer)) if answer.code == 404 && !plane.ready => {}
            answer => drop(answer?),
        }
        self.written.insert(plane.name.clone(), Written { ready: Some(plane.ready), ..shown });
        Ok(())
    }

    /// Returns the first status of a plane that starts now. If the Pod had another plane before, this is a restart.
    async fn first(&self, number: u64, pod: &str, now: Timestamp) -> kube::Result<Written> {
        let status = self.pods.get_opt(pod).await?.and_then(|pod| pod.status).unwrap_or_default();
        let former = status.container_statuses.iter().flatten().next();
        Ok(Written {
            number,
            ready: None,
            started: now,
            pod_started: status.start_time.map_or(now, |time| time.0),
            restarts: former.map_or(0, |former| former.restart_count + 1),
        })
    }
}

/// Returns the status of a plane's Pod. Its readiness changes `now`.
fn status(account: &str, plane: &Member, shown: Written, now: Timestamp) -> Value {
    let Member { address, ready, .. } = plane;
    let truth = if *ready { "True" } else { "False" };
    let condition = |kind: &str| json!({"type": kind, "status": truth, "lastTransitionTime": Time(now)});
    json!({"status": {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": Time(shown.pod_started),
        "conditions": [condition("Ready"), condition("ContainersReady")],
        "containerStatuses": [{
            "name": account, "image": pod::image(account), "imageID": "", "ready": ready, "started": true,
            "restartCount": shown.restarts, "state": {"running": {"startedAt": Time(shown.started)}},
        }],
    }})
}

#[cfg(test)]
mod tests {
    use super::super::planes::unless_there;
    use super::super::pod::PlanePod;
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

    /// Goal: a Pod counts the planes that it had before; a new Pod has had none.
    #[tokio::test]
    async fn restarts_under_one_pod_are_counted() {
        let server = ApiServer::start(ApiOptions::new("10.96.0.0/16".parse().expect("a range"))).await;
        let server = server.expect("a free port");
        let client = client(&server.url(), server.token());
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).expect("one");
        unless_there(&Api::all(client.clone()), &namespace).await.expect("made");
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let mut statuses = PodStatuses::new(&client);
        let mut began = None;
        for (number, is_new, expected) in [(3, true, 0), (4, false, 1), (7, false, 2), (8, true, 0)] {
            if is_new {
                let _ = pods.delete("activator-0", &DeleteParams::default()).await; // The first time there is none.
                began = None;
            }
            statuses.show("activator", number, &plane(false)).await;
            PlanePod::make(&client, "activator", "activator-0").await.expect("a Pod");
            statuses.show("activator", number, &plane(true)).await;
            let status = pods.get("activator-0").await.expect("a Pod").status.expect("a status");
            let containers = status.container_statuses.expect("containers");
            assert_eq!((containers[0].restart_count, containers[0].ready), (expected, true), "plane {number}");
            let since = began.get_or_insert(status.start_time.clone());
            assert_eq!(status.start_time, *since, "plane {number}");
        }
        server.shutdown().await;
    }
}
