//! Strategic merge patches: like a JSON merge patch, but lists of built-in types merge by a key ([`super::lists`]).
//!
//! The directives are those of kubectl: `$patch: delete|replace`, `$setElementOrder/list`,
//! `$deleteFromPrimitiveList/list` and `$retainKeys`.

use serde_json::{Map, Value};

use super::fields::{items, object};
use super::lists::{List, Shape};

/// Merges a patch into a document.
pub(crate) fn merge(document: &mut Value, patch: &Value, shape: Shape<'_>) {
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
            fields.retain(|field, _| items(value, "").iter().any(|name| name == field));
        } else if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let Some(stored) = fields.get_mut(list).and_then(Value::as_array_mut) {
                stored.retain(|item| !items(value, "").contains(item));
            }
        } else if let Some(list) = key.strip_prefix("$setElementOrder/") {
            // A patch may change only the order of a list.
            if !patch.contains_key(list)
                && let (Some(slot), Some(order)) = (fields.get_mut(list), value.as_array())
            {
                merge_list(slot, list, &[], Some(order), shape);
            }
        } else if key.starts_with('$') {
            continue;
        } else if value.is_null() {
            fields.remove(key);
        } else if value.is_object() {
            merge(fields.entry(key).or_insert(Value::Null), value, shape);
        } else if let Some(items) = value.as_array() {
            let order = patch.get(&format!("$setElementOrder/{key}")).and_then(Value::as_array);
            let slot = fields.entry(key).or_insert(Value::Null);
            merge_list(slot, key, items, order, shape);
        } else {
            fields.insert(key.clone(), value.clone());
        }
    }
}

fn merge_list(slot: &mut Value, field: &str, patch: &[Value], order: Option<&Vec<Value>>, shape: Shape<'_>) {
    let stored = slot.as_array().cloned().unwrap_or_default();
    // Ports are identified by number alone.
    let key = match shape.list(field, patch.iter().chain(order.into_iter().flatten()).chain(&stored)) {
        List::Map(keys) => keys.into_iter().next().unwrap_or_default(),
        List::Set => return add_to_set(slot, patch),
        List::Atomic => {
            *slot = patch.to_vec().into();
            return;
        }
    };
    if patch.iter().any(|item| item["$patch"] == "replace") {
        *slot = patch.iter().filter(|item| item["$patch"] != "replace").cloned().collect();
        return;
    }
    let same = |a: &Value, b: &Value| a.get(&key).is_some() && a.get(&key) == b.get(&key);
    let mut merged = stored.clone();
    for item in patch {
        if item["$patch"] == "delete" {
            merged.retain(|stored| !same(stored, item));
        } else if let Some(found) = merged.iter_mut().find(|stored| same(stored, item)) {
            merge(found, item, shape);
        } else {
            let mut new = Value::Object(Map::new());
            merge(&mut new, item, shape);
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
