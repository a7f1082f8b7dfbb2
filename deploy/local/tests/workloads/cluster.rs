//! A cluster without planes: API server, controllers, node.

use super::program;
use common_controller::Kind;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use kube::api::{ObjectList, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config};
use local::api::{ApiOptions, ApiServer};
use local::node::NodeOptions;
use local::node::proxy::ServiceTable;
use local::up::ranges::Ranges;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Maximum duration of any step; far more than needed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) services: ServiceTable,
    pub(crate) work: tempfile::TempDir,
    shutdown: CancellationToken,
    _shutdown_on_drop: DropGuard,
    parts: Vec<JoinHandle<anyhow::Result<()>>>,
    _server: ApiServer,
    _ranges: Ranges,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts a cluster after `change` of the node's options.
    pub(crate) async fn start_with(change: impl FnOnce(&mut NodeOptions)) -> Self {
        // A failing test shows the cluster's logs; RUST_LOG sets the level.
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
        let ranges = Ranges::take(std::process::id(), None, None).expect("a range");
        let (pods, services) = (ranges.pods, ranges.services);
        let server = ApiServer::start(ApiOptions::new(services)).await.expect("a server");
        let mut config = Config::new(server.url().parse().expect("a URL"));
        config.auth_info.token = Some(server.token().to_owned().into());
        let client = Client::try_from(config).expect("a client");
        let shutdown = CancellationToken::new();
        let work = tempfile::tempdir().expect("a folder");
        let mut options = NodeOptions {
            restart_backoff: (Duration::from_millis(100), Duration::from_millis(400)),
            ..NodeOptions::new("node", pods, services, work.path())
        };
        change(&mut options);
        let table = options.services.clone();
        let parts = vec![
            tokio::spawn(local::controllers::run(client.clone(), shutdown.clone()).map(Ok)),
            tokio::spawn(local::node::run(options, client.clone(), shutdown.clone())),
        ];
        Self {
            client,
            services: table,
            work,
            _shutdown_on_drop: shutdown.clone().drop_guard(),
            shutdown,
            parts,
            _server: server,
            _ranges: ranges,
        }
    }

    /// Shuts down and waits for all parts.
    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        for part in self.parts.drain(..) {
            let stopped = tokio::time::timeout(PATIENCE, part).await.expect("it stops");
            stopped.expect("no panic").expect("no error");
        }
    }

    pub(crate) fn api<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn create<K: Kind>(&self, object: Value) -> K {
        let object: K = serde_json::from_value(object).expect("a valid object");
        self.api().create(&PostParams::default(), &object).await.expect("created")
    }

    pub(crate) async fn patch<K: Kind>(&self, name: &str, patch: Value) -> K {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched")
    }

    pub(crate) async fn list<K: Kind>(&self) -> ObjectList<K> {
        self.api().list(&Default::default()).await.expect("listed")
    }

    /// Watches the objects of a kind until all of them together meet the condition.
    pub(crate) async fn until<K: Kind>(&self, what: &str, mut condition: impl FnMut(&[K]) -> bool) -> Vec<K> {
        let mut events = watcher(self.api::<K>(), watcher::Config::default()).default_backoff().boxed();
        let mut objects: Vec<K> = Vec::new();
        let mut synced = false;
        let met = async {
            loop {
                match events.next().await.expect("a watch without end") {
                    Ok(watcher::Event::Init) => objects.clear(),
                    Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                        objects.retain(|o| o.meta().uid != object.meta().uid);
                        objects.push(object);
                    }
                    Ok(watcher::Event::Delete(object)) => objects.retain(|o| o.meta().uid != object.meta().uid),
                    Ok(watcher::Event::InitDone) => synced = true,
                    Err(_) => {}
                }
                if synced && condition(&objects) {
                    return;
                }
            }
        };
        if tokio::time::timeout(PATIENCE, met).await.is_err() {
            let ended = self.parts.iter().filter(|part| part.is_finished()).count();
            assert_eq!(ended, 0, "the controllers or the node have ended, waiting for {what}");
            panic!("timed out waiting for {what}; last state: {objects:#?}");
        }
        objects
    }

    /// Waits for an Event with this reason that meets the condition.
    pub(crate) async fn until_event(&self, reason: &str, condition: impl Fn(&Event) -> bool) {
        let is_there = |events: &[Event]| events.iter().any(|e| e.reason.as_deref() == Some(reason) && condition(e));
        self.until(&format!("an Event {reason}"), is_there).await;
    }

    pub(crate) async fn until_pods_ready(&self, count: usize) -> Vec<Pod> {
        self.until(&format!("{count} ready pods"), |pods: &[Pod]| pods.iter().filter(|p| is_ready(p)).count() == count)
            .await
    }
}

/// Returns a container that runs `program`, with these fields merged in. Variables are added.
pub(crate) fn container(program: &str, mut extra: Value) -> Value {
    let mut env = vec![json!({"name": "PROGRAM", "value": program})];
    if let Value::Array(more) = extra["env"].take() {
        env.extend(more);
    }
    extra["env"] = env.into();
    let ports = json!([{"name": "http1", "containerPort": 8080}]);
    let mut container =
        json!({"name": "main", "image": "example.test/program", "command": program::command(), "ports": ports});
    json_patch::merge(&mut container, &extra);
    container
}

pub(crate) fn pod(name: &str, container: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"terminationGracePeriodSeconds": 5, "containers": [container]},
    })
}

pub(crate) fn deployment(replicas: i32, container: Value) -> Value {
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": pod("a", container)["spec"]});
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": "a"}}, "template": template});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec})
}

/// Returns an HTTP probe with a short period.
pub(crate) fn http_probe(path: &str) -> Value {
    json!({"httpGet": {"path": path, "port": "http1"}, "periodSeconds": 1})
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
        && pod.metadata.deletion_timestamp.is_none()
}

pub(crate) fn address(pod: &Pod) -> std::net::SocketAddr {
    let ip = pod.status.as_ref().and_then(|s| s.pod_ip.as_deref()).expect("an address");
    format!("{ip}:8080").parse().expect("an address")
}

/// Returns the status of the pod's first container.
fn container_status(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

/// Reports whether the pod's first container is ready after exactly one restart.
pub(crate) fn is_restarted(pod: &Pod) -> bool {
    container_status(pod).is_some_and(|container| container.ready && container.restart_count == 1)
}

/// Returns the reason and the message of the pod's first container, if it waits.
pub(crate) fn waiting(pod: &Pod) -> Option<(String, String)> {
    let waiting = container_status(pod)?.state.as_ref()?.waiting.as_ref()?;
    Some((waiting.reason.clone()?, waiting.message.clone().unwrap_or_default()))
}

/// Returns the reason and the message of the last ended run.
pub(crate) fn terminated(pod: &Pod) -> Option<(String, String)> {
    let terminated = container_status(pod)?.last_state.as_ref()?.terminated.as_ref()?;
    Some((terminated.reason.clone()?, terminated.message.clone().unwrap_or_default()))
}

/// Returns the process of the pod's first container.
pub(crate) fn pid(pod: &Pod) -> Option<i32> {
    let container = container_status(pod)?;
    container.state.as_ref()?.running.as_ref()?;
    container.container_id.as_ref()?.strip_prefix("process://")?.parse().ok()
}

pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Polls a condition that no watch reports.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let met = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, met).await.is_ok(), "timed out waiting for {what}");
}

/// Returns the first response of a pod. A pod without a probe is ready once it runs, which may be before it listens.
pub(crate) async fn first_response(pod: &Pod) -> String {
    let mut response = get(address(pod), "/").await;
    let responded = async {
        while response.is_err() {
            tokio::task::yield_now().await;
            response = get(address(pod), "/").await;
        }
    };
    tokio::time::timeout(PATIENCE, responded).await.expect("a response");
    response.expect("a response")
}

/// Sends a GET on its own connection. Returns head and body unchanged.
pub(crate) async fn get(address: std::net::SocketAddr, path: &str) -> std::io::Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
