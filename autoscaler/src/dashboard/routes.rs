//! Routes by path, and the errors for unknown ones.

use super::list::Scope;
use common::RevisionKey;
use common::host::is_label;
use common_api::validation::is_object_name;
use http::{Method, StatusCode};
use serde_json::json;

/// Requested resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    File(&'static File),
    /// All workloads, or their changes.
    List(Scope),
    Workload(RevisionKey),
    Pods(RevisionKey),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct File {
    path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

static FILES: [File; 8] = [
    File { path: "/", content_type: "text/html; charset=utf-8", text: include_str!("page/index.html") },
    File { path: "/style.css", content_type: "text/css; charset=utf-8", text: include_str!("page/style.css") },
    File { path: "/icon.svg", content_type: "image/svg+xml", text: include_str!("page/icon.svg") },
    File { path: "/app.js", content_type: SCRIPT, text: include_str!("page/app.js") },
    File { path: "/data.js", content_type: SCRIPT, text: include_str!("page/data.js") },
    File { path: "/list.js", content_type: SCRIPT, text: include_str!("page/list.js") },
    File { path: "/detail.js", content_type: SCRIPT, text: include_str!("page/detail.js") },
    File { path: "/draw.js", content_type: SCRIPT, text: include_str!("page/draw.js") },
];

/// Error response: a status, and its JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ErrorResponse(pub(super) StatusCode, pub(super) String);

impl ErrorResponse {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self(status, json!({"error": error.into()}).to_string())
    }
}

/// Parses a request's method, path and query.
pub(super) fn route(method: &Method, path: &str, query: Option<&str>) -> Result<Route, ErrorResponse> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(ErrorResponse::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("{method} is not allowed: the dashboard is read-only and supports only GET"),
        ));
    }
    let missing = |error: String| Err(ErrorResponse::new(StatusCode::NOT_FOUND, error));
    if let Some(file) = FILES.iter().find(|file| file.path == path) {
        return Ok(Route::File(file));
    }
    if path == "/api/v1/workloads" {
        return Ok(Route::List(scope(query)?));
    }
    if let Some(key) = path.strip_prefix("/api/v1/workloads/") {
        let (key, route): (_, fn(RevisionKey) -> Route) = match key.strip_suffix("/pods") {
            // A workload named `pods` ends like that, too.
            Some(workload) if workload.contains('/') => (workload, Route::Pods),
            _ => (key, Route::Workload),
        };
        return match key.split_once('/') {
            Some((namespace, name)) if is_label(namespace) && is_object_name(name) => {
                Ok(route(RevisionKey::new(namespace, name)))
            }
            _ => missing(format!("{key:?} does not name a ZeroScaler: use /api/v1/workloads/NAMESPACE/NAME")),
        };
    }
    missing(format!(
        "there is nothing at {path:?}; use /, /api/v1/workloads, /api/v1/workloads/NAMESPACE/NAME or \
         /api/v1/workloads/NAMESPACE/NAME/pods"
    ))
}

fn scope(query: Option<&str>) -> Result<Scope, ErrorResponse> {
    let bad = |error: String| Err(ErrorResponse::new(StatusCode::BAD_REQUEST, error));
    let mut scope = Scope::default();
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("namespace" | "after", "")) => {}
            // An unreadable position counts as none, so the client gets everything.
            Some(("after", position)) => scope.after = position.parse().ok(),
            Some(("namespace", namespace)) if is_label(namespace) => scope.namespace = Some(namespace.to_owned()),
            Some(("namespace", other)) => {
                return bad(format!(
                    "namespace {other:?} is not a valid name: it must have at most 63 characters of a-z, 0-9 and -"
                ));
            }
            _ => return bad(format!("{pair:?} is not a known parameter: use `namespace` or `after`")),
        }
    }
    Ok(scope)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route_or_error(method: &str, target: &str) -> Result<Route, (u16, String)> {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        route(&method, path, query).map_err(|ErrorResponse(status, error)| (status.as_u16(), error))
    }

    #[test]
    fn known_paths_are_routed() {
        let scope = |namespace: Option<&str>, after| Scope { namespace: namespace.map(str::to_owned), after };
        let rows = [
            ("/api/v1/workloads", Route::List(scope(None, None))),
            ("/api/v1/workloads?namespace=&after=", Route::List(scope(None, None))),
            ("/api/v1/workloads?namespace=a-1", Route::List(scope(Some("a-1"), None))),
            ("/api/v1/workloads?namespace=a&after=17", Route::List(scope(Some("a"), Some(17)))),
            ("/api/v1/workloads/ns/a.b-1", Route::Workload(RevisionKey::new("ns", "a.b-1"))),
            ("/api/v1/workloads/ns/pods", Route::Workload(RevisionKey::new("ns", "pods"))),
            ("/api/v1/workloads/ns/a/pods", Route::Pods(RevisionKey::new("ns", "a"))),
        ];
        for (target, expected) in rows {
            assert_eq!(route_or_error("GET", target), Ok(expected), "{target}");
        }
        for file in &FILES {
            assert_eq!(route_or_error("HEAD", file.path), Ok(Route::File(file)), "{}", file.path);
        }
    }

    #[test]
    fn invalid_requests_are_rejected_with_the_invalid_value() {
        let long = format!("/api/v1/workloads/ns/{}", "a".repeat(254));
        let rows = [
            ("POST", "/api/v1/workloads", 405, "POST"),
            ("DELETE", "/", 405, "only GET"),
            ("GET", "/nothing", 404, "/nothing"),
            ("GET", "/api/v1/workloads/", 404, "NAMESPACE/NAME"),
            ("GET", "/api/v1/workloads/ns", 404, "ns"),
            ("GET", "/api/v1/workloads/ns/a/b", 404, "ns/a/b"),
            ("GET", "/api/v1/workloads/ns/..%2f", 404, "%2f"),
            ("GET", "/api/v1/workloads/NS/a", 404, "NS/a"),
            ("GET", &long, 404, "NAMESPACE/NAME"),
            ("GET", "/api/v1/workloads?namespace=A", 400, "\\\"A\\\""),
            ("GET", "/api/v1/workloads?name=a", 400, "name=a"),
            ("GET", "/api/v1/stream", 404, "/api/v1/stream"),
            ("GET", "/api/v1/workloads?x", 400, "namespace"),
        ];
        for (method, target, status, part) in rows {
            let (found, error) = route_or_error(method, target).expect_err(target);
            assert!(found == status && error.contains(part), "{method} {target}: {found} {error}");
        }
    }

    /// Goal: a missing response never blocks the page for good. Method: each request has a timeout, on its own line or
    /// the line before.
    #[test]
    fn every_request_of_the_page_has_a_timeout() {
        let mut requests = 0;
        for file in &FILES {
            let lines: Vec<_> = file.text.lines().collect();
            for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.contains("fetch(")) {
                let around = [lines[number.saturating_sub(1)], *line];
                assert!(around.iter().any(|line| line.contains("AbortSignal.timeout(")), "{}: {line}", file.path);
                requests += 1;
            }
        }
        assert!(requests > 0);
    }

    /// Goal: the page loads nothing from other sites and has no inline script or style, as its policy requires.
    #[test]
    fn the_page_loads_nothing_from_other_sites() {
        for file in &FILES {
            let text = file.text.replace("http://www.w3.org/2000/svg", "");
            for foreign in ["http://", "https://", "url(", "@import", "innerHTML", "eval(", "<style"] {
                assert!(!text.contains(foreign), "{} has {foreign}", file.path);
            }
        }
        let html = FILES[0].text;
        for inline in [" style=", " onclick=", " onload=", "<script>"] {
            assert!(!html.contains(inline), "{inline}");
        }
        for file in FILES[1..].iter().filter(|file| file.path != "/icon.svg") {
            let name = &file.path[1..];
            assert!(FILES.iter().any(|by| by.text.contains(name)), "no file refers to {name}");
        }
    }
}
