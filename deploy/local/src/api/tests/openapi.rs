//! OpenAPI v3 of the resources, as clients use it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::openapi::{KIND, document, index};
use crate::api::resource::Registry;
use crate::api::{builtin, crd};

fn registry() -> Registry {
    let mut registry = builtin::registry();
    let definition = serde_json::to_value(common_api::zeroscaler::crd::crd()).unwrap();
    crd::resources(&definition).into_iter().for_each(|resource| registry.insert(Arc::new(resource)));
    registry
}

/// Splits a path of a version, such as `api/v1` or `apis/GROUP/VERSION`.
fn group_version(path: &str) -> (&str, &str) {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["api", version] => ("", version),
        ["apis", group, version] => (group, version),
        _ => panic!("{path}"),
    }
}

/// Returns all documents of the list.
fn documents(registry: &Registry) -> Vec<Value> {
    let index = index(registry);
    let versions = index["paths"].as_object().unwrap().keys().map(|path| group_version(path));
    versions.map(|(group, version)| document(registry, group, version).unwrap()).collect()
}

/// Returns the schema of a node or of its reference.
fn resolved<'a>(document: &'a Value, node: &'a Value) -> &'a Value {
    let reference = node.get("$ref").or_else(|| node.pointer("/allOf/0/$ref")).and_then(Value::as_str);
    let Some(reference) = reference else { return node };
    document.pointer(reference.strip_prefix('#').unwrap()).unwrap_or_else(|| panic!("{reference} leads nowhere"))
}

/// Goal: kubectl leaves the field check to the server, and `explain` finds fields. Method: rows of the data that
/// kubectl looks for: path of the version, scope, kind and field.
#[test]
fn kinds_are_found_with_their_fields() {
    let registry = registry();
    let rows = [
        ("api/v1", "namespaces/{namespace}/", "Pod", "spec.containers.env.valueFrom"),
        ("api/v1", "", "Namespace", "metadata.labels"),
        ("apis/apps/v1", "namespaces/{namespace}/", "Deployment", "spec.template.spec"),
        ("apis/autoscaling/v2", "namespaces/{namespace}/", "HorizontalPodAutoscaler", "spec.behavior.scaleDown"),
        ("apis/zeroscale.dev/v1alpha1", "namespaces/{namespace}/", "ZeroScaler", "spec.scale.load.concurrency"),
        ("apis/zeroscale.dev/v1alpha1", "namespaces/{namespace}/", "ZeroScaler", "metadata.ownerReferences.uid"),
    ];
    for (root, scope, kind, field) in rows {
        let path = &format!("/{root}/{scope}{}s", kind.to_lowercase());
        let (group, version) = group_version(root);
        let document = document(&registry, group, version).unwrap();
        let named = json!({"group": group, "version": version, "kind": kind});
        let patch = &document["paths"][format!("{path}/{{name}}")]["patch"];
        assert_eq!(patch[KIND], named, "{path}");
        let parameters = patch["parameters"].as_array().unwrap();
        assert!(parameters.iter().any(|one| one["name"] == "fieldValidation" && one["in"] == "query"), "{path}");
        assert_eq!(document["paths"][path]["get"][KIND], named, "{path}");

        let schemas = document["components"]["schemas"].as_object().unwrap();
        let found: Vec<&Value> = schemas.values().filter(|schema| schema[KIND] == json!([named])).collect();
        assert_eq!(found.len(), 1, "{kind}");
        for name in ["apiVersion", "kind", "metadata"] {
            assert!(found[0]["properties"][name]["description"].is_string(), "{kind} {name}");
        }
        let last = field.split('.').fold(found[0], |node, name| {
            let node = resolved(&document, node);
            let node = node.get("items").map_or(node, |items| resolved(&document, items));
            node["properties"].get(name).unwrap_or_else(|| panic!("{kind} has no {field}"))
        });
        assert!(last["description"].is_string(), "{kind} {field}: {last}");
    }
    assert!(document(&registry, "nowhere.example", "v1").is_none());
}

/// Goal: no document has dangling references, and none lists a verb that its resource does not support.
#[test]
fn documents_have_no_dangling_references_or_unsupported_verbs() {
    fn collect_references<'a>(node: &'a Value, found: &mut Vec<&'a Value>) {
        match node {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").filter(|reference| reference.is_string()).map(|_| node));
                fields.values().for_each(|node| collect_references(node, found));
            }
            Value::Array(items) => items.iter().for_each(|node| collect_references(node, found)),
            _ => {}
        }
    }
    let registry = registry();
    let mut total = 0;
    for document in documents(&registry) {
        let mut found = Vec::new();
        collect_references(&document, &mut found);
        total += found.len();
        for node in found {
            assert!(resolved(&document, node).is_object(), "{node}");
        }
    }
    assert!(total > 500, "{total}");
    let reviews = document(&registry, "authentication.k8s.io", "v1").unwrap();
    let review = reviews["paths"]["/apis/authentication.k8s.io/v1/tokenreviews"].as_object().unwrap();
    assert_eq!(review.keys().collect::<Vec<_>>(), ["post"]);
    assert_eq!(reviews["paths"].get("/apis/authentication.k8s.io/v1/tokenreviews/{name}"), None);
}
