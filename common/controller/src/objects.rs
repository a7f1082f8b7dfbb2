//! Objects that a controller creates for another object: their controller reference, and their correction.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::object::HasSpec;
use kube::{Resource, ResourceExt};
use std::collections::BTreeMap;

/// Prefix of autoscaling settings.
const AUTOSCALING: &str = "autoscaling.knative.dev/";

/// Returns the controller of an object.
pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Returns a reference to `owner` as the controller, for an object created for it.
pub fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    let reference = owner.controller_owner_ref(&());
    OwnerReference { controller: Some(true), block_owner_deletion: Some(true), ..reference.unwrap_or_default() }
}

/// Returns `have` corrected to `want`, or `None` if it is already right. Compares the spec, and the labels and
/// annotations of `want`. Autoscaling settings that `want` lacks are removed; other labels and annotations stay.
/// Upstream compares only the spec, so there a changed annotation (the averaging algorithm, the class) never takes
/// effect.
pub fn corrected<K: Resource + HasSpec<Spec: PartialEq + Clone> + Clone>(have: &K, want: &K) -> Option<K> {
    let empty = BTreeMap::new();
    let wanted = (want.meta().labels.as_ref(), want.meta().annotations.as_ref());
    let (labels, annotations) = (wanted.0.unwrap_or(&empty), wanted.1.unwrap_or(&empty));
    let has = |have: &Option<BTreeMap<String, String>>, (name, value): (&String, &String)| {
        have.as_ref().and_then(|have| have.get(name)) == Some(value)
    };
    let stale = |name: &String| name.starts_with(AUTOSCALING) && !annotations.contains_key(name);
    let meta = have.meta();
    let is_right = labels.iter().all(|label| has(&meta.labels, label))
        && annotations.iter().all(|annotation| has(&meta.annotations, annotation))
        && !meta.annotations.iter().flatten().any(|(name, _)| stale(name));
    if is_right && have.spec() == want.spec() {
        return None;
    }
    let mut next = have.clone();
    next.spec_mut().clone_from(want.spec());
    next.labels_mut().extend(labels.clone());
    next.annotations_mut().retain(|name, _| !stale(name));
    next.annotations_mut().extend(annotations.clone());
    Some(next)
}
