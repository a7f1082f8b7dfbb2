//! Converts a body to the stored state: parses it by the resource's model, sets the server's metadata and defaults, and
//! validates. Nothing is written here; [`super::write`] commits the result.
//!
//! Each Service gets a ClusterIP from a range.

use super::core::Api;
use super::fields::{self, object, text};
use super::meta::{self, metadata};
use super::query::{FieldValidation, WriteOptions};
use super::resource::{Generation, Model, Resource, Target};
use super::status::{ApiError, Causes, Result};
use super::store::Object;
use super::write::{Part, check_name};
use super::{builtin, crd, schema};
use crate::pool::{Allocation, Pool};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

impl Api {
    /// Prepares a new object from a body, with its address if it is a Service.
    pub(super) fn prepare_new(
        &self,
        resource: &Arc<Resource>,
        body: Value,
        options: &WriteOptions,
    ) -> Result<(Value, Vec<String>, Option<Allocation>)> {
        let (mut value, warnings) = read(resource, body, options)?;
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
            object(&mut value).remove("status");
        }
        let mut causes = Causes::default();
        set_defaults(resource, &mut value, None);
        let allocation = assign(&self.addresses, resource, &mut value, None, &mut causes);
        validate(resource, &value, None, causes)?;
        Ok((value, warnings, allocation))
    }

    /// Prepares the next state of an object from the requested one.
    pub(super) fn prepare_update(
        &self,
        target: Target<'_>,
        part: Part,
        current: &Object,
        candidate: Value,
        options: &WriteOptions,
    ) -> Result<(Value, Vec<String>, Option<Allocation>)> {
        let resource = target.resource;
        check_name(target, &candidate)?;
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
        let (mut value, warnings) = read(resource, candidate, options)?;
        let mut causes = Causes::default();
        keep_metadata(part, old, &mut value, options, &mut causes);
        match part {
            Part::Main if resource.rules.status => {
                fields::put(object(&mut value), "status", old.get("status").cloned());
            }
            Part::Status => {
                // For built-in kinds, a status update may change annotations too, in which controllers store data.
                let keys = ["managedFields", "annotations"];
                let keys = if resource.is_custom() { &keys[..1] } else { &keys[..] };
                let mut updated = old.clone();
                for key in keys {
                    fields::put(metadata(&mut updated), key, metadata(&mut value).remove(*key));
                }
                let status = value.get("status").filter(|status| !status.is_null());
                fields::put(object(&mut updated), "status", status.cloned());
                value = updated;
            }
            _ => {}
        }
        set_defaults(resource, &mut value, Some(old));
        let allocation = match part {
            Part::Status => None,
            _ => assign(&self.addresses, resource, &mut value, Some(old), &mut causes),
        };
        if part != Part::Status && increments_generation(resource, old, &value) {
            let next = fields::number(old, "/metadata/generation").unwrap_or(0) + 1;
            metadata(&mut value).insert("generation".into(), next.into());
        }
        match part {
            Part::Internal => {}
            _ => validate(resource, &value, Some(old), causes)?,
        }
        Ok((value, warnings, allocation))
    }
}

/// Parses a body by its model. Unknown fields are removed and named in the warnings.
fn read(resource: &Resource, mut value: Value, options: &WriteOptions) -> Result<(Value, Vec<String>)> {
    let refuse = |rule: String| {
        let (kind, version) = (&resource.kind, resource.api_version());
        ApiError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {rule}"))
    };
    let mut unknown = Vec::new();
    match &resource.model {
        Model::Typed(model) => model.schemas.read(&model.name, &mut value, &mut unknown).map_err(refuse)?,
        Model::Custom => schema::prune(&mut value, &resource.schema, "", &mut unknown),
        Model::Untyped | Model::Review | Model::Measured => {}
    }
    meta::tidy(metadata(&mut value));
    let warnings: Vec<String> = unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect();
    match options.field_validation {
        FieldValidation::Strict if !warnings.is_empty() => {
            Err(refuse(format!("strict decoding error: {}", warnings.join(", "))))
        }
        FieldValidation::Ignore => Ok((value, Vec::new())),
        _ => Ok((value, warnings)),
    }
}

/// Restores the server's metadata, whatever the body contains.
fn keep_metadata(part: Part, old: &Value, value: &mut Value, options: &WriteOptions, causes: &mut Causes) {
    let fields = metadata(value);
    if part != Part::Internal {
        let deletion = old.pointer("/metadata/deletionTimestamp");
        if let Some(wanted) = fields.get("deletionTimestamp").filter(|at| !at.is_null() && Some(*at) != deletion) {
            causes.invalid("metadata.deletionTimestamp", wanted, "field is immutable");
        }
        let owned = ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];
        for key in owned.into_iter().chain(["resourceVersion", "name", "namespace"]) {
            fields::put(fields, key, old.pointer(&format!("/metadata/{key}")).cloned());
        }
        let held = fields::items(old, "/metadata/finalizers");
        if deletion.is_some() && fields::list(fields, "finalizers").iter().any(|finalizer| !held.contains(finalizer)) {
            let rule = "no new finalizers can be added if the object is being deleted";
            causes.forbidden("metadata.finalizers", rule);
        }
    }
    // Only server-side apply writes the ownership of fields.
    if !options.owns_fields {
        fields::put(fields, "managedFields", old.pointer("/metadata/managedFields").cloned());
    }
    meta::tidy(fields);
}

fn validate(resource: &Resource, value: &Value, old: Option<&Value>, mut causes: Causes) -> Result<()> {
    meta::validate(resource, value, &mut causes);
    let known = causes.0.len();
    schema::validate(value, old, &resource.schema, "", &mut causes);
    let has_valid_schema = causes.0.len() == known;
    match resource.model {
        Model::Custom if has_valid_schema => crd::validate_rules(resource, value, &mut causes),
        Model::Typed(_) => builtin::validate(&resource.kind, value, old, &mut causes),
        _ => {}
    }
    causes.into_result(&resource.group, &resource.kind, text(value, "/metadata/name"))
}

/// Sets the defaults of the schema, and those of a built-in kind.
fn set_defaults(resource: &Resource, value: &mut Value, old: Option<&Value>) {
    schema::default(value, &resource.schema);
    if matches!(resource.model, Model::Typed(_)) {
        builtin::set_defaults(&resource.kind, value, old);
    }
}

/// Reports whether a change increments `metadata.generation`.
fn increments_generation(resource: &Resource, old: &Value, new: &Value) -> bool {
    let rules = &resource.rules;
    let is_counted = |key: &str| key != "metadata" && (key != "status" || !rules.status);
    let mut keys = fields::entries(old, "").chain(fields::entries(new, "")).map(|(key, _)| key.as_str());
    let differ = |pointer: &str| old.pointer(pointer) != new.pointer(pointer);
    let has_metadata_change = match rules.generation {
        Generation::Never => return false,
        Generation::Spec => false,
        Generation::SpecAndAnnotations => differ("/metadata/annotations"),
        Generation::SpecAndLabels => differ("/metadata/labels"),
    };
    has_metadata_change || keys.any(|key| is_counted(key) && old.get(key) != new.get(key))
}

pub(crate) const SERVICES: &str = "/services";

/// Assigns a ClusterIP to a Service, or restores its current one. Other resources do not change. The caller makes a new
/// allocation permanent once the write has succeeded.
fn assign(
    pool: &Pool,
    resource: &Resource,
    value: &mut Value,
    old: Option<&Value>,
    causes: &mut Causes,
) -> Option<Allocation> {
    if &*resource.table != SERVICES {
        return None;
    }
    let wanted = text(value, "/spec/clusterIP").to_string();
    let current = old.map(|old| text(old, "/spec/clusterIP").to_string()).unwrap_or_default();
    if text(value, "/spec/type") == "ExternalName" {
        if let Some(spec) = value.get_mut("spec").map(object) {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        return None;
    }
    if !current.is_empty() {
        if !wanted.is_empty() && wanted != current {
            causes.invalid("spec.clusterIPs[0]", &wanted.into(), "may not change once set");
        }
        set(value, &current);
        return None;
    }
    let allocation = match wanted.as_str() {
        "" => pool.allocate(),
        "None" => {
            set(value, "None");
            return None;
        }
        text => text.parse().ok().and_then(|address| pool.allocate_exact(address)),
    };
    match &allocation {
        Some(allocation) => set(value, &allocation.address().to_string()),
        None => {
            let rule = "failed to allocate IP: the address is taken or not in the valid range";
            causes.invalid("spec.clusterIPs", &json!([wanted]), rule);
        }
    }
    allocation
}

fn set(value: &mut Value, address: &str) {
    value["spec"]["clusterIP"] = address.into();
    value["spec"]["clusterIPs"] = json!([address]);
}
