//! Controllers with fakes behind every port, and a script that plays the API server.

use crate::cluster::error::Error;
use crate::cluster::facts::Target;
use crate::cluster::target_key::{TargetKey, TargetResource};
use crate::cluster::{FrontEndQueues, Stores};
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
use crate::metric_engine::tests::{self as evaluated, PODS, USAGE};
use crate::scale::fixture::FixedAddress;
use crate::scale::trace::Waking;
use crate::scale::{
    CollectSpec, Collection, CollectionHealth, Deciders, Failing, ForeignPods, Initial, ObservedPorts, OnScale,
    PodAddress, PodCounts, PodOwner, PodSet, Pods, Ports, Requests, RevisionExists, ScaleEvent, ScaleStatus, Subject,
    Surroundings,
};
use crate::standalone::cluster::Cluster;
use crate::standalone::scalers::findings::Findings;
use crate::standalone::traffic::paths::{PathProgress, PathRequest};
use crate::standalone::{self, Hpa};
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
use common_api::{Metric, PodAutoscaler, ServerlessService, ZeroScaler, zeroscaler};
use common_controller::{
    Kind, Leadership, Priority, Recorder, Store, WorkQueue, Workers, WriteLimiter, key_of, version_of,
};
use common_runtime::clock::Clock;
use common_runtime::lease::WriteGuard;
use common_runtime::namespaces::Namespaces;
use futures::future::BoxFuture;
use hpa::fixture::Mock;
use http::{Request, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::client::Body;
use kube::core::DynamicObject;
use kube::{Client, ResourceExt};
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

/// Returns the present value, and replaces it by the next one if there is one.
fn read_once<T: Copy>(present: &Mutex<Option<T>>, next: &Mutex<Option<T>>) -> Option<T> {
    let mut present = present.lock();
    let next = next.lock().take().or(*present);
    std::mem::replace(&mut *present, next)
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
        read_once(&self.decision, &self.next_decision)
    }
    fn record_action(&self, _: &Key, action: Action) {
        *self.acted.lock() = Some(action);
    }
    fn is_serving(&self, _: &Key) -> Option<bool> {
        read_once(&self.serving, &self.next_serving)
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

/// Reconciles a workload of either front end.
type Work = dyn Fn(Key, Priority) -> BoxFuture<'static, Result<(), Error>> + Send + Sync;

fn work_of(controller: Controller<impl FrontEnd>) -> Box<Work> {
    let controller = Arc::new(controller);
    Box::new(move |key, priority| {
        let controller = controller.clone();
        Box::pin(async move { controller.work(key, priority).await })
    })
}

/// Controllers, with access for tests.
pub(super) struct Controllers {
    pub(super) stores: Arc<Stores>,
    pub(super) ports: Ports,
    pub(super) scaler: Arc<Scaler>,
    pub(super) work: Box<Work>,
    knative: Option<Knative>,
    standalone: Option<standalone::Controllers>,
}

/// Parts that only a Knative install has.
pub(super) struct Knative {
    pub(super) objects: Arc<Objects>,
    pub(super) metric: metric::Controller,
    prober: Arc<Prober>,
}

/// Shared parts, and controllers of one front end.
type FrontEndControllers = (Parts, Box<Work>, Option<Knative>, Option<standalone::Controllers>);

impl Controllers {
    pub(super) fn knative(&self) -> &Knative {
        self.knative.as_ref().expect("beside Knative")
    }

    pub(super) fn standalone(&self) -> &standalone::Controllers {
        self.standalone.as_ref().expect("in standalone")
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.standalone().cluster
    }

    pub(super) async fn reconcile(&self, key: &Key) -> Result<(), Error> {
        (self.work)(key.clone(), Priority::Normal).await
    }

    fn findings(&self, key: &Key) -> Option<Findings> {
        let scalers = &self.standalone.as_ref()?.cluster.scalers;
        scalers.findings(&*scalers.objects.get(key)?)
    }

    /// Returns the ZeroScaler with the status that is about to be written.
    fn next_status(&self, key: &Key) -> Value {
        let object = self.cluster().scalers.objects.get(key).expect("a ZeroScaler");
        let (_, status) = self.standalone().publisher.next_status(key, &object).expect("a status");
        serde_json::to_value(ZeroScaler { status: Some(status), ..ZeroScaler::clone(&object) }).expect("serialisable")
    }

    pub(super) fn path(&self, key: &Key) -> Option<PathProgress> {
        self.cluster().path(&*self.cluster().scalers.objects.get(key)?)
    }
}

pub(super) struct Fixture {
    pub(super) cx: Controllers,
    pub(super) fakes: Arc<Fakes>,
    pub(super) key: Key,
    pub(super) config: watch::Sender<Arc<AutoscalerConfig>>,
    _deployment: watch::Sender<Arc<DeploymentConfig>>,
    /// API server of the metrics engine.
    pub(super) metrics: Mock,
    versions: AtomicU64,
    server: Handle<Request<Body>, Response<Body>>,
    /// API server that receives the events.
    events: Handle<Request<Body>, Response<Body>>,
}

/// Address at which nothing responds to probes.
pub(super) const UNREACHABLE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

impl Fixture {
    pub(super) fn standalone() -> Self {
        Self::standalone_with(Hpa::Engine, Namespaces::ALL)
    }

    /// Creates a standalone fixture limited to some namespaces.
    pub(super) fn within(namespaces: &[&str]) -> Self {
        Self::standalone_with(Hpa::Engine, Namespaces::only(namespaces.iter().copied()))
    }

    pub(super) fn standalone_with(hpa: Hpa, namespaces: Namespaces) -> Self {
        Self::with(UNREACHABLE, |wiring, shutdown| {
            let (parts, controllers) = standalone::Controllers::new(hpa, &namespaces, wiring, 0, shutdown);
            let Cluster { scalers, slices, port_allocator, .. } = &*controllers.cluster;
            // As reported by the watches.
            scalers.objects.listed();
            slices.listed();
            port_allocator.ledger.listed();
            let work = work_of(Controller::new(&parts, controllers.workloads.clone()));
            (parts, work, None, Some(controllers))
        })
    }

    /// Creates a Knative fixture. Each status is written at once, so that a script sees it.
    pub(super) fn knative() -> Self {
        Self::knative_with(UNREACHABLE, Duration::ZERO)
    }

    /// Creates a Knative fixture whose probes reach `public`, and whose statuses are merged within this time.
    pub(super) fn knative_with(public: SocketAddr, merged_within: Duration) -> Self {
        Self::with(public, |wiring, shutdown| {
            let measurements = Measurements::default();
            let queues: (Arc<dyn FrontEndQueues>, _) = (Arc::new(measurements.clone()), Namespaces::default());
            let parts = Parts::new(wiring, WorkQueue::new(), queues, shutdown);
            let objects = Arc::new(Objects::new(&parts.stores.index, measurements));
            let revisions = Arc::new(Revisions::new(&parts, objects.clone(), merged_within));
            let metric = metric::Controller { parts: parts.clone(), objects: objects.clone() };
            let knative = Knative { objects, metric, prober: revisions.prober.clone() };
            let work = work_of(Controller::new(&parts, revisions));
            (parts, work, Some(knative), None)
        })
    }

    fn with(public: SocketAddr, front_end: impl FnOnce(Wiring, &CancellationToken) -> FrontEndControllers) -> Self {
        let (service, server) = mock::pair();
        let client = Client::new(service, "default");
        let (event_service, events) = mock::pair();
        let (fakes, shutdown) = (Arc::new(Fakes::default()), CancellationToken::new());
        let listener = fakes.clone();
        let on_scale: OnScale = Arc::new(move |event: &ScaleEvent| listener.scaled.lock().push((event.from, event.to)));
        let (clock, requests, metrics) = (Clock::starting_at(NOW), Requests::new(), Mock::default());
        let engine = Engine::new(metrics.client(), clock.clone(), fakes.clone(), requests.clone());
        let (config, autoscaler) = watch::channel(Arc::new(AutoscalerConfig::default()));
        let (_deployment, deployment) = watch::channel(Arc::new(DeploymentConfig::default()));
        let limiter = WriteLimiter::new(Rate::WITH_CONTROLLER);
        let recorder = Recorder::limited(Client::new(event_service, "default"), limiter.clone(), shutdown.clone());
        let [deciders, collection, pods, leadership] = [(); 4].map(|()| fakes.clone());
        let wiring = Wiring {
            system_namespace: "system".into(),
            cluster_domain: "cluster.local".into(),
            limiter,
            recorder,
            on_scale: Some(on_scale),
            client,
            resolver: Arc::new(FixedAddress(public)),
            ports: Ports { deciders, collection, pods, leadership, requests },
            engine,
            clock,
            configs: ReconcilerConfigs { autoscaler, deployment },
            ports_config: watch::channel(Arc::default()).1,
        };
        let (parts, work, knative, standalone) = front_end(wiring, &shutdown);
        let Parts { stores, ports, scaler, .. } = parts;
        let cx = Controllers { stores, ports, scaler, work, knative, standalone };
        let (key, versions) = (Key::new("ns", "hello"), AtomicU64::new(10));
        Self { cx, fakes, key, config, _deployment, metrics, versions, server, events }
    }

    pub(super) fn configure(&self, config: AutoscalerConfig) {
        self.config.send_replace(Arc::new(config));
    }

    /// Sets the pods' CPU usage in thousandths, as reported from now on.
    pub(super) fn pods_use(&self, cpu: &[u32]) {
        self.metrics.replace(PODS, 200, evaluated::pods(cpu.len())).replace(USAGE, 200, evaluated::usage(cpu));
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

    /// Removes and returns the queued keys of workloads.
    pub(super) fn queued(&self) -> Vec<Key> {
        let queue = &self.cx.stores.index.queue;
        std::iter::from_fn(|| Some(queue.try_next()?.key().clone())).collect()
    }

    /// Plays the API server while `work` runs. Each request must be the next one of the script, and the whole script
    /// must be used. Expectations about state ([`reports`], [`leads`]) are checked at the end. Findings about a
    /// ZeroScaler that the script does not mention must be unchanged.
    pub(super) async fn play<T>(
        &mut self,
        script: Vec<Exchange>,
        work: impl AsyncFnOnce(&Controllers, &Key) -> T,
    ) -> T {
        let is_state = |exchange: &Exchange| [STATUS, PATH].contains(&exchange.line.as_str());
        let (states, script): (Vec<_>, Vec<_>) = script.into_iter().partition(is_state);
        let before = self.cx.findings(&self.key);
        let outcome = self.exchange(script, work).await;
        let is_expected = states.iter().any(|exchange| exchange.line == STATUS);
        if let Some(after) = self.cx.findings(&self.key).filter(|_| !is_expected) {
            assert_eq!(Some(after), before, "reported unexpectedly");
        }
        for Exchange { line, check, .. } in states {
            if line == STATUS {
                check(&self.cx.next_status(&self.key));
            } else {
                let path = self.cx.path(&self.key).expect("a path");
                let mode = format!("{:?}", path.request.path.mode);
                check(&json!({"mode": mode, "service": path.service, "inPath": path.in_path_since.is_some()}));
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
            let workers = Workers { kind: "workload", queue: cx.stores.index.queue.clone(), only: None };
            let working = workers.work(CancellationToken::new(), |key, priority| (cx.work)(key, priority));
            let _ = tokio::time::timeout(time, working).await;
        })
        .await
    }

    /// Returns the backend for activators after a reconcile of the path.
    pub(super) async fn reported_backend(&mut self) -> Backend {
        self.serve_requests(None, async |cx, key| cx.standalone().paths.reconcile(key).await.expect("a pass")).await;
        self.backend()
    }

    /// Reconciles the ZeroScaler, its path and its status until nothing is left to do, with an API server that accepts
    /// everything. Returns the writes.
    pub(super) async fn settle(&mut self) -> Vec<ApiRequest> {
        self.rounds(true, None).await
    }

    /// Does the same as [`settle`](Self::settle). Plans port numbers only with `plans`, and rejects requests that begin
    /// with a text.
    pub(super) async fn rounds(&mut self, plans: bool, refused: Option<(&str, u16, &str)>) -> Vec<ApiRequest> {
        self.serve_requests(refused, async |cx, key| {
            for _ in 0..4 {
                cx.reconcile(key).await.expect("a pass");
                let followed = cx.standalone().paths.reconcile(key).await;
                assert!(followed.is_ok() || refused.is_some(), "the path: {followed:?}");
                if plans {
                    cx.standalone().allocator.reconcile(key).await.expect("a pass");
                }
            }
            let published = cx.standalone().publisher.reconcile(key).await;
            assert!(published.is_ok() || refused.is_some(), "the status: {published:?}");
        })
        .await
    }

    pub(super) async fn publish(&mut self) -> Vec<ApiRequest> {
        self.serve_requests(None, async |cx, key| cx.standalone().publisher.reconcile(key).await.expect("a pass")).await
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
                        let known =
                            cx.cluster().scalers.objects.get(key).expect("only ZeroScalers are patched by a merge");
                        let mut merged = serde_json::to_value(&*known).expect("serialisable");
                        json_patch::merge(&mut merged, &body);
                        merged["metadata"]["resourceVersion"] = json!((version_of(&*known) + 1).max(100).to_string());
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
        self.cx.cluster().scalers.backend(&self.key).expect("a reconciled path")
    }

    /// Puts a ZeroScaler, as reported by the watch.
    pub(super) fn put_scaler(&self, value: Value) {
        let object = serde_json::from_value(value).expect("a ZeroScaler");
        self.cx.cluster().apply(&self.cx.stores.index, object);
    }

    pub(super) fn remove_scaler(&self, key: &Key) {
        self.cx.cluster().delete(&self.cx.stores.index, key);
    }

    /// Puts a PodAutoscaler of Knative. In standalone puts a ZeroScaler with the findings of its field `found`, in the
    /// format of [`super::kpa_knative::status`].
    pub(super) fn put_autoscaler(&self, value: Value) {
        self.put_autoscaler_as(&self.key, value);
    }

    pub(super) fn put_autoscaler_as(&self, key: &Key, mut value: Value) {
        let version = self.versions.fetch_add(1, Ordering::Relaxed).to_string();
        if let Some(knative) = &self.cx.knative {
            let object = serde_json::from_value(value).expect("a PodAutoscaler");
            knative.objects.autoscalers.apply(key, &version, Some(object));
            return;
        }
        let found = value["found"].take();
        value["metadata"]["resourceVersion"] = json!(version);
        let object: ZeroScaler = serde_json::from_value(value).expect("a ZeroScaler");
        self.cx.cluster().apply(&self.cx.stores.index, object.clone());
        if !found.is_null() {
            self.cx.cluster().record_findings(&object, findings(&found));
        }
    }

    /// Waits until an activator has responded to a probe of the public Service.
    pub(super) async fn proven(&self, host: &str) {
        let prober = &self.cx.knative().prober;
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
        self.cx.knative().objects.serverless.apply(&self.key, "20", Some(object));
    }

    /// Puts a Metric, likewise.
    pub(super) fn put_metric(&self, value: Value) {
        let mut object: Metric = serde_json::from_value(value).expect("a Metric");
        self.as_created(&mut object.metadata, |owner| {
            children::wanted_metric(owner, &AutoscalerConfig::default(), "").metadata
        });
        self.cx.knative().objects.metrics.apply(&self.key, "30", Some(object));
    }

    /// Creates the metadata with the PodAutoscaler's defaults filled in, as the reconciler does: Knative's webhook
    /// does not.
    fn as_created(&self, meta: &mut ObjectMeta, created: impl FnOnce(&PodAutoscaler) -> ObjectMeta) {
        let Some(owner) = self.cx.knative().objects.autoscalers.get(&self.key) else { return };
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
        let object = self.cx.cluster().scalers.objects.get(&self.key).expect("a ZeroScaler");
        cluster.request_path(&object, request(mode, "hello"));
        let path = cluster.path(&object).expect("requested");
        let since = Timestamp::from_secs(NOW.as_secs() - in_path_for.unwrap_or_default());
        cluster.report_path(&self.key, &path, (service, false), since);
        cluster.report_path(&self.key, &path, (service, in_path_for.is_some()), since);
    }

    /// Requests another path, with the pods of this Deployment.
    pub(super) fn request_path(&self, mode: PathMode, target: &str) {
        let object = self.cx.cluster().scalers.objects.get(&self.key).expect("a ZeroScaler");
        self.cx.cluster().request_path(&object, request(mode, target));
    }

    pub(super) fn put_service(&self, value: Value) {
        put(&self.cx.cluster().services, value, "40");
    }

    pub(super) fn remove_service(&self) {
        self.cx.cluster().services.apply(&self.key, "", None);
    }

    /// Puts a NetworkPolicy of the namespace `ns`, and the general one for activators.
    pub(super) fn put_policy(&self, name: &str, spec: Value) {
        let general =
            json!({"podSelector": {"matchLabels": {"app": "activator"}}, "ingress": [{"ports": [{"port": 8012}]}]});
        for (namespace, name, spec) in [("system", "activator", general), ("ns", name, spec)] {
            self.cx.cluster().policies.apply(namespace, name, serde_json::from_value(spec).expect("a policy"));
        }
    }

    /// Puts a namespace, with the value of its annotation about hosts.
    pub(super) fn put_namespace(&self, name: &str, hosts: Option<&str>) {
        let store = &self.cx.cluster().hosts.namespaces;
        store.apply(&Key::new("", name), "70", Some(Confinement::read(hosts)));
    }

    pub(super) fn put_slice(&self, value: Value) {
        put(&self.cx.cluster().slices, value, "50");
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
        self.put_object(("apps/v1", "Deployment"), name, json!({"replicas": replicas}), version);
    }

    /// Puts a target with this spec, to which selector and pod template are added.
    pub(super) fn put_object(&self, (api_version, kind): (&str, &str), name: &str, mut spec: Value, version: u64) {
        spec["selector"] = json!({"matchLabels": {"app": name}});
        spec["template"] = json!({"spec": {"containers": [{"name": "app", "ports": [{"containerPort": 8080}]}]}});
        let metadata = json!({"name": name, "namespace": "ns", "uid": "d"});
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let key = TargetKey { resource: TargetResource::for_kind(api_version, kind), object: Key::new("ns", name) };
        self.cx.stores.targets.put(&key, &version.to_string(), Some(Target::from_object(&object)));
    }

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

/// Applies an object with its version, or else with this one.
fn put<K: Kind>(store: &Store<K>, value: Value, version: &str) {
    let object: K = serde_json::from_value(value).expect("an object");
    let version = object.resource_version().unwrap_or_else(|| version.to_owned());
    store.apply(&key_of(&object), &version, Some(object));
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

/// Returns the findings that a PodAutoscaler's status describes, whose first condition is `Active`.
fn findings(found: &Value) -> Findings {
    let status = json!({
        "observedGeneration": found["observedGeneration"], "desired": found["desiredScale"], "state": "Awake",
        "service": found["serviceName"], "conditions": [found["conditions"][0]],
    });
    Findings::read(&serde_json::from_value(status).expect("a status"))
}

/// Time since the start, `METHOD PATH`, and the body.
pub(super) type ApiRequest = (Duration, String, Value);

type Check = Box<dyn Fn(&Value)>;
type Answer = Box<dyn Fn(Value) -> (u16, Value)>;

/// Lines of expectations about the state at the end of a script.
const STATUS: &str = "the status";
const PATH: &str = "the path";

/// Expected request with its response, or an expectation about the state at the end.
pub(super) struct Exchange {
    line: String,
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
    Exchange { line: line.to_owned(), check: Box::new(|_| {}), answer: Box::new(answer) }
}

/// Expects new findings about the ZeroScaler. Checks receive the object with the status that is about to be written.
pub(super) fn reports() -> Exchange {
    expect(STATUS)
}

/// Expects a new path in effect. Checks receive `mode`, `service` and `inPath`.
pub(super) fn leads() -> Exchange {
    expect(PATH)
}

impl Exchange {
    fn response(&self, request: Value) -> Response<Body> {
        let (code, body) = (self.answer)(request);
        let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
        response.expect("a response")
    }

    pub(super) fn with(self, check: impl Fn(&Value) + 'static) -> Self {
        let former = self.check;
        let both = move |body: &Value| {
            former(body);
            check(body);
        };
        Self { check: Box::new(both), ..self }
    }

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

pub(super) fn assert_condition(body: &Value, kind: &str, status: &str, reason: &str) {
    let (s, r, message) = condition(body, kind);
    assert_eq!((s.as_str(), r.as_str()), (status, reason), "{kind}: {message}");
}
