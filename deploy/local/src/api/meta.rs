//! Metadata: the part shared by all objects, and its rules.
//!
//! Clients cannot set fields owned by the server (uid, creationTimestamp, generation, deletion). Names, labels,
//! annotations and finalizers are checked by the rules of Kubernetes.

use common_api::validation::is_object_name;
use jiff::Timestamp;
use rand::RngExt;
use serde_json::{Map, Value};

use super::fields::{child, entries, items, object, text};
use super::resource::{NameRule, Resource};
use super::status::Causes;

/// Returns the `metadata` map, and creates it if it is missing.
pub(crate) fn metadata(value: &mut Value) -> &mut Map<String, Value> {
    child(object(value), "metadata")
}

/// Returns the current time in the format of metadata: seconds, UTC.
pub(crate) fn now() -> String {
    time(Timestamp::now())
}

pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Generates a name from a `generateName`: the prefix, cut to fit, and five letters or digits that form no words.
pub(crate) fn generate_name(prefix: &str) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut name: String = prefix.chars().take(58).collect();
    let mut rng = rand::rng();
    for _ in 0..5 {
        name.push(ALPHABET[rng.random_range(0..ALPHABET.len())] as char);
    }
    name
}

/// Removes fields that a client cannot set on a new object.
pub(crate) fn clear_server_owned(metadata: &mut Map<String, Value>) {
    let of_deletion = ["deletionTimestamp", "deletionGracePeriodSeconds"];
    let owned = ["uid", "creationTimestamp", "selfLink", "generation", "managedFields", "resourceVersion"];
    metadata.retain(|field, _| !owned.iter().chain(&of_deletion).any(|owned| owned == field));
}

/// Removes `selfLink` and all empty values from metadata, which Kubernetes does not store.
pub(crate) fn tidy(metadata: &mut Map<String, Value>) {
    metadata.remove("selfLink");
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
}

/// Validates name, labels, annotations, finalizers and owners.
pub(crate) fn validate(resource: &Resource, value: &Value, causes: &mut Causes) {
    let name = text(value, "/metadata/name");
    let field = "metadata.name";
    if name.is_empty() {
        causes.required(field, "name or generateName is required");
    } else if let (false, rule) = check_name(resource.rules.name, name) {
        causes.invalid(field, &name.into(), rule);
    }
    for (key, label) in entries(value, "/metadata/labels") {
        if !qualified(key) {
            causes.invalid("metadata.labels", &key.as_str().into(), "a label key is an optional DNS prefix and a name");
        }
        if !label_value(label.as_str().unwrap_or("?")) {
            causes.invalid("metadata.labels", label, "a label value is at most 63 of letters, digits, '-', '_', '.'");
        }
    }
    for (key, _) in entries(value, "/metadata/annotations") {
        if !qualified(&key.to_ascii_lowercase()) {
            causes.invalid("metadata.annotations", &key.as_str().into(), "a key is an optional DNS prefix and a name");
        }
    }
    for finalizer in items(value, "/metadata/finalizers") {
        if !qualified(finalizer.as_str().unwrap_or_default()) {
            causes.invalid("metadata.finalizers", finalizer, "a finalizer is an optional DNS prefix and a name");
        }
    }
    let mut controllers = 0;
    for (index, owner) in items(value, "/metadata/ownerReferences").iter().enumerate() {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, &format!("/{key}")).is_empty() {
                causes.invalid(format!("metadata.ownerReferences[{index}].{key}"), &"".into(), "must not be empty");
            }
        }
        controllers += usize::from(owner.get("controller") == Some(&Value::Bool(true)));
    }
    if controllers > 1 {
        causes.invalid("metadata.ownerReferences", &controllers.into(), "only one owner can be the controller");
    }
}

/// Returns whether a name is valid, and the rule.
fn check_name(rule: NameRule, name: &str) -> (bool, &'static str) {
    match rule {
        NameRule::Subdomain => (
            is_object_name(name),
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
        ),
        NameRule::Label => (
            name.len() <= 63 && !name.contains('.') && is_object_name(name),
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
        ),
        NameRule::PathSegment => (
            name != "." && name != ".." && !name.contains(['/', '%']),
            "may not be '.' or '..' and may not contain '/' or '%'",
        ),
    }
}

/// Reports whether the key is a qualified name: `prefix/name` or `name`.
fn qualified(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_object_name) && !name.is_empty() && label_value(name)
}

/// Reports whether the text is a valid label value: empty, or at most 63 characters that begin and end with a letter or
/// digit.
fn label_value(value: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric();
    let is_framed = value.is_empty() || (value.starts_with(is_plain) && value.ends_with(is_plain));
    value.len() <= 63 && is_framed && value.chars().all(|c| is_plain(c) || "-_.".contains(c))
}
