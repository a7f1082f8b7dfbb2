//! Which dependents a controller owns: those that name it, those it adopts, those it lets go.
//!
//! An object that its owner's selector no longer matches is released (somebody relabelled it to look at it in peace);
//! one without a controller that matches is adopted. Both are writes, and take effect when they are answered. An owner
//! or dependent that is going away is neither adopted nor adopting.

use super::index::{controller_of, owned_by, selects};
use super::write::Request;
use common_controller::Kind;
use common_controller::key_of;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use serde_json::json;
use std::sync::Arc;

/// The dependents of one owner.
#[derive(Debug)]
pub(crate) struct Claim<K> {
    /// Those that count.
    pub(crate) owned: Vec<Arc<K>>,
    /// What is to be written for the others.
    pub(crate) writes: Vec<Request<K>>,
}

/// Sorts `candidates` for `owner`.
pub(crate) fn claim<'a, O: Kind, K: Kind>(
    owner: &O,
    selector: &LabelSelector,
    candidates: impl Iterator<Item = &'a Arc<K>>,
) -> Claim<K> {
    let uid = owner.meta().uid.as_deref().unwrap_or_default();
    let going = owner.meta().deletion_timestamp.is_some();
    let mut claim = Claim { owned: Vec::new(), writes: Vec::new() };
    for object in candidates {
        let is_matched = || selects(selector, object.labels());
        match controller_of(object.as_ref()) {
            Some(reference) if reference.uid != uid => {}
            Some(_) if is_matched() => claim.owned.push(object.clone()),
            Some(_) if going => {}
            Some(_) => claim.writes.push(release(object.as_ref(), uid)),
            None if !going && object.meta().deletion_timestamp.is_none() && is_matched() => {
                claim.writes.push(adopt(object.as_ref(), owner));
            }
            None => {}
        }
    }
    claim
}

/// Takes the reference to the owner with that uid away. The uid in the patch refuses a successor of the same name.
fn release<K: Kind>(object: &K, owner_uid: &str) -> Request<K> {
    let kept: Vec<_> = object.owner_references().iter().filter(|o| o.uid != owner_uid).collect();
    references(object, json!(kept))
}

/// Adds a reference to `owner`.
fn adopt<K: Kind, O: Kind>(object: &K, owner: &O) -> Request<K> {
    let mut references_now = object.owner_references().to_vec();
    references_now.push(owned_by(owner));
    references(object, json!(references_now))
}

fn references<K: Kind>(object: &K, references: serde_json::Value) -> Request<K> {
    let patch = json!({"metadata": {
        "uid": object.meta().uid,
        "resourceVersion": object.meta().resource_version,
        "ownerReferences": references,
    }});
    Request::Patch { key: key_of(object), status: false, patch }
}
