//! State shared by the workers, and one reconcile of one object.

use super::Wiring;
use super::evaluate::Target;
use super::foreign_manager::{ForeignManager, MANAGER};
use super::series::Series;
use crate::pods::parse_pod;
use crate::sources::{Mapper, RestMetrics, RestScales};
use common::RevisionKey as Key;
use common_controller::{BoundedApi, Priority, Recorder, Severity, Store, WorkQueue, WriteError, Writer};
use hpa_core::memory::Memory;
use hpa_core::pod::Pod;
use hpa_core::reconcile::{Autoscaler, Conclusion, reconcile};
use hpa_core::selectors::Selectors;
use hpa_core::spec::min_replicas;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus};
use k8s_openapi::api::core::v1 as core;
use kube::api::PostParams;
use kube::core::request::Request;
use kube::runtime::watcher;
use kube::{Api, Resource};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Component name in events, as in upstream's controller.
const COMPONENT: &str = "horizontal-pod-autoscaler";

pub(super) struct CachedObject {
    /// Object without its managed fields and its status.
    object: HorizontalPodAutoscaler,
    status: HorizontalPodAutoscalerStatus,
    foreign: Option<ForeignManager>,
}

impl CachedObject {
    pub(super) fn new(mut object: HorizontalPodAutoscaler) -> Self {
        let foreign = ForeignManager::from_metadata(&object.metadata);
        object.metadata.managed_fields = None;
        let mut status = object.status.take().unwrap_or_default();
        status.current_replicas.get_or_insert(0); // The API server omits 0.
        Self { object, status, foreign }
    }

    fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }
}

/// State shared by the workers.
pub(super) struct Controller {
    pub(super) wiring: Wiring,
    pub(super) queue: WorkQueue<Key>,
    pub(super) series: Series,
    pub(super) objects: Store<CachedObject>,
    pub(super) pods: Store<Pod>,
    pub(super) metrics: RestMetrics,
    pub(super) scales: RestScales,
    pub(super) selectors: Arc<Mutex<Selectors>>,
    /// Memory of each object with its UID, kept between reconciles.
    memories: Mutex<HashMap<Key, (String, Memory)>>,
    /// Objects that another manager blocks, and for which this was logged.
    blocked: Mutex<HashSet<Key>>,
    recorder: Recorder,
}

impl Controller {
    pub(super) fn new(wiring: Wiring) -> Self {
        let Wiring { client, explanations, .. } = &wiring;
        let (queue, series, period) = (WorkQueue::new(), Series::new(&wiring.metrics), wiring.options.sync_period);
        let selectors = Arc::<Mutex<Selectors>>::default();
        let objects = {
            let (queue, series): (WorkQueue<Key>, Series) = (queue.clone(), series.clone());
            let (selectors, explanations) = (selectors.clone(), explanations.clone());
            Store::new(move |key: &Key, _, new| {
                let mut selectors = selectors.lock();
                if new.is_some() && selectors.register(key.namespace(), key.name()) {
                    series.objects.inc();
                } else if new.is_none() && selectors.remove(key.namespace(), key.name()) {
                    series.objects.dec();
                    series.remove_series(key);
                    explanations.remove(key);
                }
                // The next reconcile drops the state of a deleted object.
                queue.add_after(key.clone(), period);
            })
        };
        let mapper = Arc::new(Mapper::new(client.clone()));
        Self {
            objects,
            pods: Store::new(|_, _, _| {}),
            metrics: RestMetrics::new(client.clone(), mapper.clone(), period),
            scales: RestScales::new(client.clone(), mapper),
            // Not tied to shutdown, because reconciles in flight still record events. It ends after the controller,
            // once all events are written, and at the latest with the process.
            recorder: Recorder::start(client.clone(), CancellationToken::new()),
            memories: Mutex::default(),
            blocked: Mutex::default(),
            queue,
            series,
            selectors,
            wiring,
        }
    }

    /// Starts the watches, which end with `shutdown`. Returns whether all objects and pods were listed before
    /// `shutdown`.
    pub(super) async fn follow(self: &Arc<Self>, shutdown: &CancellationToken) -> bool {
        let (this, until) = (self.clone(), shutdown.clone());
        tokio::spawn(async move {
            let objects: Api<HorizontalPodAutoscaler> = Api::all(this.wiring.client.clone());
            let pods: Api<core::Pod> = Api::all(this.wiring.client.clone());
            tokio::select! {
                () = this.objects.follow(objects, watcher::Config::default(), CachedObject::new) => {}
                () = this.pods.follow(pods, watcher::Config::default(), |pod| parse_pod(&pod)) => {}
                () = until.cancelled() => {}
            }
        });
        let synced = async { tokio::join!(self.objects.synced(), self.pods.synced()) };
        shutdown.run_until_cancelled(synced).await.is_some()
    }

    /// Runs one reconcile. Returns whether the object must be queued again after a period.
    pub(super) async fn reconcile(&self, key: &Key) -> bool {
        let Some(cached) = self.objects.get(key) else {
            // A reconcile in flight during the deletion of the object may have restored parts of its state.
            self.drop_state(key);
            return false;
        };
        if !self.wiring.leadership.owns(key) {
            self.drop_state(key);
        } else if self.is_blocked(key, &cached) {
            self.reset(key);
        } else {
            self.pass(key, &cached).await;
        }
        true
    }

    /// Queues each object that this process does not lead, so that its state is dropped at once. An object that this
    /// process now leads waits for its period, as after each reconcile.
    pub(super) fn queue_lost(&self) {
        for key in self.objects.keys().into_iter().filter(|key| !self.wiring.leadership.owns(key)) {
            self.queue.add(key, Priority::Slow);
        }
    }

    /// Drops all state, metrics and explanations of an object that is deleted or led by another process.
    fn drop_state(&self, key: &Key) {
        self.reset(key);
        self.blocked.lock().remove(key);
        self.series.remove_series(key);
        self.wiring.explanations.remove(key);
    }

    /// Resets an object, so that the next reconcile begins like that of a new leader: its first recommendation is the
    /// present scale. Earlier recommendations would prevent this, although they are too old to stabilize the scale. The
    /// selector may have changed, too.
    fn reset(&self, key: &Key) {
        self.memories.lock().remove(key);
        self.selectors.lock().put(key.namespace(), key.name(), None);
    }

    async fn pass(&self, key: &Key, cached: &CachedObject) {
        let (start, now) = (Instant::now(), self.wiring.clock.now());
        // The memory is removed during the reconcile; the queue lets no other worker have this key meanwhile.
        let memory = self.memories.lock().remove(key).filter(|(uid, _)| uid == cached.uid());
        let mut memory = memory.map(|(_, memory)| memory).unwrap_or_default();
        let (namespace, name, spec) = (key.namespace(), key.name(), &cached.object.spec);
        let autoscaler = Autoscaler { namespace, name, spec, status: &cached.status };
        let mut target = Target { controller: self, key, scale: None, current: None, measured: Vec::new() };
        let options = &self.wiring.options;
        let finish = reconcile(autoscaler, &options.rules(), options.gates, &mut memory, now, &mut target).await;
        self.memories.lock().insert(key.clone(), (cached.uid().to_owned(), memory));
        let status = finish.status.clone();
        let written = match &status {
            Some(status) => self.write_status(key, cached, status).await,
            None => Ok(()),
        };
        let conclusion = finish.conclude(written);
        self.record_events(key, cached, &conclusion);
        let bounds = (min_replicas(spec), spec.max_replicas);
        let status = status.as_ref().unwrap_or(&cached.status);
        self.wiring.explanations.record_reconcile(key, bounds, target.current, status, &conclusion, now);
        self.series.record_reconcile(key, &conclusion, start.elapsed(), &target.measured);
    }

    async fn write_status(
        &self,
        key: &Key,
        cached: &CachedObject,
        status: &HorizontalPodAutoscalerStatus,
    ) -> Result<(), String> {
        let writer = Writer { client: &self.wiring.client, leadership: &*self.wiring.leadership, pacing: None };
        let object = HorizontalPodAutoscaler { status: Some(status.clone()), ..cached.object.clone() };
        let data = serde_json::to_vec(&object).map_err(|error| error.to_string())?;
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let requests = Request::new(HorizontalPodAutoscaler::url_path(&(), Some(key.namespace())));
        let request = requests.replace_subresource("status", key.name(), &parameters, data);
        let doing = "the status of";
        let send = async |api: BoundedApi| api.send(request).await.map_err(WriteError::api(doing));
        let written = writer.write(key, doing, send).await;
        let written: HorizontalPodAutoscaler = written.map_err(|error| match error {
            WriteError::Api { source: kube::Error::Api(status), .. } => status.message,
            WriteError::Api { source, .. } => source.to_string(),
            other => other.to_string(),
        })?;
        let version = written.metadata.resource_version.clone().unwrap_or_default();
        self.objects.offer(key, &version, CachedObject::new(written));
        Ok(())
    }

    fn record_events(&self, key: &Key, cached: &CachedObject, conclusion: &Conclusion) {
        for event in &conclusion.events {
            let (object, reason, message) = (&cached.object, event.reason, event.message.clone());
            if event.warning {
                self.recorder.record_error(COMPONENT, object, reason, message);
            } else {
                self.recorder.record(COMPONENT, object, Severity::Normal, reason, message);
            }
            if event.reason == "SuccessfulRescale" {
                tracing::info!(hpa = %key, message = %event.message, "scaled");
            }
        }
        if let Some(error) = &conclusion.error {
            // A condition and an event contain the error, too.
            tracing::debug!(hpa = %key, %error, "the reconcile failed and is repeated after a sync period");
        }
    }

    /// Reports whether another manager acts on the object, and logs when this begins and ends.
    fn is_blocked(&self, key: &Key, cached: &CachedObject) -> bool {
        let now = self.wiring.clock.now();
        let active = cached.foreign.as_ref().filter(|foreign| foreign.is_active(now));
        let Some(foreign) = active else {
            if self.blocked.lock().remove(key) {
                tracing::info!(hpa = %key, "no other manager writes the status of the HorizontalPodAutoscaler any more");
                self.series.set_foreign(key, false);
            }
            return false;
        };
        let manager = &foreign.manager;
        if self.blocked.lock().insert(key.clone()) {
            tracing::warn!(hpa = %key, manager, "another manager writes the status of the HorizontalPodAutoscaler, so this controller leaves it alone");
            self.series.set_foreign(key, true);
        }
        let why = "this controller leaves the object alone, because another manager writes its status";
        self.wiring.explanations.record_blocked(key, &format!("{why}: {manager}"), now);
        true
    }
}
