//! Create and update: from a body to a stored object.
//!
//! Every write prepares the state to store ([`super::prepare`]), and commits it against the version that it has read.
//! If the object has changed meanwhile, the write starts again from the new state. If the client specified a version,
//! it gets a conflict instead.

use std::sync::Arc;

use common_api::numbers;
use serde_json::Value;

use super::core::Api;
use super::fields::{self, text};
use super::meta::{self, metadata};
use super::query::WriteOptions;
use super::resource::{Resource, Target};
use super::status::{ApiError, Result};
use super::store::{Clash, NAMESPACES, Object};
use crate::pool::Allocation;

/// Part of an object that a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All except parts with a subresource of their own.
    Main,
    /// Status only.
    Status,
    /// Any part, for the server itself.
    Internal,
}

#[derive(Debug)]
pub(crate) struct Written {
    /// 200 or 201.
    pub(crate) code: u16,
    /// Current or last state of the object.
    pub(crate) object: Arc<Object>,
    /// Unknown fields that were dropped.
    pub(crate) warnings: Vec<String>,
}

/// Maximum number of attempts before the client gets a conflict.
const ATTEMPTS: usize = 64;

impl Api {
    pub(crate) fn create(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Written> {
        let mut body = check_type(resource, body)?;
        let found = text(&body, "/metadata/namespace");
        if !found.is_empty() && found != namespace {
            let rule = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::bad_request(rule));
        }
        if resource.namespaced {
            metadata(&mut body).insert("namespace".into(), namespace.into());
        }
        if !text(&body, "/metadata/resourceVersion").is_empty() {
            return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
        }
        if resource.namespaced && self.store.get(NAMESPACES, namespace).is_none() {
            return Err(ApiError::not_found_named("namespaces", namespace));
        }
        let prefix = text(&body, "/metadata/generateName").to_string();
        let generated = text(&body, "/metadata/name").is_empty() && !prefix.is_empty();
        let mut attempts = if generated { 8 } else { 1 };
        loop {
            let mut candidate = body.clone();
            if generated {
                metadata(&mut candidate).insert("name".into(), meta::generate_name(&prefix).into());
            }
            let (value, warnings, allocation) = self.prepare_new(resource, candidate, options)?;
            let name = text(&value, "/metadata/name").to_string();
            let target = Target { resource, namespace, name: &name };
            if options.dry_run {
                if self.store.get(&resource.table, &target.key()).is_some() {
                    return Err(ApiError::already_exists(resource, &name));
                }
                return Ok(Written { code: 201, object: Object::new(value, 0), warnings });
            }
            attempts -= 1;
            match self.commit(target, None, Some(value)) {
                Ok(object) => {
                    allocation.into_iter().for_each(Allocation::keep);
                    return Ok(Written { code: 201, object, warnings });
                }
                Err(Clash::Changed) if attempts > 0 => {}
                Err(Clash::Changed) => return Err(ApiError::already_exists(resource, &name)),
                Err(Clash::NamespaceMissing) => return Err(ApiError::not_found_named("namespaces", namespace)),
                Err(Clash::NamespaceTerminating) => return Err(ApiError::terminating(resource, &name, namespace)),
            }
        }
    }

    /// Changes an object in place. `change` is called again, with the new state, if the object changes meanwhile.
    pub(crate) fn modify(
        &self,
        target: Target<'_>,
        part: Part,
        options: &WriteOptions,
        mut change: impl FnMut(&mut Value) -> Result<()>,
    ) -> Result<Written> {
        self.update(target, part, options, false, |current| {
            let mut value = current.ok_or_else(|| target.not_found())?;
            change(&mut value).map(|()| value)
        })
    }

    /// Updates an object. `change` computes the new state from the current one, and is called again if the object
    /// changes meanwhile. If the object does not exist and `create` is true, `change` gets `None`.
    pub(crate) fn update(
        &self,
        target: Target<'_>,
        part: Part,
        options: &WriteOptions,
        create: bool,
        mut change: impl FnMut(Option<Value>) -> Result<Value>,
    ) -> Result<Written> {
        let Target { resource, namespace, .. } = target;
        let key = target.key();
        for _ in 0..ATTEMPTS {
            let Some(current) = self.store.get(&resource.table, &key) else {
                if !create {
                    return Err(target.not_found());
                }
                let mut body = check_type(resource, change(None)?)?;
                check_name(target, &body)?;
                metadata(&mut body).remove("resourceVersion");
                match self.create(resource, namespace, body, options) {
                    Err(error) if error.body["reason"] == "AlreadyExists" => continue,
                    written => return written,
                }
            };
            let candidate = check_type(resource, change(Some(resource.full(&current.value)))?)?;
            let (value, warnings, allocation) = self.prepare_update(target, part, &current, candidate, options)?;
            if value == current.value {
                return Ok(Written { code: 200, object: current, warnings });
            }
            if options.dry_run {
                return Ok(Written { code: 200, object: Object::new(value, current.version), warnings });
            }
            let expect = Some(current.version);
            let committed = if is_finished(resource, &value) {
                // Watchers get the stored state as the last one; the caller gets the state that ended the object.
                self.commit(target, expect, None).map(|gone| Object::new(value, gone.version))
            } else {
                self.commit(target, expect, Some(value))
            };
            if let Ok(object) = committed {
                allocation.into_iter().for_each(Allocation::keep);
                return Ok(Written { code: 200, object, warnings });
            }
        }
        Err(target.conflict(super::status::MODIFIED))
    }
}

/// Checks and removes `apiVersion` and `kind` of a body. Normalizes its numbers as Kubernetes does.
pub(crate) fn check_type(resource: &Resource, mut body: Value) -> Result<Value> {
    let Some(map) = body.as_object_mut() else {
        return Err(ApiError::bad_request(format!("{}: the body is not an object", resource.kind)));
    };
    for (field, wanted) in [("kind", resource.kind.clone()), ("apiVersion", resource.api_version())] {
        let found = map.remove(field).unwrap_or_default();
        if !found.is_null() && found != wanted {
            let rule = format!("the {field} in the data ({found}) does not match the expected one ({wanted})");
            return Err(ApiError::bad_request(rule));
        }
    }
    if map.get("metadata").is_some_and(|metadata| !metadata.is_object() && !metadata.is_null()) {
        return Err(ApiError::bad_request(format!("{}: metadata is not an object", resource.kind)));
    }
    metadata(&mut body);
    numbers::as_stored(&mut body);
    Ok(body)
}

/// Checks that the body has the name in the path.
pub(crate) fn check_name(target: Target<'_>, body: &Value) -> Result<()> {
    if text(body, "/metadata/name").is_empty() {
        return Err(ApiError::bad_request("name must be provided in the object"));
    }
    check_given_name(target, body)
}

/// Checks that the body has the name in the path, or none.
pub(crate) fn check_given_name(target: Target<'_>, body: &Value) -> Result<()> {
    let name = text(body, "/metadata/name");
    if name.is_empty() || name == target.name {
        return Ok(());
    }
    let rule = format!("the name of the object ({name}) does not match the name on the URL ({})", target.name);
    Err(ApiError::bad_request(rule))
}

/// Reports whether nothing prevents the removal of an object that is being deleted.
pub(crate) fn is_finished(resource: &Resource, value: &Value) -> bool {
    let held = |pointer: &str| !fields::items(value, pointer).is_empty();
    let is_terminating = !text(value, "/metadata/deletionTimestamp").is_empty();
    let has_grace = fields::number(value, "/metadata/deletionGracePeriodSeconds").unwrap_or(0) != 0;
    let has_contents = &*resource.table == NAMESPACES && held("/spec/finalizers");
    is_terminating && !has_grace && !has_contents && !held("/metadata/finalizers")
}
