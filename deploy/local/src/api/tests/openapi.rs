//! OpenAPI v3 of the resources.

use std::sync::Arc;

use serde_json::Value;

use crate::api::openapi::{document, index};
use crate::api::{builtin, crd};

fn collect_references<'a>(node: &'a Value, found: &mut Vec<&'a str>) {
    match node {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|node| collect_references(node, found));
        }
        Value::Array(items) => items.iter().for_each(|node| collect_references(node, found)),
        _ => {}
    }
}

/// Goal: no document has dangling references, and none lists a verb that its resource does not support.
#[test]
fn documents_have_no_dangling_references_or_unsupported_verbs() {
    let mut registry = builtin::registry();
    let definition = serde_json::to_value(common_api::zeroscaler::crd::crd()).unwrap();
    crd::resources(&definition).into_iter().for_each(|resource| registry.insert(Arc::new(resource)));
    let mut total = 0;
    for path in index(&registry)["paths"].as_object().unwrap().keys() {
        let (group, version) = path.rsplit_once('/').unwrap();
        let group = group.strip_prefix("apis/").unwrap_or_default();
        let document = document(&registry, group, version).unwrap();
        let mut found = Vec::new();
        collect_references(&document, &mut found);
        total += found.len();
        for reference in found {
            let schema = reference.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
            assert!(schema.is_some_and(Value::is_object), "{reference}");
        }
    }
    assert!(total > 500, "{total}");
    let reviews = document(&registry, "authentication.k8s.io", "v1").unwrap();
    let review = reviews["paths"]["/apis/authentication.k8s.io/v1/tokenreviews"].as_object().unwrap();
    assert_eq!(review.keys().collect::<Vec<_>>(), ["post"]);
    assert_eq!(reviews["paths"].get("/apis/authentication.k8s.io/v1/tokenreviews/{name}"), None);
    assert!(document(&registry, "nowhere.example", "v1").is_none());
}
