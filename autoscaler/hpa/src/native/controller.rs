//! State shared by the workers, and one reconcile of one object.

use super::Wiring;
use super::foreign_manager::{ForeignManager, MANAGER};
use super::series::Series;
use crate::evaluate::{Rules, evaluate};
use crate::explain::Explanations;
use crate::object;
use crate::options::ControllerOptions;
use crate::pods::PodCache;
use crate::sources::{Mapper, RestMetrics, RestScales, ScaleObject, ScaleSource, Sources};
use common::RevisionKey as Key;
use common_controller::Leadership;
use common_controller::{
    BoundedApi, Priority, Recorder, Severity, Store, WRITE_TIMEOUT, WorkQueue, WriteError, Writer,
};
use common_runtime::clock::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use hpa_core::memory::Memory;
use hpa_core::reconcile::{Autoscaler, Conclusion, ScaleError, WriteResult};
use hpa_core::selectors::Selectors;
use hpa_core::spec::{ObjectReference, Spec};
use hpa_core::status::Status;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Resource;
use kube::api::PostParams;
use kube::core::request::Request;
use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Component name in events, as in upstream's controller.
const COMPONENT: &str = "horizontal-pod-autoscaler";
/// Maximum number of repetitions of a throttled write, as in upstream's client.
const REPEATS: u32 = 10;

/// Cached object.
pub(super) struct CachedObject {
    /// Object without its managed fields.
    pub(super) object: HorizontalPodAutoscaler,
    spec: Result<Spec, String>,
    status: Status,
    foreign: Option<ForeignManager>,
}

impl CachedObject {
    pub(super) fn new(mut object: HorizontalPodAutoscaler) -> Self {
        let foreign = ForeignManager::of(&object.metadata);
        object.metadata.managed_fields = None;
        let spec = object::spec(&object.spec);
        let status = object.status.as_ref().map(object::status).unwrap_or_default();
        Self { object, spec, status, foreign }
    }

    fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }
}

/// State of an object that is kept between reconciles.
#[derive(Default)]
struct Remembered {
    uid: String,
    memory: Memory,
}

/// State shared by the workers.
pub(super) struct Controller {
    pub(super) options: ControllerOptions,
    pub(super) queue: WorkQueue<Key>,
    pub(super) series: Series,
    pub(super) objects: Store<CachedObject>,
    pub(super) pods: PodCache,
    client: Client,
    metrics: RestMetrics,
    scales: RestScales,
    selectors: Arc<Mutex<Selectors>>,
    remembered: Mutex<HashMap<Key, Remembered>>,
    /// Objects that another manager blocks, once this was reported.
    refused: Mutex<HashSet<Key>>,
    recorder: Recorder,
    pub(super) leadership: Arc<dyn Leadership>,
    explanations: Arc<Explanations>,
    clock: Clock,
}

impl Controller {
    pub(super) fn new(wiring: Wiring) -> Self {
        let Wiring { client, options, leadership, listed: _, metrics, explanations, clock } = wiring;
        let (queue, series) = (WorkQueue::new(), Series::new(&metrics));
        let selectors = Arc::<Mutex<Selectors>>::default();
        let handler = WatchHandler {
            queue: queue.clone(),
            series: series.clone(),
            selectors: selectors.clone(),
            explanations: explanations.clone(),
            options: options.clone(),
        };
        let mapper = Arc::new(Mapper::new(client.clone()));
        Self {
            objects: Store::new(move |key, _, new| handler.changed(key, new.is_some())),
            pods: PodCache::default(),
            metrics: RestMetrics::new(client.clone(), mapper.clone(), options.sync_period),
            scales: RestScales::new(client.clone(), mapper),
            // Not tied to shutdown, because reconciles in flight still record events. It ends after the controller,
            // once all events are written, and at the latest with the process.
            recorder: Recorder::start(client.clone(), CancellationToken::new()),
            remembered: Mutex::default(),
            refused: Mutex::default(),
            options,
            queue,
            series,
            client,
            selectors,
            leadership,
            explanations,
            clock,
        }
    }

    /// Starts the watches, which end with `shutdown`. Returns whether all objects and pods were listed before
    /// `shutdown`.
    pub(super) async fn follow(self: &Arc<Self>, shutdown: &CancellationToken) -> bool {
        let (this, until) = (self.clone(), shutdown.clone());
        tokio::spawn(async move { this.pods.follow(this.client.clone(), until).await });
        let (this, until) = (self.clone(), shutdown.clone());
        tokio::spawn(async move {
            let all: Api<HorizontalPodAutoscaler> = Api::all(this.client.clone());
            tokio::select! {
                () = this.objects.follow(all, watcher::Config::default(), CachedObject::new) => {}
                () = until.cancelled() => {}
            }
        });
        let known = async {
            self.objects.synced().await;
            self.pods.synced().await;
        };
        tokio::select! {
            () = known => true,
            () = shutdown.cancelled() => false,
        }
    }

    /// Runs one reconcile. Returns whether the object should be queued again after a period.
    pub(super) async fn reconcile(&self, key: &Key) -> bool {
        let Some(held) = self.objects.get(key) else {
            // A reconcile in flight during the deletion of the object may have restored parts of its state.
            self.give_up(key);
            return false;
        };
        if !self.leadership.owns(key) {
            self.give_up(key);
        } else if self.is_kept_away(key, &held) {
            self.start_afresh(key);
        } else {
            self.pass(key, &held).await;
        }
        true
    }

    /// Queues every object that this process does not lead, at once, so that the state of earlier reconciles is given
    /// up. An object that it now leads waits for its period, as after each reconcile.
    pub(super) fn look_at_lost(&self) {
        for key in self.objects.keys().into_iter().filter(|key| !self.leadership.owns(key)) {
            self.queue.add(key, Priority::Slow);
        }
    }

    /// Drops all state, metrics and explanations of an object that is deleted or led by another process.
    fn give_up(&self, key: &Key) {
        self.start_afresh(key);
        self.refused.lock().remove(key);
        self.series.ended(key);
        self.explanations.forget(key);
    }

    /// Resets an object, so that the next reconcile begins like a new leader's: the scale it finds is the first
    /// recommendation. Older recommendations would be too old to stabilize anything, and would suppress that first one.
    /// The selector may have changed as well.
    fn start_afresh(&self, key: &Key) {
        self.remembered.lock().remove(key);
        self.selectors.lock().clear(key.namespace(), key.name());
    }

    async fn pass(&self, key: &Key, held: &CachedObject) {
        let (start, now) = (Instant::now(), self.clock.now());
        let spec = match &held.spec {
            Ok(spec) => spec,
            Err(error) => {
                tracing::warn!(hpa = %key, %error, "cannot be read; nothing is done about it");
                self.explanations.refused(key, error, now);
                return;
            }
        };
        // The memory is removed during the reconcile; the queue lets no other worker have this key meanwhile.
        let mut remembered =
            self.remembered.lock().remove(key).filter(|known| known.uid == held.uid()).unwrap_or_default();
        held.uid().clone_into(&mut remembered.uid);
        let scales = GuardedScales { scales: &self.scales, leadership: &*self.leadership, key };
        let sources = Sources { metrics: &self.metrics, scales: &scales, pods: &self.pods };
        let rules = Rules { options: &self.options.rules, gates: self.options.gates, selectors: &self.selectors };
        let autoscaler = Autoscaler { namespace: key.namespace(), name: key.name(), spec, status: &held.status };
        let outcome = evaluate(autoscaler, rules, &mut remembered.memory, now, sources).await;
        self.remembered.lock().insert(key.clone(), remembered);
        let status = outcome.finish.status().cloned();
        let written = match &status {
            Some(status) => self.write_status(key, held, status).await,
            None => Ok(()),
        };
        let conclusion = outcome.finish.conclude(written);
        self.record_events(key, held, &conclusion);
        let bounds = (spec.min(), spec.max_replicas);
        let status = status.as_ref().unwrap_or(&held.status);
        self.explanations.passed(key, bounds, outcome.current, status, &conclusion, now);
        self.series.concluded(key, &conclusion, start.elapsed(), &outcome.measured);
    }

    async fn write_status(&self, key: &Key, held: &CachedObject, status: &Status) -> Result<(), String> {
        let writer = Writer { client: &self.client, leadership: &*self.leadership, pacing: None };
        let object = HorizontalPodAutoscaler { status: Some(object::written(status)), ..held.object.clone() };
        let data = serde_json::to_vec(&object).map_err(|error| error.to_string())?;
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let requests = Request::new(HorizontalPodAutoscaler::url_path(&(), Some(key.namespace())));
        let request = requests.replace_subresource("status", key.name(), &parameters, data);
        let doing = "the status of";
        let send = async |api: BoundedApi| api.send(request).await.map_err(WriteError::api(doing));
        let written = writer.write(key, doing, send).await;
        let written: HorizontalPodAutoscaler = written.map_err(|error| match &error {
            WriteError::Api { source, .. } => said(source),
            _ => error.to_string(),
        })?;
        let version = written.metadata.resource_version.clone().unwrap_or_default();
        self.objects.offer(key, &version, CachedObject::new(written));
        Ok(())
    }

    fn record_events(&self, key: &Key, held: &CachedObject, conclusion: &Conclusion) {
        for event in &conclusion.events {
            match event.warning {
                true => self.recorder.complain(COMPONENT, &held.object, event.reason, event.message.clone()),
                false => {
                    self.recorder.say(COMPONENT, &held.object, Severity::Normal, event.reason, event.message.clone());
                }
            }
            if event.reason == "SuccessfulRescale" {
                tracing::info!(hpa = %key, message = %event.message, "scaled");
            }
        }
        if let Some(error) = &conclusion.error {
            // A condition and an event contain it as well.
            tracing::debug!(hpa = %key, %error, "will be tried again after a period");
        }
    }

    /// Reports whether another manager acts on the object, and logs the beginning and the end of that.
    fn is_kept_away(&self, key: &Key, held: &CachedObject) -> bool {
        let now = self.clock.now();
        let alive = held.foreign.as_ref().filter(|foreign| foreign.is_alive(now));
        let Some(foreign) = alive else {
            if self.refused.lock().remove(key) {
                tracing::info!(hpa = %key, "no other manager writes its status any more");
                self.series.foreign(key, false);
            }
            return false;
        };
        let manager = &foreign.manager;
        if self.refused.lock().insert(key.clone()) {
            tracing::warn!(hpa = %key, manager, "another manager writes its status; nothing is done about it here");
            self.series.foreign(key, true);
        }
        self.explanations.refused(key, &format!("another manager writes its status: {manager}"), now);
        true
    }
}

/// Handles added and deleted objects.
struct WatchHandler {
    queue: WorkQueue<Key>,
    series: Series,
    selectors: Arc<Mutex<Selectors>>,
    explanations: Arc<Explanations>,
    options: ControllerOptions,
}

impl WatchHandler {
    fn changed(&self, key: &Key, exists: bool) {
        let mut selectors = self.selectors.lock();
        if exists && selectors.register(key.namespace(), key.name()) {
            self.series.appeared();
        } else if !exists && selectors.remove(key.namespace(), key.name()) {
            self.series.gone(key);
            self.explanations.forget(key);
        }
        // The next reconcile drops the state of a deleted object.
        self.queue.add_after(key.clone(), self.options.sync_period);
    }
}

/// Scales that are written only while the lease lasts. A throttled write is repeated after the delay that the API
/// server requests, if that is within the time limit of one write; the lease is checked before each attempt.
struct GuardedScales<'a> {
    scales: &'a RestScales,
    leadership: &'a dyn Leadership,
    key: &'a Key,
}

impl ScaleSource for GuardedScales<'_> {
    fn read<'a>(
        &'a self,
        namespace: &'a str,
        target: &'a ObjectReference,
    ) -> BoxFuture<'a, Result<ScaleObject, ScaleError>> {
        self.scales.read(namespace, target)
    }

    fn again<'a>(&'a self, read: &'a ScaleObject) -> BoxFuture<'a, Result<ScaleObject, String>> {
        self.scales.again(read)
    }

    fn write<'a>(&'a self, read: &'a ScaleObject, replicas: i32) -> BoxFuture<'a, WriteResult> {
        async move {
            let until = Instant::now() + WRITE_TIMEOUT;
            let mut repeats = 0;
            loop {
                let Some(guard) = self.leadership.begin_write(self.key) else {
                    return WriteResult::Failed(WriteError::LeaseEnds.to_string());
                };
                let end = guard.deadline().map_or(until, |deadline| deadline.min(until));
                let (result, wait) = self.scales.write_within(read, replicas, end - Instant::now()).await;
                // A failure may be a missing response.
                match result {
                    WriteResult::Failed(_) => drop(guard),
                    WriteResult::Written | WriteResult::Conflict(_) => guard.answered(),
                }
                match wait {
                    Some(wait) if repeats < REPEATS && wait < until - Instant::now() => sleep(wait).await,
                    _ => return result,
                }
                repeats += 1;
            }
        }
        .boxed()
    }
}

/// Returns the text of an API server's error.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
