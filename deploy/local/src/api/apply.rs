//! Server-side apply: a manager states the fields that it wants, and owns them from then on.
//!
//! `metadata.managedFields` stores the ownership as `FieldsV1`, with one entry per manager and subresource. A field
//! that a manager owned and no longer states is removed, unless another manager owns it too. A field that another
//! manager owns with another value is a conflict, unless the apply is forced.
//!
//! Limits: updates and other patches record no ownership. Their fields have no owner, so an apply takes them over
//! without a conflict, and an apply that does not state them leaves them unchanged.

use std::collections::BTreeSet;
use std::ops::Bound;

use serde_json::{Map, Value, json};

use super::fields::{self, object, text};
use super::meta::{self, metadata};
use super::query::WriteOptions;
use super::resource::Resource;
use super::status::{ApiError, Result};
use super::strategic::add_to_set;
use super::strategic::{List, PROTOCOL, Shape};
use super::write::Part;

/// Fields by their paths in `FieldsV1`: `f:NAME` is a field of a map, `k:KEY` and `v:VALUE` are items of a list, and
/// `.` is an item itself.
type Fields = BTreeSet<Vec<String>>;

/// Returns the object after applying `config` to `live`, with the new ownership.
pub(crate) fn apply(
    resource: &Resource,
    part: Part,
    live: Option<Value>,
    config: &Value,
    options: &WriteOptions,
) -> Result<Value> {
    let shape = Shape::for_resource(resource);
    let subresource = if part == Part::Status { "status" } else { "" };
    let mut stated = config.clone();
    let map = object(&mut stated);
    map.remove("apiVersion");
    map.remove("kind");
    match part {
        Part::Status => map.retain(|key, _| key == "status"),
        _ if resource.rules.status => drop(map.remove("status")),
        _ => {}
    }
    if let Some(fields) = map.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["name", "namespace", "uid", "creationTimestamp", "resourceVersion", "generation", "selfLink"] {
            fields.remove(key);
        }
    }
    if map.get("metadata").is_some_and(|metadata| *metadata == json!({})) {
        map.remove("metadata");
    }
    let fields = fields_of(&stated, shape);
    let wanted = paths_of(&fields);
    let created = live.is_none();
    let mut document = live.unwrap_or_else(|| json!({"metadata": {}}));
    let mut entries = std::mem::take(fields::list(metadata(&mut document), "managedFields"));
    let mine = |entry: &Value| {
        text(entry, "/manager") == options.manager
            && text(entry, "/subresource") == subresource
            && text(entry, "/operation") == "Apply"
    };
    let (mut conflicts, mut others) = (Vec::new(), Vec::new());
    for entry in entries.iter_mut().filter(|entry| !mine(entry)) {
        let mut theirs = paths_of(&entry["fieldsV1"]);
        let clashing = wanted.iter().filter(|path| has(&theirs, path) && get(&stated, path) != get(&document, path));
        let clashing: Vec<_> = clashing.collect();
        conflicts.extend(clashing.iter().map(|path| (text(entry, "/manager").to_owned(), display_path(path))));
        theirs.retain(|their| !clashing.iter().any(|path| their.starts_with(path)));
        entry["fieldsV1"] = nested(&theirs);
        others.push(theirs);
    }
    if !options.force && !conflicts.is_empty() {
        return Err(ApiError::apply_conflict(&conflicts));
    }
    let before = entries.iter().find(|entry| mine(entry)).map(|entry| entry["fieldsV1"].clone());
    for path in paths_of(before.as_ref().unwrap_or(&Value::Null)) {
        if !has(&wanted, &path) && !others.iter().any(|other| has(other, &path)) {
            remove(&mut document, &path, 0, &wanted);
        }
    }
    merge(&mut document, &stated, shape, "");
    if let Some(version) = config.pointer("/metadata/resourceVersion").filter(|_| !created) {
        metadata(&mut document).insert("resourceVersion".into(), version.clone());
    }
    if before.as_ref() != Some(&fields) {
        entries.retain(|entry| !mine(entry));
        let mut entry = json!({
            "manager": options.manager, "operation": "Apply", "apiVersion": resource.api_version(),
            "time": meta::now(), "fieldsType": "FieldsV1", "fieldsV1": fields,
        });
        if !subresource.is_empty() {
            entry["subresource"] = subresource.into();
        }
        entries.push(entry);
    }
    metadata(&mut document).insert("managedFields".into(), entries.into());
    Ok(document)
}

/// Returns the fields that a value states, as `FieldsV1`.
fn fields_of(value: &Value, shape: Shape<'_>) -> Value {
    let mut fields = Map::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        let shape = shape.field(key);
        let owned = match value {
            Value::Object(map) if !map.is_empty() && !shape.is_atomic_map() => fields_of(value, shape),
            Value::Array(items) if !items.is_empty() => match shape.list(key, items.iter()) {
                List::Atomic => json!({}),
                List::Set => items.iter().map(|item| (format!("v:{item}"), json!({}))).collect(),
                List::Map(keys) => {
                    let items = items.iter().map(|item| {
                        let mut owned = fields_of(item, shape.items());
                        object(&mut owned).insert(".".into(), json!({}));
                        (format!("k:{}", key_of(item, &keys)), owned)
                    });
                    items.collect()
                }
            },
            _ => json!({}),
        };
        fields.insert(format!("f:{key}"), owned);
    }
    Value::Object(fields)
}

fn key_of(item: &Value, keys: &[String]) -> Value {
    keys.iter().map(|key| (key.clone(), key_field(item, key))).collect()
}

/// Returns a field of an item's key, with its default.
fn key_field(item: &Value, field: &str) -> Value {
    match item.get(field) {
        Some(value) => value.clone(),
        None if field == PROTOCOL => "TCP".into(),
        None => Value::Null,
    }
}

/// Reports whether a segment of a path identifies this item of a list.
fn is_identified(item: &Value, segment: &str) -> bool {
    let (kind, text) = segment.split_at_checked(2).unwrap_or_default();
    let named: Value = serde_json::from_str(text).unwrap_or_default();
    match named.as_object().filter(|_| kind == "k:") {
        Some(key) => key.iter().all(|(field, wanted)| key_field(item, field) == *wanted),
        None => kind == "v:" && *item == named,
    }
}

/// Returns the value at a path. An item of a set has none, so it causes no conflict.
fn get<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, segment| match segment.strip_prefix("f:") {
        Some(field) => value.get(field),
        None => value.as_array()?.iter().find(|item| segment.starts_with("k:") && is_identified(item, segment)),
    })
}

/// Formats a path for people, such as `.spec.ports[port=80].name`.
fn display_path(path: &[String]) -> String {
    let segments = path.iter().map(|segment| match segment.split_at_checked(2) {
        Some(("f:", field)) => format!(".{field}"),
        Some(("k:", key)) => {
            let key: Value = serde_json::from_str(key).unwrap_or_default();
            let terms: Vec<_> = fields::entries(&key, "").map(|(field, value)| format!("{field}={value}")).collect();
            format!("[{}]", terms.join(","))
        }
        _ => String::new(),
    });
    segments.collect()
}

/// Returns the paths of `FieldsV1`.
fn paths_of(fields: &Value) -> Fields {
    let mut paths = Fields::new();
    collect_paths(fields, &mut Vec::new(), &mut paths);
    paths
}

fn collect_paths(fields: &Value, path: &mut Vec<String>, paths: &mut Fields) {
    for (segment, inner) in fields::entries(fields, "") {
        path.push(segment.clone());
        if inner.as_object().is_none_or(Map::is_empty) {
            paths.insert(path.clone());
        } else {
            collect_paths(inner, path, paths);
        }
        path.pop();
    }
}

/// Returns the `FieldsV1` of these paths.
fn nested(paths: &Fields) -> Value {
    let mut root = json!({});
    for path in paths {
        let mut slot = &mut root;
        for segment in path {
            slot = object(slot).entry(segment).or_insert_with(|| json!({}));
        }
    }
    root
}

/// Reports whether the fields contain one at this path or below.
fn has(fields: &Fields, path: &[String]) -> bool {
    let from = (Bound::Included(path), Bound::Unbounded);
    fields.range::<[String], _>(from).next().is_some_and(|next| next.starts_with(path))
}

/// Removes a field, and the maps and lists around it that are then empty and not wanted. The rest of the path begins at
/// `depth`.
fn remove(value: &mut Value, path: &[String], depth: usize, wanted: &Fields) {
    let Some(segment) = path.get(depth) else { return };
    let is_last = depth + 1 == path.len();
    if let Some(field) = segment.strip_prefix("f:") {
        let Some(map) = value.as_object_mut() else { return };
        let Some(child) = map.get_mut(field) else { return };
        remove(child, path, depth + 1, wanted);
        if is_last || (is_empty(child) && !has(wanted, &path[..=depth])) {
            map.remove(field);
        }
    } else if let Some(items) = value.as_array_mut() {
        if is_last || path[depth + 1] == "." {
            items.retain(|item| !is_identified(item, segment));
        } else if let Some(item) = items.iter_mut().find(|item| is_identified(item, segment)) {
            remove(item, path, depth + 1, wanted);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Merges the stated fields into the document.
fn merge(document: &mut Value, stated: &Value, shape: Shape<'_>, field: &str) {
    match stated {
        Value::Object(map) if !shape.is_atomic_map() => {
            let fields = object(document);
            for (key, value) in map {
                if value.is_null() {
                    fields.remove(key);
                } else {
                    merge(fields.entry(key).or_insert(Value::Null), value, shape.field(key), key);
                }
            }
        }
        Value::Array(items) => match shape.list(field, items.iter()) {
            List::Atomic => *document = stated.clone(),
            List::Set => add_to_set(document, items),
            List::Map(keys) => {
                let mut merged = document.as_array().cloned().unwrap_or_default();
                for item in items {
                    let key = key_of(item, &keys);
                    match merged.iter_mut().find(|stored| key_of(stored, &keys) == key) {
                        Some(stored) => merge(stored, item, shape.items(), ""),
                        None => merged.push(item.clone()),
                    }
                }
                *document = merged.into();
            }
        },
        other => *document = other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::builtin;

    fn applied(plural: (&str, &str), live: Option<Value>, manager: &str, config: &Value) -> Result<Value> {
        let resource = builtin::registry().get(plural.0, "v1", plural.1).expect("a built-in");
        let options = WriteOptions { manager: manager.into(), ..WriteOptions::default() };
        apply(&resource, Part::Main, live, config, &options)
    }

    /// Goal: 53/TCP and 53/UDP are two ports with separate owners; a port without a protocol is TCP.
    #[test]
    fn ports_with_the_same_number_are_distinguished_by_protocol() {
        let (tcp, udp) = (json!({"port": 53, "protocol": "TCP"}), json!({"port": 53, "protocol": "UDP"}));
        let service = |ports: &[&Value]| json!({"spec": {"ports": ports}});
        let services = ("", "services");
        let both = applied(services, None, "a", &service(&[&udp, &tcp])).expect("applied");
        assert_eq!(both["spec"]["ports"], json!([udp, tcp]));

        let plain = json!({"port": 53, "name": "dns"});
        let named = applied(services, Some(both.clone()), "a", &service(&[&udp, &plain])).expect("applied");
        let names: Vec<_> =
            named["spec"]["ports"].as_array().expect("ports").iter().map(|port| &port["name"]).collect();
        assert_eq!(names, [&Value::Null, &"dns".into()], "a port without a protocol is TCP");

        let one = applied(services, Some(both.clone()), "a", &service(&[&tcp])).expect("applied");
        assert_eq!(one["spec"]["ports"], json!([tcp]), "the owner no longer states the other");

        let theirs = json!({"port": 53, "protocol": "UDP", "nodePort": 30053});
        let shared = applied(services, Some(both), "b", &service(&[&theirs])).expect("no conflict");
        assert_eq!(shared["spec"]["ports"], json!([theirs, tcp]));

        let containers = |ports: Value| json!({"spec": {"containers": [{"name": "c", "ports": ports}]}});
        let ports = json!([{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}]);
        let pod = applied(("", "pods"), None, "a", &containers(ports.clone())).expect("applied");
        let again = applied(("", "pods"), Some(pod), "a", &containers(ports.clone())).expect("applied");
        assert_eq!(again["spec"]["containers"][0]["ports"], ports);
    }
}
