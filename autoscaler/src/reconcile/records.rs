//! Where the reconcilers keep what they know and want of a revision: its PodAutoscaler, ServerlessService and Metric.
//!
//! In place of Knative's own autoscaler these are objects of the API server ([`ApiObjects`]). Another front end may hold
//! them as values in its memory, and write down elsewhere what must outlive the process. The rules do not notice: they
//! read [`Stores`], and write here.

use super::error::Error;
use super::stores::Stores;
use super::writes::Writes;
use common::RevisionKey as Key;
use common_api::{Metric, PodAutoscaler, ServerlessService};
use common_controller::objects::controller_reference;
use common_controller::{BoundedApi, Kind, Severity, Statuses, Store, WriteError, Written};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::object::HasStatus;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// What users, or Knative, write.
pub(crate) trait Subjects: Statuses<PodAutoscaler> + 'static {
    /// Says something about one in an event.
    fn say(&self, object: &PodAutoscaler, severity: Severity, reason: &str, message: String);

    /// Says that its replicas were changed.
    fn scaled(&self, object: &PodAutoscaler, scaled: Scaled) {
        self.say(object, Severity::Normal, Scaled::REASON, scaled.to_string());
    }

    /// Merges `patch`, which names the version that it was made from, into one. Returns it as it is then.
    ///
    /// # Errors
    /// The API server's; a conflict if somebody wrote first.
    fn merge<'a>(
        &'a self,
        object: &'a Arc<PodAutoscaler>,
        patch: Value,
        doing: &'a str,
    ) -> BoxFuture<'a, Result<Arc<PodAutoscaler>, WriteError>>;

    /// Forgets what was not said yet of one that is gone, or somebody else's.
    fn forget(&self, _revision: &Key) {}
}

/// A change of replicas, or several in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scaled {
    /// Kind of the target.
    pub(crate) kind: String,
    /// Name of the target.
    pub(crate) name: String,
    /// Replicas before the first.
    pub(crate) from: i32,
    /// Replicas after the last.
    pub(crate) to: i32,
    /// Why they were changed last.
    pub(crate) why: String,
}

impl Scaled {
    /// Reason of the event.
    pub(crate) const REASON: &str = "Scaled";
}

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, from, to, why } = self;
        write!(f, "Scaled {kind} {name} from {from} to {to}: {why}")
    }
}

/// What the reconcilers make of it: one of each kind for a revision, with its name.
pub(crate) trait Children<K: HasStatus>: Statuses<K> + 'static {
    /// Keeps a new one.
    ///
    /// # Errors
    /// The API server's, after `doing`.
    fn create<'a>(&'a self, revision: &'a Key, object: K, doing: &'a str) -> BoxFuture<'a, Result<Arc<K>, Error>>;

    /// Keeps another version of one.
    ///
    /// # Errors
    /// The API server's, after `doing`; a conflict if somebody wrote first.
    fn replace<'a>(&'a self, revision: &'a Key, object: K, doing: &'a str) -> BoxFuture<'a, Result<Arc<K>, Error>>;

    /// Ends one, and all that it owns.
    ///
    /// # Errors
    /// The API server's, after `doing`.
    fn delete<'a>(&'a self, revision: &'a Key, doing: &'a str) -> BoxFuture<'a, Result<(), Error>>;

    /// How objects name it as the one that controls them.
    fn reference(&self, object: &K) -> OwnerReference;

    /// Forgets that of a revision which is gone, or somebody else's, if it is known here alone.
    fn forget(&self, revision: &Key);

    /// Whether that of a revision outlives this process. If not, that there is none says nothing.
    fn outlives_process(&self, revision: &Key) -> bool;
}

/// Where a process keeps them.
#[derive(Clone)]
pub(crate) struct Records {
    pub(crate) autoscalers: Arc<dyn Subjects>,
    pub(crate) serverless: Arc<dyn Children<ServerlessService>>,
    pub(crate) metrics: Arc<dyn Children<Metric>>,
}

impl Records {
    /// All are objects of the API server.
    pub(crate) fn api_objects(stores: &Stores, writes: &Writes) -> Self {
        fn of<K>(store: &Arc<Store<K>>, writes: &Writes, component: &'static str) -> ApiObjects<K> {
            ApiObjects { store: store.clone(), writes: writes.clone(), component }
        }
        Self {
            autoscalers: Arc::new(of(&stores.autoscalers, writes, "podautoscaler-controller")),
            serverless: Arc::new(of(&stores.serverless, writes, "serverlessservice-controller")),
            metrics: Arc::new(of(&stores.metrics, writes, "metric-controller")),
        }
    }
}

/// Those of the API server, of one kind.
struct ApiObjects<K> {
    store: Arc<Store<K>>,
    writes: Writes,
    /// Who speaks in Kubernetes Events.
    component: &'static str,
}

impl<K> ApiObjects<K> {
    fn statuses(&self) -> Written<'_, K> {
        let (writer, recorder) = (self.writes.writer(), &self.writes.recorder);
        Written { writer, store: &self.store, recorder, component: self.component }
    }
}

impl<K> Statuses<K> for ApiObjects<K>
where
    K: Kind + HasStatus,
    K::Status: PartialEq + Clone + Send + Sync,
{
    fn write<'a>(&'a self, read: &'a Arc<K>, status: K::Status) -> BoxFuture<'a, Result<(), WriteError>> {
        async move { self.statuses().write(read, status).await }.boxed()
    }

    fn complain(&self, object: &K, reason: &str, message: String) {
        self.statuses().complain(object, reason, message);
    }
}

impl Subjects for ApiObjects<PodAutoscaler> {
    fn say(&self, object: &PodAutoscaler, severity: Severity, reason: &str, message: String) {
        self.writes.recorder.say(self.component, object, severity, reason, message);
    }

    fn merge<'a>(
        &'a self,
        object: &'a Arc<PodAutoscaler>,
        patch: Value,
        doing: &'a str,
    ) -> BoxFuture<'a, Result<Arc<PodAutoscaler>, WriteError>> {
        async move {
            let key = common_controller::key_of(&**object);
            let write = async |api: BoundedApi| {
                let patched = api.merge::<PodAutoscaler>(&key, &patch).await;
                patched.map_err(WriteError::api(format!("{doing} of {}", key.name())))
            };
            let mut patched = self.writes.writer().write(&key, doing, write).await?;
            patched.metadata.managed_fields = None;
            self.store.offer_object(&patched);
            Ok(Arc::new(patched))
        }
        .boxed()
    }
}

impl<K> Children<K> for ApiObjects<K>
where
    K: Kind + HasStatus,
    K::Status: PartialEq + Clone + Send + Sync,
{
    fn create<'a>(&'a self, revision: &'a Key, object: K, doing: &'a str) -> BoxFuture<'a, Result<Arc<K>, Error>> {
        async move { self.writes.create(revision, &self.store, &object, doing).await.map(Arc::new) }.boxed()
    }

    fn replace<'a>(&'a self, revision: &'a Key, object: K, doing: &'a str) -> BoxFuture<'a, Result<Arc<K>, Error>> {
        async move { self.writes.replace(revision, &self.store, &object, doing).await.map(Arc::new) }.boxed()
    }

    fn delete<'a>(&'a self, revision: &'a Key, doing: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.writes.delete(revision, &self.store, revision, doing).boxed()
    }

    fn reference(&self, object: &K) -> OwnerReference {
        controller_reference(object)
    }

    fn forget(&self, _: &Key) {}

    fn outlives_process(&self, _: &Key) -> bool {
        true
    }
}
