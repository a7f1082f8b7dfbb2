//! What a kustomization makes, as far as ours go: `resources`, and `patches` that are JSON patches with a target, or that
//! delete. Anything else is refused.

use crate::install::manifests::documents;
use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::Value;
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
    patches: Vec<Patch>,
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

/// All objects of a kustomization, in order.
pub(crate) fn objects(folder: &Path) -> anyhow::Result<Vec<Value>> {
    let path = folder.join("kustomization.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let kustomization: Kustomization = serde_yaml_ng::from_str(&text).with_context(|| path.display().to_string())?;
    let mut all = Vec::new();
    for resource in kustomization.resources {
        let path = folder.join(resource);
        all.extend(if path.is_dir() { objects(&path)? } else { documents(&path)? });
    }
    for patch in kustomization.patches {
        apply(&mut all, &patch).with_context(|| format!("{}: {}", path.display(), patch.patch))?;
    }
    Ok(all)
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
            ensure!(object["$patch"] == "delete", "only a deletion is understood here without a target");
            all.retain(|other| !is(other, &object["kind"], &object["metadata"]["name"]));
            ensure!(all.len() + 1 == before, "deletes {} objects", before - all.len());
        }
    }
    Ok(())
}
