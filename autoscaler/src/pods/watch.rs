//! The watch that feeds the index, and the inquiries about pods that the index makes.

use super::index::{Inquiry, PodIndex};
use super::ownership::{Controller, KnownOwner};
use super::parsed::ParsedPod;
use super::warnings::Warnings;
use common::RevisionKey as PodName;
use common::time::Timestamp;
use common_runtime::clock::Clock;
use common_runtime::namespaces::Namespaces;
use common_runtime::watching::watch;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Maximum number of concurrent connects, and of queries about controllers.
const CONNECTS_MAX: usize = 64;
const QUERIES_MAX: usize = 8;
/// Timeout of one connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Shortest and longest pause after a refusal. Between these limits, the pause is a tenth of the time waited so far.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// Longest wait for a response about a controller.
const WITHIN: Duration = Duration::from_secs(5);
/// Time until the next query about the same controller after a result. `SOON`: after a failure.
const AGAIN: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(1);

/// Scope of the watched pods, and of their kept labels.
#[derive(Clone, Debug)]
pub struct PodScope {
    /// Watched namespaces.
    pub namespaces: Namespaces,
    /// Selector of the watch.
    pub watched: watcher::Config,
    /// Returns whether a label is kept, because pods may be selected by it.
    pub keeps: fn(&str) -> bool,
    /// Set if causes and controllers of pods matter; otherwise only Kubernetes' Ready condition counts.
    pub tracks_failures: bool,
}

/// Watches pods until `shutdown`, tests the ports of pods without a probe, and queries the owners of controllers.
pub async fn run(client: Client, scope: PodScope, index: Arc<PodIndex>, shutdown: CancellationToken) {
    let Some(inquiries) = index.inquiries() else { return };
    tokio::select! {
        () = inquire(client.clone(), index.clone(), inquiries) => {}
        () = follow(client, scope, index, shutdown) => {}
    }
}

/// Makes each inquiry in a task of its own.
async fn inquire(client: Client, index: Arc<PodIndex>, mut inquiries: UnboundedReceiver<Inquiry>) {
    let (connects, queries) = (Arc::new(Semaphore::new(CONNECTS_MAX)), Arc::new(Semaphore::new(QUERIES_MAX)));
    let mut tasks = JoinSet::new();
    while let Some(inquiry) = inquiries.recv().await {
        while tasks.try_join_next().is_some() {} // Removes ended tasks.
        match inquiry {
            Inquiry::Port(pod) => tasks.spawn(probe(index.clone(), connects.clone(), pod)),
            Inquiry::Controller(namespace, controller) => {
                let controller = Controller::clone(&controller);
                tasks.spawn(query(client.clone(), index.clone(), queries.clone(), namespace, controller))
            }
        };
    }
}

/// Tests whether a pod without a readiness probe listens on its port, until it does, or needs no test any more.
///
/// Kubernetes reports such a pod ready as soon as its program runs. A TCP connect therefore replaces the probe: until
/// it succeeds, the pod counts as not ready. Only a refused connection proves that the port is closed. If a policy
/// blocks the connection, Kubernetes' condition counts.
async fn probe(index: Arc<PodIndex>, permits: Arc<Semaphore>, pod: PodName) {
    let begun = Instant::now();
    while let Some((address, port)) = index.probe_address(&pod) {
        let permit = permits.acquire().await; // Never closed.
        let answer = timeout(CONNECT_WITHIN, TcpStream::connect((address, port))).await;
        drop(permit);
        let is_refused = matches!(answer, Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused);
        index.record_probe(&pod, port, !is_refused);
        if !is_refused {
            return;
        }
        sleep((begun.elapsed() / 10).clamp(PAUSE.0, PAUSE.1)).await;
    }
}

/// Queries the API server for the owner of a controller, if its name does not reveal it ([`super::ownership`]), until
/// the controller has no pods any more. A Deployment may adopt a ReplicaSet later, so a query is repeated.
async fn query(
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

async fn follow(client: Client, scope: PodScope, index: Arc<PodIndex>, shutdown: CancellationToken) {
    let mut events = watch(scope.namespaces.reach::<Pod>(&client), scope.watched.clone());
    let mut watching =
        Watching { scope, index, clock: Clock::system(), undecided: HashMap::new(), warnings: Warnings::new(client) };
    loop {
        let due = watching.due_in();
        let event = tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep(due.unwrap_or_default()), if due.is_some() => {
                watching.check_due_pods();
                continue;
            }
            Some((pod, warning)) = watching.warnings.lookups.next() => {
                watching.record_warning(&pod, warning);
                continue;
            }
            event = events.next() => event,
        };
        match event {
            Some(watcher::Event::Init) => watching.index.begin_list(),
            Some(watcher::Event::InitDone) => watching.index.end_list(),
            Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => watching.apply(pod.into()),
            Some(watcher::Event::Delete(pod)) => {
                let name = PodName::new(pod.namespace().unwrap_or_default(), pod.name_any());
                watching.undecided.remove(&name);
                watching.index.delete(name.namespace(), name.name());
            }
            None => return,
        }
    }
}

struct Watching {
    scope: PodScope,
    index: Arc<PodIndex>,
    clock: Clock,
    /// Pods whose state may change with time alone, and the time of their next check.
    undecided: HashMap<PodName, (ParsedPod, Timestamp)>,
    warnings: Warnings,
}

impl Watching {
    fn apply(&mut self, mut pod: ParsedPod) {
        let name = pod.name();
        let now = self.clock.now();
        if let Some((before, _)) = self.undecided.remove(&name) {
            pod.remember(before);
        }
        let (mut state, due) = pod.state(self.scope.tracks_failures, now);
        state.labels.retain(|label, _| (self.scope.keeps)(label));
        self.index.apply(name.namespace(), name.name(), state);
        if let Some(after) = due {
            self.undecided.insert(name, (pod, now + after));
        }
    }

    /// Returns the time until the next check.
    fn due_in(&self) -> Option<Duration> {
        let first = self.undecided.values().map(|(_, due)| *due).min();
        first.map(|first| first.saturating_since(self.clock.now()))
    }

    fn check_due_pods(&mut self) {
        let now = self.clock.now();
        let due: Vec<_> = self.undecided.extract_if(|_, (_, due)| *due <= now).collect();
        for (name, (mut pod, _)) in due {
            if pod.is_stuck(now) && self.warnings.look_up(&name) {
                pod.is_looked_up = true;
            }
            self.apply(pod);
        }
    }

    fn record_warning(&mut self, name: &PodName, warning: Option<(String, String)>) {
        if let Some((pod, _)) = self.undecided.get(name) {
            let pod = ParsedPod { warning: Some(warning), ..pod.clone() };
            self.apply(pod);
        }
    }
}
