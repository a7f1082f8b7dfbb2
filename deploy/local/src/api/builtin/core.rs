//! ConfigMaps, Secrets, Namespaces and Events.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::api::causes::Causes;
use crate::api::fields::{child, entries, object, text};
use crate::api::meta::metadata;

/// Validates the keys of `data`, and changes of immutable objects.
pub(super) fn validate_data(value: &Value, old: Option<&Value>, causes: &mut Causes) {
    let good = |key: &str| {
        let plain = key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        plain && !key.is_empty() && key.len() <= 253 && key != "." && !key.starts_with("..")
    };
    for field in ["data", "binaryData"] {
        for (key, _) in entries(value, &format!("/{field}")).filter(|(key, _)| !good(key)) {
            let rule = "a valid key must consist of alphanumeric characters, '-', '_' or '.'";
            causes.invalid(format!("{field}[{key}]"), &key.as_str().into(), rule);
        }
    }
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return };
    if value["immutable"] != true {
        causes.forbidden("immutable", "field is immutable when `immutable` is set");
    }
    for field in ["data", "binaryData"] {
        if value.get(field) != old.get(field) {
            causes.forbidden(field, "field is immutable when `immutable` is set");
        }
    }
}

pub(super) fn validate_config_map(value: &Value, old: Option<&Value>, causes: &mut Causes) {
    validate_data(value, old, causes);
    for (key, _) in entries(value, "/data") {
        if value.pointer("/binaryData").is_some_and(|binary| binary.get(key).is_some()) {
            causes.invalid(format!("data[{key}]"), &key.as_str().into(), "duplicate of key present in binaryData");
        }
    }
}

pub(super) fn prepare_secret(value: &mut Value) {
    let fields = object(value);
    if let Some(Value::Object(texts)) = fields.remove("stringData") {
        let data = child(fields, "data");
        for (key, text) in texts {
            data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
        }
    }
}

pub(super) fn prepare_namespace(value: &mut Value, old: Option<&Value>) {
    let name = text(value, "/metadata/name").to_string();
    child(metadata(value), "labels").insert("kubernetes.io/metadata.name".into(), name.into());
    if old.is_none() {
        value["spec"] = json!({"finalizers": ["kubernetes"]});
        value["status"] = json!({"phase": "Active"});
    }
}
