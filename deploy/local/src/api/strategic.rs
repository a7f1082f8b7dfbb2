//! Strategic merge patches: like a JSON merge patch, but lists of built-in types merge by a key.
//!
//! The directives are those of kubectl: `$patch: delete|replace`, `$setElementOrder/list`,
//! `$deleteFromPrimitiveList/list` and `$retainKeys`.
//!
//! [`Shape`] has the keys of lists, for server-side apply too: from one table by field name for built-in kinds, and
//! from the schema of a custom resource. A name with different lists in different kinds (`ports`) has several
//! candidates; the one that the items have is used.

use super::fields::{items, object};
use super::resource::Resource;
use super::schema;
use serde_json::{Map, Value};

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

/// Optional part of a port's key; the default is TCP.
pub(super) const PROTOCOL: &str = "protocol";

/// Merging of a list.
pub(super) enum List {
    /// Replaced as a whole.
    Atomic,
    /// Set of plain values.
    Set,
    /// Items identified by key fields.
    Map(Vec<String>),
}

/// Type information of an object or a part of it.
#[derive(Clone, Copy)]
pub(super) enum Shape<'a> {
    /// Part of a built-in kind, whose lists merge by [`KEYS`].
    Keyed,
    /// Part of which only lists in metadata merge.
    Atomic,
    /// A node of a schema.
    Schema(&'a Value),
}

impl<'a> Shape<'a> {
    /// Returns the shape of a resource. Lists of Endpoints, EndpointSlices and policies are replaced as a whole.
    pub(super) fn for_resource(resource: &'a Resource) -> Self {
        match (resource.group.as_str(), resource.plural.as_str()) {
            _ if resource.is_custom() => Shape::Schema(&resource.schema),
            ("discovery.k8s.io" | "networking.k8s.io", _) | ("", "endpoints") => Shape::Atomic,
            _ => Shape::Keyed,
        }
    }

    pub(super) fn field(self, name: &str) -> Self {
        match self {
            Shape::Schema(node) => schema::property(node, name).map_or(Shape::Atomic, Shape::Schema),
            other => other,
        }
    }

    pub(super) fn items(self) -> Self {
        match self {
            Shape::Schema(node) => node.get("items").map_or(Shape::Atomic, Shape::Schema),
            other => other,
        }
    }

    /// Reports whether a map is replaced as a whole.
    pub(super) fn is_atomic_map(self) -> bool {
        matches!(self, Shape::Schema(node) if node["x-kubernetes-map-type"] == "atomic")
    }

    /// Returns how the list in a field merges. The items help to select the key.
    pub(super) fn list<'v>(self, field: &str, items: impl Iterator<Item = &'v Value> + Clone) -> List {
        if let Shape::Schema(node) = self {
            let keys = node["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
            return match node["x-kubernetes-list-type"].as_str() {
                Some("set") => List::Set,
                Some("map") => List::Map(keys.map(str::to_owned).collect()),
                _ => List::Atomic,
            };
        }
        let (_, candidates) = match KEYS.iter().find(|(name, _)| *name == field) {
            _ if field == "finalizers" => return List::Set,
            Some(entry) if matches!(self, Shape::Keyed) || field == "ownerReferences" => entry,
            _ => return List::Atomic,
        };
        let mut present = candidates.iter().filter(|key| items.clone().any(|item| item.get(**key).is_some()));
        let Some(key) = present.next().or((candidates.len() == 1).then(|| &candidates[0])) else {
            return List::Atomic;
        };
        let protocol = (field == "ports").then_some(PROTOCOL);
        List::Map([*key].into_iter().chain(protocol).map(str::to_owned).collect())
    }
}
