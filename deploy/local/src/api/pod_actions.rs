//! Operations on pods in addition to the generic verbs: binding to a node, and logs.

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
use super::query::{Query, WriteOptions};
use super::resource::Target;
use super::status::{ApiError, Result};
use super::store::Object;
use super::write::Part;
use crate::logs::{self, LogQuery, PodLogs};

impl Api {
    /// Binds a pod to a node, unless it is bound already.
    pub(crate) fn bind(&self, target: Target<'_>, binding: &Value, options: &WriteOptions) -> Result<()> {
        let node = text(binding, "/target/name");
        if node.is_empty() {
            return Err(ApiError::bad_request("Binding: target.name must name a node"));
        }
        self.modify(target, Part::Internal, options, |pod| {
            let taken = text(pod, "/spec/nodeName");
            if !taken.is_empty() {
                let why = format!("pod {} is already assigned to node \"{taken}\"", target.name);
                return Err(target.conflict(&why));
            }
            pod["spec"]["nodeName"] = node.into();
            let conditions = fields::list(fields::child(fields::object(pod), "status"), "conditions");
            conditions.retain(|condition| condition["type"] != "PodScheduled");
            conditions.push(json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": meta::now()}));
            Ok(())
        })?;
        Ok(())
    }

    pub(crate) async fn log(&self, target: Target<'_>, query: &Query) -> Result<Response<Body>> {
        let pod = self.store.get(&target.resource.table, &target.key()).ok_or_else(|| target.not_found())?;
        check_log_options(query, &pod, Timestamp::now())?;
        let container = container(&pod, query.text("container"))?;
        let Some(work_dir) = self.logs.read().clone() else {
            return Err(ApiError::new(503, "ServiceUnavailable", "this server has no access to the logs of a node"));
        };
        let logs = PodLogs::new(&work_dir, target.namespace, target.name, pod.text("/metadata/uid"));
        let previous = query.flag("previous");
        let path = logs.find(container, previous).ok_or_else(|| {
            let which = if previous { "previous run of container" } else { "container" };
            ApiError::bad_request(format!("{which} {container:?} of pod {} has no log", target.key()))
        })?;
        let wanted = LogQuery {
            follow: query.flag("follow"),
            tail_lines: query.number("tailLines")?,
            limit_bytes: query.number("limitBytes")?,
        };
        let stream = logs::open(path, &wanted).map_err(|error| ApiError::bad_request(error.to_string()))?;
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
    let created = pod.text("/metadata/creationTimestamp").parse::<Timestamp>().unwrap_or(now);
    let seconds = query.number::<i64>("sinceSeconds")?;
    let time = query.text("sinceTime");
    let no_time = |_| ApiError::bad_request(format!("query parameter sinceTime: \"{time}\" is not a time"));
    let time = Some(time).filter(|time| !time.is_empty()).map(str::parse::<Timestamp>).transpose().map_err(no_time)?;
    let is_part = |since: Timestamp| since > created;
    let since = seconds.map(|ago| now.saturating_sub(SignedDuration::from_secs(ago)).unwrap_or(now));
    let options = [
        ("sinceSeconds", since.is_some_and(is_part)),
        ("sinceTime", time.is_some_and(is_part)),
        ("timestamps", query.flag("timestamps")),
    ];
    let Some((untimed, _)) = options.into_iter().find(|(_, is_requested)| *is_requested) else { return Ok(()) };
    let rule = "this server does not record the times of lines";
    Err(ApiError::bad_request(format!("option {untimed} of a pod's log: {rule}")))
}

/// Returns the requested container. It may be omitted if the pod has only one.
fn container<'a>(pod: &'a Object, named: &'a str) -> Result<&'a str> {
    let containers = fields::items(&pod.value, "/spec/containers");
    let names: Vec<&str> = containers.iter().map(|container| text(container, "/name")).collect();
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
    use bytes::Bytes;
    use std::io::Write as _;

    /// Goal: options of a log are respected or rejected by name; without a name, the only container of a pod is used.
    #[tokio::test]
    async fn options_of_a_log_are_respected_or_rejected() {
        let api = Api::for_tests();
        let folder = tempfile::tempdir().expect("a folder");
        *api.logs.write() = Some(folder.path().to_owned());
        let resource = api.registry.load().get("", "v1", "pods").expect("pods");
        for (name, containers, container) in [("one", &["a"][..], "a"), ("two", &["a", "b"][..], "b")] {
            let containers: Vec<_> = containers.iter().map(|name| json!({"name": name, "image": "i"})).collect();
            let pod = json!({"metadata": {"name": name}, "spec": {"containers": containers}});
            let pod = api.create(&resource, "default", pod, &WriteOptions::default()).expect("created").object;
            let logs = PodLogs::new(folder.path(), "default", name, pod.text("/metadata/uid"));
            let mut log = logs.create(container, 0).expect("a file");
            write!(log, "{container}1\n{container}2\n{container}3\n").expect("written");
        }
        let untimed = "this server does not record the times of lines";
        let unnamed = "a container name must be specified for pod two, choose one of: [a b]";
        let negative = "query parameter limitBytes: \"-1\" is not a whole number in range";
        let rows = [
            ("one", "", Ok("a1\na2\na3\n")),
            ("one", "container=a&tailLines=2&limitBytes=6&timestamps=false", Ok("a2\na3\n")),
            ("one", "limitBytes=-1", Err(negative.to_owned())),
            ("one", "timestamps=true", Err(format!("option timestamps of a pod's log: {untimed}"))),
            ("one", "sinceSeconds=0", Err(format!("option sinceSeconds of a pod's log: {untimed}"))),
            ("one", "sinceTime=9999-01-01T00:00:00Z", Err(format!("option sinceTime of a pod's log: {untimed}"))),
            ("one", "sinceTime=noon", Err("query parameter sinceTime: \"noon\" is not a time".to_owned())),
            ("one", "sinceSeconds=172800&sinceTime=2026-01-01T00:00:00Z", Ok("a1\na2\na3\n")),
            ("two", "", Err(unnamed.to_owned())),
            ("two", "container=b", Ok("b1\nb2\nb3\n")),
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
