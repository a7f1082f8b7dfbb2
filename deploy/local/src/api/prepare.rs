//! Converts a body to the stored state: parses it by the resource's model, sets the server's metadata and defaults, and
//! validates. Nothing is written here; [`super::write`] commits the result.

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use super::address::assign;
use super::builtin;
use super::causes::Causes;
use super::core::Api;
use super::crd;
use super::fields::{self, text};
use super::meta::{self, metadata};
use super::query::{FieldValidation, WriteOptions};
use super::resource::{Generation, Model, Resource, Target};
use super::schema;
use super::status::{ApiError, Result};
use super::store::Object;
use super::write::Part;
use crate::pool::Leased;

impl Api {
    /// Prepares a new object from a body, with its address if it is a Service.
    pub(super) fn prepare_new(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        body: Value,
        options: &WriteOptions,
    ) -> Result<(Value, Vec<String>, Option<Leased>)> {
        let (mut value, warnings) = self.read(resource, body, options)?;
        let fields = metadata(&mut value);
        let managed = fields.remove("managedFields");
        meta::clear_server_owned(fields);
        if let Some(managed) = managed.filter(|_| options.owns_fields) {
            fields.insert("managedFields".into(), managed);
        }
        fields.insert("uid".into(), Uuid::new_v4().to_string().into());
        fields.insert("creationTimestamp".into(), meta::now().into());
        if resource.rules.generation != Generation::Never {
            fields.insert("generation".into(), 1.into());
        }
        if resource.rules.status {
            fields::object(&mut value).remove("status");
        }
        let mut causes = Causes::default();
        set_defaults(resource, &mut value, None);
        let lease = assign(&self.addresses, resource, &mut value, None, &mut causes);
        self.validate(resource, &value, None, causes)?;
        debug_assert_eq!(text(&value, "/metadata/namespace"), namespace);
        Ok((value, warnings, lease))
    }

    /// Prepares the next state of an object from the requested one.
    pub(super) fn prepare_update(
        &self,
        target: Target<'_>,
        part: Part,
        current: &Object,
        candidate: Value,
        options: &WriteOptions,
    ) -> Result<(Value, Vec<String>, Option<Leased>)> {
        let resource = target.resource;
        self.check_name(target, &candidate)?;
        let old = &current.value;
        if resource.namespaced {
            let namespace = text(&candidate, "/metadata/namespace");
            if !namespace.is_empty() && namespace != target.namespace {
                return Err(ApiError::bad_request(format!(
                    "the namespace of the object ({namespace}) does not match the namespace on the URL ({})",
                    target.namespace
                )));
            }
        }
        let uid = text(&candidate, "/metadata/uid");
        if !uid.is_empty() && uid != current.text("/metadata/uid") {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                current.text("/metadata/uid")
            );
            return Err(target.conflict(&why));
        }
        match text(&candidate, "/metadata/resourceVersion") {
            "" if resource.rules.versioned_update => {
                let mut causes = Causes::default();
                causes.invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
                return Err(ApiError::invalid_kind(&resource.group, &resource.plural, target.name, causes));
            }
            "" => {}
            version if version.parse::<u64>().is_err() => {
                return Err(ApiError::bad_request(format!("resourceVersion \"{version}\" is not a number")));
            }
            version if version.parse() != Ok(current.version) => {
                return Err(target.conflict(super::status::MODIFIED));
            }
            _ => {}
        }
        let (mut value, warnings) = self.read(resource, candidate, options)?;
        let mut causes = Causes::default();
        self.keep_metadata(part, old, &mut value, options, &mut causes);
        match part {
            Part::Main if resource.rules.status => {
                fields::put(fields::object(&mut value), "status", old.get("status").cloned());
            }
            Part::Status => {
                let status = value.get("status").cloned();
                // For built-in kinds, a status update may change annotations, in which controllers keep notes.
                let kept = |key: &&str| *key == "managedFields" || !resource.is_custom();
                let keys = ["managedFields", "annotations"];
                let notes = keys.into_iter().filter(kept).map(|key| (key, metadata(&mut value).remove(key)));
                let notes: Vec<_> = notes.collect();
                value = old.clone();
                fields::put(fields::object(&mut value), "status", status.filter(|status| !status.is_null()));
                for (key, note) in notes {
                    fields::put(metadata(&mut value), key, note);
                }
            }
            _ => {}
        }
        set_defaults(resource, &mut value, Some(old));
        let lease = match part {
            Part::Status => None,
            _ => assign(&self.addresses, resource, &mut value, Some(old), &mut causes),
        };
        if part != Part::Status && generation_counts(resource, old, &value) {
            let next = fields::number(old, "/metadata/generation").unwrap_or(0) + 1;
            metadata(&mut value).insert("generation".into(), next.into());
        }
        match part {
            Part::Internal => {}
            _ => self.validate(resource, &value, Some(old), causes)?,
        }
        Ok((value, warnings, lease))
    }

    /// Restores the server's metadata, whatever the body has.
    fn keep_metadata(&self, part: Part, old: &Value, value: &mut Value, options: &WriteOptions, causes: &mut Causes) {
        let fields = metadata(value);
        if part != Part::Internal {
            let wanted = fields.get("deletionTimestamp").filter(|at| !at.is_null());
            if wanted.is_some() && wanted != old.pointer("/metadata/deletionTimestamp") {
                let wanted = wanted.cloned().unwrap_or_default();
                causes.invalid("metadata.deletionTimestamp", &wanted, "field is immutable");
            }
            let owned = ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];
            for key in owned.into_iter().chain(["resourceVersion", "name", "namespace"]) {
                fields::put(fields, key, old.pointer(&format!("/metadata/{key}")).cloned());
            }
            let held = |value: &Value| value.as_array().cloned().unwrap_or_default();
            if old.pointer("/metadata/deletionTimestamp").is_some() {
                let before = old.pointer("/metadata/finalizers").map(held).unwrap_or_default();
                let after = fields.get("finalizers").map(held).unwrap_or_default();
                if after.iter().any(|finalizer| !before.contains(finalizer)) {
                    let rule = "no new finalizers can be added if the object is being deleted";
                    causes.forbidden("metadata.finalizers", rule);
                }
            }
        }
        // Only server-side apply writes the ownership of fields.
        if !options.owns_fields {
            fields::put(fields, "managedFields", old.pointer("/metadata/managedFields").cloned());
        }
        meta::tidy(fields);
    }

    /// Parses a body by its model. Unknown fields are removed and named in the warnings.
    fn read(&self, resource: &Resource, body: Value, options: &WriteOptions) -> Result<(Value, Vec<String>)> {
        let refuse = |rule: String| {
            let (kind, version) = (&resource.kind, resource.api_version());
            ApiError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {rule}"))
        };
        let mut unknown = Vec::new();
        let mut value = body;
        match &resource.model {
            Model::Typed(model) => {
                model.schemas.read(&model.name, &mut value, &mut unknown).map_err(refuse)?;
            }
            Model::Custom(_) => schema::prune(&mut value, &resource.schema, &mut unknown),
            Model::Kept | Model::Review | Model::Measured => {}
        }
        meta::tidy(metadata(&mut value));
        let warnings: Vec<String> = unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect();
        if options.field_validation == FieldValidation::Strict && !warnings.is_empty() {
            let (kind, version) = (&resource.kind, resource.api_version());
            return Err(ApiError::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {}",
                warnings.join(", ")
            )));
        }
        let silent = options.field_validation == FieldValidation::Ignore;
        Ok((value, if silent { Vec::new() } else { warnings }))
    }

    fn validate(&self, resource: &Resource, value: &Value, old: Option<&Value>, mut causes: Causes) -> Result<()> {
        meta::validate(resource, value, &mut causes);
        let mut found = Causes::default();
        schema::validate(value, &resource.schema, &resource.patterns, &mut found);
        let is_sound = found.is_empty();
        causes.extend(found);
        match resource.model {
            Model::Custom(Some(rules)) if is_sound => crd::validate_rules(rules, value, &mut causes),
            Model::Typed(_) => builtin::validate(&resource.kind, value, old, &mut causes),
            _ => {}
        }
        if causes.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(resource, text(value, "/metadata/name"), causes))
    }
}

/// Sets the defaults of the schema, and those of a built-in kind.
fn set_defaults(resource: &Resource, value: &mut Value, old: Option<&Value>) {
    schema::default(value, &resource.schema);
    if matches!(resource.model, Model::Typed(_)) {
        builtin::set_defaults(&resource.kind, value, old);
    }
}

/// Reports whether a change increments `metadata.generation`.
fn generation_counts(resource: &Resource, old: &Value, new: &Value) -> bool {
    let differ = |skip: &[&str]| {
        let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return false };
        let keys = old.keys().chain(new.keys()).filter(|key| !skip.contains(&key.as_str()));
        keys.into_iter().any(|key| old.get(key) != new.get(key))
    };
    let field = |value: &Value, name: &str| value.pointer(&format!("/metadata/{name}")).cloned();
    match resource.rules.generation {
        Generation::Never => false,
        Generation::SpecAndAnnotations => {
            differ(&["metadata", "status"]) || field(old, "annotations") != field(new, "annotations")
        }
        Generation::Spec if resource.rules.status => differ(&["metadata", "status"]),
        Generation::Spec => differ(&["metadata"]),
        Generation::Any => differ(&["metadata"]) || field(old, "labels") != field(new, "labels"),
    }
}
