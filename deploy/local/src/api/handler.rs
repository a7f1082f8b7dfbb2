//! Handling of a request: identifies the caller, parses the path, and serves everything except resources.
//! [`super::call`] handles requests for resources.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde_json::Value;

use super::access::Access;
use super::call::Call;
use super::core::Api;
use super::discovery;
use super::guard;
use super::identity::Caller;
use super::media::{self, Body, Form};
use super::openapi;
use super::query::Query;
use super::rbac;
use super::route::{RequestInfo, Route, verb};
use super::status::{ApiError, Result};
use super::table::Include;

/// Maximum size of a body in bytes.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

pub(crate) async fn handle(api: Arc<Api>, request: Request<Incoming>) -> Response<Body> {
    let line = tracing::enabled!(tracing::Level::TRACE).then(|| format!("{} {}", request.method(), request.uri()));
    let response = read_and_answer(api, request).await.unwrap_or_else(Response::from);
    if let Some(line) = line {
        tracing::trace!(request = line, status = response.status().as_u16(), "answered");
    }
    response
}

/// Reads the body before anything else. Otherwise a rejection would reset the connection of a client that is still
/// sending, and the client might lose the response.
async fn read_and_answer(api: Arc<Api>, request: Request<Incoming>) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let body = if parts.method == Method::GET { Bytes::new() } else { read(body).await? };
    answer(api, Request::from_parts(parts, body)).await
}

async fn answer(api: Arc<Api>, request: Request<Bytes>) -> Result<Response<Body>> {
    let caller = guard::admit(&request, &api.tokens, &api.store)?;
    let registry = api.registry.load_full();
    let path = request.uri().path().to_string();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let route = Route::parse(&path, &registry);
    permit(&api, &caller, request.method(), &path, &query, route.as_ref().ok())?;
    let route = route?;
    if let Route::Resource(info) = route {
        return resource(api, caller, info, query, request).await;
    }
    if request.method() != Method::GET {
        return Err(ApiError::method_not_allowed(None));
    }
    let is_accepted = Form::accepted(request.headers(), Include::Metadata).is_some();
    let found = |value: Option<Value>| match value {
        Some(value) if is_accepted => Ok(media::encode_value(200, &value)),
        Some(_) => Err(ApiError::not_acceptable()),
        None => Err(ApiError::unknown_resource()),
    };
    let nothing = || Ok(media::text(404, "404 page not found\n"));
    match route {
        Route::Health(name) => Ok(health(name, &query)),
        Route::Version => found(Some(discovery::version())),
        Route::Groups(true) => found(Some(discovery::core_versions())),
        Route::Groups(false) => found(Some(discovery::groups(&registry))),
        Route::Group(group) => match discovery::group(&registry, &group, true) {
            Some(value) => found(Some(value)),
            None => nothing(),
        },
        Route::Resources(group, _) if !group.is_empty() && registry.versions(&group).is_empty() => nothing(),
        Route::Resources(group, version) => found(discovery::resources(&registry, &group, &version)),
        Route::OpenApi(None) => found(Some(openapi::index(&registry))),
        Route::OpenApi(Some((group, version))) => found(openapi::document(&registry, &group, &version)),
        Route::Unknown | Route::Resource(_) => nothing(),
    }
}

/// Rejects access without a right.
fn permit(api: &Api, caller: &Caller, method: &Method, path: &str, query: &Query, route: Option<&Route>) -> Result<()> {
    let access = match route {
        Some(Route::Resource(info)) => {
            let verb = verb(method, info.name.is_some(), query.flag("watch"));
            info.access(verb, query.text("fieldSelector").strip_prefix("metadata.name="))
        }
        _ => Access::path(method.as_str(), path),
    };
    let allowed = rbac::allows(&api.store, caller, &access);
    if let Some(audit) = &api.audit {
        audit.hear(&caller.name, &access, allowed);
    }
    match route {
        _ if allowed => Ok(()),
        Some(Route::Resource(info)) => Err(ApiError::denied(&caller.name, &info.resource, &access)),
        _ => {
            let Access { verb, path, .. } = &access;
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
    let verb = verb(&parts.method, info.name.is_some(), query.flag("watch"));
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
    let refuse = || ApiError::method_not_allowed(Some(resource));
    let Some(subresource) = info.subresource.as_deref() else {
        let plain = match (&info.name, verb) {
            (Some(_), "create") | (None, "update" | "patch") | (_, "use") => false,
            // Namespaced objects are created in a namespace.
            (None, "create" | "deletecollection") => !resource.namespaced || !info.namespace.is_empty(),
            _ => true,
        };
        return if plain && resource.verbs().contains(&verb) { Ok(()) } else { Err(refuse()) };
    };
    let known = resource.subresources().into_iter().find(|(name, ..)| *name == subresource);
    match known {
        Some((.., verbs)) if verbs.contains(&verb) => Ok(()),
        Some(_) => Err(refuse()),
        // For a custom resource the error names the object; for a built-in kind the path does not exist.
        None if resource.custom().is_some() && matches!(subresource, "status" | "scale") => {
            Err(ApiError::not_found(resource, info.name.as_deref().unwrap_or_default()))
        }
        None => Err(ApiError::unknown_resource()),
    }
}
