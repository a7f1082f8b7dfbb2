//! Services, Endpoints and EndpointSlices.
//!
//! Unlike a real server, addresses in 127.0.0.0/8 are taken: the pods of a local cluster live there.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::columns as print;
use crate::api::causes::Causes;
use crate::api::fields::{default, object, text};
use crate::api::resource::{Generation, NameRule, Rules};

pub(super) const SERVICE: Rules = Rules {
    name: NameRule::Label,
    status: true,
    create_on_update: true,
    returns_deleted: true,
    prepare: prepare_service,
    validate: validate_service,
    fields: &["spec.clusterIP", "spec.type"],
    printer: Some(&print::SERVICE),
    ..Rules::PLAIN
};

pub(super) const ENDPOINTS: Rules = Rules {
    create_on_update: true,
    prepare: prepare_endpoints,
    validate: validate_endpoints,
    printer: Some(&print::ENDPOINTS),
    ..Rules::PLAIN
};

pub(super) const ENDPOINT_SLICE: Rules = Rules {
    generation: Generation::Any,
    prepare: prepare_slice,
    validate: validate_slice,
    printer: Some(&print::ENDPOINT_SLICE),
    ..Rules::PLAIN
};

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn prepare_service(value: &mut Value, old: Option<&Value>) {
    let fields = object(value);
    let spec = object(fields.entry("spec").or_insert(Value::Null));
    default(spec, "type", "ClusterIP");
    default(spec, "sessionAffinity", "None");
    if spec["type"] != "ExternalName" {
        default(spec, "ipFamilies", json!(["IPv4"]));
        default(spec, "ipFamilyPolicy", "SingleStack");
        default(spec, "internalTrafficPolicy", "Cluster");
    }
    if spec.get("selector").is_some_and(|selector| *selector == json!({})) {
        spec.remove("selector");
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let port = object(port);
        default(port, "protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or_else(|| 0.into());
        let target = port.get("targetPort");
        if target.is_none_or(|target| target.is_null() || *target == 0 || target == "") {
            port.insert("targetPort".into(), number);
        }
    }
    if old.is_none() {
        fields.insert("status".into(), json!({"loadBalancer": {}}));
    }
}

fn validate_service(value: &Value, _old: Option<&Value>, causes: &mut Causes) {
    let spec = &value["spec"];
    let kind = text(spec, "/type");
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !kinds.contains(&kind) {
        causes.not_supported("spec.type", &spec["type"], &kinds);
    }
    if kind == "ExternalName" && text(spec, "/externalName").is_empty() {
        causes.required("spec.externalName", "");
    }
    let ports = items(spec, "ports");
    let headless = text(spec, "/clusterIP") == "None";
    if ports.is_empty() && kind != "ExternalName" && !headless {
        causes.required("spec.ports", "");
    }
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let at = format!("spec.ports[{index}]");
        let name = text(port, "/name");
        match name {
            "" if ports.len() > 1 => causes.required(format!("{at}.name"), ""),
            "" => {}
            name if names.contains(&name) => causes.duplicate(format!("{at}.name"), &name.into()),
            name if !crate::api::meta::dns_label(name) => {
                causes.invalid(format!("{at}.name"), &name.into(), "a DNS label is expected");
            }
            name => names.push(name),
        }
        let good = |port: &Value| port.as_i64().is_some_and(|port| (1..=65535).contains(&port));
        if !good(&port["port"]) {
            causes.invalid(format!("{at}.port"), &port["port"], "must be between 1 and 65535, inclusive");
        }
        if port["targetPort"].is_number() && !good(&port["targetPort"]) {
            causes.invalid(format!("{at}.targetPort"), &port["targetPort"], "must be between 1 and 65535, inclusive");
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        if !protocols.contains(&text(port, "/protocol")) {
            causes.not_supported(format!("{at}.protocol"), &port["protocol"], &protocols);
        }
    }
}

fn prepare_endpoints(value: &mut Value, _old: Option<&Value>) {
    for subset in value.get_mut("subsets").and_then(Value::as_array_mut).into_iter().flatten() {
        for port in subset.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            default(object(port), "protocol", "TCP");
        }
    }
}

fn validate_endpoints(value: &Value, _old: Option<&Value>, causes: &mut Causes) {
    for (at, subset) in items(value, "subsets").iter().enumerate() {
        for list in ["addresses", "notReadyAddresses"] {
            for (index, address) in items(subset, list).iter().enumerate() {
                if text(address, "/ip").parse::<IpAddr>().is_err() {
                    let rule = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                    causes.invalid(format!("subsets[{at}].{list}[{index}].ip"), &address["ip"], rule);
                }
            }
        }
    }
}

fn prepare_slice(value: &mut Value, _old: Option<&Value>) {
    for port in value.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let port = object(port);
        default(port, "protocol", "TCP");
        default(port, "name", "");
    }
}

fn validate_slice(value: &Value, old: Option<&Value>, causes: &mut Causes) {
    let kind = text(value, "/addressType");
    let kinds = ["IPv4", "IPv6", "FQDN"];
    match kind {
        "" => causes.required("addressType", ""),
        kind if !kinds.contains(&kind) => causes.not_supported("addressType", &kind.into(), &kinds),
        _ => {}
    }
    if old.is_some_and(|old| old["addressType"] != value["addressType"]) {
        causes.invalid("addressType", &value["addressType"], "field is immutable");
    }
    for (at, endpoint) in items(value, "endpoints").iter().enumerate() {
        let addresses = items(endpoint, "addresses");
        if addresses.is_empty() {
            causes.required(format!("endpoints[{at}].addresses"), "must contain at least 1 address");
        }
        for (index, address) in addresses.iter().enumerate() {
            let parsed = address.as_str().unwrap_or_default().parse::<IpAddr>();
            let good = match kind {
                "IPv4" => parsed.is_ok_and(|address| address.is_ipv4()),
                "IPv6" => parsed.is_ok_and(|address| address.is_ipv6()),
                _ => true,
            };
            if !good {
                let rule = format!("must be a valid {kind} address");
                causes.invalid(format!("endpoints[{at}].addresses[{index}]"), address, &rule);
            }
        }
    }
}
