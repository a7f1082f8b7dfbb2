//! Objects that a controller makes for another object: who controls them, and how they are put right.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::object::HasSpec;
use kube::{Resource, ResourceExt};
use std::collections::BTreeMap;

/// What settings of autoscaling begin with.
const AUTOSCALING: &str = "autoscaling.knative.dev/";

/// Who controls an object.
pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// A reference to `owner` as the controller, for an object made for it.
pub fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    let reference = owner.controller_owner_ref(&());
    OwnerReference { controller: Some(true), block_owner_deletion: Some(true), ..reference.unwrap_or_default() }
}

/// `have` as it should be by `want`, if it is not: its spec, and the labels and annotations that `want` has. Settings
/// of autoscaling that `want` has no more go; what others have put there stays. Upstream looks at the spec alone, so
/// there an edited annotation (the averaging algorithm, the class) never arrives.
pub fn corrected<K>(have: &K, want: &K) -> Option<K>
where
    K: Resource + HasSpec + Clone,
    K::Spec: PartialEq + Clone,
{
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
