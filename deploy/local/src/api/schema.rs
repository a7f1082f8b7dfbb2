//! Structural schemas: drop unknown fields, set defaults and validate. Custom resources have the schemas of their
//! definitions. For built-in kinds, the schemas add defaults and rules to the types (`builtin/rules.yaml`, which also
//! explains the `x-` extensions that no definition has).
//!
//! Limits: there are no `x-kubernetes-validations` (CEL; see [`super::crd`]), no combinations (`allOf`, `anyOf`,
//! `oneOf`, `not`), no numbers of properties, no exclusive bounds and multiples, and no string formats other than
//! `date-time` and `ip`. Values that break such rules are accepted.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use regex::Regex;
use serde_json::{Map, Value};

use super::status::Causes;

/// Returns the schema of a field: that of a named property, or that of additional properties.
pub(crate) fn property<'a>(node: &'a Value, name: &str) -> Option<&'a Value> {
    let named = node.get("properties").and_then(|properties| properties.get(name));
    named.or_else(|| node.get("additionalProperties").filter(|node| node.is_object()))
}

/// Compiles a pattern, once for all schemas that have it.
fn pattern(text: &str) -> Result<Arc<Regex>, regex::Error> {
    static COMPILED: LazyLock<Mutex<HashMap<String, Arc<Regex>>>> = LazyLock::new(Mutex::default);
    let mut compiled = COMPILED.lock();
    if let Some(known) = compiled.get(text) {
        return Ok(known.clone());
    }
    let pattern = Arc::new(Regex::new(text)?);
    compiled.insert(text.to_owned(), pattern.clone());
    Ok(pattern)
}

fn is_set(node: &Value, key: &str) -> bool {
    node.get(key) == Some(&Value::Bool(true))
}

/// Drops fields that are not in the schema, and adds their paths to `unknown`. The root, whose path is empty, keeps
/// `metadata`.
pub(crate) fn prune(value: &mut Value, node: &Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let resource = path.is_empty() || is_set(node, "x-kubernetes-embedded-resource");
            let open = is_set(node, "x-kubernetes-preserve-unknown-fields") || is_set(node, "additionalProperties");
            let mut gone = Vec::new();
            for (key, value) in fields.iter_mut() {
                if resource && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match property(node, key) {
                    Some(node) => prune(value, node, &path, unknown),
                    None if open => {}
                    None => {
                        unknown.push(path);
                        gone.push(key.clone());
                    }
                }
            }
            gone.iter().for_each(|key| drop(fields.remove(key)));
        }
        Value::Array(items) => {
            if let Some(node) = node.get("items") {
                for (index, item) in items.iter_mut().enumerate() {
                    prune(item, node, &format!("{path}[{index}]"), unknown);
                }
            }
        }
        _ => {}
    }
}

/// Sets defaults at any existing depth. A null that is not allowed counts as absent.
pub(crate) fn default(value: &mut Value, node: &Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                let nullable =
                    |node: &Value| is_set(node, "nullable") || is_set(node, "x-kubernetes-preserve-unknown-fields");
                !value.is_null() || property(node, name).is_none_or(nullable)
            });
            for (name, node) in node["properties"].as_object().into_iter().flatten() {
                let is_absent = |value: &Value| is_set(node, "x-zero-is-absent") && is_empty(value);
                if let Some(default) = node.get("default")
                    && fields.get(name).is_none_or(is_absent)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (key, value) in fields.iter_mut() {
                if let Some(node) = property(node, key) {
                    default(value, node);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = node.get("items") {
                items.iter_mut().for_each(|item| default(item, node));
            }
        }
        _ => {}
    }
}

/// Reports whether a value is empty: null, zero, or an empty text, list or map.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) => false,
    }
}

/// Validates a value by its schema. `old` is its stored state. The `metadata` of the root, whose path is empty, is
/// ignored.
pub(crate) fn validate(value: &Value, old: Option<&Value>, node: &Value, path: &str, causes: &mut Causes) {
    if (value.is_null() && is_set(node, "nullable")) || (is_set(node, "x-nonempty") && is_empty(value)) {
        return; // The enclosing map reports empty fields.
    }
    if !has_type(value, node) {
        let wanted = node["type"].as_str().unwrap_or("integer or string");
        causes.wrong_type(path, value, &format!("must be of type {wanted}"));
        return;
    }
    if is_set(node, "x-immutable") && old.is_some_and(|old| old != value) {
        causes.invalid(path, value, "field is immutable");
    }
    if let Some(allowed) = node["enum"].as_array()
        && !allowed.contains(value)
    {
        let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        causes.not_supported(path, value, &allowed);
    }
    match value {
        Value::Object(fields) => validate_map(fields, old, node, path, causes),
        Value::Array(items) => validate_list(items, node, path, causes),
        Value::String(text) => validate_text(text, value, node, path, causes),
        Value::Number(_) => validate_number(value, node, path, causes),
        _ => {}
    }
}

fn list<'a>(node: &'a Value, key: &str) -> &'a [Value] {
    node[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn has_type(value: &Value, node: &Value) -> bool {
    let whole = |value: &Value| value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0);
    if is_set(node, "x-kubernetes-int-or-string") {
        return value.is_string() || whole(value);
    }
    match node["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_number() && whole(value),
        _ => true,
    }
}

fn limit(node: &Value, key: &str) -> Option<u64> {
    node.get(key).and_then(Value::as_u64)
}

fn validate_map(fields: &Map<String, Value>, old: Option<&Value>, node: &Value, path: &str, causes: &mut Causes) {
    let at = |key: &str| if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
    for key in list(node, "required").iter().filter_map(Value::as_str) {
        if !fields.contains_key(key) {
            causes.required(at(key), "");
        }
    }
    for (key, node) in node["properties"].as_object().into_iter().flatten() {
        if is_set(node, "x-nonempty") && fields.get(key).is_none_or(is_empty) {
            causes.required(at(key), "");
        }
    }
    for (key, value) in fields {
        if path.is_empty() && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        if let Some(node) = property(node, key) {
            validate(value, old.and_then(|old| old.get(key)), node, &at(key), causes);
        }
    }
}

fn validate_list(items: &[Value], node: &Value, path: &str, causes: &mut Causes) {
    if let Some(most) = limit(node, "maxItems").filter(|most| items.len() as u64 > *most) {
        causes.too_many(path, items.len(), most);
    }
    if limit(node, "minItems").is_some_and(|least| (items.len() as u64) < least) {
        causes.invalid(path, &items.len().into(), "has too few items");
    }
    let keys = list(node, "x-kubernetes-list-map-keys");
    let identity = |item: &Value| match node["x-kubernetes-list-type"].as_str() {
        Some("set") => Some(item.to_string()),
        Some("map") => {
            let key: Vec<_> = keys.iter().filter_map(Value::as_str).map(|key| item.get(key)).collect();
            Some(format!("{key:?}"))
        }
        _ => None,
    };
    let (mut identities, mut unique) = (HashSet::new(), HashSet::new());
    for (index, item) in items.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if let Some(field) = node["x-unique"].as_str()
            && let Some(value) = item.get(field).filter(|value| !is_empty(value))
            && !unique.insert(value)
        {
            causes.duplicate(format!("{path}.{field}"), value);
        }
        if identity(item).is_some_and(|identity| !identities.insert(identity)) {
            causes.duplicate(&path, item);
        }
        if let Some(node) = node.get("items") {
            validate(item, None, node, &path, causes);
        }
    }
}

fn validate_text(text: &str, value: &Value, node: &Value, path: &str, causes: &mut Causes) {
    let length = text.chars().count() as u64;
    if let Some(most) = limit(node, "maxLength").filter(|most| length > *most) {
        causes.too_long(path, most);
    }
    if limit(node, "minLength").is_some_and(|least| length < least) {
        causes.invalid(path, value, "is too short");
    }
    if let Some(rule) = node["pattern"].as_str()
        && pattern(rule).is_ok_and(|pattern| !pattern.is_match(text))
    {
        causes.invalid(path, value, &format!("should match '{rule}'"));
    }
    if node["format"] == "ip" && text.parse::<IpAddr>().is_err() {
        causes.invalid(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    }
    if node["format"] == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
        causes.invalid(path, value, "must be of format date-time");
    }
}

fn validate_number(value: &Value, node: &Value, path: &str, causes: &mut Causes) {
    let Some(number) = value.as_f64() else { return };
    let bound = |key: &str| node.get(key).and_then(Value::as_f64);
    if let Some(least) = bound("minimum").filter(|least| number < *least) {
        causes.invalid(path, value, &format!("should be greater than or equal to {least}"));
    }
    if let Some(most) = bound("maximum").filter(|most| number > *most) {
        causes.invalid(path, value, &format!("should be less than or equal to {most}"));
    }
    if node["format"] == "int32" && (number < f64::from(i32::MIN) || number > f64::from(i32::MAX)) {
        causes.invalid(path, value, "should be a 32-bit integer");
    }
}

/// Adds the errors of a schema that is not structural: every node needs a type, and patterns must compile.
pub(crate) fn check(node: &Value, path: &str, causes: &mut Causes) {
    let typed = node["type"].as_str().is_some_and(|name| !name.is_empty());
    if !typed && !is_set(node, "x-kubernetes-int-or-string") && !is_set(node, "x-kubernetes-preserve-unknown-fields") {
        causes.required(format!("{path}.type"), "must not be empty for specified object fields");
    }
    if let Some(rule) = node["pattern"].as_str()
        && let Err(error) = pattern(rule)
    {
        causes.invalid(format!("{path}.pattern"), &rule.into(), &error.to_string());
    }
    for (name, node) in node["properties"].as_object().into_iter().flatten() {
        check(node, &format!("{path}.properties[{name}]"), causes);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(node) = node.get(key).filter(|node| node.is_object()) {
            check(node, &format!("{path}.{key}"), causes);
        }
    }
}
