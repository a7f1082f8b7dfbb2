//! What every reconcile has at hand: what is known, what is asked for, and how to write.

use super::error::Error;
use super::kpa::probe::Prober;
use super::world::{Queues, World};
use crate::engine::Engine;
use crate::scale::{OnScale, Ports};
use crate::standalone::unserved::NOT_SERVED;
use autoscaler_core::engine::Plan;
use autoscaler_core::scale_conflict::ScaleConflict;
use common::RevisionKey as Key;
use common::annotations::{self, Settings};
use common::config::{AutoscalerConfig, DeploymentConfig};
use common::field::FieldErrors;
use common::write_rate::WriteClass;
use common_api::PodAutoscaler;
use common_controller::packed::{Held, Packer};
use common_controller::{Kind, Pacing, Passes, Recorder, Store, WriteLimiter, Writer};
use common_runtime::clock::Clock;
use common_runtime::environment::Mode;
use dashmap::DashMap;
use kube::{Client, ResourceExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// From the moment a write is given up to the moment when it is certain not to be carried out.
const CANCEL_MARGIN: Duration = Duration::from_millis(500);

/// Shared by all workers.
pub(crate) struct Context {
    /// The API server.
    pub(crate) client: Client,
    /// Whose rules hold.
    pub(crate) mode: Mode,
    /// The cluster's DNS domain.
    pub(crate) cluster_domain: String,
    /// Told of every replicas patch that was answered.
    pub(crate) on_scale: Option<OnScale>,
    /// What is known of the cluster.
    pub(crate) world: World,
    /// The controllers' queues.
    pub(crate) queues: Queues,
    /// Decisions, measurements, pods, leadership.
    pub(crate) ports: Ports,
    /// Probes of the path.
    pub(crate) prober: Prober,
    /// Looks at metrics; none where no PodAutoscaler is scaled by them.
    pub(crate) engine: Option<Engine>,
    /// How fast the process writes.
    pub(crate) limiter: WriteLimiter,
    /// Kubernetes Events.
    pub(crate) recorder: Recorder,
    /// Wall-clock time.
    pub(crate) clock: Clock,
    /// `config-autoscaler`, live.
    pub(crate) autoscaler_config: watch::Receiver<Arc<AutoscalerConfig>>,
    /// `config-deployment`, live.
    pub(crate) deployment_config: watch::Receiver<Arc<DeploymentConfig>>,
    /// The last version of each PodAutoscaler that broke no rule.
    pub(crate) accepted: Sound,
    /// Whether somebody else changes the replicas that we ask for.
    pub(crate) conflicts: DashMap<Key, ScaleConflict>,
    /// Targets whose last pod is being taken, and until when that may still be carried out.
    pub(crate) leaving: DashMap<Key, Instant>,
    /// When the return of a target began.
    pub(crate) retiring: DashMap<Key, Instant>,
}

/// A PodAutoscaler that breaks no rule.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    /// The object.
    pub(crate) object: Arc<PodAutoscaler>,
    /// Its annotations of our own.
    pub(crate) settings: Arc<Settings>,
    /// What it asks the metrics for; none: its load alone scales it.
    pub(crate) plan: Option<Arc<Plan>>,
}

/// The last version of each PodAutoscaler that broke no rule, at rest: it is needed only where a later one breaks one.
pub(crate) struct Sound {
    packer: Packer<PodAutoscaler>,
    held: DashMap<Key, (Option<String>, Held<PodAutoscaler>)>,
}

impl Default for Sound {
    fn default() -> Self {
        Self { packer: Packer::new(), held: DashMap::new() }
    }
}

impl Sound {
    fn keep(&self, key: &Key, object: &Arc<PodAutoscaler>) {
        let version = &object.metadata.resource_version;
        let is_held = self.held.get(key).is_some_and(|held| version.is_some() && held.0 == *version);
        if !is_held {
            self.held.insert(key.clone(), (version.clone(), self.packer.pack(object.clone())));
        }
    }

    fn of(&self, key: &Key, uid: Option<&String>) -> Option<Arc<PodAutoscaler>> {
        let held = self.held.get(key)?.1.clone();
        self.packer.take_out(&held).filter(|object| object.metadata.uid.as_ref() == uid)
    }

    /// Forgets one.
    pub(crate) fn remove(&self, key: &Key) {
        self.held.remove(key);
    }
}

impl Context {
    /// Whether we reconcile beside plain Deployments.
    pub(crate) fn is_standalone(&self) -> bool {
        self.mode == Mode::Standalone
    }

    /// What a PodAutoscaler asks for: itself, or its last version that broke no rule, with the rules that it breaks
    /// now.
    ///
    /// A typing error in an annotation must not keep a sleeping service from waking.
    ///
    /// # Errors
    /// It breaks a rule, and no version that did not is known.
    pub(crate) fn accepted(
        &self,
        key: &Key,
        object: &Arc<PodAutoscaler>,
    ) -> Result<(Accepted, Option<FieldErrors>), FieldErrors> {
        if !self.is_standalone() {
            let settings = Arc::new(Settings::default());
            let accepted = Accepted { object: object.clone(), settings, plan: None };
            return Ok((accepted, None)); // The webhook has looked at it.
        }
        let config = self.autoscaler_config.borrow().clone();
        let served = if self.serves(object) { Ok(()) } else { Err(unserved_class(object)) };
        let read = all_errors(served, all_errors(object.validate_standalone(&config), self.plan(object)));
        match read {
            Ok(((), (settings, plan))) => {
                let accepted = Accepted { object: object.clone(), settings: Arc::new(settings), plan };
                self.accepted.keep(key, object);
                Ok((accepted, None))
            }
            Err(errors) => match self.former(key, object) {
                Some(former) => Ok((former, Some(errors))),
                None => Err(errors),
            },
        }
    }

    /// The last version of this object that broke no rule.
    fn former(&self, key: &Key, object: &PodAutoscaler) -> Option<Accepted> {
        let former = self.accepted.of(key, object.metadata.uid.as_ref())?;
        let settings = Settings::read(former.annotations()).ok()?;
        let plan = self.plan(&former).ok()?;
        Some(Accepted { object: former, settings: Arc::new(settings), plan })
    }

    /// Whether this controller scales PodAutoscalers of that class.
    pub(crate) fn serves(&self, object: &PodAutoscaler) -> bool {
        let annotations = object.annotations();
        annotations::is_kpa(annotations) || (annotations::is_hpa(annotations) && self.engine.is_some())
    }

    /// What the metrics are asked for, where somebody looks at them.
    fn plan(&self, object: &PodAutoscaler) -> Result<Option<Arc<Plan>>, FieldErrors> {
        if self.engine.is_none() {
            return Ok(None);
        }
        let plan = crate::engine::annotations::read(object.annotations()).map_err(|found| {
            let mut errors = FieldErrors::new();
            errors.extend("metadata.annotations.", found);
            errors
        })?;
        Ok(plan.map(Arc::new))
    }

    /// The last pod of a revision is being taken, by a write that may take so long.
    pub(crate) fn takes_last_pod(&self, key: &Key, within: Duration) {
        if !self.is_standalone() {
            return; // Knative's own controller leads the traffic.
        }
        self.leaving.insert(key.clone(), Instant::now() + within + CANCEL_MARGIN);
    }

    /// That write was answered; or was not, and may still be carried out for a while.
    pub(crate) fn took_last_pod(&self, key: &Key, answered: bool) {
        let Some(left) = self.leaving.get(key).map(|until| until.saturating_duration_since(Instant::now())) else {
            return;
        };
        if answered {
            self.leaving.remove(key);
        }
        self.queues.serverless.add_after(key.clone(), if answered { Duration::ZERO } else { left });
    }

    /// Whether the last pod of a revision may be taken at any moment.
    pub(crate) fn is_leaving(&self, key: &Key) -> bool {
        self.leaving.get(key).is_some_and(|until| Instant::now() < *until)
    }

    /// Stops deciding and measuring for a revision, and forgets what was measured.
    pub(crate) fn forget(&self, key: &Key) {
        self.ports.deciders.remove(key);
        self.ports.collection.remove(key);
        self.prober.forget(key);
        if let Some(engine) = &self.engine {
            engine.forget(key);
        }
    }

    /// Forgets a revision wholly: it is gone, or somebody else's.
    pub(crate) fn drop_revision(&self, key: &Key) {
        self.release(key);
        self.ports.deciders.forget(key);
    }

    /// Forgets a revision but for what was done about it.
    pub(crate) fn release(&self, key: &Key) {
        self.forget(key);
        self.ports.pods.untrack(key);
        self.accepted.remove(key);
        self.conflicts.remove(key);
        self.leaving.remove(key);
        self.retiring.remove(key);
    }

    /// Creates an object on behalf of a revision that is ours to write for.
    ///
    /// # Errors
    /// The lease may end too soon, or the API server's, after `doing`.
    pub(crate) async fn create<K: Kind>(
        &self,
        revision: &Key,
        store: &Store<K>,
        object: &K,
        doing: &str,
    ) -> Result<K, Error> {
        Ok(self.writer_of(class_of::<K>()).create(revision, store, object, doing).await?)
    }

    /// Replaces an object on behalf of a revision that is ours to write for.
    ///
    /// # Errors
    /// The lease may end too soon, or the API server's, after `doing`.
    pub(crate) async fn replace<K: Kind>(
        &self,
        revision: &Key,
        store: &Store<K>,
        object: &K,
        doing: &str,
    ) -> Result<K, Error> {
        Ok(self.writer_of(class_of::<K>()).replace(revision, store, object, doing).await?)
    }

    /// Deletes an object on behalf of a revision that is ours to write for.
    ///
    /// # Errors
    /// The lease may end too soon, or the API server's, after `doing`.
    pub(crate) async fn delete<K: Kind>(
        &self,
        revision: &Key,
        store: &Store<K>,
        key: &Key,
        doing: &str,
    ) -> Result<(), Error> {
        Ok(self.writer().delete(revision, store, key, doing).await?)
    }

    /// What passes over one kind of objects have in common; `component` speaks in events.
    pub(crate) fn passes<'a, K>(&'a self, store: &'a Store<K>, component: &'static str) -> Passes<'a, K> {
        Passes { writer: self.writer(), store, recorder: &self.recorder, component, clock: &self.clock }
    }

    /// Whoever writes objects and statuses of what is led by this process.
    pub(crate) fn writer(&self) -> Writer<'_> {
        self.writer_of(WriteClass::Object)
    }

    /// Whoever writes with that class.
    pub(crate) fn writer_of(&self, class: WriteClass) -> Writer<'_> {
        let pacing = Some(Pacing { limiter: &self.limiter, class, decisions: &self.queues.autoscalers });
        Writer { client: &self.client, leadership: &*self.ports.leadership, pacing }
    }
}

/// How urgent writes of a kind are. Endpoints that come late lead to pods that are gone.
fn class_of<K: Kind>() -> WriteClass {
    if K::kind(&()) == "EndpointSlice" { WriteClass::Scale } else { WriteClass::Object }
}

/// Both, or the errors of both.
fn all_errors<A, B>(a: Result<A, FieldErrors>, b: Result<B, FieldErrors>) -> Result<(A, B), FieldErrors> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(errors), Ok(_)) | (Ok(_), Err(errors)) => Err(errors),
        (Err(mut errors), Err(others)) => {
            errors.extend("", others);
            Err(errors)
        }
    }
}

fn unserved_class(object: &PodAutoscaler) -> FieldErrors {
    let (class, path) = (annotations::class(object.annotations()), annotations::CLASS.name);
    let mut errors = FieldErrors::new();
    errors.invalid_value(class, format!("metadata.annotations.{path}"), NOT_SERVED);
    errors
}
