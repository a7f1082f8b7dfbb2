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
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Resource, ResourceExt};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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

/// Plan for one key: independent writes, and an optional recheck.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Independent writes.
    pub(crate) writes: Vec<Write>,
    /// Delay after which the key is planned again in any case.
    pub(crate) again_after: Option<Duration>,
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
            deployments: Cache::with_answers(),
            replica_sets: Cache::with_answers(),
            pods: Cache::with_answers(),
            services: Cache::with_answers(),
            slices: Cache::with_answers(),
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

    /// Returns the keys that a changed ReplicaSet affects: itself and its Deployment.
    pub(crate) fn replica_set_changed(&self, change: &Change<ReplicaSet>) -> Vec<Key> {
        let owner = |set: &Arc<ReplicaSet>| Some(Key::Deployment(owner_key(set.as_ref())?));
        both(change).filter_map(owner).chain([Key::ReplicaSet(change.key.clone())]).collect()
    }

    /// Returns the keys that a changed pod affects: its ReplicaSet, and the Services that select it or did before. If
    /// the pod has ended, also its Deployment, which may wait for that.
    pub(crate) fn pod_changed(&self, change: &Change<Pod>) -> Vec<Key> {
        let mut keys = Vec::new();
        for pod in both(change) {
            let namespace = namespace(pod.as_ref());
            if let Some(owner) = owner_key(pod.as_ref()) {
                if change.new.as_ref().is_none_or(|pod| is_finished(pod)) {
                    let set = self.replica_sets.get(&owner);
                    keys.extend(set.and_then(|set| owner_key(set.as_ref())).map(Key::Deployment));
                }
                keys.push(Key::ReplicaSet(owner));
            }
            keys.extend(
                self.services
                    .within(&namespace)
                    .filter(|service| selector_of(service).is_some_and(|s| labels::have_all(pod.labels(), s)))
                    .map(|service| Key::Service(key_of(service.as_ref()))),
            );
        }
        keys
    }

    /// Returns the keys that a changed EndpointSlice affects: its Service, in case another client changed the slice.
    pub(crate) fn slice_changed(&self, change: &Change<EndpointSlice>) -> Vec<Key> {
        both(change)
            .filter_map(|slice| {
                Some(ObjectKey::new(namespace(slice.as_ref()), slice.labels().get(SERVICE_NAME)?.clone()))
            })
            .map(Key::Service)
            .collect()
    }

    /// Returns the slices of a Service that `manager` maintains.
    pub(crate) fn slices_of<'a>(
        &'a self,
        service: &'a ObjectKey,
        manager: &'a str,
    ) -> impl Iterator<Item = &'a Arc<EndpointSlice>> {
        self.slices.within(service.namespace()).filter(move |slice| {
            slice.labels().get(SERVICE_NAME).map(String::as_str) == Some(service.name())
                && slice.labels().get("endpointslice.kubernetes.io/managed-by").map(String::as_str) == Some(manager)
                && slice.metadata.deletion_timestamp.is_none()
        })
    }
}

/// Returns the old and the new object.
fn both<K>(change: &Change<K>) -> impl Iterator<Item = &Arc<K>> {
    change.old.iter().chain(change.new.iter())
}

fn namespace<K: Resource>(object: &K) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}

/// Returns the key of the object's controller.
fn owner_key<K: Kind>(object: &K) -> Option<ObjectKey> {
    Some(ObjectKey::new(namespace(object), controller(object.meta())?.name.clone()))
}

/// Returns the objects that `owner` controls.
pub(crate) fn controlled_by<'a, K: Kind>(
    objects: &'a Cache<Arc<K>>,
    owner: &'a impl Kind,
) -> impl Iterator<Item = &'a Arc<K>> {
    let (namespace, uid) = (owner.meta().namespace.as_deref(), owner.meta().uid.as_deref());
    let is_owned = move |object: &&'a Arc<K>| controller(object.meta()).map(|owner| owner.uid.as_str()) == uid;
    objects.within(namespace.unwrap_or_default()).filter(is_owned)
}

/// Reports whether a label selector matches. An empty or invalid selector matches nothing here: the API server rejects
/// both for Deployments and ReplicaSets.
pub(crate) fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let selector = serde_json::to_value(selector).and_then(serde_json::from_value::<labels::LabelSelector>);
    let selector = selector.ok().filter(|selector| !selector.is_empty());
    selector.is_some_and(|selector| selector.selector().is_ok_and(|selector| selector.matches(labels)))
}

/// Returns the selector of a Service. `None` if it has none or has type ExternalName.
pub(crate) fn selector_of(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    spec.selector.as_ref().filter(|selector| !selector.is_empty())
}

/// Reports whether a pod has ended.
pub(crate) fn is_finished(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// Returns a pod's condition of this type, if it is True.
pub(crate) fn true_condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a k8s_openapi::api::core::v1::PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|c| c.type_ == type_ && c.status == "True")
}
