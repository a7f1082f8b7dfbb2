//! Other operations on pods: binding to a node, and logs.

use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use futures::StreamExt as _;

use super::core::Api;
use super::fields::{self, text};
use super::media::{Body, respond};
use super::meta;
use super::pod_log::PodLogQuery;
use super::query::{Query, WriteOptions};
use super::status::{ApiError, Result};
use super::store::Object;
use super::target::Target;
use super::write::Part;

impl Api {
    /// Binds a pod to a node, unless it is bound already.
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

    /// Returns the log of a pod from the log source.
    pub(crate) async fn log(&self, target: Target<'_>, query: &Query) -> Result<Response<Body>> {
        let pod = self.store.get(&target.resource.table, &target.key()).ok_or_else(|| target.not_found())?;
        check_log_options(query, &pod, Timestamp::now())?;
        let container = container(&pod, query.text("container"))?;
        let source = self.logs.read().clone();
        let Some(source) = source else {
            return Err(ApiError::new(503, "ServiceUnavailable", "no node has lent its logs to this server"));
        };
        let wanted = PodLogQuery {
            namespace: target.namespace.into(),
            pod: target.name.into(),
            container: container.into(),
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            tail_lines: query.number("tailLines")?,
            limit_bytes: query.number("limitBytes")?,
        };
        let stream = source(wanted).await.map_err(|error| ApiError::bad_request(format!("{error:#}")))?;
        let shutdown = self.shutdown.clone().cancelled_owned();
        let frames = stream.take_until(shutdown).map(|bytes| Ok(Frame::data(bytes)));
        let mut response = respond(200, "text/plain", bytes::Bytes::new());
        *response.body_mut() = StreamBody::new(frames).boxed_unsync();
        Ok(response)
    }
}

/// Rejects options that need the time of log lines. A log since a time before the creation of its pod is the whole log,
/// so it is allowed.
fn check_log_options(query: &Query, pod: &Object, now: Timestamp) -> Result<()> {
    let made = pod.text("/metadata/creationTimestamp").parse::<Timestamp>().unwrap_or(now);
    let seconds = query.number::<i64>("sinceSeconds")?;
    let time = query.text("sinceTime");
    let no_time = |_| ApiError::bad_request(format!("query parameter sinceTime: \"{time}\" is not a time"));
    let time = Some(time).filter(|time| !time.is_empty()).map(str::parse::<Timestamp>).transpose().map_err(no_time)?;
    let is_part = |since: Timestamp| since > made;
    let untimed =
        if seconds.is_some_and(|ago| is_part(now.saturating_sub(SignedDuration::from_secs(ago)).unwrap_or(now))) {
            "sinceSeconds"
        } else if time.is_some_and(is_part) {
            "sinceTime"
        } else if query.flag("timestamps") {
            "timestamps"
        } else {
            return Ok(());
        };
    let rule = "this server does not keep the times of lines";
    Err(ApiError::bad_request(format!("option {untimed} of a pod's log: {rule}")))
}

/// Returns the requested container. It may be omitted if the pod has only one.
fn container<'a>(pod: &'a Object, named: &'a str) -> Result<&'a str> {
    let containers = pod.value.pointer("/spec/containers").and_then(Value::as_array);
    let names: Vec<&str> = containers.into_iter().flatten().map(|container| text(container, "/name")).collect();
    let pod = pod.text("/metadata/name");
    match names[..] {
        [only] if named.is_empty() => Ok(only),
        _ if named.is_empty() => {
            let names = names.join(" ");
            let rule = format!("a container name must be specified for pod {pod}, choose one of: [{names}]");
            Err(ApiError::bad_request(rule))
        }
        _ if names.contains(&named) => Ok(named),
        _ => Err(ApiError::bad_request(format!("container {named} is not valid for pod {pod}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PodLogs;
    use bytes::Bytes;
    use futures::future::BoxFuture;
    use futures::stream::{self, BoxStream};
    use std::sync::Arc;

    /// Returns the query as the log.
    fn echo(query: PodLogQuery) -> BoxFuture<'static, anyhow::Result<BoxStream<'static, Bytes>>> {
        let asked = Bytes::from(format!("{} {:?} {:?}", query.container, query.tail_lines, query.limit_bytes));
        let log: BoxStream<'static, Bytes> = Box::pin(stream::once(async move { asked }));
        Box::pin(async move { Ok(log) })
    }

    /// Goal: options of a log reach its source or are rejected by name; without a name, the only container of a pod is
    /// used.
    #[tokio::test]
    async fn options_of_a_log_are_passed_on_or_refused() {
        let api = Api::for_tests();
        let source: PodLogs = Arc::new(echo);
        *api.logs.write() = Some(source);
        let resource = api.registry.load().get("", "v1", "pods").expect("pods");
        for (name, containers) in [("one", &["a"][..]), ("two", &["a", "b"][..])] {
            let containers: Vec<_> = containers.iter().map(|name| json!({"name": name, "image": "i"})).collect();
            let pod = json!({"metadata": {"name": name}, "spec": {"containers": containers}});
            api.create(&resource, "default", pod, &WriteOptions::internal()).expect("taken");
        }
        let untimed = "this server does not keep the times of lines";
        let unnamed = "a container name must be specified for pod two, choose one of: [a b]";
        let rows = [
            ("one", "", Ok("a None None")),
            ("one", "container=a&tailLines=2&limitBytes=7&timestamps=false", Ok("a Some(2) Some(7)")),
            (
                "one",
                "limitBytes=-1",
                Err("query parameter limitBytes: \"-1\" is not a whole number in range".to_owned()),
            ),
            ("one", "timestamps=true", Err(format!("option timestamps of a pod's log: {untimed}"))),
            ("one", "sinceSeconds=0", Err(format!("option sinceSeconds of a pod's log: {untimed}"))),
            ("one", "sinceTime=9999-01-01T00:00:00Z", Err(format!("option sinceTime of a pod's log: {untimed}"))),
            ("one", "sinceTime=noon", Err("query parameter sinceTime: \"noon\" is not a time".to_owned())),
            ("one", "sinceSeconds=172800&sinceTime=2026-01-01T00:00:00Z", Ok("a None None")),
            ("two", "", Err(unnamed.to_owned())),
            ("two", "container=b", Ok("b None None")),
            ("two", "container=c", Err("container c is not valid for pod two".to_owned())),
        ];
        for (name, query, expected) in rows {
            let target = Target { resource: &resource, namespace: "default", name };
            let answer = match api.log(target, &Query::parse(query)).await {
                Ok(response) => Ok(response.into_body().collect().await.expect("a log").to_bytes()),
                Err(error) => Err((error.code, text(&error.body, "/message").to_owned())),
            };
            assert_eq!(answer, expected.map(Bytes::from).map_err(|message| (400, message)), "{name} {query}");
        }
    }
}
