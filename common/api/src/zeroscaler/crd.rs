//! CustomResourceDefinition of ZeroScaler: the derived one, completed with facts that the types do not contain.
//!
//! - Adds rules and bounds of [`super::checks`] and [`super::rules`], and merge strategies of lists.
//! - Gives `wake` and `timeouts` a default, so their fields' defaults are visible. Gives the status a default, so an
//!   object is not ready until an autoscaler has processed it.
//! - Makes no field nullable: an API server drops a null as if the field were absent.

use super::ZeroScaler;
use super::checks::{Cel, Check, List, fields, lists};
use super::conditions::READY;
use super::rules::rules;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;
use serde_json::{Value, json};

const DESCRIPTION: &str = "A ZeroScaler scales one workload to zero while its Services have no traffic. The first request or connection wakes the \
     workload and waits for it.";

/// Returns the definition.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = ZeroScaler::crd();
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            tidy(root);
            root.title = None;
            root.description = Some(DESCRIPTION.to_owned());
            complete(root);
        }
    }
    crd
}

/// Changes a derived schema, at any depth, so that an API server accepts it without warnings.
fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.title = None;
    if let Some(text) = &mut schema.description {
        *text = one_line(text);
    }
    let (format, most) = match schema.format.as_deref() {
        Some("uint16") => ("int32", Some(f64::from(u16::MAX))),
        Some("uint32") => ("int64", Some(f64::from(u32::MAX))),
        Some("uint64") => ("int64", None),
        _ => (schema.format.as_deref().unwrap_or_default(), schema.maximum),
    };
    // Not every API server checks the format. A number that is too large would make the whole list unreadable.
    let is_narrow = format == "int32";
    let bound = |number: i32| is_narrow.then(|| f64::from(number));
    schema.minimum = schema.minimum.or(bound(i32::MIN));
    let most = most.or(bound(i32::MAX));
    (schema.format, schema.maximum) = (Some(format.to_owned()).filter(|format| !format.is_empty()), most);
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        tidy(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        tidy(items);
        // The list field itself describes its items.
        items.description = items.description.take().filter(|_| items.properties.is_none());
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
}

/// Joins the lines of each paragraph and keeps paragraphs apart.
fn one_line(text: &str) -> String {
    let paragraph = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split("\n\n").map(paragraph).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn complete(root: &mut JSONSchemaProps) {
    for (path, kind, most) in lists() {
        at(root, &path, |list| {
            let (name, key) = match kind {
                List::Atomic => ("atomic", None),
                List::Set => ("set", None),
                List::Map(key) => ("map", Some(vec![key.to_owned()])),
            };
            (list.x_kubernetes_list_type, list.x_kubernetes_list_map_keys) = (Some(name.to_owned()), key);
            list.max_items = Some(most);
        });
    }
    for (path, check) in fields() {
        at(root, &path, |field| add_check(field, check));
    }
    add_rules(root);
    for path in ["spec.metrics", "spec.behavior"] {
        at(root, path, super::quantities::allow_fractions);
    }
    for path in ["spec.wake", "spec.timeouts"] {
        at(root, path, |field| field.default = Some(JSON(json!({}))));
    }
    // `spec.wake` describes and checks this form.
    at(root, "status.fallback.match", |matching| {
        (matching.properties, matching.x_kubernetes_preserve_unknown_fields) = (None, Some(true));
    });
    let pending = json!({
        "type": READY, "status": "Unknown", "reason": "Pending", "lastTransitionTime": "1970-01-01T00:00:00Z",
        "message": "no autoscaler has processed this object yet",
    });
    at(root, "status", |status| status.default = Some(JSON(json!({"conditions": [pending]}))));
}

fn add_rules(root: &mut JSONSchemaProps) {
    for rule in rules() {
        at(root, rule.at, |field| {
            field.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
                rule: rule.cel,
                message_expression: Some(rule.message.to_owned()),
                field_path: Some(rule.field.to_owned()).filter(|field| !field.is_empty()),
                ..ValidationRule::default()
            });
        });
    }
}

/// Returns a schema that contains the rules about several fields alone, to evaluate them.
pub(super) fn schema_of_rules() -> Value {
    let derived = ZeroScaler::crd().spec.versions.remove(0).schema;
    let mut root = derived.and_then(|schema| schema.open_api_v3_schema).unwrap_or_default();
    add_rules(&mut root);
    json!(root)
}

/// Adds a rule about one field to its schema.
fn add_check(field: &mut JSONSchemaProps, check: Check) {
    match check {
        Check::Text(pattern) => field.max_length = Some(pattern.length_max),
        Check::Host => field.max_length = Some(super::checks::HOST_LENGTH_MAX),
        Check::Span(span) => field.max_length = Some(span.pattern.length_max),
        Check::Within(least, most) => (field.minimum, field.maximum) = (Some(least), Some(most)),
        Check::OneOf(allowed) => field.enum_ = Some(allowed.iter().map(|value| JSON(json!(value))).collect()),
        Check::Length(most) => field.max_length = Some(most),
        Check::Port => {
            (field.minimum, field.maximum) = (Some(1.0), Some(f64::from(u16::MAX)));
            field.max_length = Some(super::checks::PORT_NAME.length_max);
            field.pattern = Some(super::checks::PORT_NAME.expression.to_owned());
        }
        Check::AboveOne => {}
    }
    for Cel { rule, message } in check.cel() {
        field.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
            rule,
            message: Some(message),
            ..ValidationRule::default()
        });
    }
}

/// Changes the schema at a path, in which `[]` stands for the items of a list.
///
/// A path without a field is a bug in this crate; a test finds it.
fn at(root: &mut JSONSchemaProps, path: &str, change: impl FnOnce(&mut JSONSchemaProps)) {
    if let Some(field) = find(root, path) {
        change(field);
    }
}

pub(super) fn find<'a>(root: &'a mut JSONSchemaProps, path: &str) -> Option<&'a mut JSONSchemaProps> {
    path.split('.').try_fold(root, |schema, step| {
        let name = step.strip_suffix("[]").unwrap_or(step);
        let field = schema.properties.as_mut()?.get_mut(name)?;
        if name == step {
            return Some(field);
        }
        match &mut field.items {
            Some(JSONSchemaPropsOrArray::Schema(items)) => Some(&mut **items),
            _ => None,
        }
    })
}

/// Returns every field of a schema, at any depth, with its path below `path`.
pub fn all_fields<'a>(schema: &'a JSONSchemaProps, path: &str) -> Vec<(String, &'a JSONSchemaProps)> {
    let mut found = Vec::new();
    for (name, field) in schema.properties.iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        found.push((path.clone(), field));
        found.extend(all_fields(field, &path));
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &field.items {
            found.extend(all_fields(items, &format!("{path}[]")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> JSONSchemaProps {
        let schema = crd().spec.versions.remove(0).schema.and_then(|schema| schema.open_api_v3_schema);
        schema.expect("a schema")
    }

    /// Goal: every rule applies to an existing field. A rule with a wrong path would be lost silently. The API server
    /// limits the cost of a rule, so every text that a rule reads has a maximum length.
    #[test]
    fn every_rule_applies_to_an_existing_field_with_a_maximum_length() {
        let mut root = root();
        let lists = lists().map(|(path, ..)| path);
        let at = rules().into_iter().map(|rule| rule.at.to_owned());
        for path in lists.chain(at) {
            assert!(find(&mut root, &path).is_some(), "{path}");
        }
        for (path, check) in fields() {
            let field = find(&mut root, &path).expect(&path);
            let needs_no_length = check.cel().is_empty() || matches!(check, Check::AboveOne);
            assert!(needs_no_length || field.max_length.is_some(), "{path}");
        }
        for rule in rules().iter().filter(|rule| !rule.field.is_empty()) {
            assert!(find(&mut root, &format!("{}{}", rule.at, rule.field)).is_some(), "{}{}", rule.at, rule.field);
        }
    }

    /// Goal: no number that the definition accepts is too large for its field's type. Such a number would make the
    /// whole list unreadable.
    #[test]
    fn every_accepted_number_fits_its_type() {
        let mut root = root();
        let schema = serde_json::to_value(&root).expect("serializable");
        let (mut open, mut found) = (vec![&schema], 0);
        while let Some(node) = open.pop() {
            if node["format"] == "int32" {
                let range = f64::from(i32::MIN)..=f64::from(i32::MAX);
                let is_bound = |name: &str| node[name].as_f64().is_some_and(|bound| range.contains(&bound));
                assert!(is_bound("minimum") && is_bound("maximum"), "{node}");
                found += 1;
            }
            open.extend(node["properties"].as_object().into_iter().flat_map(|fields| fields.values()));
            open.extend(node.get("items").into_iter().chain(node.get("additionalProperties")));
        }
        assert!(found > 20, "{found}");
        let mut most = |path: &str| find(&mut root, path).expect(path).maximum;
        assert_eq!(most("spec.scale.max"), Some(f64::from(i32::MAX)));
        assert_eq!(most("status.backend.maxHeld"), Some(f64::from(u32::MAX)));
    }

    #[test]
    fn the_definition_is_small_and_without_derived_attributes() {
        let crd = crd();
        assert_eq!(crd.metadata.name.as_deref(), Some("zeroscalers.zeroscale.dev"));
        assert_eq!(crd.spec.names.short_names, Some(vec!["zs".to_owned()]));
        let text = serde_json::to_string(&crd).expect("serializable");
        for word in ["nullable", "uint", "\"title\""] {
            assert!(!text.contains(word), "{word}");
        }
        // etcd accepts 1.5 MiB; client-side apply accepts 256 KiB in an annotation.
        assert!(text.len() < 80 * 1024, "{} bytes", text.len());
    }
}
