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

    pub(crate) fn delete(object: &K) -> Self {
        Request::Delete { key: key_of(object), uid: object.meta().uid.clone().unwrap_or_default() }
    }

    /// Sends the request. Returns the object after the write, or `None` if it is gone. If its deletion has only begun,
    /// the object has a deletionTimestamp.
    ///
    /// # Errors
    /// Fails with the server's error, or if there is no response. Deleting a missing object succeeds.
    ///
    /// Not cancel safe: a sent request may have been carried out.
    pub(crate) async fn execute(&self, client: &Client) -> Result<Option<K>, WriteError> {
        let (verb, key) = match self {
            Request::Create(object) => ("creating", key_of(&**object)),
            Request::Patch { key, .. } => ("patching", key.clone()),
            Request::Delete { key, .. } => ("deleting", key.clone()),
        };
        let operation = format!("{verb} {}", K::kind(&()));
        let send = async |api: BoundedApi| {
            let sent = match self {
                Request::Create(object) => api.create(&**object).await.map(Some),
                Request::Patch { status: true, patch, .. } => api.merge_status(&key, patch).await.map(Some),
                Request::Patch { patch, .. } => api.merge(&key, patch).await.map(Some),
                Request::Delete { uid, .. } => match api.delete(&key, Some(uid)).await {
                    Err(error) if code(&error) == Some(409) => Ok(None), // A new object has the same name.
                    outcome => outcome,
                },
            };
            sent.map_err(WriteError::api(&*operation))
        };
        Writer { client, leadership: &Alone, pacing: None }.write(&key, &operation, send).await
    }
}

fn without_status<K: Serialize>(object: &K) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or(Value::Null);
    if let Value::Object(fields) = &mut value {
        fields.remove("status");
    }
    value
}
