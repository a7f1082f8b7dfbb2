//! What a controller wants changed, and how it is carried out.
//!
//! Changes to existing objects are JSON merge patches that hold only what differs, so two writers of different fields
//! (the autoscaler sets `spec.replicas`, we set the status) never conflict. A field that goes is a null in the patch.

use super::store::ObjectKey;
use crate::merge::merge_patch;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt::Debug;

/// A kind of object that controllers handle.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// One change to one object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request<K> {
    /// Create it; the server may complete its name.
    Create(Box<K>),
    /// Merge these fields.
    Patch {
        /// Which object.
        key: ObjectKey,
        /// Through the status subresource.
        status: bool,
        /// The differing fields.
        patch: Value,
    },
    /// Delete it if it is still the one with that uid, dependents in the background.
    Delete {
        /// Which object.
        key: ObjectKey,
        /// Its uid.
        uid: String,
    },
}

/// How the server answered.
#[derive(Debug)]
pub(crate) enum Answer<K> {
    /// The object as it is now.
    Written(Box<K>),
    /// It is gone.
    Gone {
        /// Which object.
        key: ObjectKey,
        /// Its uid.
        uid: String,
    },
}

impl<K: Kind> Request<K> {
    /// The patch that makes `old` into `new`, apart from its status; absent if they are equal.
    pub(crate) fn update(old: &K, new: &K) -> Option<Self> {
        let (old_value, new_value) = (without_status(old), without_status(new));
        let patch = merge_patch(&old_value, &new_value)?;
        Some(Request::Patch { key: ObjectKey::of(old), status: false, patch })
    }

    /// The patch that makes the status of `old` into `new`; absent if they are equal.
    pub(crate) fn update_status<S: Serialize>(object: &K, old: Option<&S>, new: &S) -> Option<Self> {
        let old = old.and_then(|s| serde_json::to_value(s).ok()).unwrap_or(Value::Object(Map::new()));
        let patch = merge_patch(&old, &serde_json::to_value(new).ok()?)?;
        let patch = Value::Object(Map::from_iter([("status".to_owned(), patch)]));
        Some(Request::Patch { key: ObjectKey::of(object), status: true, patch })
    }

    /// Deletes `object`.
    pub(crate) fn delete(object: &K) -> Self {
        Request::Delete { key: ObjectKey::of(object), uid: object.meta().uid.clone().unwrap_or_default() }
    }

    /// Carries it out.
    ///
    /// # Errors
    /// What the server answered, or that it did not. A deletion of what is already gone succeeds.
    ///
    /// Not cancel safe: a request that was sent may have been carried out.
    pub(crate) async fn execute(self, client: &Client) -> kube::Result<Answer<K>> {
        match self {
            Request::Create(object) => {
                let namespace = object.meta().namespace.clone().unwrap_or_default();
                let api = Api::<K>::namespaced(client.clone(), &namespace);
                Ok(Answer::Written(Box::new(api.create(&PostParams::default(), &object).await?)))
            }
            Request::Patch { key, status, patch } => {
                let api: Api<K> = Api::namespaced(client.clone(), &key.namespace);
                let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
                let patched = if status {
                    api.patch_status(&key.name, &params, &patch).await
                } else {
                    api.patch(&key.name, &params, &patch).await
                };
                Ok(Answer::Written(Box::new(patched?)))
            }
            Request::Delete { key, uid } => {
                let api: Api<K> = Api::namespaced(client.clone(), &key.namespace);
                let params = DeleteParams {
                    preconditions: Some(Preconditions { uid: Some(uid.clone()), resource_version: None }),
                    ..DeleteParams::background()
                };
                match api.delete(&key.name, &params).await.map(|answer| answer.left()) {
                    // Whether this was the end or its beginning, the object no longer counts: it has a
                    // deletionTimestamp.
                    Ok(Some(object)) if object.meta().deletion_timestamp.is_some() => {
                        Ok(Answer::Written(Box::new(object)))
                    }
                    Ok(_) => Ok(Answer::Gone { key, uid }),
                    Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {
                        Ok(Answer::Gone { key, uid })
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }
}

/// `object` as JSON without its status.
fn without_status<K: Serialize>(object: &K) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or(Value::Null);
    if let Value::Object(fields) = &mut value {
        fields.remove("status");
    }
    value
}
