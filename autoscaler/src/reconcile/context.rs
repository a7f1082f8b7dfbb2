//! What every reconcile has at hand: what is known, what is asked for, and how to write.

use super::api::{Bounded, Writer, Written};
use super::error::Error;
use super::events::Recorder;
use super::kpa::foreign::NOT_SERVED;
use super::kpa::probe::Prober;
use super::world::store::{Store, key_of};
use super::world::{Queues, World};
use crate::clock::Clock;
use crate::options::Options;
use crate::scale::Ports;
use common::RevisionKey as Key;
use common::annotations::{self, Settings};
use common::config::{AutoscalerConfig, DeploymentConfig};
use common::field::FieldErrors;
use common_api::PodAutoscaler;
use common_runtime::environment::Mode;
use dashmap::DashMap;
use kube::{Client, ResourceExt};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;

/// Shared by all workers.
pub(crate) struct Context {
    /// The API server.
    pub(crate) client: Client,
    /// Settings of the process.
    pub(crate) options: Options,
    /// What is known of the cluster.
    pub(crate) world: World,
    /// The controllers' queues.
    pub(crate) queues: Queues,
    /// Decisions, measurements, pods, leadership.
    pub(crate) ports: Ports,
    /// Probes of the path.
    pub(crate) prober: Prober,
    /// Kubernetes Events.
    pub(crate) recorder: Recorder,
    /// Wall-clock time.
    pub(crate) clock: Clock,
    /// `config-autoscaler`, live.
    pub(crate) autoscaler_config: watch::Receiver<Arc<AutoscalerConfig>>,
    /// `config-deployment`, live.
    pub(crate) deployment_config: watch::Receiver<Arc<DeploymentConfig>>,
    /// The last version of each PodAutoscaler that broke no rule.
    pub(crate) accepted: DashMap<Key, Accepted>,
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
}

impl Context {
    /// Whether we reconcile beside plain Deployments.
    pub(crate) fn is_standalone(&self) -> bool {
        self.options.mode == Mode::Standalone
    }

    /// What a PodAutoscaler asks for: itself, or its last version that broke no rule, with the rules that it breaks now.
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
            return Ok((Accepted { object: object.clone(), settings }, None)); // The webhook has looked at it.
        }
        let config = self.autoscaler_config.borrow().clone();
        let served = annotations::is_kpa(object.annotations());
        let class = |settings| if served { Ok(settings) } else { Err(unserved_class(object)) };
        match object.validate_standalone(&config).and_then(class) {
            Ok(settings) => {
                let accepted = Accepted { object: object.clone(), settings: Arc::new(settings) };
                self.accepted.insert(key.clone(), accepted.clone());
                Ok((accepted, None))
            }
            Err(errors) => {
                let former = self.accepted.get(key).filter(|f| f.object.metadata.uid == object.metadata.uid);
                match former {
                    Some(former) => Ok((former.clone(), Some(errors))),
                    None => Err(errors),
                }
            }
        }
    }

    /// Stops deciding and measuring for a revision, and forgets what was measured.
    pub(crate) fn forget(&self, key: &Key) {
        self.ports.deciders.remove(key);
        self.ports.collection.remove(key);
        self.prober.forget(key);
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
        self.retiring.remove(key);
    }

    /// Creates an object on behalf of a revision that is ours to write for.
    ///
    /// # Errors
    /// The lease may end too soon, or the API server's, after `doing`.
    pub(crate) async fn create<K: Written>(
        &self,
        revision: &Key,
        store: &Store<K>,
        object: &K,
        doing: &str,
    ) -> Result<K, Error> {
        tracing::debug!(object = %key_of(object), kind = %K::kind(&()), "create");
        self.write(revision, doing, async |api| api.create(store, object, doing).await).await
    }

    /// Replaces an object on behalf of a revision that is ours to write for.
    ///
    /// # Errors
    /// The lease may end too soon, or the API server's, after `doing`.
    pub(crate) async fn replace<K: Written>(
        &self,
        revision: &Key,
        store: &Store<K>,
        object: &K,
        doing: &str,
    ) -> Result<K, Error> {
        tracing::debug!(object = %key_of(object), kind = %K::kind(&()), "replace");
        self.write(revision, doing, async |api| api.replace(store, object, doing).await).await
    }

    /// Deletes an object on behalf of a revision that is ours to write for.
    ///
    /// # Errors
    /// The lease may end too soon, or the API server's, after `doing`.
    pub(crate) async fn delete<K: Written>(
        &self,
        revision: &Key,
        store: &Store<K>,
        key: &Key,
        doing: &str,
    ) -> Result<(), Error> {
        tracing::debug!(object = %key, kind = %K::kind(&()), "delete");
        self.write(revision, doing, async |api| api.delete(store, key, doing).await).await
    }

    /// Every write on behalf of a revision: begun only while our lease is certain to outlast it, and given up before the
    /// lease ends, here and by the API server.
    ///
    /// # Errors
    /// The lease may end too soon, no answer came in time, or whatever `write` says.
    pub(crate) async fn write<T>(
        &self,
        revision: &Key,
        doing: &str,
        write: impl AsyncFnOnce(Bounded) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.writer().write(revision, doing, write).await
    }

    /// Whoever writes what only needs to be led.
    pub(crate) fn writer(&self) -> Writer<'_> {
        Writer { client: &self.client, leadership: &*self.ports.leadership }
    }
}

fn unserved_class(object: &PodAutoscaler) -> FieldErrors {
    let (class, path) = (annotations::class(object.annotations()), annotations::CLASS.name);
    let mut errors = FieldErrors::new();
    errors.invalid_value(class, format!("metadata.annotations.{path}"), NOT_SERVED);
    errors
}
