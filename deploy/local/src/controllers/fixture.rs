//! Objects for the tests of controllers.

use crate::controllers::index::{Index, owned_by};
use common_controller::{Cache, Kind, ObjectKey};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a resource version; versions increase over all objects, as on a server.
pub(crate) fn next_version() -> String {
    static VERSION: AtomicU64 = AtomicU64::new(1);
    VERSION.fetch_add(1, Ordering::Relaxed).to_string()
}

/// Returns 1000 s after the epoch.
pub(crate) fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1000)
}

/// Applies a patch to an object, as a server would.
pub(crate) fn patched<K: Kind>(store: &mut Cache<Arc<K>>, key: &ObjectKey, patch: &Value) {
    let old = store.get(key).expect("patched objects exist");
    let mut value = serde_json::to_value(old.as_ref()).expect("serializable");
    json_patch::merge(&mut value, patch);
    let mut object: K = serde_json::from_value(value).expect("readable");
    object.meta_mut().resource_version = Some(next_version());
    store.apply_response(object);
}

/// Stores a created object, as a server would.
pub(crate) fn created<K: Kind>(store: &mut Cache<Arc<K>>, mut object: K) {
    let (version, meta) = (next_version(), object.meta_mut());
    let generated = format!("{}{version}", meta.generate_name.as_deref().unwrap_or_default());
    meta.uid = Some(meta.name.get_or_insert(generated).clone());
    (meta.generation, meta.resource_version) = (Some(1), Some(version));
    store.apply_response(object);
}

/// Returns a Deployment or ReplicaSet whose pods have these labels.
fn workload(name: &str, replicas: i32, labels: Value) -> Value {
    let containers = json!([{"name": "main", "command": ["x"]}]);
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    let (version, selector) = (next_version(), json!({"matchLabels": {"app": "a"}}));
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "generation": 1, "resourceVersion": version},
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    })
}

pub(crate) fn deployment(replicas: i32, label: &str) -> Deployment {
    let labels = json!({"app": "a", "version": label});
    serde_json::from_value(workload("a", replicas, labels)).expect("a valid Deployment")
}

/// Returns an index with one ReplicaSet `a-1`.
pub(crate) fn replica_set(replicas: i32) -> (Index, ObjectKey) {
    let mut index = Index::default();
    let set = serde_json::from_value(workload("a-1", replicas, json!({"app": "a"}))).expect("a valid ReplicaSet");
    index.replica_sets.apply_response(set);
    (index, ObjectKey::new("ns", "a-1"))
}

pub(crate) fn scale(index: &mut Index, key: &ObjectKey, replicas: i32) {
    let mut set = ReplicaSet::clone(index.replica_sets.get(key).expect("the set"));
    set.spec.as_mut().expect("a spec").replicas = Some(replicas);
    set.metadata.resource_version = Some(next_version());
    index.replica_sets.apply_response(set);
}

pub(crate) fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "labels": {"app": "a"}, "resourceVersion": next_version(),
        },
        "spec": {"containers": [{"name": "main", "ports": [{"name": "web", "containerPort": 8080}]}]},
    }))
    .expect("a valid Pod")
}

pub(crate) fn owned(mut pod: Pod, index: &Index, set: &ObjectKey) -> Pod {
    let set = index.replica_sets.get(set).expect("the set");
    pod.owner_references_mut().push(owned_by(set.as_ref()));
    pod
}

pub(crate) fn on_node(mut pod: Pod) -> Pod {
    pod.spec.as_mut().expect("a spec").node_name = Some("node".into());
    pod
}

pub(crate) fn running(mut pod: Pod) -> Pod {
    pod.status.get_or_insert_default().phase = Some("Running".into());
    pod
}

/// Makes a pod ready since this many seconds after the epoch.
pub(crate) fn ready(pod: Pod, since: i64) -> Pod {
    let mut pod = running(pod);
    pod.status.get_or_insert_default().conditions = Some(vec![PodCondition {
        type_: "Ready".into(),
        status: "True".into(),
        last_transition_time: Some(Time(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(since))),
        ..PodCondition::default()
    }]);
    pod
}

pub(crate) fn with_ip(mut pod: Pod, ip: &str) -> Pod {
    pod.status.get_or_insert_default().pod_ip = Some(ip.into());
    pod
}
