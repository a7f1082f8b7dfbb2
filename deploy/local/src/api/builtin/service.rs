//! Services, Endpoints and EndpointSlices.
//!
//! Unlike a real server, this one accepts addresses in 127.0.0.0/8, which pods of a local cluster have.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::api::causes::Causes;
use crate::api::fields::{default, items, object, text};

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
