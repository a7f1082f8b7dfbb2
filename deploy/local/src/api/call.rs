//! One request for a resource: each verb, on the resource itself or on a part of one object.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::core::Api;
use super::identity::Caller;
use super::list::{Page, encode_one};
use super::media::{self, Accept, Body};
use super::patch::Patch;
use super::protobuf;
use super::query::{DeleteOptions, Query, WriteOptions};
use super::resource::{Model, Resource};
use super::review;
use super::route::RequestInfo;
use super::selector::Selector;
use super::status::{self, ApiError, Result};
use super::store::Object;
use super::table::Include;
use super::target::Target;
use super::write::{Part, Written};
/// What a request for a resource needs at hand.
pub(super) struct Call {
    pub(super) api: Arc<Api>,
    pub(super) caller: Caller,
    pub(super) info: RequestInfo,
    pub(super) query: Query,
    pub(super) accept: Accept,
    pub(super) include: Include,
    pub(super) content_type: String,
    pub(super) body: Bytes,
}

impl Call {
    fn target(&self) -> Target<'_> {
        let name = self.info.name.as_deref().unwrap_or_default();
        Target { resource: &self.info.resource, namespace: &self.info.namespace, name }
    }

    fn kind(&self) -> &Resource {
        &self.info.resource
    }

    fn selector(&self) -> Result<Selector> {
        let query = &self.query;
        let selector = Selector::parse(self.kind(), query.text("labelSelector"), query.text("fieldSelector"))?;
        Ok(match &self.info.name {
            Some(name) => selector.named(name),
            None => selector,
        })
    }

    /// Reads the body as an object: JSON, or protobuf where it says so.
    fn object(&self) -> Result<Value> {
        let refuse = |error: String| ApiError::bad_request(format!("the body cannot be read: {error}"));
        let value: Value = match self.content_type.as_str() {
            "application/json" | "" => serde_json::from_slice(&self.body).map_err(|e| refuse(e.to_string()))?,
            protobuf::CONTENT_TYPE => protobuf::read(&self.body)?,
            _ => return Err(ApiError::unsupported_media("application/json")),
        };
        Ok(value)
    }

    /// Carries out a verb on the resource itself.
    pub(super) fn main(self, verb: &str) -> Result<Response<Body>> {
        let (api, info) = (&self.api, &self.info);
        if let Model::Measured = info.resource.model {
            return self.metrics(&self.selector()?);
        }
        match verb {
            "get" if !self.query.flag("watch") => {
                let target = self.target();
                let object = api.store.get(&info.resource.table, &target.key()).ok_or_else(|| target.not_found())?;
                Ok(self.one(200, &object))
            }
            "list" => {
                let page = api.list(&info.resource, &info.namespace, &self.selector()?, &self.query)?;
                Ok(media::encode(200, page.encode(&info.resource, self.accept.form, self.include), self.accept))
            }
            "get" | "watch" => {
                let selector = self.selector()?;
                let (resource, namespace) = (&info.resource, &info.namespace);
                api.watch(resource, namespace, selector, &self.query, self.accept, self.include)
            }
            "create" => self.create(),
            "update" => {
                let options = WriteOptions::parse(&self.query, "UpdateOptions")?;
                let body = self.object()?;
                let target = self.target();
                let creates = info.resource.rules.create_on_update;
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
                let patch = Patch::read(&self.content_type, &self.body, &info.resource)?;
                Ok(self.written(api.patch(self.target(), Part::Main, &patch, &options)?))
            }
            "delete" => {
                let options = self.delete_options()?;
                let done = api.delete(self.target(), &options)?;
                let name = info.name.as_deref().unwrap_or_default();
                if done.gone && !info.resource.rules.returns_deleted {
                    let uid = done.object.text("/metadata/uid");
                    let status = status::deleted(&info.resource, name, uid);
                    return Ok(media::encode_value(200, &status, self.plain()));
                }
                Ok(self.one(200, &done.object))
            }
            "deletecollection" => {
                let options = self.delete_options()?;
                let deleted = api.delete_collection(&info.resource, &info.namespace, &self.selector()?, &options)?;
                let page = Page::of(deleted, api.store.version());
                Ok(media::encode(200, page.encode(&info.resource, self.accept.form, self.include), self.accept))
            }
            _ => Err(ApiError::method_not_allowed(Some(&info.resource))),
        }
    }

    fn create(&self) -> Result<Response<Body>> {
        let info = &self.info;
        let options = WriteOptions::parse(&self.query, "CreateOptions")?;
        let body = self.object()?;
        if let Model::Review(review) = info.resource.model {
            let typed = self.api.typed(&info.resource, body)?;
            let mut answer = review::answer(review, &self.api, &self.caller, &typed)?;
            answer["kind"] = info.resource.kind.clone().into();
            answer["apiVersion"] = info.resource.api_version().into();
            return Ok(media::encode_value(201, &answer, self.plain()));
        }
        Ok(self.written(self.api.create(&info.resource, &info.namespace, body, &options)?))
    }

    /// A PUT without metadata names nothing, and is refused before anything is looked up.
    fn check_named(&self, body: &Value) -> Result<()> {
        self.api.check_name(self.target(), body)
    }

    fn delete_options(&self) -> Result<DeleteOptions> {
        let body = if self.body.is_empty() { None } else { Some(self.object()?) };
        DeleteOptions::parse(&self.query, body.as_ref())
    }

    /// Carries out a verb on a part of an object.
    pub(super) async fn subresource(self, verb: &str) -> Result<Response<Body>> {
        let (api, target) = (&self.api, self.target());
        let subresource = self.info.subresource.as_deref().unwrap_or_default();
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
            ("finalize", _) => {
                let body = self.object()?;
                let finalizers = body.pointer("/spec/finalizers").cloned().unwrap_or_default();
                let options = WriteOptions::parse(&self.query, "UpdateOptions")?;
                let written = api.update(target, Part::Internal, &options, false, |current| {
                    let current = current.ok_or_else(|| target.not_found())?;
                    let mut value = target.resource.full(&current.value);
                    value["spec"]["finalizers"] = finalizers.clone();
                    Ok(value)
                })?;
                Ok(self.written(written))
            }
            ("token", _) => {
                let given = api.tokens.give(&api.store, target.namespace, target.name, &self.object()?)?;
                Ok(media::encode_value(201, &given, self.plain()))
            }
            ("log", _) => api.log(target, &self.query).await,
            _ => Err(ApiError::unknown_resource()),
        }
    }

    /// The client's encoding, for objects that have no other form.
    fn plain(&self) -> Accept {
        Accept { form: media::Form::Plain, ..self.accept }
    }

    pub(super) fn one(&self, code: u16, object: &Object) -> Response<Body> {
        let json = encode_one(self.kind(), object, self.accept.form, self.include);
        media::encode(code, json, self.accept)
    }

    fn written(&self, written: Written) -> Response<Body> {
        let mut response = self.one(written.code, &written.object);
        let made = (written.code == 201).then(|| self.create_warning(&written.object)).flatten();
        for warning in written.warnings.iter().chain(&made) {
            let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                response.headers_mut().append(HeaderName::from_static("warning"), value);
            }
        }
        response
    }

    fn create_warning(&self, made: &Object) -> Option<String> {
        let warning = (*self.api.create_warning.read())?;
        let kind = self.kind();
        let title = kind.key(made.text("/metadata/namespace"), made.text("/metadata/name"));
        warning(&kind.api_version(), &kind.kind, &title)
    }
}

fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}
