//! Controllers with fakes behind every port, and a script that plays the API server.

use super::super::error::Error;
use super::super::kpa::leaving::Leaving;
use super::super::kpa::lifecycle::Lifecycle;
use super::super::kpa::objects;
use super::super::kpa::probe::{ProbeTarget, Prober};
use super::super::parts::Parts;
use super::super::records::Records;
use super::super::stores::facts::Target;
use super::super::stores::target_key::{TargetKey, TargetResource};
use super::super::stores::watches::Watches;
use super::super::stores::{Queues, Stores};
use super::super::writes::Writes;
use super::super::{Wiring, kpa, metric};
use super::owned::OfScalers;
use crate::engine::Engine;
use crate::knative::lifecycle::Revisions;
use crate::knative::watches::NoWatches;
use crate::scale::{
    CollectSpec, Collection, CollectionHealth, DeciderStatus, Deciders, Exists, Failing, Initial, OnScale, PodAddress,
    PodCounts, PodOwner, PodSet, Pods, Ports, Requests, ScaleEvent, Strangers, Subject, Surroundings,
};
use crate::standalone::cluster::Cluster;
use crate::standalone::lifecycle::Autoscalers;
use crate::standalone::ports::Numbers;
use crate::standalone::scalers::publication::Publisher;
use crate::standalone::scalers::{Scalers, keeper, translation};
use crate::standalone::unread::Unread;
use crate::standalone::validation::Validation;
use crate::standalone::{Hpa, ledger, ports, serverless};
use autoscaler_core::engine;
use autoscaler_core::history::Action;
use autoscaler_core::ports::Wanted;
use autoscaler_core::scale_to_zero::ProbeResult;
use common::RevisionKey as Key;
use common::backend::Backend;
use common::config::{AutoscalerConfig, DeploymentConfig};
use common::hosts::claims::Confinement;
use common::ports::{PortId, State};
use common::time::Timestamp;
use common::write_rate::Rate;
use common_api::{Metric, PodAutoscaler, ServerlessService, ZeroScaler};
use common_controller::{Leadership, Recorder, Workers, WriteLimiter};
use common_runtime::clock::Clock;
use common_runtime::lease::WriteGuard;
use common_runtime::namespaces::Namespaces;
use common_runtime::resolve::Resolve;
use futures::future::BoxFuture;
use hpa::fixture::Mock;
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::client::Body;
use kube::core::DynamicObject;
use kube::runtime::watcher;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower_test::mock::{self, Handle};

/// How the pods are listed, and their usage, with each look.
const PODS: &str = "GET /api/v1/namespaces/ns/pods?&labelSelector=app%3Dhello&resourceVersion=0&\
                    resourceVersionMatch=NotOlderThan";
pub(super) const USAGE: &str = "GET /apis/metrics.k8s.io/v1beta1/namespaces/ns/pods?labelSelector=app%3Dhello";

/// What the reconcilers are told and have told.
#[derive(Default)]
pub(super) struct Fakes {
    pub(super) decision: Mutex<Option<DeciderStatus>>,
    /// What it becomes once it has been read.
    pub(super) next_decision: Mutex<Option<DeciderStatus>>,
    pub(super) deciding: Mutex<Option<(Subject, Initial)>>,
    pub(super) surroundings: Mutex<Option<Surroundings>>,
    pub(super) collecting: Mutex<Option<CollectSpec>>,
    pub(super) health: Mutex<Option<CollectionHealth>>,
    pub(super) tracking: Mutex<Option<PodSet>>,
    pub(super) owner: Mutex<Option<PodOwner>>,
    pub(super) addresses: Mutex<Vec<PodAddress>>,
    pub(super) strangers: Mutex<Strangers>,
    pub(super) counts: Mutex<PodCounts>,
    pub(super) failing: Mutex<Option<Failing>>,
    pub(super) lease_ends: Mutex<bool>,
    pub(super) led_by_another: Mutex<bool>,
    pub(super) acted: Mutex<Option<Action>>,
    pub(super) blended: Mutex<Option<engine::Answer>>,
    pub(super) scaled: Mutex<Vec<(i32, i32)>>,
    pub(super) serving: Mutex<Option<bool>>,
    /// What it becomes once it has been read.
    pub(super) next_serving: Mutex<Option<bool>>,
    pub(super) forgotten: Mutex<bool>,
    pub(super) exists: Mutex<Option<Exists>>,
}

impl Deciders for Fakes {
    fn recognise(&self, exists: Exists) {
        *self.exists.lock() = Some(exists);
    }
    fn ensure(&self, _: &Key, subject: Subject, initial: Initial) {
        *self.deciding.lock() = Some((subject, initial));
    }
    fn observe(&self, _: &Key, surroundings: Surroundings) {
        *self.surroundings.lock() = Some(surroundings);
    }
    fn status(&self, _: &Key) -> Option<DeciderStatus> {
        let mut decision = self.decision.lock();
        let next = self.next_decision.lock().take().or(*decision);
        std::mem::replace(&mut *decision, next)
    }
    fn acted(&self, _: &Key, action: Action) {
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
    fn blended(&self, _: &Key, answer: &engine::Answer) {
        *self.blended.lock() = Some(answer.clone());
    }
    fn remove(&self, _: &Key) {
        *self.deciding.lock() = None;
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
}

impl Pods for Fakes {
    fn track(&self, _: &Key, pods: PodSet, owner: Option<PodOwner>) {
        *self.tracking.lock() = Some(pods);
        *self.owner.lock() = owner;
    }
    fn is_tracked(&self, _: &Key) -> bool {
        self.tracking.lock().is_some()
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
    fn strangers(&self, _: &Key) -> Option<Strangers> {
        Some(self.strangers.lock().clone())
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

/// Leads every name to one address.
struct Fixed(SocketAddr);

impl Resolve for Fixed {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(vec![self.0]) })
    }
}

/// When every test begins.
pub(super) const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// RFC 3339, so many seconds before [`NOW`].
pub(super) fn ago(secs: i64) -> String {
    let time = jiff::Timestamp::from_second(NOW.as_secs() - secs).expect("a time");
    time.to_string()
}

/// The controllers, and what tests look into.
pub(super) struct Controllers {
    pub(super) stores: Arc<Stores>,
    pub(super) ports: Ports,
    pub(super) leaving: Arc<Leaving>,
    pub(super) kpa: kpa::Controller,
    pub(super) metric: metric::Controller,
    lifecycle: Arc<dyn Lifecycle>,
    prober: Arc<Prober>,
    standalone: Option<Standalone>,
}

/// What standalone has besides.
struct Standalone {
    cluster: Arc<Cluster>,
    serverless: serverless::Controller,
    ledger: ledger::Controller,
    scalers: Arc<Scalers>,
    publisher: Publisher,
    allocator: ports::Controller,
}

impl Controllers {
    fn standalone(&self) -> &Standalone {
        self.standalone.as_ref().expect("in standalone")
    }

    pub(super) fn serverless(&self) -> &serverless::Controller {
        &self.standalone().serverless
    }

    pub(super) fn ledger(&self) -> &ledger::Controller {
        &self.standalone().ledger
    }

    pub(super) fn publisher(&self) -> &Publisher {
        &self.standalone().publisher
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.standalone().cluster
    }
}

pub(super) struct Fixture {
    pub(super) cx: Controllers,
    pub(super) fakes: Arc<Fakes>,
    pub(super) key: Key,
    /// `config-autoscaler`.
    pub(super) config: watch::Sender<Arc<AutoscalerConfig>>,
    _deployment: watch::Sender<Arc<DeploymentConfig>>,
    /// Whom the engine asks.
    pub(super) metrics: Mock,
    server: Handle<Request<Body>, Response<Body>>,
    /// Whom events are told.
    heard: Handle<Request<Body>, Response<Body>>,
}

/// Where nobody answers probes.
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

impl Fixture {
    /// Beside ordinary Deployments. What the passes hold as values is written to the API server here, so that a script
    /// sees each change of it.
    pub(super) fn standalone() -> Self {
        Self::standalone_with(Hpa::Engine, true, Namespaces::ALL)
    }

    /// One that looks at no metrics.
    pub(super) fn without_metrics() -> Self {
        Self::standalone_with(Hpa::Off, true, Namespaces::ALL)
    }

    /// One that keeps its values in memory, as the process does.
    pub(super) fn scalers() -> Self {
        Self::standalone_with(Hpa::Engine, false, Namespaces::ALL)
    }

    /// One that looks at some namespaces only.
    pub(super) fn within(namespaces: &[&str]) -> Self {
        Self::standalone_with(Hpa::Engine, true, Namespaces::only(namespaces.iter().copied()))
    }

    fn standalone_with(hpa: Hpa, written: bool, namespaces: Namespaces) -> Self {
        let queues = Queues::default();
        let fakes = Arc::new(Fakes::default());
        let numbers = Numbers::new("system", queues.autoscalers.clone());
        let scalers = Scalers::new(fakes.clone(), numbers.clone());
        let (domain, autoscalers) = ("cluster.local", queues.autoscalers.clone());
        let cluster = Cluster::new("system", domain, autoscalers, numbers, scalers.clone());
        let cluster = Arc::new(cluster.within(namespaces.clone()));
        let records = |stores: &Stores, writes: &Writes| match written {
            true => {
                let records = Records::api_objects(stores, writes);
                Records { serverless: Arc::new(OfScalers(records.serverless)), ..records }
            }
            false => keeper::records(&scalers, stores, writes),
        };
        let watches: Arc<dyn Watches> = cluster.clone();
        Self::with(NOBODY, fakes, queues, (watches, records), |parts| {
            let validation = Arc::new(Validation::new(hpa, parts.configs.autoscaler.clone(), scalers.clone()));
            let autoscalers = Arc::new(Autoscalers::new(parts, hpa, validation.clone(), cluster.clone()));
            let serverless = serverless::Controller::new(parts, validation.clone(), cluster.clone(), scalers.clone());
            let publisher = Publisher::new(parts, scalers.clone(), cluster.clone(), validation);
            // What the watches would have told.
            parts.stores.autoscalers.listed();
            cluster.slices.listed();
            cluster.numbers.ledger.listed();
            let unread = Arc::new(Unread::new(parts.writes.client.clone(), namespaces));
            let allocator = ports::Controller {
                numbers: cluster.numbers.clone(),
                autoscalers: parts.stores.autoscalers.clone(),
                slices: cluster.slices.clone(),
                writes: parts.writes.clone(),
                unread: unread.clone(),
                config: watch::channel(Arc::default()).1,
                start: 0,
            };
            let ledger = ledger::Controller { hosts: cluster.hosts.clone(), writes: parts.writes.clone(), unread };
            (
                autoscalers,
                Some(Standalone { cluster, serverless, ledger, scalers: scalers.clone(), publisher, allocator }),
            )
        })
    }

    /// In place of Knative's own. Each status is written at once here, so that a script sees it.
    pub(super) fn knative() -> Self {
        Self::knative_with(NOBODY, Records::api_objects)
    }

    /// One whose probes reach `public`.
    pub(super) fn knative_probing(public: SocketAddr) -> Self {
        Self::knative_with(public, Records::api_objects)
    }

    /// One that merges statuses, as the process does.
    pub(super) fn knative_merging() -> Self {
        Self::knative_with(NOBODY, crate::knative::records)
    }

    fn knative_with(public: SocketAddr, records: impl FnOnce(&Stores, &Writes) -> Records) -> Self {
        let watches: Arc<dyn Watches> = Arc::new(NoWatches);
        let of = (watches, records);
        Self::with(public, Arc::default(), Queues::default(), of, |parts| (Arc::new(Revisions::new(parts)), None))
    }

    fn with(
        public: SocketAddr,
        fakes: Arc<Fakes>,
        queues: Queues,
        (watches, records): (Arc<dyn Watches>, impl FnOnce(&Stores, &Writes) -> Records),
        front_end: impl FnOnce(&Parts) -> (Arc<dyn Lifecycle>, Option<Standalone>),
    ) -> Self {
        let (service, server) = mock::pair();
        let client = Client::new(service, "default");
        let (events, heard) = mock::pair();
        let shutdown = CancellationToken::new();
        let told = fakes.clone();
        let on_scale: OnScale = Arc::new(move |event: &ScaleEvent| told.scaled.lock().push((event.from, event.to)));
        let (clock, requests, metrics) = (Clock::starting_at(NOW), Requests::new(), Mock::default());
        let engine = Engine::new(metrics.client(), clock.clone(), fakes.clone(), requests.clone());
        let (config, autoscaler_config) = watch::channel(Arc::new(AutoscalerConfig::default()));
        let (_deployment, deployment_config) = watch::channel(Arc::new(DeploymentConfig::default()));
        let limiter = WriteLimiter::new(Rate::WITH_CONTROLLER);
        let recorder = Recorder::limited(Client::new(events, "default"), limiter.clone(), shutdown.clone());
        let wiring = Wiring {
            system_namespace: "system".into(),
            cluster_domain: "cluster.local".into(),
            limiter: limiter.clone(),
            on_scale: Some(on_scale),
            client,
            resolver: Arc::new(Fixed(public)),
            ports: Ports {
                deciders: fakes.clone(),
                collection: fakes.clone(),
                pods: fakes.clone(),
                leadership: fakes.clone(),
                requests,
            },
            clock,
            autoscaler_config,
            deployment_config,
            ports_config: watch::channel(Arc::default()).1,
        };
        let parts = Parts::with(wiring, limiter, recorder, engine, queues, (watches, records), &shutdown);
        let (lifecycle, standalone) = front_end(&parts);
        let cx = Controllers {
            stores: parts.stores.clone(),
            ports: parts.ports.clone(),
            leaving: parts.leaving.clone(),
            kpa: kpa::Controller::new(&parts, lifecycle.clone()),
            metric: metric::Controller::new(&parts),
            prober: parts.prober.clone(),
            lifecycle,
            standalone,
        };
        Self { cx, fakes, key: Key::new("ns", "hello"), config, _deployment, metrics, server, heard }
    }

    /// Edits `config-autoscaler`.
    pub(super) fn configure(&self, config: AutoscalerConfig) {
        self.config.send_replace(Arc::new(config));
    }

    /// What pods and `metrics.k8s.io` say from now on: processor time of each pod, in thousandths.
    pub(super) fn pods_use(&self, cpu: &[u32]) {
        let of = |build: &dyn Fn(usize, u32) -> Value| -> Value {
            let items: Vec<_> = cpu.iter().enumerate().map(|(n, cpu)| build(n, *cpu)).collect();
            json!({"metadata": {}, "items": items})
        };
        let name = |n: usize| json!({"name": format!("p{n}"), "namespace": "ns", "labels": {"app": "hello"}});
        let pods = of(&|n, _| {
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": ago(600)});
            let request = json!({"requests": {"cpu": "100m"}});
            json!({
                "metadata": name(n), "spec": {"containers": [{"name": "app", "resources": request}]},
                "status": {"phase": "Running", "startTime": ago(600), "conditions": [ready]},
            })
        });
        let usage = of(&|n, cpu| {
            let usage = json!({"cpu": format!("{cpu}m"), "memory": "1Mi"});
            let containers = json!([{"name": "app", "usage": usage}]);
            json!({"metadata": name(n), "timestamp": ago(0), "window": "1s", "containers": containers})
        });
        self.metrics.now(PODS, 200, pods).now(USAGE, 200, usage);
    }

    /// Messages of the events since the last call. Time is paused.
    pub(super) async fn said(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        // Passes when nobody has anything to do any more.
        while let Ok(Some((request, respond))) =
            tokio::time::timeout(Duration::from_millis(1), self.heard.next_request()).await
        {
            let bytes = request.into_body().collect_bytes().await.expect("a body");
            let event: Value = serde_json::from_slice(&bytes).expect("an event");
            said.push(event["message"].as_str().expect("a message").to_owned());
            respond.send_response(Response::new(Body::from(bytes.to_vec())));
        }
        said
    }

    /// Plays the API server for as long as `work` takes: each request must be the next of the script, and all of the
    /// script must be asked for.
    pub(super) async fn play<T>(
        &mut self,
        script: Vec<Exchange>,
        work: impl AsyncFnOnce(&Controllers, &Key) -> T,
    ) -> T {
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
                    assert!(left.is_empty(), "never asked for: {left:?}");
                    return outcome;
                }
                () = tokio::time::sleep(Duration::from_secs(30)) => panic!("neither a request nor an end"),
            };
            let (head, body) = request.into_parts();
            let line = format!("{} {}", head.method, head.uri.path());
            let bytes = body.collect_bytes().await.expect("a body");
            let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            let Some(exchange) = script.next() else { panic!("unexpected: {line} {body}") };
            assert_eq!(line, exchange.line, "{body}");
            (exchange.check)(&body);
            let (code, answer) = (exchange.answer)(body);
            let response = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            respond.send_response(response.expect("a response"));
        }
    }

    /// Lets one worker work off the PodAutoscalers' queue for `time`, beside an API server that refuses what begins with
    /// a text, and accepts all else as it is sent. Returns what was asked for, and how long after the beginning.
    pub(super) async fn work_for(&mut self, time: Duration, refused: Option<(&str, u16, &str)>) -> Vec<Asked> {
        self.beside(refused, async |cx, _| {
            let queue = cx.stores.queues().autoscalers.clone();
            let workers = Workers { kind: "PodAutoscaler", queue, only: None };
            let working =
                workers.work(CancellationToken::new(), |key, priority| async move { cx.kpa.work(key, priority).await });
            let _ = tokio::time::timeout(time, working).await;
        })
        .await
    }

    /// One pass over the ServerlessService, beside an API server that accepts everything.
    pub(super) async fn look_at_path(&mut self) -> Vec<Asked> {
        self.beside(None, async |cx, key| cx.serverless().reconcile(key).await.expect("a pass")).await
    }

    /// What is written where an API server accepts everything, until nothing is left to do about the ZeroScaler: its
    /// passes, its path, its status.
    pub(super) async fn settle(&mut self) -> Vec<Asked> {
        self.rounds(true, None).await
    }

    /// The same before anybody has planned who has which number.
    pub(super) async fn settle_unplanned(&mut self) -> Vec<Asked> {
        self.rounds(false, None).await
    }

    /// The same as [`settle`](Self::settle), beside an API server that refuses what begins with a text.
    pub(super) async fn settle_refused(&mut self, refused: (&str, u16, &str)) -> Vec<Asked> {
        self.rounds(true, Some(refused)).await
    }

    async fn rounds(&mut self, plans: bool, refused: Option<(&str, u16, &str)>) -> Vec<Asked> {
        self.beside(refused, async |cx, key| {
            for _ in 0..4 {
                cx.kpa.reconcile(key).await.expect("a pass");
                cx.serverless().reconcile(key).await.expect("a look at the path");
                if plans {
                    cx.standalone().allocator.reconcile(key).await.expect("a look at the ledger");
                }
            }
            let published = cx.publisher().reconcile(key).await;
            assert!(published.is_ok() || refused.is_some(), "a look at the status: {published:?}");
        })
        .await
    }

    /// A look at its status alone.
    pub(super) async fn publish(&mut self) -> Vec<Asked> {
        self.beside(None, async |cx, key| cx.publisher().reconcile(key).await.expect("a look at the status")).await
    }

    async fn beside(
        &mut self,
        refused: Option<(&str, u16, &str)>,
        work: impl AsyncFnOnce(&Controllers, &Key),
    ) -> Vec<Asked> {
        let (cx, key, server) = (&self.cx, &self.key, &mut self.server);
        let (begun, mut asked) = (Instant::now(), Vec::new());
        let answering = async {
            loop {
                let (request, respond) = server.next_request().await.expect("the client lives");
                let (head, body) = request.into_parts();
                let line = format!("{} {}", head.method, head.uri.path());
                let bytes = body.collect_bytes().await.expect("a body");
                let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                asked.push((begun.elapsed(), line.clone(), body.clone()));
                let scaled = json!({"metadata": {"name": "hello", "resourceVersion": "100"}});
                let exchange = match refused.filter(|(prefix, ..)| line.starts_with(prefix)) {
                    Some((_, code, message)) => expect(&line).refused(code, message),
                    None if body.is_array() => expect(&line).answered(200, scaled),
                    None if head.method == Method::PATCH => {
                        let known = cx.standalone().scalers.get(key).expect("only ZeroScalers are merged into");
                        let mut merged = serde_json::to_value(&*known).expect("serialisable");
                        json_patch::merge(&mut merged, &body);
                        let known: u64 =
                            known.metadata.resource_version.as_deref().unwrap_or_default().parse().unwrap_or(0);
                        merged["metadata"]["resourceVersion"] = json!((known + 1).max(100).to_string());
                        expect(&line).answered(200, merged)
                    }
                    None => expect(&line),
                };
                let (code, answer) = (exchange.answer)(body);
                let response = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
                respond.send_response(response.expect("a response"));
            }
        };
        tokio::select! {
            () = work(cx, key) => {}
            () = answering => {}
        }
        asked
    }

    /// How activators are told to reach the pods.
    pub(super) fn backend(&self) -> Backend {
        self.cx.standalone().scalers.backend(&self.key).expect("a look at the path")
    }

    /// A ZeroScaler as the watch tells of it.
    pub(super) fn put_scaler(&self, value: Value) {
        let object = serde_json::from_value(value).expect("a ZeroScaler");
        self.cx.standalone().scalers.take(&self.cx.stores.autoscalers, object);
    }

    /// There is none any more.
    pub(super) fn remove_scaler(&self) {
        self.cx.standalone().scalers.gone(&self.cx.stores.autoscalers, &self.key);
    }

    pub(super) fn put_autoscaler(&self, value: Value) {
        self.put_autoscaler_as(&self.key, value, "10");
    }

    /// A newer version of it.
    pub(super) fn put_autoscaler_again(&self, value: Value) {
        self.put_autoscaler_as(&self.key, value, "11");
    }

    /// The same of another name. In standalone there is a ZeroScaler with the field `scaler` as its spec.
    pub(super) fn put_autoscaler_as(&self, key: &Key, value: Value, version: &str) {
        let mut object: PodAutoscaler = serde_json::from_value(value.clone()).expect("a PodAutoscaler");
        if let Some(standalone) = &self.cx.standalone {
            let mut spec = json!({"target": {"name": "hello"}, "services": [{"name": "hello", "create": true}]});
            json_patch::merge(&mut spec, &value["scaler"]);
            let scaler = json!({"metadata": value["metadata"], "spec": spec});
            let scaler: ZeroScaler = serde_json::from_value(scaler).expect("a ZeroScaler");
            object = PodAutoscaler { status: object.status, ..translation::autoscaler(&scaler) };
            standalone.scalers.put(scaler);
        }
        self.cx.stores.autoscalers.apply(key, version, Some(object));
    }

    /// Waits until an activator has answered a probe for the public Service.
    pub(super) async fn proven(&self, host: &str) {
        let target = ProbeTarget { host: host.to_owned(), port: 80 };
        let proven = async {
            while self.cx.prober.proof(&self.key, &target) != ProbeResult::InPath {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), proven).await.expect("a proof");
    }

    /// A ServerlessService with this value; without labels and annotations, with those that it was created with.
    pub(super) fn put_serverless(&self, value: Value) {
        let mut object: ServerlessService = serde_json::from_value(value).expect("a ServerlessService");
        if let Some(owner) = self.owner() {
            let created = objects::serverless(&owner, self.cx.lifecycle.inherited(&owner), common_api::Mode::Proxy, 0);
            as_created(&mut object.metadata, created.metadata);
        }
        self.cx.stores.serverless.apply(&self.key, "20", Some(object));
    }

    /// A Metric, likewise.
    pub(super) fn put_metric(&self, value: Value) {
        let mut object: Metric = serde_json::from_value(value).expect("a Metric");
        if let Some(owner) = self.owner() {
            let created =
                objects::metric(&owner, self.cx.lifecycle.inherited(&owner), &AutoscalerConfig::default(), "");
            as_created(&mut object.metadata, created.metadata);
        }
        self.cx.stores.metrics.apply(&self.key, "30", Some(object));
    }

    /// The PodAutoscaler, with its defaults where the reconciler fills them in: Knative's webhook does not.
    fn owner(&self) -> Option<PodAutoscaler> {
        let mut owner = PodAutoscaler::clone(&*self.cx.stores.autoscalers.get(&self.key)?);
        let config = self.config.borrow();
        let Some(standalone) = &self.cx.standalone else {
            owner.set_defaults(&config.pod_autoscaler_class);
            return Some(owner);
        };
        let original = standalone.scalers.get(&self.key)?;
        let scale = &original.spec.scale;
        Some(translation::with_windows(owner, scale.window(&config), scale.panic_window(&config)))
    }

    pub(super) fn put_service(&self, value: Value) {
        let object: k8s_openapi::api::core::v1::Service = serde_json::from_value(value).expect("a Service");
        let key = common_controller::key_of(&object);
        let version = object.metadata.resource_version.clone().unwrap_or_else(|| "40".to_owned());
        self.cx.cluster().services.apply(&key, &version, Some(object));
    }

    /// The Service `hello` is no more.
    pub(super) fn remove_service(&self) {
        self.cx.cluster().services.apply(&self.key, "", None);
    }

    /// A NetworkPolicy of the namespace `ns`.
    pub(super) fn put_policy(&self, name: &str, spec: Value) {
        self.cx.cluster().put_policy("ns", name, serde_json::from_value(spec).expect("a policy"));
    }

    /// A namespace, with its annotation.
    pub(super) fn put_namespace(&self, name: &str, hosts: Option<&str>) {
        let store = &self.cx.cluster().hosts.namespaces;
        store.apply(&Key::new("", name), "70", Some(Confinement::read(hosts)));
    }

    /// Namespaces and ledger have been listed.
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

    /// The activators' Service has these, ready or gone.
    pub(super) fn activators<'a>(&self, addresses: &[(&'a str, bool)]) {
        let conditions = [json!({"ready": false}), json!({"ready": true})];
        let with = |(address, ready): &(&'a str, bool)| (*address, &conditions[usize::from(*ready)]);
        self.activators_with(&addresses.iter().map(with).collect::<Vec<_>>());
    }

    /// The same with their conditions.
    pub(super) fn activators_with(&self, addresses: &[(&str, &Value)]) {
        let endpoint =
            |(address, conditions): &(&str, &Value)| json!({"addresses": [address], "conditions": conditions});
        let endpoints: Vec<_> = addresses.iter().map(endpoint).collect();
        self.put_slice(json!({
            "metadata": {"name": "activators", "namespace": "system", "labels": {"kubernetes.io/service-name": "activator-service"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8012}], "endpoints": endpoints,
        }));
    }

    /// The ledger gives numbers to these ports of the ZeroScaler `pa`'s Service: 20000 and so on. Each of these activators
    /// is ready and listens on all of them.
    pub(super) async fn numbered(&mut self, ports: &[(&str, u16)], activators: &[&str]) {
        let numbers = self.cx.cluster().numbers.clone();
        let wanted = ports.iter().map(|(name, port)| {
            let port = PortId { name: (*name).to_owned(), port: *port };
            Wanted { port, listed: None, shown: None }
        });
        numbers.exists(&self.key, Some("pa"));
        numbers.want(&self.key, "pa", wanted.collect());
        self.beside(None, async |cx, key| {
            for _ in 0..2 {
                cx.standalone().allocator.reconcile(key).await.expect("a look at the ledger");
            }
        })
        .await;
        self.served_by(ports.len(), activators);
    }

    /// The activators are these; all are ready, and listen on the first numbers.
    pub(super) fn served_by(&self, ports: usize, activators: &[&str]) {
        let ready: Vec<_> = activators.iter().map(|address| (*address, true)).collect();
        self.activators(&ready);
        let held: Vec<_> = (20_000..).take(ports).map(|number| (number, "pa")).collect();
        activators.iter().for_each(|address| self.hear(address, &held));
    }

    /// An activator says what it listens on.
    pub(super) fn hear(&self, address: &str, held: &[(u16, &str)]) {
        self.cx.cluster().numbers.hear(address.parse().expect("an address"), State::Held, held);
    }

    /// It says that these are closing.
    pub(super) fn hear_closing(&self, address: &str, closing: &[(u16, &str)]) {
        self.cx.cluster().numbers.hear(address.parse().expect("an address"), State::Closing, closing);
    }

    /// One look at the ledger of numbers.
    pub(super) async fn look_at_numbers(&mut self, script: Vec<Exchange>) -> Result<(), Error> {
        self.play(script, async |cx, key| cx.standalone().allocator.reconcile(key).await).await
    }

    /// The Deployment `hello` with these replicas.
    pub(super) fn put_target(&self, replicas: i32) {
        self.put_target_at(replicas, 60);
    }

    /// The same as that version.
    pub(super) fn put_target_at(&self, replicas: i32, version: u64) {
        self.put_target_with(json!(replicas), version);
    }

    /// The same with that number of replicas, or without one.
    pub(super) fn put_target_with(&self, replicas: Value, version: u64) {
        self.put_target_of("hello", replicas, version);
    }

    /// The Deployment of that name.
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

    /// The object `hello` of a kind that nobody here has heard of.
    pub(super) fn put_widget(&self, mut spec: Value) {
        spec["selector"] = json!({"matchLabels": {"app": "hello"}});
        spec["template"] = json!({"spec": {"containers": [{"name": "app", "ports": [{"containerPort": 8080}]}]}});
        let object = json!({"metadata": {"name": "hello", "namespace": "ns", "uid": "w"}, "spec": spec});
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let key = TargetKey { resource: TargetResource::of("example.com/v1", "Widget"), object: self.key.clone() };
        self.cx.stores.targets.put(&key, "60", Some(Target::from_object(&object)));
    }

    /// The Deployment is no more.
    pub(super) fn remove_target(&self) {
        self.cx.stores.targets.put(&self.target_key(), "", None);
    }

    /// Its kind cannot be watched.
    pub(super) fn refuse_target(&self) {
        self.cx.stores.targets.refuse(&self.target_key().resource, "403 Forbidden");
    }

    fn target_key(&self) -> TargetKey {
        TargetKey { resource: TargetResource::of("apps/v1", "Deployment"), object: self.key.clone() }
    }

    pub(super) fn decides(&self, desired: Option<i32>, excess_burst_capacity: i32) {
        *self.fakes.decision.lock() =
            Some(DeciderStatus { desired, excess_burst_capacity, warm_in: None, unheard: false });
    }

    pub(super) fn ready(&self, ready: i32) {
        *self.fakes.counts.lock() = PodCounts { ready, ..PodCounts::default() };
    }
}

fn as_created(meta: &mut ObjectMeta, created: ObjectMeta) {
    meta.labels = meta.labels.take().or(created.labels);
    meta.annotations = meta.annotations.take().or(created.annotations);
}

/// After how long, `METHOD PATH`, and the body.
pub(super) type Asked = (Duration, String, Value);

type Check = Box<dyn Fn(&Value)>;
type Answer = Box<dyn Fn(Value) -> (u16, Value)>;

/// One request that is expected, and its answer.
pub(super) struct Exchange {
    line: String,
    check: Check,
    answer: Answer,
}

/// `METHOD PATH`, answered with what was sent, as a newer version.
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

impl Exchange {
    /// What must be true of the request's body, beside what was said before.
    pub(super) fn with(self, check: impl Fn(&Value) + 'static) -> Self {
        let former = self.check;
        let both = move |body: &Value| {
            former(body);
            check(body);
        };
        Self { check: Box::new(both), ..self }
    }

    /// Another answer.
    pub(super) fn answered(self, code: u16, body: Value) -> Self {
        Self { answer: Box::new(move |_| (code, body.clone())), ..self }
    }

    /// A refusal.
    pub(super) fn refused(self, code: u16, message: &str) -> Self {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
            "reason": if code == 409 { "Conflict" } else { "InternalError" },
        });
        self.answered(code, body)
    }
}

/// A condition of a status in a body: status, reason, message.
pub(super) fn condition(body: &Value, kind: &str) -> (String, String, String) {
    let conditions = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|c| c["type"] == kind).unwrap_or_default();
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

/// Whether a condition has a status and a reason.
pub(super) fn assert_condition(body: &Value, kind: &str, status: &str, reason: &str) {
    let (s, r, message) = condition(body, kind);
    assert_eq!((s.as_str(), r.as_str()), (status, reason), "{kind}: {message}");
}
