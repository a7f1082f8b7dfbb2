//! Manifests: parsing, validation and application.
//!
//! Invalid manifests are rejected before anything is written, with the file, the document and the field. The output of
//! `kubectl get deployments,services -o yaml` for another cluster is accepted: Lists, objects with fields set by an API
//! server, and namespaces that are not included. An object with `metadata.uid` counts as exported.

use super::system::create_if_missing;
use crate::api::status::Causes;
use crate::api::{clear_server_owned, create_warning, schema};
use crate::retry;
use anyhow::Context;
use common::config::AutoscalerConfig;
use common_api::ZeroScaler;
use common_api::zeroscaler::crd::crd;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::{self, Scope};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Field manager in `managedFields`.
pub(super) const FIELD_MANAGER: &str = "local-up";

/// Kinds whose objects controllers create again.
const CONTROLLED: [(&str, &str); 2] = [("apps/v1", "ReplicaSet"), ("v1", "Pod")];

/// An object of a manifest and its origin.
#[derive(Debug)]
pub struct Manifest {
    /// File, document and item of a List, for errors.
    pub(super) origin: String,
    pub(super) types: TypeMeta,
    pub(super) object: DynamicObject,
}

/// Reads all documents of `path` (`-`: standard input). Fails if the file cannot be read, is not YAML, or contains
/// something other than a Kubernetes object.
pub fn read(path: &Path) -> anyhow::Result<Vec<Manifest>> {
    let text = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("standard input cannot be read")?
    } else {
        std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?
    };
    parse(&path.display().to_string(), &text)
}

/// Parses the documents in `text`. `file` is the name for errors. Fails as [`read`] does.
pub fn parse(file: &str, text: &str) -> anyhow::Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for (index, document) in serde_yaml_ng::Deserializer::from_str(text).enumerate() {
        let origin = format!("{file}, document {}", index + 1);
        let value = Value::deserialize(document).with_context(|| format!("{origin}: not valid YAML"))?;
        if !value.is_null() {
            collect(origin, value, &mut manifests)?;
        }
    }
    Ok(manifests)
}

/// Collects an object, or the items of a List.
fn collect(origin: String, mut value: Value, manifests: &mut Vec<Manifest>) -> anyhow::Result<()> {
    let field = |name: &str, rule: &str| {
        let text = value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.map(str::to_owned).with_context(|| format!("{origin}: field {name}: {rule}"))
    };
    let kind = field("kind", "must name the kind of object")?;
    let types = TypeMeta { kind, api_version: field("apiVersion", "must name group and version")? };
    if types.kind == "List" {
        let items = match value["items"].take() {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            _ => anyhow::bail!("{origin}: field items: must be a list"),
        };
        for (index, item) in items.into_iter().enumerate() {
            collect(format!("{origin}, item {}", index + 1), item, manifests)?;
        }
        return Ok(());
    }
    let is_exported = value.pointer("/metadata/uid").is_some();
    if is_exported
        && CONTROLLED.contains(&(types.api_version.as_str(), types.kind.as_str()))
        && let Some(owner) = controller(&value)
    {
        let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        tracing::warn!("{origin}: {} {name} is skipped, because {owner} creates its own", types.kind);
        return Ok(());
    }
    strip(&types, &mut value, is_exported);
    if types.kind == "ZeroScaler" {
        check_scaler(&value).with_context(|| origin.clone())?;
    }
    let object: DynamicObject =
        serde_json::from_value(value).with_context(|| format!("{origin}: not a Kubernetes object"))?;
    anyhow::ensure!(
        object.metadata.name.is_some() || object.metadata.generate_name.is_some(),
        "{origin}: field metadata.name: must be set"
    );
    manifests.push(Manifest { origin, types, object });
    Ok(())
}

/// Returns kind and name of the object's controller.
fn controller(value: &Value) -> Option<String> {
    let owners = value.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    Some(format!("{} {}", text("kind"), text("name")))
}

/// Removes fields set by the API server that the object comes from: another server would reject them and sets its own.
/// Exported objects also lose fields that are only valid in their cluster.
fn strip(types: &TypeMeta, value: &mut Value, is_exported: bool) {
    let Some(object) = value.as_object_mut() else { return };
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    clear_server_owned(metadata);
    if !is_exported {
        return;
    }
    // No object here has the owner's uid, so the garbage collector would delete this object.
    metadata.remove("ownerReferences");
    object.remove("status");
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match (types.api_version.as_str(), types.kind.as_str()) {
        ("v1", "Pod") => drop(spec.remove("nodeName")),
        // The address is of the other cluster's range. A headless Service (`None`) stays headless.
        ("v1", "Service") if spec.get("clusterIP").is_some_and(|address| address != "None") => {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        _ => {}
    }
}

/// Checks a ZeroScaler as the API server does, so that a mistake is reported before anything starts.
fn check_scaler(value: &Value) -> anyhow::Result<()> {
    let name = value.pointer("/metadata/name").and_then(|n| n.as_str()).unwrap_or_default();
    let (mut unknown, mut causes) = (Vec::new(), Causes::default());
    for version in crd().spec.versions {
        let schema = serde_json::to_value(version.schema.and_then(|schema| schema.open_api_v3_schema))?;
        schema::prune(&mut value.clone(), &schema, "", &mut unknown);
        schema::validate(value, None, &schema, "", &mut causes);
    }
    anyhow::ensure!(causes.is_empty(), "ZeroScaler {name}: {}", causes.messages().join(", "));
    anyhow::ensure!(unknown.is_empty(), "ZeroScaler {name}: unknown field: {}", unknown.join(", "));
    let scaler: ZeroScaler = serde_json::from_value(value.clone()).with_context(|| format!("ZeroScaler {name}"))?;
    // The configuration of the cluster may be stricter. The autoscaler reports that in the status.
    let checked = scaler.validate_in(&AutoscalerConfig::default());
    checked.map_err(|errors| anyhow::anyhow!("ZeroScaler {name}: {errors}"))
}

/// Creates a namespace unless it exists. Fails if the API server rejects it.
pub(super) async fn make_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let made = create_if_missing(&Api::all(client.clone()), &namespace).await;
    made.map_err(rejection_message).with_context(|| format!("Namespace {name}"))
}

/// Returns the namespaces of these objects, which must be created before: an export from one namespace does not include
/// it, and a Namespace among the objects may come after the objects in it.
pub(super) fn namespaces(manifests: &[Manifest]) -> BTreeSet<&str> {
    manifests.iter().filter_map(|manifest| manifest.object.metadata.namespace.as_deref()).collect()
}

/// Creates the objects, or merges them into existing ones. The default namespace is `default`. Fails if the API server
/// does not know a kind or rejects an object. The error names file, document and reason.
pub async fn apply(client: &Client, manifests: Vec<Manifest>) -> anyhow::Result<()> {
    for Manifest { origin, types, object } in manifests {
        let applied = retry::until_answered(&origin, || apply_one(client, &types, &object)).await;
        applied.with_context(|| format!("{origin}: {} {}", types.kind, object.name_any()))?;
    }
    Ok(())
}

async fn apply_one(client: &Client, types: &TypeMeta, object: &DynamicObject) -> anyhow::Result<()> {
    let kind = GroupVersionKind::try_from(types).context("field apiVersion")?;
    let (resource, capabilities) = match discovery::pinned_kind(client, &kind).await {
        Ok(found) => found,
        Err(kube::Error::Discovery(_)) => anyhow::bail!("{}", not_served(client, &kind).await),
        Err(kube::Error::Api(status)) if status.code == 404 => anyhow::bail!("{}", not_served(client, &kind).await),
        Err(error) => return Err(rejection_message(error)),
    };
    let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Namespaced => Api::namespaced_with(client.clone(), &namespace, &resource),
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    };
    let create = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let merge = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let applied = match api.create(&create, object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            api.patch(&object.name_any(), &merge, &Patch::Merge(object)).await
        }
        created => created,
    };
    applied.map(drop).map_err(rejection_message)
}

/// Returns the error for a kind that is not served, with the served alternatives: the same kind in another version, or
/// all kinds of the group.
async fn not_served(client: &Client, kind: &GroupVersionKind) -> String {
    let error = format!("the cluster does not serve kind {} in {}", kind.kind, kind.api_version());
    let Ok(group) = discovery::group(client, &kind.group).await else {
        let name = if kind.group.is_empty() { "core" } else { &kind.group };
        return format!("{error}; it serves no group {name}: apply the CustomResourceDefinition first");
    };
    let served = group.versions().flat_map(|version| group.versioned_resources(version)).map(|(resource, _)| resource);
    let served: Vec<_> = served.filter(|resource| !resource.plural.contains('/')).collect();
    if let Some(same) = served.iter().find(|resource| resource.kind == kind.kind) {
        return format!("{error}; write apiVersion: {}", same.api_version);
    }
    let kinds: BTreeSet<_> = served.iter().map(|resource| resource.kind.as_str()).collect();
    let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
    format!("{error}; the kinds in {} are {kinds}", kind.api_version())
}

/// Reduces a rejection by the API server to its message.
fn rejection_message(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.code < 500 && status.code != 429 => anyhow::anyhow!("{}", status.message),
        error => error.into(),
    }
}

/// Returns a warning for each object in the manifests without effect: the embedded API server stores it, but no
/// controller here creates pods for it, and the ingress does not read Ingresses. Requests would be held in vain or get
/// a 404. The text is that of the API's `kinds.yaml`, which responses of the API contain, too.
pub(super) fn warnings(manifests: &[Manifest]) -> impl Iterator<Item = String> {
    manifests.iter().filter_map(|Manifest { origin, types, object }| {
        let meta = &object.metadata;
        let namespace = meta.namespace.as_deref().unwrap_or("default");
        let name = meta.name.as_deref().or(meta.generate_name.as_deref()).unwrap_or_default();
        let rule = create_warning(&types.api_version, &types.kind)?;
        Some(format!("{origin}: {} {namespace}/{name} {rule}", types.kind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_invalid_manifest_is_rejected_with_file_document_and_field() {
        let rows = [
            ("kind: Pod\n", "f.yaml, document 1: field apiVersion"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {}\n", "f.yaml, document 1: field metadata.name"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\nmetadata: {name: b}\n", "document 2: field kind"),
            ("a: [\n", "f.yaml, document 1"),
            ("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1}]\n", "document 1, item 1: field kind"),
            ("apiVersion: v1\nkind: List\nitems: {}\n", "f.yaml, document 1: field items: must be a list"),
        ];
        for (text, expected) in rows {
            let error = format!("{:#}", parse("f.yaml", text).expect_err(text));
            assert!(error.contains(expected), "{error}");
        }
    }

    /// Goal: the output of `kubectl get -o yaml` is accepted like a hand-written manifest, alone and in a List.
    #[test]
    fn exported_objects_are_accepted_without_the_fields_of_their_server() {
        let exported = "name: a, uid: u, resourceVersion: '7', generation: 2, selfLink: /a, \
                        creationTimestamp: '2026-01-01T00:00:00Z', managedFields: [{manager: kubectl}], \
                        deletionTimestamp: '2026-01-01T00:00:00Z', deletionGracePeriodSeconds: 30, \
                        ownerReferences: [{apiVersion: v1, kind: Shop, name: b, uid: v, controller: true}]";
        // Kind, metadata, other fields, and the other fields that remain.
        let rows = [
            ("Deployment", exported, "spec: {replicas: 2}, status: {replicas: 1}", json!({"spec": {"replicas": 2}})),
            ("Service", exported, "spec: {clusterIP: 10.96.0.7, clusterIPs: [10.96.0.7]}", json!({"spec": {}})),
            ("Service", exported, "spec: {clusterIP: None}", json!({"spec": {"clusterIP": "None"}})),
            ("Pod", "name: a, uid: u", "spec: {nodeName: n, hostname: h}", json!({"spec": {"hostname": "h"}})),
            // Hand-written: the user chose the values.
            ("Service", "name: a", "spec: {clusterIP: 127.9.128.7}", json!({"spec": {"clusterIP": "127.9.128.7"}})),
            ("Pod", "name: a", "spec: {nodeName: n}", json!({"spec": {"nodeName": "n"}})),
            ("Shop", "name: a", "status: {open: true}", json!({"status": {"open": true}})),
        ]
        .map(|(kind, metadata, rest, remaining)| {
            (format!("{{apiVersion: v1, kind: {kind}, metadata: {{{metadata}}}, {rest}}}"), remaining)
        });
        let items: Vec<_> = rows.iter().map(|(given, _)| given.as_str()).collect();
        let list = format!("apiVersion: v1\nkind: List\nitems: [{}]\n", items.join(", "));
        let listed = parse("f.yaml", &list).expect("a List");
        assert_eq!(listed.len(), rows.len());
        for (index, (manifest, (given, remaining))) in listed.into_iter().zip(&rows).enumerate() {
            assert_eq!(manifest.origin, format!("f.yaml, document 1, item {}", index + 1));
            let alone = parse("f.yaml", given).expect(given).pop().expect("an object");
            for object in [manifest.object, alone.object] {
                let left = ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() };
                assert_eq!((object.metadata, &object.data), (left, remaining), "{given}");
            }
        }
    }

    /// Goal: exported objects of a controller are skipped, since the garbage collector would delete them as orphans.
    /// Other exported objects only lose owners in the other cluster. Hand-written objects do not change.
    #[test]
    fn exported_objects_of_a_controller_are_skipped() {
        let rows = [
            ("v1", "Pod", "uid: u", "controller: true", None),
            ("apps/v1", "ReplicaSet", "uid: u", "controller: true", None),
            ("apps/v1", "Deployment", "uid: u", "controller: true", Some(false)),
            ("example.com/v1", "Pod", "uid: u", "controller: true", Some(false)),
            ("v1", "Pod", "uid: u", "controller: false", Some(false)),
            ("v1", "Pod", "labels: {}", "controller: true", Some(true)),
        ];
        for (version, kind, metadata, owner, expected) in rows {
            let owner = format!("{{apiVersion: apps/v1, kind: ReplicaSet, name: b, uid: v, {owner}}}");
            let metadata = format!("{{name: a, {metadata}, ownerReferences: [{owner}]}}");
            let read = parse("f.yaml", &format!("{{apiVersion: {version}, kind: {kind}, metadata: {metadata}}}"));
            let read = read.expect(kind);
            let owned: Vec<_> = read.iter().map(|one| one.object.metadata.owner_references.is_some()).collect();
            assert_eq!(owned, Vec::from_iter(expected), "{version} {kind} {metadata}");
        }
    }

    #[test]
    fn a_list_may_be_empty_and_a_kind_may_end_in_list() {
        for (text, expected) in [
            ("{apiVersion: v1, kind: List}", 0),
            ("{apiVersion: v1, kind: List, items: null}", 0),
            ("{apiVersion: v1, kind: List, items: []}", 0),
            ("{apiVersion: example.com/v1, kind: AllowList, metadata: {name: a}}", 1),
        ] {
            assert_eq!(parse("f.yaml", text).expect(text).len(), expected, "{text}");
        }
    }

    #[test]
    fn each_namespace_of_the_objects_is_created_once() {
        let pod = |metadata: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a, {metadata}}}\n---\n");
        let text = [pod("namespace: b"), pod("labels: {}"), pod("namespace: c"), pod("namespace: b")].concat();
        assert_eq!(namespaces(&parse("f.yaml", &text).expect("manifests")), BTreeSet::from(["b", "c"]));
    }

    #[test]
    fn a_zero_scaler_is_checked_before_it_is_sent() {
        let rows = [
            ("{target: {name: a}, scale: {window: 1s}}", "spec.scale.window"),
            // Wrong types are named as in JSON, not as in Rust.
            ("{target: {name: a}, scale: {max: many}}", "spec.scale.max: Invalid value: \"many\""),
            ("{target: {name: a}, scale: {load: 3}}", "spec.scale.load: Invalid value: 3"),
            ("{scale: {max: 1}}", "target"),
            ("{target: {name: a}, scale: {maximum: 1}, ports: [{name: a, colour: red}]}", "spec.scale.maximum"),
            ("{target: {name: a}, ports: [{name: a, colour: red}]}", "spec.ports[0].colour"),
        ];
        for (spec, expected) in rows {
            let text =
                format!("apiVersion: zeroscale.dev/v1alpha1\nkind: ZeroScaler\nmetadata: {{name: a}}\nspec: {spec}\n");
            let error = format!("{:#}", parse("f.yaml", &text).expect_err(spec));
            assert!(error.contains("f.yaml, document 1: ZeroScaler a") && error.contains(expected), "{error}");
            assert!(!error.contains("i32") && !error.contains("struct"), "{error}");
        }
    }

    /// Goal: objects without effect get a warning with their name and the rule. Other objects get none.
    #[test]
    fn an_object_without_effect_gets_a_warning_with_name_and_rule() {
        let rows = [
            ("apps/v1", "Deployment", None),
            ("apps/v1", "ReplicaSet", None),
            ("v1", "Pod", None),
            ("v1", "Service", None),
            ("example.com/v1", "Job", None),
            ("example.com/v1", "Ingress", None),
            ("apps/v1", "StatefulSet", Some("StatefulSet shop/a will have no pods")),
            ("apps/v1", "DaemonSet", Some("DaemonSet shop/a will have no pods")),
            ("batch/v1", "Job", Some("Job shop/a will have no pods")),
            ("batch/v1", "CronJob", Some("CronJob shop/a will have no pods")),
            ("v1", "ReplicationController", Some("ReplicationController shop/a will have no pods")),
            ("networking.k8s.io/v1", "Ingress", Some("Ingress shop/a has no effect, as nothing here reads it")),
        ];
        for (version, kind, expected) in rows {
            let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a, namespace: shop}}\n");
            let warned: Vec<_> = warnings(&parse("f.yaml", &text).expect("manifests")).collect();
            let beginnings: Vec<_> =
                warned.iter().filter_map(|warned| warned.split(": without --external ").next()).collect();
            let expected = expected.map(|expected| format!("f.yaml, document 1: {expected}"));
            assert_eq!(beginnings, Vec::from_iter(expected));
        }
    }
}
