//! Checks valid and invalid ZeroScalers: the autoscaler and the definition apply the same rules.

use common_api::zeroscaler::{ZeroScaler, crd, manual, validation};
use kube_cel::ErrorKind;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
struct Case {
    name: String,
    spec: Value,
    #[serde(default)]
    refused: BTreeMap<String, String>,
    #[serde(default)]
    schema: bool,
}

fn cases() -> Vec<Case> {
    let cases: Vec<Case> = serde_yaml_ng::from_str(include_str!("zeroscalers.yaml")).expect("cases");
    assert!(cases.iter().filter(|case| case.refused.is_empty()).count() >= 3 && cases.len() > 20);
    cases
}

fn object(case: &Case) -> Value {
    json!({
        "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
        "metadata": {"name": "hello", "namespace": "ns"}, "spec": case.spec,
    })
}

fn schema() -> Value {
    let crd = serde_json::to_value(crd::crd()).expect("serializable");
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema").cloned().expect("a schema")
}

/// Reports whether an error at `path` is the one that a case expects at `field`. A rule about several fields may name
/// the one to change.
fn is_at(path: &str, field: &str) -> bool {
    path == field || path.strip_prefix(field).is_some_and(|rest| rest.starts_with('.'))
}

/// Goal: the autoscaler rejects each invalid object that an API server without CEL accepts, and names field and rule.
#[test]
fn the_autoscaler_rejects_invalid_objects() {
    for case in cases() {
        let name = &case.name;
        let object = object(&case);
        let read: ZeroScaler = serde_json::from_value(object.clone()).expect(name);
        let found = read.validate().err().unwrap_or_default();
        for (field, text) in &case.refused {
            let named = found
                .iter()
                .any(|error| is_at(&error.path, field) && (error.message.contains(text) || error.rule.contains(text)));
            assert!(named, "{name}: {field} {text}: {found}");
        }
        for error in found.iter() {
            let expected = case.refused.keys().any(|field| is_at(&error.path, field));
            assert!(expected, "{name}: {error:?}");
        }
        let json = validation::validate_json(&object).err().unwrap_or_default();
        assert_eq!(json.to_string(), found.to_string(), "{name}: its JSON has the same errors");
    }
}

/// Goal: CEL and the autoscaler reject the same objects, field by field, apart from the schema's bounds.
#[test]
fn cel_rejects_the_same_objects() {
    let schema = schema();
    for case in cases() {
        let found = kube_cel::validate(&schema, &object(&case), None).err().map(|errors| errors.into_vec());
        let found = found.unwrap_or_default();
        for error in &found {
            let expected = case.refused.keys().any(|field| is_at(&error.field_path, field));
            assert!(expected && error.kind == ErrorKind::ValidationFailure, "{}: {error:?}", case.name);
        }
        for (field, text) in case.refused.iter().filter(|_| !case.schema) {
            let named = found.iter().any(|error| is_at(&error.field_path, field) && error.message.contains(text));
            assert!(named, "{}: {field} {text}: {found:?}", case.name);
        }
    }
}

/// Goal: every field has a description, and no field name is a truth value in YAML 1.1, which `kubectl` reads.
#[test]
fn every_field_has_a_description_and_a_name_that_is_no_yaml_truth_value() {
    let definition = crd::crd();
    let root = definition.spec.versions[0].schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
    for (path, field) in crd::all_fields(root.expect("a schema"), "") {
        assert!(field.description.as_ref().is_some_and(|text| !text.is_empty()), "{path}");
        let name = path.rsplit('.').next().unwrap_or_default().to_lowercase();
        assert!(!["y", "n", "yes", "no", "on", "off", "true", "false", "null"].contains(&&*name), "{path}");
    }
}

#[test]
fn the_page_of_the_manual_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(manual::PAGE);
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == manual::page(), "{} is stale: cargo run -p common-api --example crds", manual::PAGE);
}

#[test]
fn the_examples_of_the_page_are_valid() {
    let page = manual::page();
    let examples: Vec<_> = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    // Only complete objects are checked; the other examples are fragments.
    let examples: Vec<_> = examples.into_iter().filter(|example| example.starts_with("apiVersion: ")).collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        let object: ZeroScaler = serde_yaml_ng::from_str(example).expect(example);
        assert!(object.validate().is_ok(), "{:?}", object.validate());
        let written: Value = serde_yaml_ng::from_str(example).expect(example);
        let errors = kube_cel::validate(&schema(), &written, None).err().map(|errors| errors.into_vec());
        assert!(errors.is_none(), "{errors:?}");
    }
}
