//! Lists and maps that merge: their keys, from tables for built-in kinds, and from the schema of a custom resource.
//!
//! One table by field name has the keys of lists. A name with different lists in different kinds (`ports`) has several
//! candidates; the one that the items have is used.

use serde_json::Value;

use super::resource::Resource;
use super::schema;

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
