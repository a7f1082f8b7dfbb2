//! Scale subresource of any kind, over REST.
//!
//! A write sends the scale that was read, with other replicas. Kind, version and `resourceVersion` are the server's, so
//! a write after another client's write is a conflict. Upstream converts the scale to the kind that discovery
//! announces, which is also the kind of the server's responses.
//!
//! In scales of old servers, the selector is a map of labels. A second field contains, as a text, a selector that a map
//! cannot express. Both forms are parsed.

use super::mapping::Mapper;
use super::rest::Rest;
use super::wording::Failure;
use hpa_core::reconcile::{Scale, ScaleError, WriteResult};
use hpa_core::spec::group;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use kube::Client;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Scale that was read, and its path.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleObject {
    /// Scale in the form of the rules.
    pub scale: Scale,
    path: String,
    /// Resource and name for error texts.
    resource: String,
    document: Value,
}

/// Client of the scale subresource.
pub struct RestScales {
    rest: Rest,
    mapper: Arc<Mapper>,
}

impl RestScales {
    /// Returns a client for the kinds that `mapper` finds.
    pub fn new(client: Client, mapper: Arc<Mapper>) -> Self {
        Self { rest: Rest(client), mapper }
    }

    /// Reads the scale of a target in `namespace`. Only the group of its API version matters. Fails with upstream's
    /// text if the kind is unknown or its scale cannot be read.
    pub async fn read(&self, namespace: &str, target: &CrossVersionObjectReference) -> Result<ScaleObject, ScaleError> {
        let group = group(target).map_err(ScaleError::Kind)?;
        let mappings = self.mapper.mappings(group, &target.kind).await.map_err(ScaleError::Kind)?;
        let mut first_failure = None;
        for mapping in &mappings {
            let path = format!("{}/scale", mapping.path(namespace, &target.name));
            match self.get(path, format!("{} {}", mapping.qualified(), target.name)).await {
                Ok(scale) => return Ok(scale),
                Err(failure) => drop(first_failure.get_or_insert(failure.message)),
            }
        }
        // Upstream's text without a mapping; the mapper always returns at least one.
        Err(ScaleError::Read(first_failure.unwrap_or_else(|| "unrecognized resource".to_owned())))
    }

    /// Reads the same scale again after a conflict. Fails with upstream's text if it cannot be read.
    pub async fn read_again(&self, read: &ScaleObject) -> Result<ScaleObject, String> {
        Ok(self.get(read.path.clone(), read.resource.clone()).await?)
    }

    /// Writes the replicas, unless the scale has changed since it was read. Gives up after `within`.
    pub async fn write(&self, read: &ScaleObject, replicas: i32, within: Duration) -> WriteResult {
        let mut body = read.document.clone();
        body["spec"] = json!({"replicas": replicas});
        match self.rest.put(&read.path, &body, within, &read.resource).await {
            Ok(()) => WriteResult::Written,
            Err(Failure { code: Some(409), message }) => WriteResult::Conflict(message),
            Err(failure) => WriteResult::Failed(failure.message),
        }
    }

    async fn get(&self, path: String, resource: String) -> Result<ScaleObject, Failure> {
        let document = self.rest.get(&path, &[], &resource).await?;
        Ok(ScaleObject { scale: parse_scale(&document), path, resource, document })
    }
}

/// Parses a scale. Absent numbers are 0, as in the API.
fn parse_scale(document: &Value) -> Scale {
    let number = |value: &Value| value.as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
    let status = &document["status"];
    let selector = match (&status["selector"], &status["targetSelector"]) {
        (_, Value::String(text)) if !text.is_empty() => text.clone(),
        (Value::String(text), _) => text.clone(),
        (Value::Object(labels), _) => {
            let pair = |(key, value): (&String, &Value)| format!("{key}={}", value.as_str().unwrap_or_default());
            labels.iter().map(pair).collect::<Vec<_>>().join(",")
        }
        _ => String::new(),
    };
    Scale {
        spec_replicas: number(&document["spec"]["replicas"]),
        status_replicas: number(&status["replicas"]),
        selector,
    }
}
