//! PATCH in its four formats, and the scale subresource.

use serde_json::{Value, json};

use super::core::Api;
use super::fields::{number, text};
use super::meta::metadata;
use super::query::WriteOptions;
use super::resource::{Resource, Target};
use super::status::Causes;
use super::status::{ApiError, Result};
use super::strategic::Shape;
use super::write::{Part, Written, check_given_name};
use super::{apply, query, strategic};

/// A parsed PATCH.
#[derive(Debug)]
pub(crate) enum Patch {
    /// RFC 6902.
    Json(Vec<json_patch::PatchOperation>),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' strategic merge: lists merge by keys.
    Strategic(Value),
    /// Server-side apply.
    Apply(Value),
}

impl Patch {
    /// Parses a patch by its content type.
    pub(crate) fn read(content_type: &str, body: &[u8], resource: &Resource) -> Result<Self> {
        let json = || {
            serde_json::from_slice(body)
                .map_err(|error| ApiError::bad_request(format!("the patch is not valid: {error}")))
        };
        let map = |value: Value| {
            let rule = || ApiError::bad_request("the patch must be a JSON object");
            value.is_object().then_some(value).ok_or_else(rule)
        };
        match content_type {
            "application/json-patch+json" => {
                let value: Value = json()?;
                if !value.is_array() {
                    return Err(ApiError::bad_request("the patch must be a JSON array of operations"));
                }
                serde_json::from_value(value)
                    .map(Patch::Json)
                    .map_err(|error| ApiError::unprocessable(format!("the patch is not valid: {error}")))
            }
            "application/merge-patch+json" => Ok(Patch::Merge(map(json()?)?)),
            "application/strategic-merge-patch+json" if !resource.is_custom() => Ok(Patch::Strategic(map(json()?)?)),
            "application/apply-patch+yaml" => {
                let value = serde_yaml_ng::from_slice(body)
                    .map_err(|error| ApiError::bad_request(format!("the patch is not valid: {error}")))?;
                Ok(Patch::Apply(map(value)?))
            }
            _ => Err(ApiError::unsupported_media(match resource.is_custom() {
                true => "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                false => {
                    "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml"
                }
            })),
        }
    }

    /// Changes a document. An apply needs more than the document, so it fails here.
    pub(crate) fn change(&self, document: &mut Value, resource: &Resource) -> Result<()> {
        match self {
            Patch::Json(operations) => json_patch::patch(document, operations)
                .map_err(|error| ApiError::unprocessable(format!("the server rejected the patch: {error}")))?,
            Patch::Merge(patch) => json_patch::merge(document, patch),
            Patch::Strategic(patch) => strategic::merge(document, patch, Shape::for_resource(resource)),
            Patch::Apply(_) => {
                return Err(ApiError::unprocessable("this subresource does not support server-side apply"));
            }
        }
        Ok(())
    }
}

impl Api {
    /// Patches an object or its status.
    pub(crate) fn patch(
        &self,
        target: Target<'_>,
        part: Part,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Written> {
        let resource = target.resource;
        if let Patch::Apply(config) = patch {
            return self.apply(target, part, config, options);
        }
        self.modify(target, part, options, |document| patch.change(document, resource))
    }

    fn apply(&self, target: Target<'_>, part: Part, config: &Value, options: &WriteOptions) -> Result<Written> {
        let resource = target.resource;
        if options.manager.is_empty() {
            let mut causes = Causes::default();
            causes.required("fieldManager", "is required for apply patch");
            return Err(ApiError::invalid_kind("meta.k8s.io", "PatchOptions", "", causes));
        }
        let (kind, version) = (text(config, "/kind"), text(config, "/apiVersion"));
        if kind != resource.kind || version != resource.api_version() {
            return Err(ApiError::bad_request(format!(
                "apply: apiVersion and kind must be {} and {}, not \"{version}\" and \"{kind}\"",
                resource.api_version(),
                resource.kind
            )));
        }
        if config.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        check_given_name(target, config)?;
        let options = WriteOptions { owns_fields: true, ..options.clone() };
        let creates = part == Part::Main;
        self.update(target, part, &options, creates, |live| {
            let mut document = apply::apply(resource, part, live, config, &options)?;
            metadata(&mut document).entry("name").or_insert_with(|| target.name.into());
            Ok(document)
        })
    }

    pub(crate) fn scale(&self, target: Target<'_>) -> Result<Value> {
        let object = self.store.get(&target.resource.table, &target.key()).ok_or_else(|| target.not_found())?;
        scale_of(target.resource, &object.value)
    }

    /// Replaces or patches the scale of an object. `change` changes the current Scale.
    pub(crate) fn set_scale(
        &self,
        target: Target<'_>,
        options: &WriteOptions,
        mut change: impl FnMut(&mut Value) -> Result<()>,
    ) -> Result<Value> {
        let resource = target.resource;
        let paths = resource.rules.scale.as_ref().ok_or_else(ApiError::unknown_resource)?;
        let written = self.modify(target, Part::Main, options, |document| {
            let mut wanted = scale_of(resource, document)?;
            change(&mut wanted)?;
            check_given_name(target, &wanted)?;
            let replicas = match wanted.pointer("/spec/replicas") {
                None | Some(Value::Null) => 0,
                Some(value) => value.as_i64().ok_or_else(|| {
                    ApiError::bad_request(format!("spec.replicas of the Scale must be a whole number, not {value}"))
                })?,
            };
            if !(0..=i64::from(i32::MAX)).contains(&replicas) {
                let mut causes = Causes::default();
                causes.invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
                return Err(ApiError::invalid_kind("autoscaling", "Scale", target.name, causes));
            }
            let version = text(&wanted, "/metadata/resourceVersion");
            if !version.is_empty() {
                metadata(document).insert("resourceVersion".into(), version.into());
            }
            set(document, &paths.spec_replicas_path, replicas.into());
            Ok(())
        })?;
        scale_of(resource, &written.object.value)
    }
}

fn scale_of(resource: &Resource, value: &Value) -> Result<Value> {
    let paths = resource.rules.scale.as_ref().ok_or_else(ApiError::unknown_resource)?;
    let field = |name: &str| value.pointer(&format!("/metadata/{name}")).cloned().unwrap_or_default();
    let replicas = |path: &str| number(value, &pointer(path)).unwrap_or(0);
    let mut status = json!({"replicas": replicas(&paths.status_replicas_path)});
    if let Some(selector) = paths.label_selector_path.as_ref().and_then(|path| value.pointer(&pointer(path))) {
        status["selector"] = query::to_text(selector).into();
    }
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": field("name"), "namespace": field("namespace"), "uid": field("uid"),
            "resourceVersion": field("resourceVersion"), "creationTimestamp": field("creationTimestamp"),
        },
        "spec": {"replicas": replicas(&paths.spec_replicas_path)},
        "status": status,
    }))
}

/// Converts a path of a definition, such as `.spec.replicas`, to a JSON pointer.
fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

/// Sets a value at a path, and creates maps on the way.
fn set(document: &mut Value, path: &str, value: Value) {
    let mut slot = document;
    for key in path.split('.').skip(1) {
        slot = super::fields::object(slot).entry(key).or_insert(Value::Null);
    }
    *slot = value;
}
