//! What a controller wants changed, and how it is carried out.
//!
//! Changes to existing objects are JSON merge patches that hold only what differs, so two writers of different fields
//! (the autoscaler sets `spec.replicas`, we set the status) never conflict. A field that goes is a null in the patch.

use crate::merge::merge_patch;
use common_controller::{Alone, BoundedApi, Kind, ObjectKey, WriteError, Writer, code, key_of};
use kube::Client;
use serde::Serialize;
use serde_json::{Map, Value};

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
        Some(Request::Patch { key: key_of(old), status: false, patch })
    }

    /// The patch that makes the status of `old` into `new`; absent if they are equal.
    pub(crate) fn update_status<S: Serialize>(object: &K, old: Option<&S>, new: &S) -> Option<Self> {
        let old = old.and_then(|s| serde_json::to_value(s).ok()).unwrap_or(Value::Object(Map::new()));
        let patch = merge_patch(&old, &serde_json::to_value(new).ok()?)?;
        let patch = Value::Object(Map::from_iter([("status".to_owned(), patch)]));
        Some(Request::Patch { key: key_of(object), status: true, patch })
    }

    /// Deletes `object`.
    pub(crate) fn delete(object: &K) -> Self {
        Request::Delete { key: key_of(object), uid: object.meta().uid.clone().unwrap_or_default() }
    }

    /// Carries it out.
    ///
    /// # Errors
    /// What the server answered, or that it did not. A deletion of what is already gone succeeds.
    ///
    /// Not cancel safe: a request that was sent may have been carried out.
    pub(crate) async fn execute(self, client: &Client) -> Result<Answer<K>, WriteError> {
        let writer = Writer { client, leadership: &Alone, pacing: None };
        match self {
            Request::Create(object) => {
                let doing = format!("creating {}", K::kind(&()));
                let create = async |api: BoundedApi| api.create(&*object).await.map_err(WriteError::api(&*doing));
                Ok(Answer::Written(Box::new(writer.write(&key_of(&*object), &doing, create).await?)))
            }
            Request::Patch { key, status, patch } => {
                let doing = format!("patching {}", K::kind(&()));
                let merge = async |api: BoundedApi| {
                    let merged =
                        if status { api.merge_status(&key, &patch).await } else { api.merge(&key, &patch).await };
                    merged.map_err(WriteError::api(&*doing))
                };
                Ok(Answer::Written(Box::new(writer.write(&key, &doing, merge).await?)))
            }
            Request::Delete { key, uid } => {
                let doing = format!("deleting {}", K::kind(&()));
                let delete = async |api: BoundedApi| match api.delete(&key, Some(&uid)).await {
                    Err(error) if code(&error) == Some(409) => Ok(None), // A successor of the same name is there.
                    outcome => outcome.map_err(WriteError::api(&*doing)),
                };
                // Whether this was the end or its beginning, the object no longer counts: it has a deletionTimestamp.
                Ok(match writer.write(&key, &doing, delete).await? {
                    Some(object) => Answer::Written(Box::new(object)),
                    None => Answer::Gone { key, uid },
                })
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
