//! State of all controllers, and the keys that a change affects.
//!
//! ```text
//! Deployment ──owns── ReplicaSet ──owns── Pod ──matched by── Service ──names── EndpointSlices
//! ```
//!
//! A change marks the keys of objects that depend on the changed object, by its labels before and after. Marking too
//! many keys costs one comparison each. Marking too few would lose a change, since there is no periodic resync.

use super::write::Request;
use common::labels;
use common_controller::objects::controller;
pub(crate) use common_controller::objects::controller_reference as owned_by;
use common_controller::{Cache, Kind, ObjectKey, cache, key_of};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, PodCondition, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// Label of an EndpointSlice with the name of its Service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Key of an object to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// A Deployment's ReplicaSets and status.
    Deployment(ObjectKey),
    /// A ReplicaSet's pods and status.
    ReplicaSet(ObjectKey),
    /// A Service's EndpointSlices.
    Service(ObjectKey),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Deployment(key) => write!(f, "Deployment {key}"),
            Key::ReplicaSet(key) => write!(f, "ReplicaSet {key}"),
            Key::Service(key) => write!(f, "Service {key}"),
        }
    }
}

/// Change of one object.
pub(crate) type Change<K> = cache::Change<Arc<K>>;

/// Write of an object of any kind.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant is its kind")]
pub(crate) enum Write {
    Deployment(Request<Deployment>),
    ReplicaSet(Request<ReplicaSet>),
    Pod(Request<Pod>),
    Slice(Request<EndpointSlice>),
}

/// State of all controllers.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) deployments: Cache<Arc<Deployment>>,
    pub(crate) replica_sets: Cache<Arc<ReplicaSet>>,
    pub(crate) pods: Cache<Arc<Pod>>,
    pub(crate) services: Cache<Arc<Service>>,
    pub(crate) slices: Cache<Arc<EndpointSlice>>,
    /// Error of the last creation of a pod, by ReplicaSet.
    pub(crate) create_failures: HashMap<ObjectKey, String>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            deployments: Cache::with_responses(),
            replica_sets: Cache::with_responses(),
            pods: Cache::with_responses(),
            services: Cache::with_responses(),
            slices: Cache::with_responses(),
            create_failures: HashMap::new(),
        }
    }
}

impl Index {
    /// Reports whether every kind has been listed once. Nothing may be planned before that, since unlisted objects
    /// would seem missing.
    pub(crate) fn is_synced(&self) -> bool {
        self.deployments.is_synced()
            && self.replica_sets.is_synced()
            && self.pods.is_synced()
            && self.services.is_synced()
            && self.slices.is_synced()
    }

    /// Updates the objects of one kind. Returns the keys that the changes affect.
    pub(crate) fn apply<K: Indexed, C>(&mut self, update: impl FnOnce(&mut Cache<Arc<K>>) -> C) -> Vec<Key>
    where
        C: IntoIterator<Item = Change<K>>,
    {
        let changes = update(K::cache(self));
        changes.into_iter().flat_map(|change| K::affected(self, change)).collect()
    }
}

/// A kind of object in the [`Index`].
pub(crate) trait Indexed: Kind {
    fn cache(index: &mut Index) -> &mut Cache<Arc<Self>>;

    /// Returns the keys that a change affects.
    fn affected(index: &mut Index, change: Change<Self>) -> Vec<Key>;
}

impl Indexed for Deployment {
    fn cache(index: &mut Index) -> &mut Cache<Arc<Self>> {
        &mut index.deployments
    }

    fn affected(_: &mut Index, change: Change<Self>) -> Vec<Key> {
        vec![Key::Deployment(change.key)]
    }
}

impl Indexed for ReplicaSet {
    fn cache(index: &mut Index) -> &mut Cache<Arc<Self>> {
        &mut index.replica_sets
    }

    /// Returns the ReplicaSet and its Deployment.
    fn affected(index: &mut Index, change: Change<Self>) -> Vec<Key> {
        if change.new.is_none() {
            index.create_failures.remove(&change.key);
        }
        let owners = old_and_new(&change).filter_map(owner_key).map(Key::Deployment);
        owners.chain([Key::ReplicaSet(change.key.clone())]).collect()
    }
}

impl Indexed for Pod {
    fn cache(index: &mut Index) -> &mut Cache<Arc<Self>> {
        &mut index.pods
    }

    /// Returns the pod's ReplicaSet, and the Services that select it or did before. If the pod has ended, also its
    /// Deployment, which may wait for that.
    fn affected(index: &mut Index, change: Change<Self>) -> Vec<Key> {
        let mut keys = Vec::new();
        for pod in old_and_new(&change) {
            if let Some(owner) = owner_key(pod) {
                if change.new.as_ref().is_none_or(|pod| is_finished(pod)) {
                    let set = index.replica_sets.get(&owner);
                    keys.extend(set.and_then(|set| owner_key(set.as_ref())).map(Key::Deployment));
                }
                keys.push(Key::ReplicaSet(owner));
            }
            let selects = |service: &&Arc<Service>| {
                selector_of(service).is_some_and(|selector| labels::have_all(pod.labels(), selector))
            };
            let services = index.services.within(change.key.namespace()).filter(selects);
            keys.extend(services.map(|service| Key::Service(key_of(service.as_ref()))));
        }
        keys
    }
}

impl Indexed for Service {
    fn cache(index: &mut Index) -> &mut Cache<Arc<Self>> {
        &mut index.services
    }

    fn affected(_: &mut Index, change: Change<Self>) -> Vec<Key> {
        vec![Key::Service(change.key)]
    }
}

impl Indexed for EndpointSlice {
    fn cache(index: &mut Index) -> &mut Cache<Arc<Self>> {
        &mut index.slices
    }

    /// Returns the slice's Service, in case another client changed the slice.
    fn affected(_: &mut Index, change: Change<Self>) -> Vec<Key> {
        let services = old_and_new(&change).filter_map(|slice| slice.labels().get(SERVICE_NAME));
        services.map(|name| Key::Service(ObjectKey::new(change.key.namespace(), name.clone()))).collect()
    }
}

fn old_and_new<K>(change: &Change<K>) -> impl Iterator<Item = &K> {
    change.old.iter().chain(&change.new).map(Arc::as_ref)
}

fn owner_key<K: Kind>(object: &K) -> Option<ObjectKey> {
    Some(ObjectKey::new(object.namespace().unwrap_or_default(), controller(object.meta())?.name.clone()))
}

pub(crate) fn controlled_by<'a, K: Kind>(
    objects: &'a Cache<Arc<K>>,
    owner: &'a impl Kind,
) -> impl Iterator<Item = &'a Arc<K>> {
    let (namespace, uid) = (owner.meta().namespace.as_deref(), owner.meta().uid.as_deref());
    let is_owned = move |object: &&'a Arc<K>| controller(object.meta()).map(|owner| owner.uid.as_str()) == uid;
    objects.within(namespace.unwrap_or_default()).filter(is_owned)
}

/// Returns the selector of a Service. `None` if it has none or has type ExternalName.
pub(crate) fn selector_of(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    spec.selector.as_ref().filter(|selector| !selector.is_empty())
}

pub(crate) fn is_finished(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// Returns a pod's condition of this type, if it is True.
pub(crate) fn true_condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|c| c.type_ == type_ && c.status == "True")
}
