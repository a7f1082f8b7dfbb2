//! One request, one answer.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};

use super::core::Api;
use super::discovery;
use super::guard::{self, Caller};
use super::list::{Page, encode_one};
use super::media::{self, Accept, Body};
use super::patch::{Patch, full};
use super::query::{DeleteOptions, Query, WriteOptions};
use super::resource::{Model, Resource};
use super::route::{Place, Route, verb};
use super::selector::Selector;
use super::status::{self, ApiError, Result};
use super::table::Include;
use super::write::{Part, Target, Written};

/// The largest body that is read, in bytes.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Answers a request.
pub(crate) async fn handle<B>(api: Arc<Api>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let line = tracing::enabled!(tracing::Level::TRACE).then(|| format!("{} {}", request.method(), request.uri()));
    let response = answer(api, request).await.unwrap_or_else(Response::from);
    if let Some(line) = line {
        tracing::trace!(request = line, status = response.status().as_u16(), "answered");
    }
    response
}

async fn answer<B>(api: Arc<Api>, request: Request<B>) -> Result<Response<Body>>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let caller = guard::admit(&request, &api.reviewer)?;
    let registry = api.registry.load_full();
    let path = request.uri().path().to_string();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let route = Route::parse(&path, &registry);
    if caller == Caller::Anonymous && !matches!(route, Ok(Route::Health(_) | Route::Version)) {
        return Err(match &route {
            Ok(Route::Resource(place)) => {
                let verb = verb(request.method(), place.name.is_some(), query.flag("watch"));
                let namespace = Some(place.namespace.as_str()).filter(|namespace| !namespace.is_empty());
                ApiError::anonymous(&place.resource, verb, namespace, place.name.as_deref().unwrap_or_default())
            }
            _ => {
                let method = request.method().as_str().to_lowercase();
                ApiError::forbidden(format!("forbidden: User \"system:anonymous\" cannot {method} path \"{path}\""))
            }
        });
    }
    let route = route?;
    if let Route::Resource(place) = route {
        return resource(api, place, query, request).await;
    }
    if request.method() != Method::GET {
        return Err(ApiError::method_not_allowed(None));
    }
    let accept = Accept::parse(request.headers());
    let found = |value: Option<Value>| match (value, accept) {
        (Some(value), Some(accept)) => Ok(media::encode_value(200, &value, accept)),
        (Some(_), None) => Err(ApiError::not_acceptable()),
        (None, _) => Err(ApiError::unknown_resource()),
    };
    let nothing = || Ok(media::text(404, "404 page not found\n"));
    match route {
        Route::Health(name) => Ok(health(name, &query)),
        Route::Version => found(Some(discovery::version())),
        Route::Groups(core) => match accept.and_then(|accept| accept.discovery) {
            Some(version) => {
                let document = discovery::aggregated(&registry, core, version).to_string();
                let kind = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
                Ok(media::respond(200, &kind, document.into()))
            }
            None if core => found(Some(discovery::core_versions())),
            None => found(Some(discovery::groups(&registry))),
        },
        Route::Group(group) => match discovery::group(&registry, &group, true) {
            Some(value) => found(Some(value)),
            None => nothing(),
        },
        Route::Resources(group, _) if !group.is_empty() && registry.versions(&group).is_empty() => nothing(),
        Route::Resources(group, version) => found(discovery::resources(&registry, &group, &version)),
        Route::OpenApi(None) => found(Some(discovery::openapi_index(&registry))),
        Route::OpenApi(Some((group, version))) => found(discovery::openapi_document(&registry, &group, &version)),
        Route::Unknown | Route::Resource(_) => nothing(),
    }
}

fn health(name: &str, query: &Query) -> Response<Body> {
    let verbose = query.has("verbose");
    let body = if verbose { format!("[+]ping ok\n[+]store ok\n{name} check passed\n") } else { "ok".to_string() };
    media::text(200, body)
}

/// What a request for a resource needs at hand.
struct Call {
    api: Arc<Api>,
    place: Place,
    query: Query,
    accept: Accept,
    include: Include,
    content_type: String,
    body: Bytes,
}

async fn resource<B>(api: Arc<Api>, place: Place, query: Query, request: Request<B>) -> Result<Response<Body>>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let verb = verb(&parts.method, place.name.is_some(), query.flag("watch"));
    check_verb(&place, verb)?;
    let accept = Accept::parse(&parts.headers).ok_or_else(ApiError::not_acceptable)?;
    let include = match query.text("includeObject") {
        "" | "Metadata" => Include::Metadata,
        "None" => Include::Nothing,
        "Object" => Include::Object,
        other => return Err(ApiError::bad_request(format!("unrecognized includeObject value: {other}"))),
    };
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim().to_string();
    let body = if matches!(parts.method, Method::GET) { Bytes::new() } else { read(body).await? };
    let call = Call { api, place, query, accept, include, content_type, body };
    if call.place.subresource.is_some() {
        return call.subresource(verb).await;
    }
    call.main(verb)
}

async fn read<B>(body: B) -> Result<Bytes>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(ApiError::too_large(BODY_LIMIT)),
        Err(error) => Err(ApiError::bad_request(format!("cannot read the body: {error}"))),
    }
}

/// Refuses verbs that a path does not take.
fn check_verb(place: &Place, verb: &str) -> Result<()> {
    let resource = &place.resource;
    let refuse = || ApiError::method_not_allowed(Some(resource));
    let Some(subresource) = place.subresource.as_deref() else {
        let plain = match (&place.name, verb) {
            (Some(_), "create") | (None, "update" | "patch") | (_, "use") => false,
            // Objects of a namespace are made in it.
            (None, "create" | "deletecollection") => !resource.namespaced || !place.namespace.is_empty(),
            _ => true,
        };
        return if plain && resource.verbs().contains(&verb) { Ok(()) } else { Err(refuse()) };
    };
    let known = resource.subresources().into_iter().find(|(name, ..)| *name == subresource);
    match known {
        Some((.., verbs)) if verbs.contains(&verb) => Ok(()),
        Some(_) => Err(refuse()),
        // A custom resource names the object that it did not find; a built-in has no such path.
        None if resource.custom().is_some() && matches!(subresource, "status" | "scale") => {
            Err(ApiError::not_found(resource, place.name.as_deref().unwrap_or_default()))
        }
        None => Err(ApiError::unknown_resource()),
    }
}

impl Call {
    fn target(&self) -> Target<'_> {
        let name = self.place.name.as_deref().unwrap_or_default();
        Target { resource: &self.place.resource, namespace: &self.place.namespace, name }
    }

    fn kind(&self) -> &Resource {
        &self.place.resource
    }

    fn selector(&self) -> Result<Selector> {
        let query = &self.query;
        let selector = Selector::parse(self.kind(), query.text("labelSelector"), query.text("fieldSelector"))?;
        Ok(match &self.place.name {
            Some(name) => selector.named(name),
            None => selector,
        })
    }

    /// The body as an object: JSON, or YAML where it says so.
    fn object(&self) -> Result<Value> {
        let refuse = |error: String| ApiError::bad_request(format!("the body cannot be read: {error}"));
        let value: Value = match self.content_type.as_str() {
            "application/json" | "" => serde_json::from_slice(&self.body).map_err(|e| refuse(e.to_string()))?,
            "application/yaml" => serde_yaml_ng::from_slice(&self.body).map_err(|e| refuse(e.to_string()))?,
            _ => return Err(ApiError::unsupported_media("application/json, application/yaml")),
        };
        Ok(value)
    }

    fn main(self, verb: &str) -> Result<Response<Body>> {
        let (api, place) = (&self.api, &self.place);
        match verb {
            "get" if !self.query.flag("watch") => {
                let target = self.target();
                let object = api.store.get(&place.resource.table, &target.key()).ok_or_else(|| target.not_found())?;
                Ok(self.one(200, &object))
            }
            "list" => {
                let page = api.list(&place.resource, &place.namespace, &self.selector()?, &self.query)?;
                Ok(media::encode(200, page.encode(&place.resource, self.accept.form, self.include), self.accept))
            }
            "get" | "watch" => {
                let selector = self.selector()?;
                let (resource, namespace) = (&place.resource, &place.namespace);
                api.watch(resource, namespace, selector, &self.query, self.accept, self.include)
            }
            "create" => self.create(),
            "update" => {
                let options = WriteOptions::parse(&self.query, "UpdateOptions")?;
                let body = self.object()?;
                let target = self.target();
                let creates = place.resource.rules.create_on_update;
                if let Some(map) = body.as_object()
                    && !map.contains_key("kind")
                    && !map.contains_key("metadata")
                {
                    return Err(ApiError::bad_request("the body has neither kind nor metadata"));
                }
                self.check_named(&body)?;
                Ok(self.written(api.update(target, Part::Main, &options, creates, |_| Ok(body.clone()))?))
            }
            "patch" => {
                let options = WriteOptions::parse(&self.query, "PatchOptions")?;
                let patch = Patch::read(&self.content_type, &self.body, &place.resource)?;
                Ok(self.written(api.patch(self.target(), Part::Main, &patch, &options)?))
            }
            "delete" => {
                let options = self.delete_options()?;
                let done = api.delete(self.target(), &options)?;
                let name = place.name.as_deref().unwrap_or_default();
                if done.gone && !place.resource.rules.returns_deleted {
                    let uid = done.object.text("/metadata/uid");
                    let status = status::deleted(&place.resource, name, uid);
                    return Ok(media::encode_value(200, &status, self.plain()));
                }
                Ok(self.one(200, &done.object))
            }
            "deletecollection" => {
                let options = self.delete_options()?;
                let deleted = api.delete_collection(&place.resource, &place.namespace, &self.selector()?, &options)?;
                let page = Page::of(deleted, api.store.version());
                Ok(media::encode(200, page.encode(&place.resource, self.accept.form, self.include), self.accept))
            }
            _ => Err(ApiError::method_not_allowed(Some(&place.resource))),
        }
    }

    fn create(&self) -> Result<Response<Body>> {
        let place = &self.place;
        let options = WriteOptions::parse(&self.query, "CreateOptions")?;
        let body = self.object()?;
        if let Model::Review(answer) = &place.resource.model {
            let typed = self.api.typed(&place.resource, body)?;
            let mut answer = answer(&self.api.reviewer, &typed)?;
            answer["kind"] = place.resource.kind.clone().into();
            answer["apiVersion"] = place.resource.api_version().into();
            return Ok(media::encode_value(201, &answer, self.plain()));
        }
        Ok(self.written(self.api.create(&place.resource, &place.namespace, body, &options)?))
    }

    /// A PUT without metadata names nothing, and is refused before anything is looked up.
    fn check_named(&self, body: &Value) -> Result<()> {
        self.api.check_name(self.target(), body)
    }

    fn delete_options(&self) -> Result<DeleteOptions> {
        let body = if self.body.is_empty() { None } else { Some(self.object()?) };
        DeleteOptions::parse(&self.query, body.as_ref())
    }

    async fn subresource(self, verb: &str) -> Result<Response<Body>> {
        let (api, target) = (&self.api, self.target());
        let subresource = self.place.subresource.as_deref().unwrap_or_default();
        match (subresource, verb) {
            ("status", "get") => {
                let table = &target.resource.table;
                let object = api.store.get(table, &target.key()).ok_or_else(|| target.not_found())?;
                Ok(self.one(200, &object))
            }
            ("status", "update") => {
                let options = WriteOptions::parse(&self.query, "UpdateOptions")?;
                let body = self.object()?;
                self.check_named(&body)?;
                Ok(self.written(api.update(target, Part::Status, &options, false, |_| Ok(body.clone()))?))
            }
            ("status", _) => {
                let options = WriteOptions::parse(&self.query, "PatchOptions")?;
                let patch = Patch::read(&self.content_type, &self.body, target.resource)?;
                Ok(self.written(api.patch(target, Part::Status, &patch, &options)?))
            }
            ("scale", "get") => Ok(media::encode_value(200, &api.scale(target)?, self.plain())),
            ("scale", "update") => {
                let options = WriteOptions::parse(&self.query, "UpdateOptions")?;
                let body = self.object()?;
                let scale = api.set_scale(target, &options, |_| Ok(body.clone()))?;
                Ok(media::encode_value(200, &scale, self.plain()))
            }
            ("scale", _) => {
                let options = WriteOptions::parse(&self.query, "PatchOptions")?;
                let patch = Patch::read(&self.content_type, &self.body, target.resource)?;
                Ok(media::encode_value(200, &api.patch_scale(target, &patch, &options)?, self.plain()))
            }
            ("binding", _) => {
                let options = WriteOptions::parse(&self.query, "CreateOptions")?;
                api.bind(target, &self.object()?, &options)?;
                Ok(media::encode_value(201, &success(201), self.plain()))
            }
            ("eviction", _) => {
                let body = self.object()?;
                let options = DeleteOptions::parse(&self.query, body.get("deleteOptions"))?;
                api.delete(target, &options)?;
                Ok(media::encode_value(201, &success(201), self.plain()))
            }
            ("finalize", _) => {
                let body = self.object()?;
                let finalizers = body.pointer("/spec/finalizers").cloned().unwrap_or_default();
                let options = WriteOptions::parse(&self.query, "UpdateOptions")?;
                let written = api.update(target, Part::Internal, &options, false, |current| {
                    let current = current.ok_or_else(|| target.not_found())?;
                    let mut value = full(target.resource, current);
                    value["spec"]["finalizers"] = finalizers.clone();
                    Ok(value)
                })?;
                Ok(self.written(written))
            }
            ("log", _) => api.log(target, &self.query).await,
            _ => Err(ApiError::unknown_resource()),
        }
    }

    /// The client's encoding, for objects that have no other form.
    fn plain(&self) -> Accept {
        Accept { form: media::Form::Plain, ..self.accept }
    }

    fn one(&self, code: u16, object: &super::store::Object) -> Response<Body> {
        let json = encode_one(self.kind(), object, self.accept.form, self.include);
        media::encode(code, json, self.accept)
    }

    fn written(&self, written: Written) -> Response<Body> {
        let mut response = self.one(written.code, &written.object);
        for warning in &written.warnings {
            let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                response.headers_mut().append(HeaderName::from_static("warning"), value);
            }
        }
        response
    }
}

fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}
