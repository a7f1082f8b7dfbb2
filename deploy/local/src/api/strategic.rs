//! Strategic merge patch: like a JSON merge patch, but lists of built-in types merge by a key.
//!
//! The directives are those of kubectl: `$patch: delete|replace`, `$setElementOrder/list`,
//! `$deleteFromPrimitiveList/list` and `$retainKeys`. One table by field name has the keys of lists. A name with
//! different lists in different kinds (`ports`) has several candidates; the one that the items have is used.

use serde_json::{Map, Value};

use super::fields::object;
use super::resource::Resource;

/// Lists that merge, and the key fields of their items.
const KEYS: &[(&str, &[&str])] = &[
    ("addresses", &["type"]),
    ("conditions", &["type"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("hostAliases", &["ip"]),
    ("hostIPs", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("ownerReferences", &["uid"]),
    ("podIPs", &["ip"]),
    ("ports", &["containerPort", "port"]),
    ("secrets", &["name"]),
    ("taints", &["key"]),
    ("topologySpreadConstraints", &["topologyKey"]),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
];

/// Lists of plain values that merge as sets.
const SETS: &[&str] = &["finalizers"];

/// Lists of a kind that merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lists {
    /// Lists in the table.
    ByKey,
    /// Only lists in metadata; other lists are replaced as a whole.
    Atomic,
}

impl Lists {
    /// Returns the rule of a resource. Lists of Endpoints, EndpointSlices and policies are replaced as a whole.
    pub(crate) fn for_resource(resource: &Resource) -> Self {
        match (resource.group.as_str(), resource.plural.as_str()) {
            ("discovery.k8s.io" | "networking.k8s.io", _) | ("", "endpoints") => Lists::Atomic,
            _ => Lists::ByKey,
        }
    }

    /// Returns the key of a list's items, if the list merges by key.
    pub(crate) fn key(self, field: &str, items: &[Value]) -> Option<&'static str> {
        if self == Lists::Atomic && field != "ownerReferences" {
            return None;
        }
        let (_, candidates) = KEYS.iter().find(|(name, _)| *name == field)?;
        let carried = candidates.iter().find(|key| items.iter().any(|item| item.get(**key).is_some()));
        carried.copied().or((candidates.len() == 1).then(|| candidates[0]))
    }

    /// Reports whether a list is a set.
    pub(crate) fn is_set(self, field: &str) -> bool {
        SETS.contains(&field)
    }
}

/// Merges a patch into a document.
pub(crate) fn merge(document: &mut Value, patch: &Value, lists: Lists) {
    let Some(patch) = patch.as_object() else { return };
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            let mut replaced = patch.clone();
            replaced.remove("$patch");
            *document = Value::Object(replaced);
            return;
        }
        Some("delete") => {
            *document = Value::Object(Map::new());
            return;
        }
        _ => {}
    }
    let fields = object(document);
    for (key, value) in patch {
        if key == "$retainKeys" {
            let kept = value.as_array().cloned().unwrap_or_default();
            fields.retain(|field, _| kept.iter().any(|kept| kept == field));
        } else if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(items) = fields.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(item));
            }
        } else if let Some(list) = key.strip_prefix("$setElementOrder/") {
            // A patch may change only the order of a list.
            if !patch.contains_key(list)
                && let (Some(slot), Some(order)) = (fields.get_mut(list), value.as_array())
            {
                merge_list(slot, list, &[], Some(order), lists);
            }
        } else if key.starts_with('$') {
            continue;
        } else if value.is_null() {
            fields.remove(key);
        } else if value.is_object() {
            merge(fields.entry(key).or_insert(Value::Null), value, lists);
        } else if let Some(items) = value.as_array() {
            let order = patch.get(&format!("$setElementOrder/{key}")).and_then(Value::as_array);
            let slot = fields.entry(key).or_insert(Value::Null);
            merge_list(slot, key, items, order, lists);
        } else {
            fields.insert(key.clone(), value.clone());
        }
    }
}

fn merge_list(slot: &mut Value, field: &str, patch: &[Value], order: Option<&Vec<Value>>, lists: Lists) {
    if lists.is_set(field) {
        return add_to_set(slot, patch);
    }
    let stored = slot.as_array().cloned().unwrap_or_default();
    let sample: Vec<Value> = patch.iter().chain(order.into_iter().flatten()).chain(&stored).cloned().collect();
    let Some(key) = lists.key(field, &sample) else {
        *slot = patch.to_vec().into();
        return;
    };
    if patch.iter().any(|item| item["$patch"] == "replace") {
        *slot = patch.iter().filter(|item| item["$patch"] != "replace").cloned().collect();
        return;
    }
    let same = |a: &Value, b: &Value| a.get(key).is_some() && a.get(key) == b.get(key);
    let mut merged = stored.clone();
    for item in patch {
        if item["$patch"] == "delete" {
            merged.retain(|stored| !same(stored, item));
        } else if let Some(found) = merged.iter_mut().find(|stored| same(stored, item)) {
            merge(found, item, lists);
        } else {
            let mut new = Value::Object(Map::new());
            merge(&mut new, item, lists);
            merged.push(new);
        }
    }
    let named: Vec<&Value> = order.map_or_else(|| patch.iter().collect(), |order| order.iter().collect());
    *slot = arrange(merged, &stored, &named, same).into();
}

/// Adds the items that a list of plain values lacks.
pub(crate) fn add_to_set(slot: &mut Value, items: &[Value]) {
    let mut merged = slot.as_array().cloned().unwrap_or_default();
    for item in items {
        if !merged.contains(item) {
            merged.push(item.clone());
        }
    }
    *slot = merged.into();
}

/// Orders the items: those in the patch take its order, and the others keep their place among them.
fn arrange(
    merged: Vec<Value>,
    stored: &[Value],
    named: &[&Value],
    same: impl Fn(&Value, &Value) -> bool,
) -> Vec<Value> {
    let place = |item: &Value| stored.iter().position(|stored| same(stored, item));
    let rank = |item: &Value| named.iter().position(|named| same(named, item));
    let (mut patched, own): (Vec<Value>, Vec<Value>) = merged.into_iter().partition(|item| rank(item).is_some());
    patched.sort_by_key(|item| rank(item));
    let (mut patched, mut own) = (patched.into_iter().peekable(), own.into_iter().peekable());
    let mut arranged = Vec::new();
    loop {
        let own_first = match (own.peek(), patched.peek()) {
            (None, None) => return arranged,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(patched)) => place(own) < place(patched),
        };
        arranged.extend(if own_first { own.next() } else { patched.next() });
    }
}
