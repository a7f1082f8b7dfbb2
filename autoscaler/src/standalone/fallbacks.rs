//! Which Service answers for a workload that does not wake in time, and whether it can.
//!
//! A fallback is a Service of the same namespace. It may be that of another ZeroScaler, which then wakes for it, but none
//! whose own fallback leads back, by however many steps: nobody there would ever answer for another. Such a one is left out
//! at each of the objects in the circle, and the condition `AnswersResolved` says so; the rest of the object is in force. At
//! run time a request falls back once in any case.
//!
//! Edits of a fallback, and of the Services that are named, make the statuses of their namespace be looked at again.

use super::service_ports::is_tcp;
use common::RevisionKey as Key;
use common::backend::Protocol;
use common_api::ZeroScalerSpec;
use common_api::zeroscaler::{Fallback, FallbackStatus};
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use parking_lot::RwLock;
use std::collections::BTreeMap;

/// There is no such Service, or it has no such port.
const FALLBACK_NOT_FOUND: &str = "FallbackNotFound";
/// The Service is there, and none that activators can send to.
const FALLBACK_UNFIT: &str = "FallbackUnfit";
/// Fallbacks lead from one to the other and back.
const FALLBACK_CIRCLE: &str = "FallbackCircle";

/// `appProtocol`s and beginnings of port names that mean HTTP/2 without TLS.
const H2C: [&str; 4] = ["kubernetes.io/h2c", "h2c", "http2", "grpc"];
/// Those that mean TLS.
const TLS: [&str; 3] = ["https", "kubernetes.io/wss", "tls"];

/// Who falls back on whom, by the newest version of each object.
#[derive(Debug, Default)]
pub(crate) struct Fallbacks {
    /// The object's own Service, and its fallback's.
    named: RwLock<BTreeMap<Key, (String, String)>>,
}

impl Fallbacks {
    /// Takes in an object as it is now; none: it is gone. Whether that changes anything for others.
    pub(crate) fn apply(&self, key: &Key, spec: Option<&ZeroScalerSpec>) -> bool {
        let named = spec.and_then(|spec| {
            let fallback = spec.wake.fallback.as_ref()?;
            Some((spec.service_name().to_owned(), fallback.service.clone()))
        });
        let mut all = self.named.write();
        let before = match named.clone() {
            Some(named) => all.insert(key.clone(), named),
            None => all.remove(key),
        };
        before != named
    }

    /// Those that fall back on a Service.
    pub(crate) fn on(&self, service: &Key) -> Vec<Key> {
        let all = self.named.read();
        let named = all.iter().filter(|(key, (_, to))| key.namespace() == service.namespace() && to == service.name());
        named.map(|(key, _)| key.clone()).collect()
    }

    /// The way from `service` back to it, by fallbacks, of which the first is `to`; none: there is no such.
    pub(crate) fn circle(&self, namespace: &str, service: &str, to: &str) -> Option<Vec<String>> {
        let all = self.named.read();
        let next = |from: &str| {
            let mut of_namespace = all.iter().filter(|(key, _)| key.namespace() == namespace);
            of_namespace.find(|(_, (own, _))| own == from).map(|(_, (_, to))| to.clone())
        };
        let mut way = vec![service.to_owned(), to.to_owned()];
        while way.last().is_some_and(|last| last != service) {
            let after = next(way.last()?)?;
            if after != service && way.contains(&after) {
                return None; // A circle of others.
            }
            way.push(after);
        }
        Some(way)
    }
}

/// What activators are told of a fallback. `service`: the one that it names; `circle`: the way from it back to the
/// workload's own.
///
/// # Errors
/// It cannot answer: a word, and a sentence with field, value and rule.
pub(crate) fn resolve(
    said: &Fallback,
    service: Option<&Service>,
    circle: Option<&[String]>,
) -> Result<FallbackStatus, (&'static str, String)> {
    let name = &said.service;
    let wrong = |reason, field: &str, what: String| Err((reason, format!("spec.wake.fallback.{field}: {what}")));
    if let Some(way) = circle {
        let rule = "a fallback whose own fallback leads back to the workload answers nobody";
        return wrong(FALLBACK_CIRCLE, "service", format!("{name:?} leads back here ({}): {rule}", way.join(" -> ")));
    }
    let Some(spec) = service.and_then(|service| service.spec.as_ref()) else {
        return wrong(FALLBACK_NOT_FOUND, "service", format!("there is no Service {name:?} in this namespace"));
    };
    if spec.type_.as_deref() == Some("ExternalName") {
        let rule = "a Service of this namespace with an address of its own is expected";
        return wrong(FALLBACK_UNFIT, "service", format!("{name:?} is of type ExternalName: {rule}"));
    }
    if spec.cluster_ip.as_deref() == Some("None") {
        return wrong(
            FALLBACK_UNFIT,
            "service",
            format!("{name:?} is headless: a Service with an address is expected"),
        );
    }
    let mut ports = spec.ports.iter().flatten().filter(|port| is_tcp(port));
    let is_meant = |port: &&ServicePort| match &said.port {
        None => true,
        Some(IntOrString::Int(number)) => port.port == *number,
        Some(IntOrString::String(text)) => port.name.as_ref() == Some(text) || port.port.to_string() == *text,
    };
    let found = ports.find(is_meant).and_then(|port| Some((port, u16::try_from(port.port).ok()?)));
    let Some((port, number)) = found else {
        let meant = match &said.port {
            None => "TCP port".to_owned(),
            Some(IntOrString::Int(number)) => format!("TCP port {number}"),
            Some(IntOrString::String(text)) => format!("TCP port {text:?}"),
        };
        return wrong(FALLBACK_NOT_FOUND, "port", format!("Service {name:?} has no {meant}"));
    };
    let said_of_it = port.app_protocol.as_deref().or(port.name.as_deref()).unwrap_or_default();
    if TLS.iter().any(|word| said_of_it.starts_with(word)) {
        let rule = "a port without TLS is expected";
        return wrong(FALLBACK_UNFIT, "port", format!("port {number} of Service {name:?} is {said_of_it}: {rule}"));
    }
    let is_h2c = H2C.iter().any(|word| said_of_it.starts_with(word));
    Ok(FallbackStatus {
        matching: said.matching.clone(),
        service: name.clone(),
        port: number,
        protocol: if is_h2c { Protocol::H2c } else { Protocol::Http1 },
        after_ms: u64::try_from(said.after().as_millis()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn service(spec: Value) -> Service {
        from_value(json!({"metadata": {"name": "sorry"}, "spec": spec})).expect("a Service")
    }

    #[test]
    fn a_service_is_found_with_port_and_protocol_or_what_is_wrong_is_said() {
        let ports = json!([
            {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "http", "port": 80}, {"name": "grpc-api", "port": 81},
            {"name": "web", "port": 82, "appProtocol": "kubernetes.io/h2c"}, {"name": "https", "port": 443},
        ]);
        let all = service(json!({"clusterIP": "10.0.0.9", "ports": ports}));
        let rows = [
            (Value::Null, Ok((80, Protocol::Http1))),
            (json!("http"), Ok((80, Protocol::Http1))),
            (json!("81"), Ok((81, Protocol::H2c))),
            (json!(82), Ok((82, Protocol::H2c))),
            (json!("dns"), Err("spec.wake.fallback.port: Service \"sorry\" has no TCP port \"dns\"")),
            (json!(8080), Err("spec.wake.fallback.port: Service \"sorry\" has no TCP port 8080")),
            (json!(443), Err("spec.wake.fallback.port: port 443 of Service \"sorry\" is https: a port without TLS")),
        ];
        for (port, expected) in rows {
            let said: Fallback =
                from_value(json!({"service": "sorry", "port": port, "after": "1s"})).expect("readable");
            match (resolve(&said, Some(&all), None), expected) {
                (Ok(found), Ok((number, protocol))) => {
                    assert_eq!((found.port, found.protocol, found.after_ms), (number, protocol, 1000), "{port}");
                }
                (Err((_, message)), Err(says)) => assert!(message.starts_with(says), "{port}: {message}"),
                (found, _) => panic!("{port}: {found:?}"),
            }
        }
        let said: Fallback = from_value(json!({"service": "sorry"})).expect("readable");
        let unfit = [
            (None, FALLBACK_NOT_FOUND),
            (Some(json!({"type": "ExternalName", "externalName": "example.com"})), FALLBACK_UNFIT),
            (Some(json!({"clusterIP": "None", "ports": [{"port": 80}]})), FALLBACK_UNFIT),
            (Some(json!({"clusterIP": "10.0.0.9"})), FALLBACK_NOT_FOUND),
        ];
        for (spec, expected) in unfit {
            let found = resolve(&said, spec.clone().map(service).as_ref(), None);
            assert_eq!(found.map_err(|(reason, _)| reason), Err(expected), "{spec:?}");
        }
    }

    /// Goal: who is in a circle hears of the whole of it, who only leads to one does not.
    #[test]
    fn a_circle_is_found_from_each_of_its_members() {
        let fallbacks = Fallbacks::default();
        let spec = |target: &str, to: &str| -> ZeroScalerSpec {
            from_value(json!({"target": {"name": target}, "wake": {"fallback": {"service": to}}})).expect("readable")
        };
        let key = |name: &str| Key::new("ns", name);
        for (name, to) in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "plain")] {
            assert!(fallbacks.apply(&key(name), Some(&spec(name, to))));
        }
        assert!(!fallbacks.apply(&key("a"), Some(&spec("a", "b"))), "as it was");
        fallbacks.apply(&Key::new("other", "plain"), Some(&spec("plain", "e")));
        let rows = [
            ("a", "b", Some("a b c a")),
            ("c", "a", Some("c a b c")),
            ("d", "a", None),
            ("e", "plain", None),
            ("x", "x", Some("x x")),
        ];
        for (own, to, expected) in rows {
            let way = fallbacks.circle("ns", own, to).map(|way| way.join(" "));
            assert_eq!(way.as_deref(), expected, "{own} {to}");
        }
        assert_eq!(fallbacks.on(&key("a")), [key("c"), key("d")]);
        fallbacks.apply(&key("b"), None);
        assert_eq!(fallbacks.circle("ns", "a", "b"), None, "it is open now");
        let said: Fallback = from_value(json!({"service": "b"})).expect("readable");
        let way = ["a", "b", "a"].map(str::to_owned);
        let (reason, message) = resolve(&said, None, Some(&way)).expect_err("a circle");
        assert_eq!(reason, FALLBACK_CIRCLE);
        assert!(message.starts_with("spec.wake.fallback.service: \"b\" leads back here (a -> b -> a): "), "{message}");
    }
}
