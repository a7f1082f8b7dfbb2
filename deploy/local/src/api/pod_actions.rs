//! What pods have beside reading and writing: binding to a node, and logs.

use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};

use futures::StreamExt as _;

use super::core::Api;
use super::fields::{self, text};
use super::media::{Body, respond};
use super::meta;
use super::pod_log::PodLogQuery;
use super::query::{Query, WriteOptions};
use super::status::{ApiError, Result};
use super::target::Target;
use super::write::Part;

impl Api {
    /// Puts a pod on a node, once.
    pub(crate) fn bind(&self, target: Target<'_>, binding: &Value, options: &WriteOptions) -> Result<()> {
        let node = text(binding, "/target/name");
        if node.is_empty() {
            return Err(ApiError::bad_request("Binding: target.name must name a node"));
        }
        self.update(target, Part::Internal, options, false, |current| {
            let current = current.ok_or_else(|| target.not_found())?;
            let taken = current.text("/spec/nodeName");
            if !taken.is_empty() {
                let why = format!("pod {} is already assigned to node \"{taken}\"", target.name);
                return Err(target.conflict(&why));
            }
            let mut pod = target.resource.full(&current.value);
            pod["spec"]["nodeName"] = node.into();
            let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": meta::now()});
            let status = fields::child(fields::object(&mut pod), "status");
            let mut conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
            conditions.retain(|condition| condition["type"] != "PodScheduled");
            conditions.push(scheduled);
            status.insert("conditions".into(), conditions.into());
            Ok(pod)
        })?;
        Ok(())
    }

    /// The log of a pod, from whoever runs it.
    pub(crate) async fn log(&self, target: Target<'_>, query: &Query) -> Result<Response<Body>> {
        self.store.get(&target.resource.table, &target.key()).ok_or_else(|| target.not_found())?;
        let source = self.logs.read().clone();
        let Some(source) = source else {
            return Err(ApiError::new(503, "ServiceUnavailable", "no node has lent its logs to this server"));
        };
        let wanted = PodLogQuery {
            namespace: target.namespace.into(),
            pod: target.name.into(),
            container: Some(query.text("container").to_string()).filter(|name| !name.is_empty()),
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            tail_lines: query.number("tailLines")?,
        };
        let stream = source(wanted).await.map_err(|error| ApiError::bad_request(format!("{error:#}")))?;
        let shutdown = self.shutdown.clone().cancelled_owned();
        let frames = stream.take_until(shutdown).map(|bytes| Ok(Frame::data(bytes)));
        let mut response = respond(200, "text/plain", bytes::Bytes::new());
        *response.body_mut() = StreamBody::new(frames).boxed_unsync();
        Ok(response)
    }
}
