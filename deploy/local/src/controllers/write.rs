//! Writes of the controllers and their execution.
//!
//! Changes to existing objects are JSON merge patches with only the differences, so two writers of different fields
//! (the autoscaler sets `spec.replicas`, these controllers the status) never conflict. A removed field is a null in the
//! patch.

use crate::merge::merge_patch;
use common_controller::{Alone, BoundedApi, Kind, ObjectKey, WriteError, Writer, code, key_of};
use kube::Client;
use serde::Serialize;
use serde_json::{Map, Value};

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request<K> {
    /// Creates the object; the server may complete its name.
    Create(Box<K>),
    /// Merges fields into the object.
    Patch {
        /// Key of the object.
        key: ObjectKey,
        /// True to patch the status subresource.
        status: bool,
        /// Fields that differ.
        patch: Value,
    },
    /// Deletes the object if it still has this uid, with dependents in the background.
    Delete {
        /// Key of the object.
        key: ObjectKey,
        /// Uid of the object.
        uid: String,
    },
}

/// Response of the server.
#[derive(Debug)]
pub(crate) enum Answer<K> {
    /// The object after the write.
    Written(Box<K>),
    /// The object is gone.
    Gone {
        /// Key of the object.
        key: ObjectKey,
        /// Uid of the object.
        uid: String,
    },
}

impl<K: Kind> Request<K> {
    /// Returns the patch from `old` to `new`, without the status. `None` if they are equal.
    pub(crate) fn update(old: &K, new: &K) -> Option<Self> {
        let (old_value, new_value) = (without_status(old), without_status(new));
        let patch = merge_patch(&old_value, &new_value)?;
        Some(Request::Patch { key: key_of(old), status: false, patch })
    }

    /// Returns the patch of the status from `old` to `new`. `None` if they are equal.
    pub(crate) fn update_status<S: Serialize>(object: &K, old: Option<&S>, new: &S) -> Option<Self> {
        let old = old.and_then(|s| serde_json::to_value(s).ok()).unwrap_or(Value::Object(Map::new()));
        let patch = merge_patch(&old, &serde_json::to_value(new).ok()?)?;
        let patch = Value::Object(Map::from_iter([("status".to_owned(), patch)]));
        Some(Request::Patch { key: key_of(object), status: true, patch })
    }

    /// Returns the deletion of `object`.
    pub(crate) fn delete(object: &K) -> Self {
        Request::Delete { key: key_of(object), uid: object.meta().uid.clone().unwrap_or_default() }
    }

    /// Sends the request.
    ///
    /// # Errors
    /// Fails with the server's error, or if there is no response. Deleting a missing object succeeds.
    ///
    /// Not cancel safe: a sent request may have been carried out.
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
                    Err(error) if code(&error) == Some(409) => Ok(None), // A new object has the same name.
                    outcome => outcome.map_err(WriteError::api(&*doing)),
                };
                // The object no longer counts, even if the deletion has only begun: it has a deletionTimestamp.
                Ok(match writer.write(&key, &doing, delete).await? {
                    Some(object) => Answer::Written(Box::new(object)),
                    None => Answer::Gone { key, uid },
                })
            }
        }
    }
}

/// Returns `object` as JSON without its status.
fn without_status<K: Serialize>(object: &K) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or(Value::Null);
    if let Value::Object(fields) = &mut value {
        fields.remove("status");
    }
    value
}
