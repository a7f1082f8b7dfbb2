//! Handling of a request for a resource: each verb, on the resource or on a subresource of one object.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::core::Api;
use super::identity::Caller;
use super::list::represent_all;
use super::media::{self, Body, Form};
use super::patch::Patch;
use super::protobuf;
use super::query::{DeleteOptions, Query, WriteOptions};
use super::resource::{Model, Resource, Target};
use super::review;
use super::route::RequestInfo;
use super::selector::Selector;
use super::status::{self, ApiError, Result};
use super::store::Object;
use super::table::represent;
use super::write::{Part, Written};

/// Data of a request for a resource.
pub(super) struct Call {
    pub(super) api: Arc<Api>,
    pub(super) caller: Caller,
    pub(super) info: RequestInfo,
    pub(super) query: Query,
    pub(super) form: Form,
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

    /// Parses the body as an object, from JSON or protobuf by its content type.
    fn object(&self) -> Result<Value> {
        let refuse = |error: String| ApiError::bad_request(format!("the body cannot be read: {error}"));
        let value: Value = match self.content_type.as_str() {
            "application/json" | "" => serde_json::from_slice(&self.body).map_err(|e| refuse(e.to_string()))?,
            protobuf::CONTENT_TYPE => protobuf::read(&self.body)?,
            _ => return Err(ApiError::unsupported_media("application/json")),
        };
        Ok(value)
    }

    /// Handles a verb on the resource or on a subresource of one object.
    pub(super) async fn answer(self, verb: &str) -> Result<Response<Body>> {
        let (api, info, target) = (&self.api, &self.info, self.target());
        let subresource = info.subresource.as_deref().unwrap_or_default();
        let part = if subresource == "status" { Part::Status } else { Part::Main };
        match (subresource, verb) {
            _ if matches!(info.resource.model, Model::Measured) => self.metrics(&self.selector()?).await,
            ("", "list") => {
                let (objects, version) = api.list(&info.resource, &info.namespace, &self.selector()?, &self.query)?;
                Ok(self.all(&objects, Some(version)))
            }
            ("", "get" | "watch") if verb == "watch" || self.query.flag("watch") => {
                let (resource, namespace, selector) = (&info.resource, &info.namespace, self.selector()?);
                api.watch(resource, namespace, selector, &self.query, self.form)
            }
            ("" | "status", "get") => {
                let object = api.store.get(&info.resource.table, &target.key()).ok_or_else(|| target.not_found())?;
                Ok(self.one(200, &object))
            }
            ("", "create") => self.create(),
            ("" | "status", "update") => {
                let options = self.write_options("UpdateOptions")?;
                let body = self.object()?;
                if body.as_object().is_some_and(|map| !map.contains_key("kind") && !map.contains_key("metadata")) {
                    return Err(ApiError::bad_request("the body has neither kind nor metadata"));
                }
                // A PUT without metadata has no name and is rejected before the lookup.
                api.check_name(target, &body)?;
                let creates = part == Part::Main && info.resource.rules.create_on_update;
                Ok(self.written(api.update(target, part, &options, creates, |_| Ok(body.clone()))?))
            }
            ("" | "status", "patch") => {
                let options = self.write_options("PatchOptions")?;
                Ok(self.written(api.patch(target, part, &self.patch()?, &options)?))
            }
            ("", "delete") => {
                let done = api.delete(target, &self.delete_options()?)?;
                if done.gone && !info.resource.rules.returns_deleted {
                    let status = status::deleted(&info.resource, target.name, done.object.text("/metadata/uid"));
                    return Ok(media::encode_value(200, &status));
                }
                Ok(self.one(200, &done.object))
            }
            ("", "deletecollection") => {
                let options = self.delete_options()?;
                let deleted = api.delete_collection(&info.resource, &info.namespace, &self.selector()?, &options)?;
                Ok(self.all(&deleted, Some(api.store.version())))
            }
            ("scale", "get") => Ok(media::encode_value(200, &api.scale(target)?)),
            ("scale", "update") => {
                let (options, body) = (self.write_options("UpdateOptions")?, self.object()?);
                Ok(media::encode_value(200, &api.set_scale(target, &options, |_| Ok(body.clone()))?))
            }
            ("scale", _) => {
                let (options, patch) = (self.write_options("PatchOptions")?, self.patch()?);
                let change = |mut scale| patch.change(&mut scale, target.resource).map(|()| scale);
                Ok(media::encode_value(200, &api.set_scale(target, &options, change)?))
            }
            ("binding", _) => {
                api.bind(target, &self.object()?, &self.write_options("CreateOptions")?)?;
                let done =
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
                Ok(media::encode_value(201, &done))
            }
            ("finalize", _) => {
                let finalizers = self.object()?.pointer("/spec/finalizers").cloned().unwrap_or_default();
                let options = self.write_options("UpdateOptions")?;
                let written = api.update(target, Part::Internal, &options, false, |current| {
                    let current = current.ok_or_else(|| target.not_found())?;
                    let mut value = target.resource.full(&current.value);
                    value["spec"]["finalizers"] = finalizers.clone();
                    Ok(value)
                })?;
                Ok(self.written(written))
            }
            ("token", _) => {
                let given = api.tokens.issue(&api.store, target.namespace, target.name, &self.object()?)?;
                Ok(media::encode_value(201, &given))
            }
            ("log", _) => api.log(target, &self.query).await,
            ("", _) => Err(ApiError::method_not_allowed(Some(&info.resource))),
            _ => Err(ApiError::unknown_resource()),
        }
    }

    fn create(&self) -> Result<Response<Body>> {
        let info = &self.info;
        let options = self.write_options("CreateOptions")?;
        let body = self.object()?;
        if matches!(info.resource.model, Model::Review) {
            let typed = self.api.typed(&info.resource, body)?;
            let answer = review::answer(&info.resource.kind, &self.api, &self.caller, &typed)?;
            return Ok(media::encode_value(201, &info.resource.full(&answer)));
        }
        Ok(self.written(self.api.create(&info.resource, &info.namespace, body, &options)?))
    }

    fn write_options(&self, kind: &str) -> Result<WriteOptions> {
        WriteOptions::parse(&self.query, kind)
    }

    fn delete_options(&self) -> Result<DeleteOptions> {
        let body = if self.body.is_empty() { None } else { Some(self.object()?) };
        DeleteOptions::parse(&self.query, body.as_ref())
    }

    fn patch(&self) -> Result<Patch> {
        Patch::read(&self.content_type, &self.body, &self.info.resource)
    }

    pub(super) fn all(&self, objects: &[Arc<Object>], version: Option<u64>) -> Response<Body> {
        media::encode_value(200, &represent_all(self.kind(), objects, version, self.form))
    }

    pub(super) fn one(&self, code: u16, object: &Object) -> Response<Body> {
        media::encode_value(code, &represent(self.kind(), object, self.form, true))
    }

    fn written(&self, written: Written) -> Response<Body> {
        let mut response = self.one(written.code, &written.object);
        let kind = self.kind();
        let made = kind.rules.warning.as_ref().filter(|_| written.code == 201).map(|rule| {
            let [namespace, name] =
                ["namespace", "name"].map(|field| written.object.text(&format!("/metadata/{field}")));
            format!("{} {} {rule}", kind.kind, kind.key(namespace, name))
        });
        for warning in written.warnings.iter().chain(&made) {
            let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                response.headers_mut().append(HeaderName::from_static("warning"), value);
            }
        }
        response
    }
}
