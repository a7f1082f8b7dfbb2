//! Controllers with fakes behind every port, and a script that plays the API server.

use crate::cluster::Stores;
use crate::cluster::error::Error;
use crate::cluster::facts::Target;
use crate::cluster::target_key::{TargetKey, TargetResource};
use crate::cluster::watches::FrontEndQueues;
use crate::engine::front_end::FrontEnd;
use crate::engine::parts::{Parts, ReconcilerConfigs};
use crate::engine::probe::{ProbeTarget, Prober};
use crate::engine::scaler::Scaler;
use crate::engine::workload::Path;
use crate::engine::{Controller, Wiring};
use crate::knative::revisions::Revisions;
use crate::knative::store::{Measurements, Objects};
use crate::knative::{children, metric};
use crate::metric_engine::Engine;
use crate::scale::fixture::FixedAddress;
use crate::scale::trace::Waking;
use crate::scale::{
    CollectSpec, Collection, CollectionHealth, Deciders, Failing, ForeignPods, Initial, ObservedPorts, OnScale,
    PodAddress, PodCounts, PodOwner, PodSet, Pods, Ports, Requests, RevisionExists, ScaleEvent, ScaleStatus, Subject,
    Surroundings,
};
use crate::standalone::admission::validation::Validation;
use crate::standalone::cluster::Cluster;
use crate::standalone::ports::PortAllocator;
use crate::standalone::scalers::Scalers;
use crate::standalone::scalers::findings::{Activity, Findings};
use crate::standalone::scalers::publication::Publisher;
use crate::standalone::traffic::paths::{PathProgress, PathRequest};
use crate::standalone::unlisted::UnlistedNamespaces;
use crate::standalone::workloads::Workloads;
use crate::standalone::{Hpa, hosts, ports, traffic};
use autoscaler_core::active::ActiveCondition;
use autoscaler_core::engine;
use autoscaler_core::history::Action;
use autoscaler_core::path_mode::PathMode;
use autoscaler_core::ports::{Access, Wanted};
use autoscaler_core::scale_to_zero::ProbeResult;
use common::RevisionKey as Key;
use common::backend::Backend;
use common::config::{AutoscalerConfig, DeploymentConfig};
use common::hosts::claims::Confinement;
use common::ports::PortId;
use common::time::Timestamp;
use common::write_rate::Rate;
use common_api::condition::from_rfc3339;
use common_api::{Metric, PodAutoscaler, ServerlessService, ZeroScaler, zeroscaler};
use common_controller::{Leadership, Priority, Recorder, WorkQueue, Workers, WriteLimiter};
use common_runtime::clock::Clock;
use common_runtime::lease::WriteGuard;
use common_runtime::namespaces::Namespaces;
use futures::future::BoxFuture;
use hpa::fixture::Mock;
use http::{Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::client::Body;
use kube::core::DynamicObject;
use kube::runtime::watcher;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower_test::mock::{self, Handle};

/// Requests of each metric evaluation: the list of pods, and their usage.
const PODS: &str = "GET /api/v1/namespaces/ns/pods?&labelSelector=app%3Dhello&resourceVersion=0&\
                    resourceVersionMatch=NotOlderThan";
pub(super) const USAGE: &str = "GET /apis/metrics.k8s.io/v1beta1/namespaces/ns/pods?labelSelector=app%3Dhello";

/// Inputs of the reconcilers, and records of their calls.
#[derive(Default)]
pub(super) struct Fakes {
    pub(super) decision: Mutex<Option<ScaleStatus>>,
    /// Value of `decision` after its next read.
    pub(super) next_decision: Mutex<Option<ScaleStatus>>,
    pub(super) deciding: Mutex<Option<(Subject, Initial)>>,
    pub(super) surroundings: Mutex<Option<Surroundings>>,
    pub(super) collecting: Mutex<Option<CollectSpec>>,
    pub(super) health: Mutex<Option<CollectionHealth>>,
    pub(super) tracking: Mutex<Option<PodSet>>,
    pub(super) owner: Mutex<Option<PodOwner>>,
    pub(super) addresses: Mutex<Vec<PodAddress>>,
    pub(super) foreign_pods: Mutex<ForeignPods>,
    pub(super) counts: Mutex<PodCounts>,
    pub(super) failing: Mutex<Option<Failing>>,
    pub(super) lease_ends: Mutex<bool>,
    pub(super) led_by_another: Mutex<bool>,
    pub(super) acted: Mutex<Option<Action>>,
    pub(super) blended: Mutex<Option<engine::BlendedScale>>,
    pub(super) scaled: Mutex<Vec<(i32, i32)>>,
    pub(super) serving: Mutex<Option<bool>>,
    /// Value of `serving` after its next read.
    pub(super) next_serving: Mutex<Option<bool>>,
    pub(super) forgotten: Mutex<bool>,
    pub(super) exists: Mutex<Option<RevisionExists>>,
}

impl Deciders for Fakes {
    fn set_existing(&self, exists: RevisionExists) {
        *self.exists.lock() = Some(exists);
    }
    fn ensure(&self, _: &Key, subject: Subject, initial: Initial) {
        *self.deciding.lock() = Some((subject, initial));
    }
    fn observe(&self, _: &Key, surroundings: Surroundings) {
        *self.surroundings.lock() = Some(surroundings);
    }
    fn status(&self, _: &Key) -> Option<ScaleStatus> {
        let mut decision = self.decision.lock();
        let next = self.next_decision.lock().take().or(*decision);
        std::mem::replace(&mut *decision, next)
    }
    fn record_action(&self, _: &Key, action: Action) {
        *self.acted.lock() = Some(action);
    }
    fn is_serving(&self, _: &Key) -> Option<bool> {
        let mut serving = self.serving.lock();
        let next = self.next_serving.lock().take().or(*serving);
        std::mem::replace(&mut *serving, next)
    }
    fn forget_load(&self, _: &Key) {
        *self.forgotten.lock() = true;
        if let Some(decision) = &mut *self.decision.lock() {
            decision.desired = Some(0);
        }
    }
    fn blended(&self, _: &Key, scale: &engine::BlendedScale) {
        *self.blended.lock() = Some(scale.clone());
    }
    fn requested(&self, _: &Key, _: i32) {}
    fn waking(&self, _: &Key) -> Option<Arc<Waking>> {
        None
    }
    fn remove(&self, _: &Key) {
        *self.deciding.lock() = None;
    }
    fn forget(&self, key: &Key) {
        Deciders::remove(self, key);
    }
}

impl Collection for Fakes {
    fn ensure(&self, _: &Key, how: CollectSpec) {
        *self.collecting.lock() = Some(how);
    }
    fn health(&self, _: &Key) -> Option<CollectionHealth> {
        self.health.lock().clone()
    }
    fn remove(&self, _: &Key) {
        *self.collecting.lock() = None;
    }
    fn ports(&self, _: &Key) -> ObservedPorts {
        ObservedPorts::default()
    }
    fn report_ports(&self, _: Requests) {}
}

impl Pods for Fakes {
    fn track(&self, _: &Key, pods: PodSet, owner: Option<PodOwner>) {
        *self.tracking.lock() = Some(pods);
        *self.owner.lock() = owner;
    }
    fn require_listening(&self, _: &Key, _: Option<u16>) {}
    fn is_tracked(&self, _: &Key) -> bool {
        self.tracking.lock().is_some()
    }
    fn labels(&self, _: &Key) -> Option<BTreeSet<BTreeMap<String, String>>> {
        Some(BTreeSet::new())
    }
    fn counts(&self, _: &Key) -> PodCounts {
        *self.counts.lock()
    }
    fn failing(&self, _: &Key) -> Option<Failing> {
        self.failing.lock().clone()
    }
    fn addresses(&self, _: &Key) -> Vec<PodAddress> {
        self.addresses.lock().clone()
    }
    fn foreign_pods(&self, _: &Key) -> Option<ForeignPods> {
        Some(self.foreign_pods.lock().clone())
    }
    fn untrack(&self, _: &Key) {
        *self.tracking.lock() = None;
    }
}

impl Leadership for Fakes {
    fn owns(&self, _: &Key) -> bool {
        !*self.led_by_another.lock()
    }
    fn begin_write(&self, _: &Key) -> Option<WriteGuard> {
        (!*self.lease_ends.lock()).then(WriteGuard::unbounded)
    }
}

/// Start time of every test.
pub(super) const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// Returns the time this many seconds before [`NOW`], in RFC 3339.
pub(super) fn ago(secs: i64) -> String {
    let time = jiff::Timestamp::from_second(NOW.as_secs() - secs).expect("a time");
    time.to_string()
}

/// Reconciles of workloads, of either front end.
pub(super) trait Passes: Send + Sync {
    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), Error>>;
    fn scale_only<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), Error>>;
    fn work(&self, key: Key, priority: Priority) -> BoxFuture<'_, Result<(), Error>>;
}

impl<F: FrontEnd> Passes for Controller<F> {
    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.reconcile(key))
    }
    fn scale_only<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.scale_only(key))
    }
    fn work(&self, key: Key, priority: Priority) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.work(key, priority))
    }
}

/// Controllers, with access for tests.
pub(super) struct Controllers {
    pub(super) stores: Arc<Stores>,
    pub(super) ports: Ports,
    pub(super) scaler: Arc<Scaler>,
    pub(super) kpa: Box<dyn Passes>,
    knative: Option<Knative>,
    standalone: Option<Standalone>,
}

/// Parts that only a Knative install has.
struct Knative {
    objects: Arc<Objects>,
    metric: metric::Controller,
    prober: Arc<Prober>,
}

/// Parts that only standalone has.
struct Standalone {
    cluster: Arc<Cluster>,
    serverless: traffic::Controller,
    ledger: hosts::ledger_writer::Controller,
    scalers: Arc<Scalers>,
    publisher: Publisher,
    allocator: ports::Controller,
}

/// Controllers of one front end, and its own parts.
type FrontEndControllers = (Box<dyn Passes>, Option<Knative>, Option<Standalone>);

impl Controllers {
    fn standalone(&self) -> &Standalone {
        self.standalone.as_ref().expect("in standalone")
    }

    pub(super) fn objects(&self) -> &Objects {
        &self.knative.as_ref().expect("beside Knative").objects
    }

    pub(super) fn metric(&self) -> &metric::Controller {
        &self.knative.as_ref().expect("beside Knative").metric
    }

    pub(super) fn serverless(&self) -> &traffic::Controller {
        &self.standalone().serverless
    }

    pub(super) fn ledger(&self) -> &hosts::ledger_writer::Controller {
        &self.standalone().ledger
    }

    pub(super) fn publisher(&self) -> &Publisher {
        &self.standalone().publisher
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.standalone().cluster
    }

    /// Returns the findings about a ZeroScaler.
    fn findings(&self, key: &Key) -> Option<Findings> {
        let Standalone { scalers, .. } = self.standalone.as_ref()?;
        scalers.findings(&*scalers.get(key)?)
    }

    /// Returns the ZeroScaler with the status that is about to be written.
    fn next_status(&self, key: &Key) -> Value {
        let Standalone { scalers, publisher, .. } = self.standalone();
        let object = scalers.get(key).expect("a ZeroScaler");
        let (_, status) = publisher.next_status(key, &object).expect("a status");
        serde_json::to_value(ZeroScaler { status: Some(status), ..ZeroScaler::clone(&object) }).expect("serialisable")
    }

    /// Returns the path of a ZeroScaler.
    pub(super) fn path(&self, key: &Key) -> Option<PathProgress> {
        self.cluster().path(&*self.standalone().scalers.get(key)?)
    }
}

pub(super) struct Fixture {
    pub(super) cx: Controllers,
    pub(super) fakes: Arc<Fakes>,
    pub(super) key: Key,
    /// Sender of `config-autoscaler`.
    pub(super) config: watch::Sender<Arc<AutoscalerConfig>>,
    _deployment: watch::Sender<Arc<DeploymentConfig>>,
    /// API server of the metrics engine.
    pub(super) metrics: Mock,
    /// Counter of ZeroScaler versions.
    versions: AtomicU64,
    server: Handle<Request<Body>, Response<Body>>,
    /// API server that receives the events.
    events: Handle<Request<Body>, Response<Body>>,
}

/// Address at which nothing responds to probes.
pub(super) const UNREACHABLE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

impl Fixture {
    /// Creates a standalone fixture.
    pub(super) fn standalone() -> Self {
        Self::standalone_with(Hpa::Engine, Namespaces::ALL)
    }

    /// Creates a standalone fixture without metrics.
    pub(super) fn without_metrics() -> Self {
        Self::standalone_with(Hpa::Off, Namespaces::ALL)
    }

    /// Creates a standalone fixture limited to some namespaces.
    pub(super) fn within(namespaces: &[&str]) -> Self {
        Self::standalone_with(Hpa::Engine, Namespaces::only(namespaces.iter().copied()))
    }

    fn standalone_with(hpa: Hpa, namespaces: Namespaces) -> Self {
        let (fakes, queue) = (Arc::new(Fakes::default()), WorkQueue::new());
        let port_allocator = PortAllocator::new("system", queue.clone(), Clock::system());
        let scalers = Scalers::new(fakes.clone(), port_allocator);
        let cluster = Cluster::new(
            "system",
            "cluster.local",
            namespaces.clone(),
            queue.clone(),
            scalers.clone(),
            watch::channel(Arc::default()).1,
        );
        Self::with(UNREACHABLE, fakes, queue, (cluster.clone(), namespaces.clone()), |parts| {
            let validation = Arc::new(Validation::new(hpa, parts.configs.autoscaler.clone(), scalers.clone()));
            let workloads = Arc::new(Workloads::new(parts, validation.clone(), cluster.clone()));
            let serverless = traffic::Controller::new(parts, cluster.clone(), validation.clone());
            let publisher = Publisher::new(parts, cluster.clone(), validation);
            // As reported by the watches.
            scalers.objects.listed();
            cluster.slices.listed();
            cluster.port_allocator.ledger.listed();
            let unlisted = Arc::new(UnlistedNamespaces::new(parts.writes.client.clone(), namespaces));
            let allocator = ports::Controller {
                cluster: cluster.clone(),
                writes: parts.writes.clone(),
                unlisted: unlisted.clone(),
                config: watch::channel(Arc::default()).1,
                start: 0,
            };
            let ledger = hosts::ledger_writer::Controller {
                hosts: cluster.hosts.clone(),
                writes: parts.writes.clone(),
                unlisted,
            };
            let scalers = scalers.clone();
            let standalone = Standalone { cluster, serverless, ledger, scalers, publisher, allocator };
            (Box::new(Controller::new(parts, workloads)), None, Some(standalone))
        })
    }

    /// Creates a Knative fixture. Each status is written at once, so that a script sees it.
    pub(super) fn knative() -> Self {
        Self::knative_with(UNREACHABLE, Duration::ZERO)
    }

    /// Creates a Knative fixture whose probes reach `public`, and whose statuses are merged within this time.
    pub(super) fn knative_with(public: SocketAddr, merged_within: Duration) -> Self {
        let measurements = Measurements::default();
        let front_end_queues: (Arc<dyn FrontEndQueues>, _) = (Arc::new(measurements.clone()), Namespaces::default());
        Self::with(public, Arc::default(), WorkQueue::new(), front_end_queues, |parts| {
            let objects = Arc::new(Objects::new(&parts.stores.index, measurements));
            let revisions = Arc::new(Revisions::new(parts, objects.clone(), merged_within));
            let metric = metric::Controller { parts: parts.clone(), objects: objects.clone() };
            let knative = Knative { objects, metric, prober: revisions.prober.clone() };
            (Box::new(Controller::new(parts, revisions)), Some(knative), None)
        })
    }

    fn with(
        public: SocketAddr,
        fakes: Arc<Fakes>,
        queue: WorkQueue<Key>,
        front_end_queues: (Arc<dyn FrontEndQueues>, Namespaces),
        front_end: impl FnOnce(&Parts) -> FrontEndControllers,
    ) -> Self {
        let (service, server) = mock::pair();
        let client = Client::new(service, "default");
        let (event_service, events) = mock::pair();
        let shutdown = CancellationToken::new();
        let listener = fakes.clone();
        let on_scale: OnScale = Arc::new(move |event: &ScaleEvent| listener.scaled.lock().push((event.from, event.to)));
        let (clock, requests, metrics) = (Clock::starting_at(NOW), Requests::new(), Mock::default());
        let engine = Engine::new(metrics.client(), clock.clone(), fakes.clone(), requests.clone());
        let (config, autoscaler) = watch::channel(Arc::new(AutoscalerConfig::default()));
        let (_deployment, deployment) = watch::channel(Arc::new(DeploymentConfig::default()));
        let limiter = WriteLimiter::new(Rate::WITH_CONTROLLER);
        let recorder = Recorder::limited(Client::new(event_service, "default"), limiter.clone(), shutdown.clone());
        let wiring = Wiring {
            system_namespace: "system".into(),
            cluster_domain: "cluster.local".into(),
            limiter,
            recorder,
            on_scale: Some(on_scale),
            client,
            resolver: Arc::new(FixedAddress(public)),
            ports: Ports {
                deciders: fakes.clone(),
                collection: fakes.clone(),
                pods: fakes.clone(),
                leadership: fakes.clone(),
                requests,
            },
            engine,
            clock,
            configs: ReconcilerConfigs { autoscaler, deployment },
            ports_config: watch::channel(Arc::default()).1,
        };
        let parts = Parts::new(wiring, queue, front_end_queues, &shutdown);
        let (kpa, knative, standalone) = front_end(&parts);
        let cx = Controllers {
            stores: parts.stores.clone(),
            ports: parts.ports.clone(),
            scaler: parts.scaler.clone(),
            kpa,
            knative,
            standalone,
        };
        let (key, versions) = (Key::new("ns", "hello"), AtomicU64::new(10));
        Self { cx, fakes, key, config, _deployment, metrics, versions, server, events }
    }

    /// Edits `config-autoscaler`.
    pub(super) fn configure(&self, config: AutoscalerConfig) {
        self.config.send_replace(Arc::new(config));
    }

    /// Sets the pods' CPU usage in thousandths, as reported from now on.
    pub(super) fn pods_use(&self, cpu: &[u32]) {
        let list = |build: &dyn Fn(usize, u32) -> Value| -> Value {
            let items: Vec<_> = cpu.iter().enumerate().map(|(n, cpu)| build(n, *cpu)).collect();
            json!({"metadata": {}, "items": items})
        };
        let name = |n: usize| json!({"name": format!("p{n}"), "namespace": "ns", "labels": {"app": "hello"}});
        let pods = list(&|n, _| {
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": ago(600)});
            let request = json!({"requests": {"cpu": "100m"}});
            json!({
                "metadata": name(n), "spec": {"containers": [{"name": "app", "resources": request}]},
                "status": {"phase": "Running", "startTime": ago(600), "conditions": [ready]},
            })
        });
        let usage = list(&|n, cpu| {
            let usage = json!({"cpu": format!("{cpu}m"), "memory": "1Mi"});
            let containers = json!([{"name": "app", "usage": usage}]);
            json!({"metadata": name(n), "timestamp": ago(0), "window": "1s", "containers": containers})
        });
        self.metrics.replace(PODS, 200, pods).replace(USAGE, 200, usage);
    }

    /// Returns reasons and messages of the events since the last call. Time is paused.
    pub(super) async fn take_events(&mut self) -> Vec<(String, String)> {
        let mut events = Vec::new();
        // The timeout expires when all tasks are idle.
        while let Ok(Some((request, respond))) =
            tokio::time::timeout(Duration::from_millis(1), self.events.next_request()).await
        {
            let bytes = request.into_body().collect_bytes().await.expect("a body");
            let event: Value = serde_json::from_slice(&bytes).expect("an event");
            let text = |field: &str| event[field].as_str().expect(field).to_owned();
            events.push((text("reason"), text("message")));
            respond.send_response(Response::new(Body::from(bytes.to_vec())));
        }
        events
    }

    /// Plays the API server while `work` runs. Each request must be the next one of the script, and the whole script
    /// must be used. Expectations about state ([`reports`], [`leads`]) are checked at the end. Findings about a
    /// ZeroScaler that the script does not mention must be unchanged.
    pub(super) async fn play<T>(
        &mut self,
        script: Vec<Exchange>,
        work: impl AsyncFnOnce(&Controllers, &Key) -> T,
    ) -> T {
        let (states, script): (Vec<_>, Vec<_>) = script.into_iter().partition(|exchange| exchange.state.is_some());
        let before = self.cx.findings(&self.key);
        let outcome = self.exchange(script, work).await;
        let is_expected = states.iter().any(|exchange| exchange.state == Some(Checked::Status));
        if let Some(after) = self.cx.findings(&self.key).filter(|_| !is_expected) {
            assert_eq!(Some(after), before, "reported unexpectedly");
        }
        for Exchange { state, check, .. } in states {
            match state {
                Some(Checked::Status) => check(&self.cx.next_status(&self.key)),
                _ => check(&path_as_value(&self.cx.path(&self.key).expect("a path"))),
            }
        }
        outcome
    }

    async fn exchange<T>(&mut self, script: Vec<Exchange>, work: impl AsyncFnOnce(&Controllers, &Key) -> T) -> T {
        let (cx, key, server) = (&self.cx, &self.key, &mut self.server);
        let work = work(cx, key);
        tokio::pin!(work);
        let mut script = script.into_iter();
        loop {
            let (request, respond) = tokio::select! {
                biased;
                request = server.next_request() => request.expect("the client lives"),
                outcome = &mut work => {
                    let left: Vec<_> = script.map(|exchange| exchange.line).collect();
                    assert!(left.is_empty(), "not requested: {left:?}");
                    return outcome;
                }
                () = tokio::time::sleep(Duration::from_secs(30)) => panic!("no request for 30 s"),
            };
            let (line, body) = read(request).await;
            let Some(exchange) = script.next() else { panic!("unexpected: {line} {body}") };
            assert_eq!(line, exchange.line, "{body}");
            (exchange.check)(&body);
            respond.send_response(exchange.response(body));
        }
    }

    /// Lets one worker process the workloads' queue for `time`. The API server rejects requests that begin with the
    /// text in `refused`, and accepts all others. Returns the requests with their times since the start.
    pub(super) async fn work_for(&mut self, time: Duration, refused: Option<(&str, u16, &str)>) -> Vec<ApiRequest> {
        self.serve_requests(refused, async |cx, _| {
            let workers = Workers { kind: "workload", queue: cx.stores.queue().clone(), only: None };
            let working =
                workers.work(CancellationToken::new(), |key, priority| async move { cx.kpa.work(key, priority).await });
            let _ = tokio::time::timeout(time, working).await;
        })
        .await
    }

    /// Reconciles the path once, with an API server that accepts everything.
    pub(super) async fn reconcile_path(&mut self) -> Vec<ApiRequest> {
        self.serve_requests(None, async |cx, key| cx.serverless().reconcile(key).await.expect("a pass")).await
    }

    /// Reconciles the ZeroScaler, its path and its status until nothing is left to do, with an API server that accepts
    /// everything. Returns the writes.
    pub(super) async fn settle(&mut self) -> Vec<ApiRequest> {
        self.rounds(true, None).await
    }

    /// Does the same as [`settle`](Self::settle), before port numbers are planned.
    pub(super) async fn settle_unplanned(&mut self) -> Vec<ApiRequest> {
        self.rounds(false, None).await
    }

    /// Does the same as [`settle`](Self::settle), with an API server that rejects requests beginning with a text.
    pub(super) async fn settle_refused(&mut self, refused: (&str, u16, &str)) -> Vec<ApiRequest> {
        self.rounds(true, Some(refused)).await
    }

    async fn rounds(&mut self, plans: bool, refused: Option<(&str, u16, &str)>) -> Vec<ApiRequest> {
        self.serve_requests(refused, async |cx, key| {
            for _ in 0..4 {
                cx.kpa.reconcile(key).await.expect("a pass");
                let followed = cx.serverless().reconcile(key).await;
                assert!(followed.is_ok() || refused.is_some(), "the path: {followed:?}");
                if plans {
                    cx.standalone().allocator.reconcile(key).await.expect("a pass");
                }
            }
            let published = cx.publisher().reconcile(key).await;
            assert!(published.is_ok() || refused.is_some(), "the status: {published:?}");
        })
        .await
    }

    /// Reconciles the status only.
    pub(super) async fn publish(&mut self) -> Vec<ApiRequest> {
        self.serve_requests(None, async |cx, key| cx.publisher().reconcile(key).await.expect("a pass")).await
    }

    async fn serve_requests(
        &mut self,
        refused: Option<(&str, u16, &str)>,
        work: impl AsyncFnOnce(&Controllers, &Key),
    ) -> Vec<ApiRequest> {
        let (cx, key, server) = (&self.cx, &self.key, &mut self.server);
        let (begun, mut requests) = (Instant::now(), Vec::new());
        let answering = async {
            loop {
                let (request, respond) = server.next_request().await.expect("the client lives");
                let (line, body) = read(request).await;
                requests.push((begun.elapsed(), line.clone(), body.clone()));
                let scaled = json!({"metadata": {"name": "hello", "resourceVersion": "100"}});
                let exchange = match refused.filter(|(prefix, ..)| line.starts_with(prefix)) {
                    Some((_, code, message)) => expect(&line).refused(code, message),
                    None if body.is_array() => expect(&line).answered(200, scaled),
                    None if line.starts_with("PATCH ") => {
                        let known = cx.standalone().scalers.get(key).expect("only ZeroScalers are patched by a merge");
                        let mut merged = serde_json::to_value(&*known).expect("serialisable");
                        json_patch::merge(&mut merged, &body);
                        let known: u64 =
                            known.metadata.resource_version.as_deref().unwrap_or_default().parse().unwrap_or(0);
                        merged["metadata"]["resourceVersion"] = json!((known + 1).max(100).to_string());
                        expect(&line).answered(200, merged)
                    }
                    None => expect(&line),
                };
                respond.send_response(exchange.response(body));
            }
        };
        tokio::select! {
            () = work(cx, key) => {}
            () = answering => {}
        }
        requests
    }

    /// Returns the ZeroScaler with the status that is about to be written.
    pub(super) fn status(&self) -> Value {
        self.cx.next_status(&self.key)
    }

    /// Returns the backend that activators are given for the pods.
    pub(super) fn backend(&self) -> Backend {
        self.cx.standalone().scalers.backend(&self.key).expect("a reconciled path")
    }

    /// Puts a ZeroScaler, as reported by the watch.
    pub(super) fn put_scaler(&self, value: Value) {
        let object = serde_json::from_value(value).expect("a ZeroScaler");
        self.cx.cluster().apply(&self.cx.stores.index, object);
    }

    /// Removes the ZeroScaler.
    pub(super) fn remove_scaler(&self) {
        self.remove_scaler_of(&self.key);
    }

    /// Removes the ZeroScaler of this name.
    pub(super) fn remove_scaler_of(&self, key: &Key) {
        self.cx.cluster().delete(&self.cx.stores.index, key);
    }

    /// Puts a PodAutoscaler of Knative. In standalone puts a ZeroScaler with the findings of its field `found`, in the
    /// format of [`super::kpa_knative::status`].
    pub(super) fn put_autoscaler(&self, value: Value) {
        self.put_autoscaler_as(&self.key, value, "10");
    }

    /// Puts a newer version of the autoscaler.
    pub(super) fn put_autoscaler_again(&self, value: Value) {
        self.put_autoscaler_as(&self.key, value, "11");
    }

    /// Puts an autoscaler with this key and version.
    pub(super) fn put_autoscaler_as(&self, key: &Key, mut value: Value, version: &str) {
        if let Some(knative) = &self.cx.knative {
            let object = serde_json::from_value(value).expect("a PodAutoscaler");
            knative.objects.autoscalers.apply(key, version, Some(object));
            return;
        }
        let found = value["found"].take();
        let version = self.versions.fetch_add(1, Ordering::Relaxed).to_string();
        value["metadata"]["resourceVersion"] = json!(version);
        let object: ZeroScaler = serde_json::from_value(value).expect("a ZeroScaler");
        self.cx.cluster().apply(&self.cx.stores.index, object.clone());
        if !found.is_null() {
            self.cx.cluster().record_findings(&object, findings(&found));
        }
    }

    /// Waits until an activator has responded to a probe of the public Service.
    pub(super) async fn proven(&self, host: &str) {
        let prober = &self.cx.knative.as_ref().expect("beside Knative").prober;
        let target = ProbeTarget { host: host.to_owned(), port: 80 };
        let proven = async {
            while prober.proof(&self.key, &target) != ProbeResult::InPath {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), proven).await.expect("a proof");
    }

    /// Puts a ServerlessService with this value. If it has no labels and annotations, it gets those of its creation.
    pub(super) fn put_serverless(&self, value: Value) {
        let mut object: ServerlessService = serde_json::from_value(value).expect("a ServerlessService");
        let path = Path { mode: PathMode::Proxy, activators: 0 };
        self.as_created(&mut object.metadata, |owner| children::wanted_serverless(owner, path).metadata);
        self.cx.objects().serverless.apply(&self.key, "20", Some(object));
    }

    /// Puts a Metric, likewise.
    pub(super) fn put_metric(&self, value: Value) {
        let mut object: Metric = serde_json::from_value(value).expect("a Metric");
        self.as_created(&mut object.metadata, |owner| {
            children::wanted_metric(owner, &AutoscalerConfig::default(), "").metadata
        });
        self.cx.objects().metrics.apply(&self.key, "30", Some(object));
    }

    /// Creates the metadata with the PodAutoscaler's defaults filled in, as the reconciler does: Knative's webhook
    /// does not.
    fn as_created(&self, meta: &mut ObjectMeta, created: impl FnOnce(&PodAutoscaler) -> ObjectMeta) {
        let Some(owner) = self.cx.objects().autoscalers.get(&self.key) else { return };
        let mut owner = PodAutoscaler::clone(&owner);
        owner.set_defaults(&self.config.borrow().pod_autoscaler_class);
        let created = created(&owner);
        meta.labels = meta.labels.take().or(created.labels);
        meta.annotations = meta.annotations.take().or(created.annotations);
    }

    /// Sets the path of the ZeroScaler, as requested and in effect. `service` has led to activators for `in_path_for`
    /// seconds; `None`: it leads to pods.
    pub(super) fn put_path(&self, mode: PathMode, service: &str, in_path_for: Option<i64>) {
        let cluster = self.cx.cluster();
        let object = self.cx.standalone().scalers.get(&self.key).expect("a ZeroScaler");
        cluster.request_path(&object, request(mode, "hello"));
        let path = cluster.path(&object).expect("requested");
        let since = Timestamp::from_secs(NOW.as_secs() - in_path_for.unwrap_or_default());
        cluster.report_path(&self.key, &path, (service, false), since);
        cluster.report_path(&self.key, &path, (service, in_path_for.is_some()), since);
    }

    /// Requests another path, with the pods of this Deployment.
    pub(super) fn request_path(&self, mode: PathMode, target: &str) {
        let object = self.cx.standalone().scalers.get(&self.key).expect("a ZeroScaler");
        self.cx.cluster().request_path(&object, request(mode, target));
    }

    pub(super) fn put_service(&self, value: Value) {
        let object: k8s_openapi::api::core::v1::Service = serde_json::from_value(value).expect("a Service");
        let key = common_controller::key_of(&object);
        let version = object.metadata.resource_version.clone().unwrap_or_else(|| "40".to_owned());
        self.cx.cluster().services.apply(&key, &version, Some(object));
    }

    /// Removes the Service `hello`.
    pub(super) fn remove_service(&self) {
        self.cx.cluster().services.apply(&self.key, "", None);
    }

    /// Puts a NetworkPolicy of the namespace `ns`, and the general one for activators.
    pub(super) fn put_policy(&self, name: &str, spec: Value) {
        let general =
            json!({"podSelector": {"matchLabels": {"app": "activator"}}, "ingress": [{"ports": [{"port": 8012}]}]});
        for (namespace, name, spec) in [("system", "activator", general), ("ns", name, spec)] {
            self.cx.cluster().put_policy(namespace, name, serde_json::from_value(spec).expect("a policy"));
        }
    }

    /// Puts a namespace, with the value of its annotation about hosts.
    pub(super) fn put_namespace(&self, name: &str, hosts: Option<&str>) {
        let store = &self.cx.cluster().hosts.namespaces;
        store.apply(&Key::new("", name), "70", Some(Confinement::read(hosts)));
    }

    /// Marks namespaces and ledger as listed.
    pub(super) fn hosts_listed(&self) {
        let hosts = &self.cx.cluster().hosts;
        hosts.namespaces.take(watcher::Event::<Namespace>::InitDone, |_| Confinement::Free);
        hosts.ledger.take(watcher::Event::<ConfigMap>::InitDone, |map| map);
    }

    pub(super) fn put_slice(&self, value: Value) {
        let object: k8s_openapi::api::discovery::v1::EndpointSlice = serde_json::from_value(value).expect("a slice");
        let key = common_controller::key_of(&object);
        let version = object.metadata.resource_version.clone().unwrap_or_else(|| "50".to_owned());
        self.cx.cluster().slices.apply(&key, &version, Some(object));
    }

    /// Sets the endpoints of the activators' Service, ready or terminating.
    pub(super) fn activators<'a>(&self, addresses: &[(&'a str, bool)]) {
        let conditions = [json!({"ready": false}), json!({"ready": true})];
        let with = |(address, ready): &(&'a str, bool)| (*address, &conditions[usize::from(*ready)]);
        self.activators_with(&addresses.iter().map(with).collect::<Vec<_>>());
    }

    /// Sets the endpoints of the activators' Service, each with its conditions.
    pub(super) fn activators_with(&self, addresses: &[(&str, &Value)]) {
        let endpoint =
            |(address, conditions): &(&str, &Value)| json!({"addresses": [address], "conditions": conditions});
        let endpoints: Vec<_> = addresses.iter().map(endpoint).collect();
        self.put_slice(json!({
            "metadata": {"name": "activators", "namespace": "system", "labels": {"kubernetes.io/service-name": "activator-service"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8012}], "endpoints": endpoints,
        }));
    }

    /// Numbers these ports of the Service of the ZeroScaler `zs` in the ledger: 20000 and so on. Each of these
    /// activators is ready and listens on all of them.
    pub(super) async fn numbered(&mut self, ports: &[(&str, u16)], activators: &[&str]) {
        let port_allocator = self.cx.cluster().port_allocator.clone();
        let wanted = ports.iter().map(|(name, port)| {
            let port = PortId { name: (*name).to_owned(), port: *port };
            Wanted { port, in_slices: None, in_status: None }
        });
        port_allocator.exists(&self.key, Some("zs"));
        port_allocator.set_wanted(&self.key, "zs", wanted.collect(), Access::Open);
        self.serve_requests(None, async |cx, key| {
            for _ in 0..2 {
                cx.standalone().allocator.reconcile(key).await.expect("a pass");
            }
        })
        .await;
        self.served_by(ports.len(), activators);
    }

    /// Sets the activators. All are ready, and listen on the first `ports` numbers.
    pub(super) fn served_by(&self, ports: usize, activators: &[&str]) {
        let ready: Vec<_> = activators.iter().map(|address| (*address, true)).collect();
        self.activators(&ready);
        let held: Vec<_> = (20_000..).take(ports).map(|number| (number, "zs")).collect();
        activators.iter().for_each(|address| self.report_listening(address, &held));
    }

    /// Records an activator's report of the ports on which it listens.
    pub(super) fn report_listening(&self, address: &str, held: &[(u16, &str)]) {
        self.cx.cluster().port_allocator.report_listening(address.parse().expect("an address"), held);
    }

    /// Reconciles the ledger of numbers once.
    pub(super) async fn reconcile_numbers(&mut self, script: Vec<Exchange>) -> Result<(), Error> {
        self.play(script, async |cx, key| cx.standalone().allocator.reconcile(key).await).await
    }

    /// Puts the Deployment `hello` with this number of replicas.
    pub(super) fn put_target(&self, replicas: i32) {
        self.put_target_at(replicas, 60);
    }

    /// Puts the Deployment `hello` as this version.
    pub(super) fn put_target_at(&self, replicas: i32, version: u64) {
        self.put_target_of("hello", json!(replicas), version);
    }

    /// Puts the Deployment of this name with this value of replicas, which may be absent.
    pub(super) fn put_target_of(&self, name: &str, replicas: Value, version: u64) {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "ns", "uid": "d"},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {"spec": {"containers": [{"name": "app", "ports": [{"containerPort": 8080}]}]}},
            },
        }))
        .expect("a Deployment");
        let key = TargetKey { object: Key::new("ns", name), ..self.target_key() };
        self.cx.stores.targets.put(&key, &version.to_string(), Some(Target::from_object(&object)));
    }

    /// Puts the object `hello` of a custom kind.
    pub(super) fn put_widget(&self, mut spec: Value) {
        spec["selector"] = json!({"matchLabels": {"app": "hello"}});
        spec["template"] = json!({"spec": {"containers": [{"name": "app", "ports": [{"containerPort": 8080}]}]}});
        let object = json!({"metadata": {"name": "hello", "namespace": "ns", "uid": "w"}, "spec": spec});
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let key =
            TargetKey { resource: TargetResource::for_kind("example.com/v1", "Widget"), object: self.key.clone() };
        self.cx.stores.targets.put(&key, "60", Some(Target::from_object(&object)));
    }

    /// Removes the Deployment.
    pub(super) fn remove_target(&self) {
        self.cx.stores.targets.put(&self.target_key(), "", None);
    }

    /// Makes the Deployment's kind unwatchable.
    pub(super) fn refuse_target(&self) {
        self.cx.stores.targets.refuse(&self.target_key().resource, "403 Forbidden");
    }

    fn target_key(&self) -> TargetKey {
        TargetKey { resource: TargetResource::for_kind("apps/v1", "Deployment"), object: self.key.clone() }
    }

    pub(super) fn decides(&self, desired: Option<i32>, excess_burst_capacity: i32) {
        *self.fakes.decision.lock() =
            Some(ScaleStatus { desired, excess_burst_capacity, warm_up_left: None, unattested: false });
    }

    pub(super) fn ready(&self, ready: i32) {
        *self.fakes.counts.lock() = PodCounts { ready, ..PodCounts::default() };
    }
}

/// Returns `METHOD PATH` and the body of a request.
async fn read(request: Request<Body>) -> (String, Value) {
    let (head, body) = request.into_parts();
    let bytes = body.collect_bytes().await.expect("a body");
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    (format!("{} {}", head.method, head.uri.path()), body)
}

fn request(mode: PathMode, target: &str) -> PathRequest {
    PathRequest { path: Path { mode, activators: 2 }, target: zeroscaler::Target::deployment(target) }
}

/// Returns the findings that a PodAutoscaler's status describes.
fn findings(status: &Value) -> Findings {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let find = |kind: &str| conditions.iter().find(|c| c["type"] == kind).cloned().unwrap_or_default();
    let active = find("Active");
    let condition = match (active["status"].as_str(), active["reason"].as_str()) {
        (Some("True"), _) => Some(ActiveCondition::Active),
        (Some("False"), Some("TimedOut")) => Some(ActiveCondition::TimedOut),
        (Some("False"), _) => Some(ActiveCondition::NoTraffic),
        (Some(_), _) => Some(ActiveCondition::Queued),
        (None, _) => None,
    };
    let since = active["lastTransitionTime"].as_str().and_then(from_rfc3339).unwrap_or_default();
    Findings {
        generation: status["observedGeneration"].as_i64(),
        activity: condition.map(|condition| Activity { condition, since }),
        is_initialized: find("ScaleTargetInitialized")["status"] == "True",
        desired: status["desiredScale"].as_i64().and_then(|desired| i32::try_from(desired).ok()),
        service: status["serviceName"].as_str().unwrap_or_default().to_owned(),
        ..Findings::default()
    }
}

fn path_as_value(path: &PathProgress) -> Value {
    json!({
        "mode": format!("{:?}", path.request.path.mode), "activators": path.request.path.activators, "service": path.service,
        "inPath": path.in_path_since.is_some(),
    })
}

/// Time since the start, `METHOD PATH`, and the body.
pub(super) type ApiRequest = (Duration, String, Value);

type Check = Box<dyn Fn(&Value)>;
type Answer = Box<dyn Fn(Value) -> (u16, Value)>;

/// State that is checked at the end of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checked {
    Status,
    Path,
}

/// Expected request with its response, or an expectation about the state at the end.
pub(super) struct Exchange {
    line: String,
    state: Option<Checked>,
    check: Check,
    answer: Answer,
}

/// Expects `METHOD PATH`, and returns the sent object as a newer version.
pub(super) fn expect(line: &str) -> Exchange {
    let answer = |mut body: Value| {
        body["metadata"]["resourceVersion"] = json!("100");
        if body["metadata"]["uid"].is_null() {
            body["metadata"]["uid"] = json!("new");
        }
        (200, body)
    };
    Exchange { line: line.to_owned(), state: None, check: Box::new(|_| {}), answer: Box::new(answer) }
}

/// Expects new findings about the ZeroScaler. Checks receive the object with the status that is about to be written.
pub(super) fn reports() -> Exchange {
    Exchange { state: Some(Checked::Status), ..expect("the status") }
}

/// Expects a new path in effect. Checks receive `mode`, `activators`, `service` and `inPath`.
pub(super) fn leads() -> Exchange {
    Exchange { state: Some(Checked::Path), ..expect("the path") }
}

impl Exchange {
    fn response(&self, request: Value) -> Response<Body> {
        let (code, body) = (self.answer)(request);
        let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
        response.expect("a response")
    }

    /// Adds a check of the request's body.
    pub(super) fn with(self, check: impl Fn(&Value) + 'static) -> Self {
        let former = self.check;
        let both = move |body: &Value| {
            former(body);
            check(body);
        };
        Self { check: Box::new(both), ..self }
    }

    /// Replaces the response.
    pub(super) fn answered(self, code: u16, body: Value) -> Self {
        Self { answer: Box::new(move |_| (code, body.clone())), ..self }
    }

    /// Replaces the response by a refusal.
    pub(super) fn refused(self, code: u16, message: &str) -> Self {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
            "reason": if code == 409 { "Conflict" } else { "InternalError" },
        });
        self.answered(code, body)
    }
}

/// Returns a condition of a body's status: status, reason, message.
pub(super) fn condition(body: &Value, kind: &str) -> (String, String, String) {
    let conditions = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|c| c["type"] == kind).unwrap_or_default();
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

/// Asserts status and reason of a condition.
pub(super) fn assert_condition(body: &Value, kind: &str, status: &str, reason: &str) {
    let (s, r, message) = condition(body, kind);
    assert_eq!((s.as_str(), r.as_str()), (status, reason), "{kind}: {message}");
}
