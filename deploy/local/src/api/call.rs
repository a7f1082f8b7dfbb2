//! Handling of a request for a resource: each verb, on the resource or on a subresource of one object.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::columns::represent;
use super::core::Api;
use super::handler::RequestInfo;
use super::identity::Caller;
use super::list::represent_all;
use super::media::{self, Body, Form};
use super::patch::Patch;
use super::query::Selector;
use super::query::{DeleteOptions, Query, WriteOptions};
use super::resource::{Model, Target};
use super::status::{self, ApiError, Result};
use super::store::Object;
use super::write::{Part, Written, check_name, check_type};
use super::{protobuf, rbac};

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
    fn selector(&self) -> Result<Selector> {
        let query = &self.query;
        let selector = Selector::parse(&self.info.resource, query.text("labelSelector"), query.text("fieldSelector"))?;
        Ok(self.info.name.iter().fold(selector, |selector, name| selector.named(name)))
    }

    /// Parses the body as an object, from JSON or protobuf by its content type.
    fn object(&self) -> Result<Value> {
        match self.content_type.as_str() {
            "application/json" | "" => serde_json::from_slice(&self.body)
                .map_err(|error| ApiError::bad_request(format!("the body cannot be read: {error}"))),
            protobuf::CONTENT_TYPE => protobuf::read(&self.body),
            _ => Err(ApiError::unsupported_media("application/json")),
        }
    }

    /// Handles a verb on the resource or on a subresource of one object.
    pub(super) async fn answer(self, verb: &str) -> Result<Response<Body>> {
        let (api, info) = (&self.api, &self.info);
        let name = info.name.as_deref().unwrap_or_default();
        let target = Target { resource: &info.resource, namespace: &info.namespace, name };
        let subresource = info.subresource.as_deref().unwrap_or_default();
        let part = if subresource == "status" { Part::Status } else { Part::Main };
        match (subresource, verb) {
            _ if matches!(info.resource.model, Model::Measured) => self.metrics(&self.selector()?).await,
            ("", "list") => {
                let (objects, version) = api.list(&info.resource, &info.namespace, &self.selector()?, &self.query)?;
                Ok(self.list_response(&objects, Some(version)))
            }
            ("", "get" | "watch") if verb == "watch" || self.query.flag("watch") => {
                let (resource, namespace, selector) = (&info.resource, &info.namespace, self.selector()?);
                api.watch(resource, namespace, selector, &self.query, self.form)
            }
            ("" | "status", "get") => {
                let object = api.store.get(&info.resource.table, &target.key()).ok_or_else(|| target.not_found())?;
                Ok(self.object_response(200, &object))
            }
            ("", "create") => self.create(),
            ("" | "status", "update") => {
                let options = WriteOptions::parse(&self.query, "UpdateOptions")?;
                let body = self.object()?;
                // A PUT without metadata has no name and is rejected before the lookup.
                check_name(target, &body)?;
                let creates = part == Part::Main && info.resource.rules.create_on_update;
                Ok(self.write_response(api.update(target, part, &options, creates, |_| Ok(body.clone()))?))
            }
            ("" | "status", "patch") => {
                let options = WriteOptions::parse(&self.query, "PatchOptions")?;
                Ok(self.write_response(api.patch(target, part, &self.patch()?, &options)?))
            }
            ("", "delete") => {
                let done = api.delete(target, &self.delete_options()?)?;
                if done.gone && !info.resource.rules.returns_deleted {
                    let status = status::deleted(&info.resource, target.name, done.object.text("/metadata/uid"));
                    return Ok(media::encode_value(200, &status));
                }
                Ok(self.object_response(200, &done.object))
            }
            ("", "deletecollection") => {
                let options = self.delete_options()?;
                let deleted = api.delete_collection(&info.resource, &info.namespace, &self.selector()?, &options)?;
                Ok(self.list_response(&deleted, Some(api.store.version())))
            }
            ("scale", "get") => Ok(media::encode_value(200, &api.scale(target)?)),
            ("scale", "update") => {
                let (options, body) = (WriteOptions::parse(&self.query, "UpdateOptions")?, self.object()?);
                let replace = |scale: &mut Value| {
                    scale.clone_from(&body);
                    Ok(())
                };
                Ok(media::encode_value(200, &api.set_scale(target, &options, replace)?))
            }
            ("scale", _) => {
                let (options, patch) = (WriteOptions::parse(&self.query, "PatchOptions")?, self.patch()?);
                let change = |scale: &mut Value| patch.change(scale, target.resource);
                Ok(media::encode_value(200, &api.set_scale(target, &options, change)?))
            }
            ("binding", _) => {
                api.bind(target, &self.object()?, &WriteOptions::parse(&self.query, "CreateOptions")?)?;
                let done =
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
                Ok(media::encode_value(201, &done))
            }
            ("token", _) => {
                let given = api.tokens.issue(&api.store, target.namespace, target.name, self.object()?)?;
                Ok(media::encode_value(201, &given))
            }
            ("log", _) => api.log(target, &self.query).await,
            _ => Err(ApiError::unknown_resource()),
        }
    }

    fn create(&self) -> Result<Response<Body>> {
        let info = &self.info;
        let options = WriteOptions::parse(&self.query, "CreateOptions")?;
        let body = self.object()?;
        if matches!(info.resource.model, Model::Review) {
            let body = check_type(&info.resource, body)?;
            let answer = rbac::answer(&info.resource.kind, &self.api, &self.caller, &body)?;
            return Ok(media::encode_value(201, &info.resource.full(&answer)));
        }
        Ok(self.write_response(self.api.create(&info.resource, &info.namespace, body, &options)?))
    }

    fn delete_options(&self) -> Result<DeleteOptions> {
        let body = if self.body.is_empty() { None } else { Some(self.object()?) };
        DeleteOptions::parse(&self.query, body)
    }

    fn patch(&self) -> Result<Patch> {
        Patch::read(&self.content_type, &self.body, &self.info.resource)
    }

    pub(super) fn list_response(&self, objects: &[Arc<Object>], version: Option<u64>) -> Response<Body> {
        media::encode_value(200, &represent_all(&self.info.resource, objects, version, self.form))
    }

    pub(super) fn object_response(&self, code: u16, object: &Object) -> Response<Body> {
        media::encode_value(code, &represent(&self.info.resource, object, self.form, true))
    }

    fn write_response(&self, written: Written) -> Response<Body> {
        let mut response = self.object_response(written.code, &written.object);
        let kind = &self.info.resource;
        let made = kind.rules.warning.as_ref().filter(|_| written.code == 201);
        let made = made.map(|rule| format!("{} {} {rule}", kind.kind, Target::new(kind, &written.object).key()));
        for warning in written.warnings.iter().chain(&made) {
            let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                response.headers_mut().append(HeaderName::from_static("warning"), value);
            }
        }
        response
    }
}
