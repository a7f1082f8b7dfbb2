//! ConfigMaps, Secrets, Namespaces, Services and EndpointSlices.
//!
//! Unlike a real server, this one accepts addresses in 127.0.0.0/8, which pods of a local cluster have.

use crate::api::fields::{child, default, entries, items, object, text};
use crate::api::meta::metadata;
use crate::api::status::Causes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::net::IpAddr;

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

pub(super) fn prepare_service(value: &mut Value, old: Option<&Value>) {
    let Some(spec) = value.get_mut("spec").map(object) else { return };
    if spec["type"] != "ExternalName" {
        default(spec, "ipFamilies", json!(["IPv4"]));
        default(spec, "ipFamilyPolicy", "SingleStack");
        default(spec, "internalTrafficPolicy", "Cluster");
    }
    if spec.get("selector").is_some_and(|selector| *selector == json!({})) {
        spec.remove("selector");
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().map(object) {
        let number = port.get("port").cloned().unwrap_or_else(|| 0.into());
        let target = port.get("targetPort");
        if target.is_none_or(|target| target.is_null() || *target == 0 || target == "") {
            port.insert("targetPort".into(), number);
        }
    }
    if old.is_none() {
        value["status"] = json!({"loadBalancer": {}});
    }
}

pub(super) fn validate_service(value: &Value, causes: &mut Causes) {
    let spec = &value["spec"];
    let is_alias = text(spec, "/type") == "ExternalName";
    if is_alias && text(spec, "/externalName").is_empty() {
        causes.required("spec.externalName", "");
    }
    let ports = items(spec, "/ports");
    if ports.is_empty() && !is_alias && text(spec, "/clusterIP") != "None" {
        causes.required("spec.ports", "");
    }
    for (index, port) in ports.iter().enumerate() {
        if ports.len() > 1 && text(port, "/name").is_empty() {
            causes.required(format!("spec.ports[{index}].name"), "");
        }
        if port["targetPort"].as_i64().is_some_and(|target| !(1..=65535).contains(&target)) {
            let field = format!("spec.ports[{index}].targetPort");
            causes.invalid(field, &port["targetPort"], "must be between 1 and 65535, inclusive");
        }
    }
}

pub(super) fn validate_slice(value: &Value, causes: &mut Causes) {
    let kind = text(value, "/addressType");
    for (at, endpoint) in items(value, "/endpoints").iter().enumerate() {
        for (index, address) in items(endpoint, "/addresses").iter().enumerate() {
            let parsed = address.as_str().unwrap_or_default().parse::<IpAddr>();
            if kind != "FQDN" && !parsed.is_ok_and(|address| address.is_ipv4() == (kind == "IPv4")) {
                let rule = format!("must be a valid {kind} address");
                causes.invalid(format!("endpoints[{at}].addresses[{index}]"), address, &rule);
            }
        }
    }
}
