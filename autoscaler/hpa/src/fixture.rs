//! Mock API server that records its requests. For tests.

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

/// Response: status and body. Text is sent unchanged, and anything else as JSON.
type Answer = (u16, Value);

/// Mock API server. Clones share their state.
#[derive(Clone, Default)]
pub struct Mock {
    answers: Arc<Mutex<HashMap<String, VecDeque<Answer>>>>,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Mock {
    /// Adds a response to `METHOD PATH?QUERY`. The last response is repeated forever; requests without a response get a
    /// plain 404.
    pub fn on(&self, line: &str, code: u16, body: Value) -> &Self {
        self.answers.lock().entry(line.to_owned()).or_default().push_back((code, body));
        self
    }

    /// Replaces all responses to a request.
    pub fn replace(&self, line: &str, code: u16, body: Value) -> &Self {
        self.answers.lock().remove(line);
        self.on(line, code, body)
    }

    /// Adds a rejection in the form of an API server.
    pub fn reject(&self, line: &str, code: u16, message: &str) -> &Self {
        let reason = if code == 409 { "Conflict" } else { "InternalError" };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": reason,
        });
        self.on(line, code, status)
    }

    /// Returns the requests since the last call, in order.
    pub fn request_lines(&self) -> Vec<String> {
        self.requests().into_iter().map(|(line, _)| line).collect()
    }

    /// Returns the requests since the last call, with their bodies.
    pub fn requests(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.requests.lock())
    }

    /// Returns a client of this server.
    pub fn client(&self) -> Client {
        let mock = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let mock = mock.clone();
            async move { Ok::<_, Infallible>(mock.answer(request).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        let line = format!("{} {}", head.method, without_timeout(&path));
        let bytes = body.collect().await.expect("a body").to_bytes();
        let sent = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        self.requests.lock().push((line.clone(), sent));
        let mut answers = self.answers.lock();
        let (code, body) = match answers.get_mut(&line) {
            Some(row) if row.len() > 1 => row.pop_front().expect("more than one"),
            Some(row) => row.front().cloned().expect("at least one"),
            None => (404, json!("404 page not found\n")),
        };
        let (media, text) =
            body.as_str().map_or_else(|| ("application/json", body.to_string()), |t| ("", t.to_owned()));
        let response = Response::builder().status(code).header("content-type", media);
        response.body(Body::from(text.into_bytes())).expect("a response")
    }
}

/// Removes the timeout that writes carry.
fn without_timeout(path: &str) -> &str {
    match path.rfind("timeout=") {
        Some(at) if path.ends_with("ms") && path[at..].find('&').is_none() => path[..at].trim_end_matches(['?', '&']),
        _ => path,
    }
}

/// Adds discovery of Deployments and Services.
pub fn with_apps(mock: &Mock) {
    mock.on("GET /apis/apps", 200, group("apps", &["v1"]));
    let scale = json!({"name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
                       "version": "v1", "kind": "Scale", "verbs": []});
    mock.on("GET /apis/apps/v1", 200, resources("apps/v1", &[resource("deployments", "Deployment"), scale]));
    mock.on("GET /api/v1", 200, resources("v1", &[resource("pods", "Pod"), resource("services", "Service")]));
}

/// Returns an API group with these versions, the first one preferred.
pub fn group(name: &str, versions: &[&str]) -> Value {
    let version = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<_> = versions.iter().map(version).collect();
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": versions, "preferredVersion": versions[0]})
}

/// Returns the resources of one version.
pub fn resources(group_version: &str, resources: &[Value]) -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}

/// Returns a namespaced resource.
pub fn resource(plural: &str, kind: &str) -> Value {
    json!({"name": plural, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get"]})
}

/// Returns the scale of Deployment `web`.
pub fn scale(replicas: i32) -> Value {
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
        "spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": "app=web"},
    })
}

/// Returns `METHOD PATH?QUERY` of each request.
pub fn lines(requests: &[(String, Value)]) -> Vec<&str> {
    requests.iter().map(|(line, _)| line.as_str()).collect()
}

/// Returns the body of the first request with this line, or null.
pub fn sent<'a>(requests: &'a [(String, Value)], line: &str) -> &'a Value {
    requests.iter().find(|(other, _)| other == line).map_or(&Value::Null, |(_, body)| body)
}
