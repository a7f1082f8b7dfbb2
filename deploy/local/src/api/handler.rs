//! Handling of a request: identifies the caller, parses the path, and serves everything except resources.
//! [`super::call`] handles requests for resources.

use super::access::Access;
use super::call::Call;
use super::columns::Include;
use super::core::Api;
use super::identity::{self, Caller};
use super::media::{self, Body, Form};
use super::query::{Query, unescape};
use super::rbac;
use super::resource::{Registry, Resource};
use super::status::{ApiError, Result};
use super::{discovery, openapi};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use std::sync::Arc;

/// Maximum size of a body in bytes.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

pub(crate) async fn handle(api: Arc<Api>, request: Request<Incoming>) -> Response<Body> {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let response = answer(api, request).await.unwrap_or_else(Response::from);
    tracing::trace!(%method, %uri, status = response.status().as_u16(), "answered");
    response
}

/// Reads the body before anything else. Otherwise a rejection would reset the connection of a client that is still
/// sending, and the client might lose the response.
async fn answer(api: Arc<Api>, request: Request<Incoming>) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let body = if parts.method == Method::GET { Bytes::new() } else { read(body).await? };
    let request = Request::from_parts(parts, body);
    let caller = identity::admit(&request, &api.tokens, &api.store)?;
    let registry = api.registry.load_full();
    let path = request.uri().path().to_string();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let decoded: Vec<String> = path.split('/').filter(|segment| !segment.is_empty()).map(unescape).collect();
    let segments: Vec<&str> = decoded.iter().map(String::as_str).collect();
    let info = RequestInfo::parse(&segments, &registry);
    let known = info.as_ref().ok().and_then(Option::as_ref);
    let access = match known {
        Some(info) => info.access(info.verb(request.method(), &query), &query),
        None => Access::path(request.method().as_str(), &path),
    };
    permit(&api, &caller, &access, known)?;
    if let Some(info) = info? {
        return resource(api, caller, info, query, request).await;
    }
    if request.method() != Method::GET {
        return Err(ApiError::method_not_allowed(None));
    }
    let document = match segments[..] {
        [name @ ("healthz" | "livez" | "readyz"), ..] => return Ok(health(name, &query)),
        ["version"] => Some(discovery::version()),
        ["api"] => Some(discovery::core_versions()),
        ["api", version] => discovery::resources(&registry, "", version),
        ["apis"] => Some(discovery::groups(&registry)),
        ["apis", group] if registry.has_group(group) => discovery::group(&registry, group, true),
        ["apis", group, version] if registry.has_group(group) => discovery::resources(&registry, group, version),
        ["openapi", "v3"] => Some(openapi::index(&registry)),
        ["openapi", "v3", "api", version] => openapi::document(&registry, "", version),
        ["openapi", "v3", "apis", group, version] => openapi::document(&registry, group, version),
        _ => return Ok(media::text(404, "404 page not found\n")),
    };
    let document = document.ok_or_else(ApiError::unknown_resource)?;
    match Form::accepted(request.headers(), Include::Metadata) {
        Some(_) => Ok(media::encode_value(200, &document)),
        None => Err(ApiError::not_acceptable()),
    }
}

/// Rejects access without a right.
fn permit(api: &Api, caller: &Caller, access: &Access, info: Option<&RequestInfo>) -> Result<()> {
    let allowed = rbac::allows(&api.store, caller, access);
    if let Some(audit) = &api.audit {
        audit.record(&caller.name, access, allowed);
    }
    match info {
        _ if allowed => Ok(()),
        Some(info) => Err(ApiError::denied(&caller.name, &info.resource, access)),
        None => {
            let Access { verb, path, .. } = access;
            Err(ApiError::forbidden(format!("forbidden: User \"{}\" cannot {verb} path \"{path}\"", caller.name)))
        }
    }
}

fn health(name: &str, query: &Query) -> Response<Body> {
    let verbose = query.has("verbose");
    let body = if verbose { format!("[+]ping ok\n[+]store ok\n{name} check passed\n") } else { "ok".to_string() };
    media::text(200, body)
}

async fn resource(
    api: Arc<Api>,
    caller: Caller,
    info: RequestInfo,
    query: Query,
    request: Request<Bytes>,
) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let verb = info.verb(&parts.method, &query);
    check_verb(&info, verb)?;
    let include = match query.text("includeObject") {
        "" | "Metadata" => Include::Metadata,
        "None" => Include::Nothing,
        "Object" => Include::Object,
        other => return Err(ApiError::bad_request(format!("unrecognized includeObject value: {other}"))),
    };
    let form = Form::accepted(&parts.headers, include).ok_or_else(ApiError::not_acceptable)?;
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim().to_string();
    let call = Call { api, caller, info, query, form, content_type, body };
    call.answer(verb).await
}

async fn read(mut body: Incoming) -> Result<Bytes> {
    match Limited::new(&mut body, BODY_LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            while let Some(Ok(_)) = body.frame().await {}
            Err(ApiError::too_large(BODY_LIMIT))
        }
        Err(error) => Err(ApiError::bad_request(format!("cannot read the body: {error}"))),
    }
}

/// Rejects verbs that a path does not support.
fn check_verb(info: &RequestInfo, verb: &str) -> Result<()> {
    let resource = &info.resource;
    let (fits, verbs) = match info.subresource.as_deref() {
        None => {
            let fits = match (&info.name, verb) {
                (Some(_), "create") | (None, "update" | "patch") => false,
                // Namespaced objects are created in a namespace.
                (None, "create" | "deletecollection") => !resource.namespaced || !info.namespace.is_empty(),
                _ => true,
            };
            (fits, resource.verbs())
        }
        Some(wanted) => match resource.subresources().into_iter().find(|(name, ..)| *name == wanted) {
            Some((.., verbs)) => (true, verbs),
            // For a custom resource the error names the object; for a built-in kind the path does not exist.
            None if resource.is_custom() && matches!(wanted, "status" | "scale") => {
                return Err(ApiError::not_found(resource, info.name.as_deref().unwrap_or_default()));
            }
            None => return Err(ApiError::unknown_resource()),
        },
    };
    if fits && verbs.contains(&verb) { Ok(()) } else { Err(ApiError::method_not_allowed(Some(resource))) }
}

/// A resource, an object of it, or a subresource of an object.
#[derive(Debug)]
pub(crate) struct RequestInfo {
    pub(crate) resource: Arc<Resource>,
    /// Namespace; empty for access across namespaces and for cluster-scoped resources.
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl RequestInfo {
    /// Returns the access that `verb` needs here.
    pub(crate) fn access(&self, verb: &str, query: &Query) -> Access {
        // A list or watch may be restricted to one name.
        let one = query.text("fieldSelector").strip_prefix("metadata.name=");
        let resource = match &self.subresource {
            Some(part) => format!("{}/{part}", self.resource.plural),
            None => self.resource.plural.clone(),
        };
        // A Namespace counts as an object in itself, so that a Role in it can allow to read it.
        let namespace = match &self.name {
            Some(name) if self.resource.group.is_empty() && self.resource.plural == "namespaces" => name.clone(),
            _ => self.namespace.clone(),
        };
        Access {
            verb: verb.into(),
            group: self.resource.group.clone(),
            resource,
            namespace,
            name: self.name.as_deref().or(one).unwrap_or_default().into(),
            path: String::new(),
        }
    }

    /// Parses the segments of a path. Returns `None` for a path without a resource.
    pub(crate) fn parse(segments: &[&str], registry: &Registry) -> Result<Option<Self>> {
        let (group, version, rest) = match segments {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() && registry.has_group(group) => {
                (*group, *version, rest)
            }
            _ => return Ok(None),
        };
        let (namespace, rest) = match rest {
            // The Namespace itself and its status.
            ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status"] => ("", rest),
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let [plural, rest @ ..] = rest else { return Err(ApiError::unknown_resource()) };
        let resource = registry.get(group, version, plural).ok_or_else(ApiError::unknown_resource)?;
        let (name, subresource) = match rest {
            [] => (None, None),
            [name] => (Some(name.to_string()), None),
            [name, subresource] => (Some(name.to_string()), Some(subresource.to_string())),
            _ => return Err(ApiError::unknown_resource()),
        };
        let in_namespace = !namespace.is_empty();
        if in_namespace != resource.namespaced && (in_namespace || name.is_some()) {
            return Err(ApiError::unknown_resource());
        }
        Ok(Some(RequestInfo { resource, namespace: namespace.into(), name, subresource }))
    }

    /// Returns the verb of a request, in the terms of roles.
    pub(crate) fn verb(&self, method: &Method, query: &Query) -> &'static str {
        match (method.as_str(), &self.name) {
            ("GET", Some(_)) => "get",
            ("GET", None) if query.flag("watch") => "watch",
            ("GET", None) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", Some(_)) => "delete",
            ("DELETE", None) => "deletecollection",
            _ => "use",
        }
    }
}
