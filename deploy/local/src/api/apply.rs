//! Server-side apply: a manager states the fields that it wants, and owns them from then on.
//!
//! `metadata.managedFields` stores the ownership as `FieldsV1`, with one entry per manager and subresource. A field
//! that a manager owned and no longer states is removed, unless another manager owns it too. A field that another
//! manager owns with another value is a conflict, unless the apply is forced.
//!
//! Limits: updates and other patches record no ownership. Their fields have no owner, so an apply takes them over
//! without a conflict, and an apply that does not state them leaves them unchanged.

use serde_json::{Map, Value, json};

use super::fields::{self, object, text};
use super::meta::{self, metadata};
use super::query::WriteOptions;
use super::resource::Resource;
use super::schema;
use super::status::{ApiError, Result};
use super::strategic::{Lists, add_to_set};
use super::write::Part;

/// Optional part of a port's key; the default is TCP.
const PROTOCOL: &str = "protocol";

/// Kind of a list for apply.
enum List {
    /// Replaced as a whole.
    Atomic,
    /// Set of plain values.
    Set,
    /// Items identified by key fields.
    Map(Vec<String>),
}

/// Type information of a resource that apply needs.
#[derive(Clone, Copy)]
enum Shape<'a> {
    /// A built-in kind.
    Typed(Lists),
    /// A node of a schema.
    Schema(&'a Value),
    /// A node that no schema describes.
    Free,
}

impl<'a> Shape<'a> {
    fn field(self, name: &str) -> Shape<'a> {
        match self {
            Shape::Schema(node) => schema::property(node, name).map_or(Shape::Free, Shape::Schema),
            other => other,
        }
    }

    fn items(self) -> Shape<'a> {
        match self {
            Shape::Schema(node) => node.get("items").map_or(Shape::Free, Shape::Schema),
            other => other,
        }
    }

    fn list(self, field: &str, items: &[Value]) -> List {
        match self {
            Shape::Typed(lists) if lists.is_set(field) => List::Set,
            Shape::Typed(lists) => lists.key(field, items).map_or(List::Atomic, |key| {
                // A strategic merge identifies ports by number alone; apply by number and protocol.
                let protocol = (field == "ports").then(|| PROTOCOL.to_owned());
                List::Map([key.to_owned()].into_iter().chain(protocol).collect())
            }),
            Shape::Schema(node) => match node["x-kubernetes-list-type"].as_str() {
                Some("set") => List::Set,
                Some("map") => {
                    let keys = node["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
                    List::Map(keys.filter_map(Value::as_str).map(str::to_string).collect())
                }
                _ => List::Atomic,
            },
            Shape::Free if field == "finalizers" => List::Set,
            Shape::Free => List::Atomic,
        }
    }

    fn atomic_map(self) -> bool {
        matches!(self, Shape::Schema(node) if node["x-kubernetes-map-type"] == "atomic")
    }
}

/// Returns the object after applying `config` to `live`, with the new ownership.
pub(crate) fn apply(
    resource: &Resource,
    part: Part,
    live: Option<Value>,
    config: &Value,
    options: &WriteOptions,
) -> Result<Value> {
    let shape = match resource.is_custom() {
        true => Shape::Schema(&resource.schema),
        false => Shape::Typed(Lists::for_resource(resource)),
    };
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
    let wanted = fields_of(&stated, shape);
    let created = live.is_none();
    let mut document = live.unwrap_or_else(|| json!({"metadata": {}}));
    let mut entries = fields::list(metadata(&mut document), "managedFields");
    let mine = |entry: &Value| {
        text(entry, "/manager") == options.manager
            && text(entry, "/subresource") == subresource
            && text(entry, "/operation") == "Apply"
    };
    let mut conflicts = Vec::new();
    for entry in entries.iter_mut().filter(|entry| !mine(entry)) {
        let manager = text(entry, "/manager").to_string();
        let mut paths = Vec::new();
        clashes(&wanted, &mut entry["fieldsV1"], Some(&stated), Some(&document), "", options.force, &mut paths);
        conflicts.extend(paths.into_iter().map(|path| (manager.clone(), path)));
    }
    if !options.force && !conflicts.is_empty() {
        return Err(ApiError::apply_conflict(&conflicts));
    }
    let before = entries.iter().find(|entry| mine(entry)).map(|entry| entry["fieldsV1"].clone());
    let others: Vec<&Value> = entries.iter().filter(|entry| !mine(entry)).map(|entry| &entry["fieldsV1"]).collect();
    if let Some(before) = &before {
        prune(&mut document, before, Some(&wanted), &others);
    }
    merge(&mut document, &stated, shape, "");
    if let Some(version) = config.pointer("/metadata/resourceVersion").filter(|_| !created) {
        metadata(&mut document).insert("resourceVersion".into(), version.clone());
    }
    if before.as_ref() != Some(&wanted) {
        entries.retain(|entry| !mine(entry));
        let mut entry = json!({
            "manager": options.manager, "operation": "Apply", "apiVersion": resource.api_version(),
            "time": meta::now(), "fieldsType": "FieldsV1", "fieldsV1": wanted,
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
            Value::Object(map) if !map.is_empty() && !shape.atomic_map() => fields_of(value, shape),
            Value::Array(items) if !items.is_empty() => match shape.list(key, items) {
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

/// Returns the part of a value that a segment of a field path names.
fn step<'a>(value: Option<&'a Value>, segment: &str) -> Option<&'a Value> {
    let value = value?;
    if let Some(field) = segment.strip_prefix("f:") {
        return value.get(field);
    }
    let key: Value = serde_json::from_str(segment.strip_prefix("k:")?).ok()?;
    value.as_array()?.iter().find(|item| has_key(item, &key))
}

fn has_key(item: &Value, key: &Value) -> bool {
    key.as_object().is_some_and(|key| key.iter().all(|(field, wanted)| key_field(item, field) == *wanted))
}

/// Collects fields that are stated with another value than the live one and owned by another manager. With `take`,
/// removes them from that manager.
fn clashes(
    wanted: &Value,
    theirs: &mut Value,
    stated: Option<&Value>,
    live: Option<&Value>,
    path: &str,
    take: bool,
    found: &mut Vec<String>,
) {
    let (Some(wanted), Some(theirs)) = (wanted.as_object(), theirs.as_object_mut()) else { return };
    for (segment, mine) in wanted {
        if segment == "." || segment.starts_with("v:") || !theirs.contains_key(segment) {
            continue;
        }
        let (stated, live) = (step(stated, segment), step(live, segment));
        let path = match segment.strip_prefix("f:") {
            Some(field) => format!("{path}.{field}"),
            None => format!("{path}{}", item_path(segment)),
        };
        if mine.as_object().is_some_and(Map::is_empty) {
            if stated != live {
                found.push(path);
                if take {
                    theirs.remove(segment);
                }
            }
        } else if let Some(theirs) = theirs.get_mut(segment) {
            clashes(mine, theirs, stated, live, &path, take, found);
        }
    }
}

fn item_path(segment: &str) -> String {
    let key: Value = segment.strip_prefix("k:").and_then(|key| serde_json::from_str(key).ok()).unwrap_or_default();
    let terms: Vec<String> = fields::entries(&key, "").map(|(field, value)| format!("{field}={value}")).collect();
    format!("[{}]", terms.join(","))
}

/// Removes fields that were owned, are no longer stated, and have no other owner.
fn prune(document: &mut Value, before: &Value, wanted: Option<&Value>, others: &[&Value]) {
    for (segment, owned) in before.as_object().into_iter().flatten().filter(|(segment, _)| *segment != ".") {
        let wanted = wanted.and_then(|wanted| wanted.get(segment));
        let others: Vec<&Value> = others.iter().filter_map(|other| other.get(segment)).collect();
        let free = wanted.is_none() && others.is_empty();
        let leaf = owned.as_object().is_some_and(Map::is_empty);
        if let Some(field) = segment.strip_prefix("f:") {
            let Some(map) = document.as_object_mut() else { return };
            if leaf {
                if free {
                    map.remove(field);
                }
            } else if let Some(child) = map.get_mut(field) {
                prune(child, owned, wanted, &others);
                let empty = match &*child {
                    Value::Object(map) => map.is_empty(),
                    Value::Array(items) => items.is_empty(),
                    _ => false,
                };
                if empty && wanted.is_none() {
                    map.remove(field);
                }
            }
        } else if let Some(items) = document.as_array_mut() {
            let key: Option<Value> = segment.get(2..).and_then(|key| serde_json::from_str(key).ok());
            let Some(key) = key else { continue };
            let set = segment.starts_with("v:");
            if free {
                items.retain(|item| if set { *item != key } else { !has_key(item, &key) });
            } else if let Some(item) = items.iter_mut().find(|item| !set && has_key(item, &key)) {
                prune(item, owned, wanted, &others);
            }
        }
    }
}

/// Merges the stated fields into the document.
fn merge(document: &mut Value, stated: &Value, shape: Shape<'_>, field: &str) {
    match stated {
        Value::Object(map) if !shape.atomic_map() => {
            let fields = object(document);
            for (key, value) in map {
                if value.is_null() {
                    fields.remove(key);
                } else {
                    merge(fields.entry(key).or_insert(Value::Null), value, shape.field(key), key);
                }
            }
        }
        Value::Array(items) => match shape.list(field, items) {
            List::Atomic => *document = stated.clone(),
            List::Set => add_to_set(document, items),
            List::Map(keys) => {
                let mut merged = document.as_array().cloned().unwrap_or_default();
                for item in items {
                    let key = key_of(item, &keys);
                    match merged.iter_mut().find(|stored| has_key(stored, &key)) {
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
    fn ports_of_one_number_are_told_apart_by_their_protocol() {
        let (tcp, udp) = (json!({"port": 53, "protocol": "TCP"}), json!({"port": 53, "protocol": "UDP"}));
        let service = |ports: &[&Value]| json!({"spec": {"ports": ports}});
        let services = ("", "services");
        let both = applied(services, None, "a", &service(&[&udp, &tcp])).expect("applied");
        assert_eq!(both["spec"]["ports"], json!([udp, tcp]));

        let plain = json!({"port": 53, "name": "dns"});
        let named = applied(services, Some(both.clone()), "a", &service(&[&udp, &plain])).expect("applied");
        let names: Vec<_> =
            named["spec"]["ports"].as_array().expect("ports").iter().map(|port| &port["name"]).collect();
        assert_eq!(names, [&Value::Null, &"dns".into()], "TCP goes without saying");

        let one = applied(services, Some(both.clone()), "a", &service(&[&tcp])).expect("applied");
        assert_eq!(one["spec"]["ports"], json!([tcp]), "the other was owned and is no longer stated");

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
