//! Scale subresource of any kind, over REST.
//!
//! A write sends the scale that was read, with other replicas. Kind, version and `resourceVersion` are the server's, so
//! a write after another client's write is a conflict. Upstream converts the scale to the kind that discovery
//! announces, which is also the kind of the server's responses.
//!
//! Scales of old servers have their selector as a map of labels, with a text beside it for what a map cannot express;
//! both forms are parsed.

use super::ScaleSource;
use super::mapping::{Mapper, Mapping};
use super::rest::{PATIENCE, Rest};
use super::wording::Failure;
use futures::FutureExt;
use futures::future::BoxFuture;
use hpa_core::reconcile::{Scale, ScaleError, WriteResult};
use hpa_core::spec::ObjectReference;
use kube::Client;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Scale as it was read, and its path.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleObject {
    /// Scale in the form of the rules.
    pub scale: Scale,
    path: String,
    /// Name of the resource for error texts.
    resource: String,
    name: String,
    document: Value,
}

impl ScaleObject {
    /// Wraps a scale that does not come from the scale subresource.
    pub fn of(scale: Scale) -> Self {
        let (path, resource, name) = (String::new(), String::new(), String::new());
        Self { scale, path, resource, name, document: Value::Null }
    }

    fn read(path: String, resource: String, name: String, document: Value) -> Self {
        Self { scale: scale_of(&document), path, resource, name, document }
    }
}

/// Client of the scale subresource.
pub struct RestScales {
    rest: Rest,
    mapper: Arc<Mapper>,
}

impl RestScales {
    /// Returns a client for the kinds that `mapper` finds.
    pub fn new(client: Client, mapper: Arc<Mapper>) -> Self {
        Self { rest: Rest::new(client), mapper }
    }

    async fn get(&self, path: String, resource: String, name: String) -> Result<ScaleObject, Failure> {
        let document = self.rest.get(&path, &[], (&resource, &name)).await?;
        Ok(ScaleObject::read(path, resource, name, document))
    }

    /// Writes the replicas, and gives up after `within`. Also returns the Retry-After delay if the API server
    /// throttles.
    pub(crate) async fn write_within(
        &self,
        read: &ScaleObject,
        replicas: i32,
        within: Duration,
    ) -> (WriteResult, Option<Duration>) {
        let mut body = read.document.clone();
        body["spec"] = json!({"replicas": replicas});
        match self.rest.put::<Value>(&read.path, &body, within, (&read.resource, &read.name)).await {
            Ok(_) => (WriteResult::Written, None),
            Err(Failure { code: Some(409), message, .. }) => (WriteResult::Conflict(message), None),
            Err(failure) => (WriteResult::Failed(failure.message), failure.retry_after),
        }
    }

    async fn of_mapping(&self, mapping: &Mapping, namespace: &str, name: &str) -> Result<ScaleObject, Failure> {
        let path = format!("{}/scale", mapping.path(namespace, name));
        self.get(path, mapping.qualified(), name.to_owned()).await
    }
}

impl ScaleSource for RestScales {
    fn read<'a>(
        &'a self,
        namespace: &'a str,
        target: &'a ObjectReference,
    ) -> BoxFuture<'a, Result<ScaleObject, ScaleError>> {
        async move {
            let group = target.group().map_err(ScaleError::Kind)?;
            let mappings = self.mapper.mappings(group, &target.kind).await.map_err(ScaleError::Kind)?;
            let mut first_failure = None;
            for mapping in &mappings {
                match self.of_mapping(mapping, namespace, &target.name).await {
                    Ok(scale) => return Ok(scale),
                    Err(failure) => drop(first_failure.get_or_insert(failure.message)),
                }
            }
            // Upstream's text without a mapping; the mapper always returns at least one.
            Err(ScaleError::Read(first_failure.unwrap_or_else(|| "unrecognized resource".to_owned())))
        }
        .boxed()
    }

    fn again<'a>(&'a self, read: &'a ScaleObject) -> BoxFuture<'a, Result<ScaleObject, String>> {
        let ScaleObject { path, resource, name, .. } = read.clone();
        async move { self.get(path, resource, name).await.map_err(|failure| failure.message) }.boxed()
    }

    fn write<'a>(&'a self, read: &'a ScaleObject, replicas: i32) -> BoxFuture<'a, WriteResult> {
        self.write_within(read, replicas, PATIENCE).map(|(result, _)| result).boxed()
    }
}

/// Parses a scale. Absent numbers are 0, as in the API.
fn scale_of(document: &Value) -> Scale {
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
