//! Manifests: read, checked, applied.
//!
//! What cannot be meant is refused before anything is written, with the file, the document and the field.

use crate::api::schema;
use anyhow::Context;
use common::config::AutoscalerConfig;
use common_api::ZeroScaler;
use common_api::zeroscaler::crd::crd;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::Scope;
use kube::{Api, Client, ResourceExt, discovery};
use serde::Deserialize;
use std::path::Path;

/// Who applies, in `managedFields`.
const FIELD_MANAGER: &str = "local-up";

/// One object of a manifest and where it stands.
#[derive(Debug)]
pub struct Manifest {
    /// File and document, for errors.
    pub(super) origin: String,
    pub(super) types: TypeMeta,
    pub(super) object: DynamicObject,
}

/// Reads all documents of `path` (`-`: standard input).
///
/// # Errors
/// The file cannot be read, is no YAML, or holds something that is no Kubernetes object.
pub fn read(path: &Path) -> anyhow::Result<Vec<Manifest>> {
    let text = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("standard input cannot be read")?
    } else {
        std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?
    };
    parse(&path.display().to_string(), &text)
}

/// Parses the documents in `text`, which `file` names in errors.
///
/// # Errors
/// As [`read`].
pub fn parse(file: &str, text: &str) -> anyhow::Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for (index, document) in serde_yaml_ng::Deserializer::from_str(text).enumerate() {
        let origin = format!("{file}, document {}", index + 1);
        let value = serde_json::Value::deserialize(document).with_context(|| format!("{origin}: no YAML"))?;
        if value.is_null() {
            continue;
        }
        let field = |name: &str| value.get(name).and_then(|v| v.as_str()).filter(|v| !v.is_empty());
        let Some(kind) = field("kind") else { anyhow::bail!("{origin}: field kind: must name the kind of object") };
        let Some(api_version) = field("apiVersion") else {
            anyhow::bail!("{origin}: field apiVersion: must name group and version")
        };
        let types = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
        if kind == "ZeroScaler" {
            check_scaler(&value).with_context(|| origin.clone())?;
        }
        let object: DynamicObject = serde_json::from_value(value).with_context(|| format!("{origin}: no object"))?;
        anyhow::ensure!(
            object.metadata.name.is_some() || object.metadata.generate_name.is_some(),
            "{origin}: field metadata.name: must be set"
        );
        manifests.push(Manifest { origin, types, object });
    }
    Ok(manifests)
}

fn check_scaler(value: &serde_json::Value) -> anyhow::Result<()> {
    let name = value.pointer("/metadata/name").and_then(|n| n.as_str()).unwrap_or_default();
    let read: Result<ZeroScaler, _> = serde_path_to_error::deserialize(value);
    let scaler = read.with_context(|| format!("ZeroScaler {name}"))?;
    let unknown = unknown_fields(value.clone()).join(", ");
    anyhow::ensure!(unknown.is_empty(), "ZeroScaler {name}: no such field: {unknown}");
    // The cluster's own configuration may allow less; the autoscaler says so in the status.
    let checked = scaler.validate_in(&AutoscalerConfig::default());
    checked.map_err(|errors| anyhow::anyhow!("ZeroScaler {name}: {errors}"))
}

/// Fields of a ZeroScaler that its definition does not have. An API server would drop them.
fn unknown_fields(mut value: serde_json::Value) -> Vec<String> {
    let mut unknown = Vec::new();
    for version in crd().spec.versions {
        let schema = version.schema.and_then(|schema| serde_json::to_value(schema.open_api_v3_schema).ok());
        schema::prune(&mut value, &schema.unwrap_or_default(), &mut unknown);
    }
    unknown
}

/// Creates the objects, or merges them into those that exist. Namespace `default` where none is named.
///
/// # Errors
/// The API server does not know a kind, or refuses an object; the error names file, document and reason.
pub async fn apply(client: &Client, manifests: Vec<Manifest>) -> anyhow::Result<()> {
    for Manifest { origin, types, object } in manifests {
        let name = object.name_any();
        apply_one(client, &types, object).await.with_context(|| format!("{origin}: {} {name}", types.kind))?;
    }
    Ok(())
}

async fn apply_one(client: &Client, types: &TypeMeta, object: DynamicObject) -> anyhow::Result<()> {
    let kind = GroupVersionKind::try_from(types).context("field apiVersion")?;
    let (resource, capabilities) = discovery::pinned_kind(client, &kind)
        .await
        .with_context(|| format!("the cluster has no kind {} in {}", types.kind, types.api_version))?;
    let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Namespaced => Api::namespaced_with(client.clone(), &namespace, &resource),
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    };
    let create = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&create, &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            api.patch(&object.name_any(), &params, &Patch::Merge(&object)).await.map_err(said)?;
        }
        other => {
            other.map_err(said)?;
        }
    }
    Ok(())
}

/// What the API server said, without the rest of its answer.
fn said(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow::anyhow!("{}", status.message),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_manifest_is_refused_with_file_document_and_field() {
        let rows = [
            ("kind: Pod\n", "f.yaml, document 1: field apiVersion"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {}\n", "f.yaml, document 1: field metadata.name"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\nmetadata: {name: b}\n", "document 2: field kind"),
            ("a: [\n", "f.yaml, document 1"),
        ];
        for (text, expected) in rows {
            let error = format!("{:#}", parse("f.yaml", text).expect_err(text));
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_zero_scaler_is_checked_before_it_is_sent() {
        let rows = [
            ("{target: {name: a}, scale: {window: 1s}}", "spec.scale.window"),
            ("{target: {name: a}, scale: {max: many}}", "spec.scale.max"),
            ("{scale: {max: 1}}", "target"),
            ("{target: {name: a}, scale: {maximum: 1}, ports: [{name: a, colour: red}]}", "spec.scale.maximum"),
            ("{target: {name: a}, ports: [{name: a, colour: red}]}", "spec.ports[0].colour"),
        ];
        for (spec, expected) in rows {
            let text =
                format!("apiVersion: zeroscale.dev/v1alpha1\nkind: ZeroScaler\nmetadata: {{name: a}}\nspec: {spec}\n");
            let error = format!("{:#}", parse("f.yaml", &text).expect_err(spec));
            assert!(error.contains("f.yaml, document 1: ZeroScaler a") && error.contains(expected), "{error}");
        }
    }
}
