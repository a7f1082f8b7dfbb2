//! What the planes' Pods show: whether each plane is ready, as a kubelet would write it. No node runs these Pods
//! ([`super::pod`]), and `kubectl get pods` is where people look.

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

/// Longest wait for a write: whoever shows a status has more to do.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after a write that failed.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps the status of the planes' Pods.
pub(super) struct PodStatuses {
    pods: Api<Pod>,
    /// By the Pod's name.
    written: BTreeMap<String, Written>,
    /// When the last write failed, by the Pod's name.
    failed: BTreeMap<String, Instant>,
    failures: FailureLog,
}

/// What a Pod shows since the last write.
#[derive(Clone, Copy)]
struct Written {
    /// The plane's, of which only one ever has it.
    number: u64,
    /// None: no write has been answered.
    ready: Option<bool>,
    /// Since when the plane runs.
    started: Timestamp,
    /// Since when the Pod has planes, and how many it had before this one.
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

    /// Writes how the plane of that number is, which runs as `account`, if that has changed. A write that fails is made
    /// again by a later call.
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
        // A write may count although its answer never comes: the next one says the same.
        self.written.insert(plane.name.clone(), shown);
        let patch = Patch::Merge(status(account, plane, shown, now));
        match self.pods.patch_status(&plane.name, &PatchParams::default(), &patch).await {
            // Not made yet, or deleted: a Pod that is not there is not shown as ready.
            Err(kube::Error::Api(answer)) if answer.code == 404 && !plane.ready => {}
            answer => drop(answer?),
        }
        self.written.insert(plane.name.clone(), Written { ready: Some(plane.ready), ..shown });
        Ok(())
    }

    /// What the Pod is to show of a plane that was started now. If it had another one before, that was restarted.
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

/// The status of a plane's Pod, whose readiness changes `now`.
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

    /// Goal: an API server that says nothing holds nobody up for more than a second, and not at each call.
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

    /// Goal: a Pod counts the planes that it had before, and one that was made anew had none.
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
