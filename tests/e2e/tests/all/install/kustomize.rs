//! Renders the subset of kustomize that our kustomizations use: `resources`, ConfigMaps from files, and `patches` that
//! are JSON patches with a target or that delete. Rejects anything else.

use crate::install::manifests::documents;
use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Kustomization {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    resources: Vec<String>,
    #[serde(default)]
    config_map_generator: Vec<Generator>,
    #[serde(default)]
    patches: Vec<Patch>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Generator {
    name: String,
    namespace: String,
    /// Entries of the form `KEY=FILE`.
    files: Vec<String>,
    options: GeneratorOptions,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GeneratorOptions {
    disable_name_suffix_hash: bool,
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    target: Option<Target>,
    patch: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    kind: String,
    name: String,
}

/// Returns all objects of a kustomization, in order.
pub(crate) fn objects(folder: &Path) -> anyhow::Result<Vec<Value>> {
    let path = folder.join("kustomization.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let kustomization: Kustomization = serde_yaml_ng::from_str(&text).with_context(|| path.display().to_string())?;
    let mut all = Vec::new();
    for resource in kustomization.resources {
        let path = folder.join(resource);
        all.extend(if path.is_dir() { objects(&path)? } else { documents(&path)? });
    }
    for generator in kustomization.config_map_generator {
        all.push(generated(folder, &generator).with_context(|| path.display().to_string())?);
    }
    for patch in kustomization.patches {
        apply(&mut all, &patch).with_context(|| format!("{}: {}", path.display(), patch.patch))?;
    }
    Ok(all)
}

fn generated(folder: &Path, generator: &Generator) -> anyhow::Result<Value> {
    ensure!(generator.options.disable_name_suffix_hash, "names with a suffix are not supported here");
    let mut data = BTreeMap::new();
    for file in &generator.files {
        let (key, file) = file.split_once('=').context("KEY=FILE")?;
        data.insert(key, std::fs::read_to_string(folder.join(file)).with_context(|| file.to_owned())?);
    }
    let Generator { name, namespace, options, .. } = generator;
    let metadata = json!({"name": name, "namespace": namespace, "labels": options.labels});
    Ok(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}))
}

fn apply(all: &mut Vec<Value>, patch: &Patch) -> anyhow::Result<()> {
    let is =
        |object: &Value, kind: &Value, name: &Value| object["kind"] == *kind && object["metadata"]["name"] == *name;
    let before = all.len();
    match &patch.target {
        Some(Target { kind, name }) => {
            let operations: json_patch::Patch = serde_json::from_value(serde_yaml_ng::from_str(&patch.patch)?)?;
            let mut found = all.iter_mut().filter(|object| is(object, &kind.as_str().into(), &name.as_str().into()));
            json_patch::patch(found.next().context("its target")?, &operations)?;
            ensure!(found.next().is_none(), "several targets");
        }
        None => {
            let object: Value = serde_yaml_ng::from_str(&patch.patch)?;
            ensure!(object["$patch"] == "delete", "without a target only a deletion is supported");
            all.retain(|other| !is(other, &object["kind"], &object["metadata"]["name"]));
            ensure!(all.len() + 1 == before, "deletes {} objects", before - all.len());
        }
    }
    Ok(())
}
