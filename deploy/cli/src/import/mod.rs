//! Command `import`: translates manifests of other autoscalers. Pure: documents in, documents out.
//!
//! | from | to |
//! |---|---|
//! | HTTPScaledObject (`http.keda.sh`), InterceptorRoute with its ScaledObject | a ZeroScaler |
//! | HorizontalPodAutoscaler (`autoscaling`) | a ZeroScaler with the metrics in addition to the load |
//! | Service (`serving.knative.dev`) | a Deployment and a ZeroScaler |
//! | Deployment and StatefulSet with Sablier's labels, with the Middleware of their group | a ZeroScaler |
//!
//! Translation takes each field out of the source ([`source`]). Fields that remain at the end have no equivalent and
//! are listed by path, so nothing is dropped silently. Defaults that differ here are written out.
//!
//! Objects of other kinds are listed and not translated. A List, as printed by `kubectl get -o yaml`, counts as its
//! items.
//!
//! # Limits
//!
//! This module does not read the cluster. It does not translate Ingresses, Gateway API routes or custom domains.

mod draft;
mod hpa;
mod keda;
mod knative;
mod sablier;
mod source;
#[cfg(test)]
mod tests;

use anyhow::Context;
use common::config::AutoscalerConfig;
use common::text::printable_line;
use common_api::ZeroScaler;
use k8s_openapi::api::apps::v1::Deployment;
use serde::Deserialize;
use serde_json::Value;
use source::Source;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Result for one manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// Kind and name of the source.
    pub source: String,
    /// Translated objects. Empty if none could be made.
    pub objects: Vec<Value>,
    /// Notes on fields, each with its path: no equivalent, not translated, or rejected by validation.
    pub notes: Vec<(String, String)>,
}

/// Translates all documents of `files`, each a name and a text. Fails if a text is not YAML; the error names file and
/// document.
pub fn import(files: &[(String, String)]) -> anyhow::Result<Vec<Imported>> {
    let (mut origins, mut documents) = (Vec::new(), Vec::new());
    for (file, text) in files {
        for (index, document) in serde_yaml_ng::Deserializer::from_str(text).enumerate() {
            let origin = format!("{file}, document {}", index + 1);
            let value =
                Value::deserialize(document).map_err(|error| anyhow::anyhow!("{origin}: invalid YAML: {error}"))?;
            match items(&value) {
                Some(items) => {
                    origins.extend((1..=items.len()).map(|number| format!("{origin}, item {number}")));
                    documents.extend(items);
                }
                None if value.is_null() => {}
                None => {
                    origins.push(origin);
                    documents.push(value);
                }
            }
        }
    }
    let mut all = Vec::new();
    for (origin, value) in origins.iter().zip(&documents) {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (kind, api_version, name) = (text("/kind"), text("/apiVersion"), text("/metadata/name"));
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let source = if name.is_empty() { format!("{origin}, {kind}") } else { format!("{kind} {name}") };
        let mut from = Source::new(value.clone());
        let mut objects = match (group, kind) {
            _ if name.is_empty() => {
                skip(&mut from, "/metadata/name", "must be set, so this object is not translated".to_owned())
            }
            ("http.keda.sh", "HTTPScaledObject") => keda::http_scaled_object(&mut from),
            ("http.keda.sh", "InterceptorRoute") => keda::interceptor_route(&mut from, &documents),
            ("keda.sh", "ScaledObject") if keda::route(value).is_some() => match keda::skip_reason(value, &documents) {
                Some((field, why)) => skip(&mut from, &field, why),
                None => continue, // Translated with its route.
            },
            ("autoscaling", "HorizontalPodAutoscaler") => hpa::horizontal_pod_autoscaler(&mut from),
            ("serving.knative.dev", "Service") => knative::service(&mut from),
            ("apps", "Deployment" | "StatefulSet") if sablier::is_enabled(value) => {
                sablier::workload(&mut from, kind, &documents)
            }
            (_, "Middleware") if sablier::is_middleware(value) => match sablier::skip_reason(value, &documents) {
                Some((field, why)) => skip(&mut from, &field, why),
                None => continue, // Translated with the workloads of its group.
            },
            _ => skip(&mut from, "/kind", unknown(kind, api_version)),
        };
        let mut notes = from.into_notes();
        for object in &mut objects {
            match object["kind"].as_str() {
                Some("ZeroScaler") => draft::prune::<ZeroScaler>(object, &mut notes),
                _ => draft::prune::<Deployment>(object, &mut notes),
            }
        }
        notes.extend(objects.iter().filter_map(rejection));
        all.push(Imported { source, objects, notes });
    }
    Ok(all)
}

/// Returns the note for a document of an unknown kind.
fn unknown(kind: &str, api_version: &str) -> String {
    let what = match (kind, api_version) {
        ("", _) | (_, "") => "an object without kind or apiVersion".to_owned(),
        _ => format!("{kind} of {api_version}"),
    };
    format!(
        "{what} is not translated; import translates HTTPScaledObject, InterceptorRoute with its ScaledObject, \
         HorizontalPodAutoscaler, Knative's Service, and Deployments and StatefulSets with Sablier's labels"
    )
}

/// Returns the items of a List, as printed by `kubectl get -o yaml`, or `None` for another object. Items of a typed
/// list, such as HorizontalPodAutoscalerList, may omit their kind.
fn items(value: &Value) -> Option<Vec<Value>> {
    let kind = value["kind"].as_str()?.strip_suffix("List")?;
    let mut items = value["items"].as_array()?.clone();
    for item in items.iter_mut().filter_map(Value::as_object_mut).filter(|_| !kind.is_empty()) {
        item.entry("kind").or_insert_with(|| kind.into());
        item.entry("apiVersion").or_insert_with(|| value["apiVersion"].clone());
    }
    Some(items)
}

/// Skips a document that cannot be translated, and notes the reason.
fn skip(from: &mut Source, field: &str, why: String) -> Vec<Value> {
    *from = Source::new(Value::Null);
    from.note(field, why);
    Vec::new()
}

/// Formats the result as YAML: each object after comments with its notes. A source without objects yields only these
/// comments. Fails if an object cannot be written as YAML.
pub fn render(all: &[Imported]) -> anyhow::Result<String> {
    let mut text = String::new();
    for imported in all {
        let mut comments = head(imported);
        if imported.objects.is_empty() {
            text += &comments;
        }
        for object in &imported.objects {
            text += "---\n";
            text += &std::mem::take(&mut comments); // Only before the first object.
            text += &serde_yaml_ng::to_string(object)?;
        }
    }
    Ok(text)
}

/// Returns the source and its notes, each as one comment line whatever characters the source has.
fn head(Imported { source, notes, .. }: &Imported) -> String {
    let mut text = format!("# From {}.\n", printable_line(source));
    if !notes.is_empty() {
        text += "# Notes:\n";
    }
    for (field, why) in notes {
        text += &format!("#   {}: {}\n", printable_line(field), printable_line(&why.replace('\n', "; ")));
    }
    text
}

/// Returns a note if the API server will reject a translated object, because a value of the source has another type or
/// is out of bounds.
fn rejection(object: &Value) -> Option<(String, String)> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let checked = match kind {
        "ZeroScaler" => serde_json::from_value::<ZeroScaler>(object.clone())
            .map_err(|error| error.to_string())
            .and_then(|ours| ours.validate_in(&AutoscalerConfig::default()).map_err(|error| error.to_string())),
        _ => serde_json::from_value::<Deployment>(object.clone()).map(drop).map_err(|error| error.to_string()),
    };
    let error = checked.err()?;
    Some((format!("the {kind} below"), format!("will be rejected: {error}")))
}

/// Translates all documents of `files` and writes the result. Fails if a file cannot be read, if no object could be
/// made of any document, or if `out` cannot be written to.
pub fn run(files: &[PathBuf], out: &mut impl Write) -> anyhow::Result<()> {
    let files = files.iter().map(|file| read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let all = import(&files)?;
    out.write_all(render(&all)?.as_bytes())?;
    out.flush()?;
    let notes: usize = all.iter().map(|imported| imported.notes.len()).sum();
    if notes > 0 {
        eprintln!(
            "{notes} notes about fields that have no equivalent or need attention: see the comments in the output"
        );
    }
    let made = all.is_empty() || all.iter().any(|imported| !imported.objects.is_empty());
    anyhow::ensure!(made, "nothing was translated: the comments in the output say why");
    Ok(())
}

/// Reads a file, and returns its name and text.
fn read(file: &Path) -> anyhow::Result<(String, String)> {
    let text =
        if file == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(file) };
    let name = file.display().to_string();
    Ok((name.clone(), text.with_context(|| format!("{name} cannot be read"))?))
}
