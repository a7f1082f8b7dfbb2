//! CustomResourceDefinitions: objects that define resources.
//!
//! A definition is established as soon as it is stored, so its paths exist once its creation returns. A finalizer keeps
//! it until the collector has deleted its objects.
//!
//! The rules of ZeroScalers are checked by the function that the autoscaler also runs
//! ([`common_api::zeroscaler::validation`]); a test there compares it with the CEL. The CEL rules of other definitions
//! are ignored. As on a real server, the rules run only if the schema validation has passed.
//!
//! Limits: there is no conversion between versions other than `None`, no detection of name conflicts between
//! definitions, and there are no selectable fields.

use common_api::zeroscaler::validation::validate_json;
use serde_json::{Value, json};

use super::columns::{self, Column};
use super::fields::{self, child, entries, items, object, text};
use super::identity::texts;
use super::meta::{self, metadata};
use super::resource::{Generation, Model, Resource, Rules};
use super::schema;
use super::status::Causes;
use super::strategic::add_to_set;

pub(crate) const TABLE: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// Finalizer that keeps a definition until its objects are deleted.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Table of ZeroScalers, whose CEL rules are implemented in code.
const ZEROSCALERS: &str = "zeroscale.dev/zeroscalers";

/// Returns the table of a definition's objects.
pub(crate) fn table_of(definition: &Value) -> String {
    format!("{}/{}", text(definition, "/spec/group"), text(definition, "/spec/names/plural"))
}

/// Returns the resources of a definition: one per served version.
pub(crate) fn resources(definition: &Value) -> Vec<Resource> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let name = |key: &str| names[key].as_str().unwrap_or_default().to_string();
    let words = |key: &str| texts(names, &format!("/{key}"));
    let served = items(spec, "/versions").iter().filter(|version| version["served"] == true);
    let make = |version: &Value| {
        let subresources = &version["subresources"];
        let mut schema = version["schema"]["openAPIV3Schema"].clone();
        if !schema.is_object() {
            schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        }
        Resource {
            group: text(spec, "/group").into(),
            version: text(version, "/name").into(),
            kind: name("kind"),
            list_kind: name("listKind"),
            plural: name("plural"),
            singular: name("singular"),
            short_names: words("shortNames"),
            categories: words("categories"),
            namespaced: text(spec, "/scope") == "Namespaced",
            table: table_of(definition).into(),
            model: Model::Custom,
            schema,
            rules: Rules {
                generation: Generation::Spec,
                status: subresources.get("status").is_some_and(Value::is_object),
                scale: subresources.get("scale").and_then(|paths| serde_json::from_value(paths.clone()).ok()),
                versioned_update: true,
                columns: columns_of(version),
                ..Rules::default()
            },
        }
    };
    served.map(make).collect()
}

fn columns_of(version: &Value) -> Vec<Column> {
    let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    let given = items(version, "/additionalPrinterColumns");
    let given = if given.is_empty() { std::slice::from_ref(&age) } else { given };
    let column = |given: &Value| serde_json::from_value(given.clone()).ok();
    Column::name().into_iter().chain(given.iter().filter_map(column)).collect()
}

/// Sets defaults, and the status of an established definition.
pub(crate) fn prepare(value: &mut Value, old: Option<&Value>) {
    let Some(spec) = object(value).get_mut("spec").map(object) else { return };
    let versions = fields::list(spec, "versions").iter().filter(|version| version["storage"] == true);
    let versions: Vec<Value> = versions.map(|version| version["name"].clone()).collect();
    let names = child(spec, "names");
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_string();
    fields::default(names, "singular", kind.to_lowercase());
    fields::default(names, "listKind", format!("{kind}List"));
    let accepted = Value::Object(names.clone());
    if old.is_none() {
        fields::list(metadata(value), "finalizers").push(FINALIZER.into());
        value["status"]["conditions"] = json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]);
    }
    let status = child(object(value), "status");
    status.insert("acceptedNames".into(), accepted);
    add_to_set(status.entry("storedVersions").or_insert(Value::Null), &versions);
}

fn condition(kind: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": meta::now(),
    })
}

pub(crate) fn terminating(value: &mut Value) {
    let message = "CustomResource deletion is in progress";
    let terminating = condition("Terminating", "InstanceDeletionInProgress", message);
    fields::list(child(object(value), "status"), "conditions").push(terminating);
}

/// Validates a definition by the rules that are not in `builtin/rules.yaml`.
pub(crate) fn validate(value: &Value, causes: &mut Causes) {
    let (group, plural) = (text(value, "/spec/group"), text(value, "/spec/names/plural"));
    let name = format!("{plural}.{group}");
    if text(value, "/metadata/name") != name {
        causes.invalid("metadata.name", &value["metadata"]["name"], "must be spec.names.plural+\".\"+spec.group");
    }
    let versions = items(value, "/spec/versions");
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        causes.invalid(
            "spec.versions",
            &versions.len().into(),
            "must have exactly one version marked as storage version",
        );
    }
    for (index, version) in versions.iter().enumerate() {
        let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
        match version.pointer("/schema/openAPIV3Schema") {
            Some(node) => check_root(node, &field, causes),
            None => causes.required(field, "schemas are required"),
        }
        for (at, column) in items(version, "/additionalPrinterColumns").iter().enumerate() {
            let path = text(column, "/jsonPath");
            if columns::parse_path(path).is_none() {
                let field = format!("spec.versions[{index}].additionalPrinterColumns[{at}].jsonPath");
                causes.invalid(field, &path.into(), "is not a JSON path that this server supports");
            }
        }
    }
}

/// Adds the errors by the CEL rules of a custom resource that passed the schema validation.
pub(crate) fn validate_rules(resource: &Resource, value: &Value, causes: &mut Causes) {
    if &*resource.table != ZEROSCALERS {
        return;
    }
    let Err(errors) = validate_json(value) else { return };
    for error in errors.iter() {
        let pointer = format!("/{}", error.path.replace(['.', '['], "/").replace(']', ""));
        let given = value.pointer(&pointer).filter(|given| !given.is_object() && !given.is_array());
        let rule = if error.rule.is_empty() { &error.message } else { &error.rule };
        causes.invalid(&error.path, given.unwrap_or(&"object".into()), rule);
    }
}

fn check_root(node: &Value, field: &str, causes: &mut Causes) {
    if node["type"] != "object" {
        causes.invalid(format!("{field}.type"), &node["type"], "must be object at the root");
    }
    for (name, node) in entries(node, "/properties").filter(|(name, _)| *name != "metadata") {
        schema::check(node, &format!("{field}.properties[{name}]"), causes);
    }
}
