//! Resolves fallbacks: Services that respond for workloads that do not wake in time.
//!
//! A fallback is a Service of the same namespace. It may be the Service of another ZeroScaler, which the request then
//! wakes. A fallback must not lead back to its workload, because a circle never yields a response. A fallback in a
//! circle is ignored for each object of the circle, and the condition `AnswersResolved` says so; the rest of the object
//! stays in force.
//!
//! A chain of more than eight fallbacks is not followed to its end and is ignored like a circle. This bounds the cost
//! of chains of thousands for each of their members. At run time a request falls back at most once.
//!
//! An edit of a fallback queues the statuses of objects whose chains reach it within eight steps. An edit of a Service
//! queues the statuses of objects that fall back on it.

use crate::standalone::services::protocols::{self, Hint};
use crate::standalone::services::service_ports::is_tcp;
use common::RevisionKey as Key;
use common::backend::Protocol;
use common_api::ZeroScalerSpec;
use common_api::zeroscaler::{Fallback, FallbackStatus};
use k8s_openapi::api::core::v1::{Service, ServicePort};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashSet};

/// The Service or its port does not exist.
const FALLBACK_NOT_FOUND: &str = "FallbackNotFound";
/// The Service exists, but activators cannot send requests to it.
const FALLBACK_UNFIT: &str = "FallbackUnfit";
/// Fallbacks form a circle or too long a chain.
const FALLBACK_CIRCLE: &str = "FallbackCircle";

/// Maximum number of fallbacks in a chain, including the first.
const STEPS_MAX: usize = 8;

/// Fallbacks of the newest versions of all objects, in order of namespaces and names.
#[derive(Debug, Default)]
pub(crate) struct Fallbacks {
    steps: RwLock<BTreeMap<Key, Step>>,
}

/// Link from an object's own Service to its fallback's Service.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    from: String,
    to: String,
}

impl Fallbacks {
    /// Records the current spec of an object, or its deletion if `spec` is `None`. Returns the objects whose chains may
    /// have changed.
    pub(crate) fn apply(&self, key: &Key, spec: Option<&ZeroScalerSpec>) -> Vec<Key> {
        let step = spec.and_then(|spec| {
            let fallback = spec.wake.fallback.as_ref()?;
            Some(Step { from: spec.service_name().to_owned(), to: fallback.service.clone() })
        });
        let mut steps = self.steps.write();
        let before = match step.clone() {
            Some(step) => steps.insert(key.clone(), step),
            None => steps.remove(key),
        };
        if before == step {
            return vec![];
        }
        leading_to(&steps, key.namespace(), before.into_iter().chain(step).map(|step| step.from).collect())
    }

    /// Returns the objects that fall back on a Service.
    pub(crate) fn on(&self, service: &Key) -> Vec<Key> {
        let steps = self.steps.read();
        let on = within(&steps, service.namespace()).filter(|(_, step)| step.to == service.name());
        on.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the circle of fallbacks from `service` over its fallback `to` back to `service`. Returns the followed
    /// part of the chain if it is too long, and `None` if it is neither a circle nor too long.
    pub(crate) fn circle(&self, namespace: &str, service: &str, to: &str) -> Option<Vec<String>> {
        let steps = self.steps.read();
        let mut way = vec![service.to_owned(), to.to_owned()];
        while way.last() != way.first() && way.len() <= STEPS_MAX + 1 {
            let (_, step) = within(&steps, namespace).find(|(_, step)| way.last() == Some(&step.from))?;
            let after = step.to.clone();
            if after != service && way.contains(&after) {
                return None; // A circle of other objects.
            }
            way.push(after);
        }
        Some(way)
    }
}

/// Returns the links of a namespace.
fn within<'a>(steps: &'a BTreeMap<Key, Step>, namespace: &'a str) -> impl Iterator<Item = (&'a Key, &'a Step)> {
    steps.range(Key::new(namespace, "")..).take_while(move |(key, _)| key.namespace() == namespace)
}

/// Returns the objects whose chains reach one of these Services. Visits each Service at most once.
fn leading_to(steps: &BTreeMap<Key, Step>, namespace: &str, services: HashSet<String>) -> Vec<Key> {
    let (mut reached, mut last, mut found) = (services.clone(), services, vec![]);
    for _ in 0..STEPS_MAX {
        let on: Vec<_> = within(steps, namespace).filter(|(_, step)| last.contains(&step.to)).collect();
        last = on.iter().map(|(_, step)| step.from.clone()).filter(|from| reached.insert(from.clone())).collect();
        found.extend(on.into_iter().map(|(key, _)| key.clone()));
        if last.is_empty() {
            break;
        }
    }
    found
}

/// Resolved fallback, or its fault: a reason, and a sentence with field, value and rule.
pub(crate) type Resolved = Result<FallbackStatus, (&'static str, String)>;

/// Resolves a fallback for the activators. `service` is the Service it names. `circle` is the circle it is part of, or
/// a chain that is too long.
pub(crate) fn resolve(fallback: &Fallback, service: Option<&Service>, circle: Option<&[String]>) -> Resolved {
    let name = &fallback.service;
    let wrong = |reason, field: &str, what: String| Err((reason, format!("spec.wake.fallback.{field}: {what}")));
    if let Some(way) = circle {
        let is_back = way.first() == way.last();
        let (leads, rule) = match is_back {
            true => ("leads back to this workload", "fallbacks must not form a circle".to_owned()),
            false => ("has too many further fallbacks", format!("a chain must have at most {STEPS_MAX} fallbacks")),
        };
        return wrong(FALLBACK_CIRCLE, "service", format!("{name:?} {leads} ({}): {rule}", way.join(" -> ")));
    }
    let Some(spec) = service.and_then(|service| service.spec.as_ref()) else {
        return wrong(FALLBACK_NOT_FOUND, "service", format!("Service {name:?} does not exist in this namespace"));
    };
    let unfit = match (spec.type_.as_deref(), spec.cluster_ip.as_deref()) {
        (Some("ExternalName"), _) => Some("of type ExternalName"),
        (_, Some("None")) => Some("headless"),
        _ => None,
    };
    if let Some(unfit) = unfit {
        let rule = "a fallback must be a Service with a cluster IP";
        return wrong(FALLBACK_UNFIT, "service", format!("{name:?} is {unfit}: {rule}"));
    }
    let mut ports = spec.ports.iter().flatten().filter(|port| is_tcp(port));
    let is_selected = |port: &&ServicePort| {
        fallback.port.as_ref().is_none_or(|port_ref| port_ref.selects(port.name.as_deref(), port.port))
    };
    let found = ports.find(is_selected).and_then(|port| Some((port, u16::try_from(port.port).ok()?)));
    let Some((port, number)) = found else {
        let meant = fallback.port.as_ref().map_or("TCP port".to_owned(), |port| format!("TCP port {port}"));
        return wrong(FALLBACK_NOT_FOUND, "port", format!("Service {name:?} has no {meant}"));
    };
    let named_protocol = port.app_protocol.as_deref().or(port.name.as_deref()).unwrap_or_default();
    let protocol = match protocols::of_name(named_protocol) {
        Some(Hint::Unknown) => {
            let rule = "the port of a fallback must be without TLS";
            let what = format!("port {number} of Service {name:?} is {named_protocol}: {rule}");
            return wrong(FALLBACK_UNFIT, "port", what);
        }
        Some(Hint::Http(protocol)) => protocol,
        Some(Hint::Tcp) | None => Protocol::Http1,
    };
    let (matching, service) = (fallback.matching.clone(), name.clone());
    let after_ms = u64::try_from(fallback.after().as_millis()).unwrap_or(u64::MAX);
    Ok(FallbackStatus { matching, service, port: number, protocol, after_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn service(spec: Value) -> Service {
        from_value(json!({"metadata": {"name": "sorry"}, "spec": spec})).expect("a Service")
    }

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    fn spec(target: &str, to: &str) -> ZeroScalerSpec {
        from_value(json!({"target": {"name": target}, "wake": {"fallback": {"service": to}}})).expect("readable")
    }

    #[test]
    fn a_fallback_resolves_to_port_and_protocol_or_to_its_fault() {
        let ports = json!([
            {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "http", "port": 80}, {"name": "grpc-api", "port": 81},
            {"name": "web", "port": 82, "appProtocol": "kubernetes.io/h2c"}, {"name": "https", "port": 443},
        ]);
        let all = service(json!({"clusterIP": "10.0.0.9", "ports": ports}));
        let tls = "spec.wake.fallback.port: port 443 of Service \"sorry\" is https: the port of a fallback must be";
        let rows = [
            (Value::Null, Ok((80, Protocol::Http1))),
            (json!("http"), Ok((80, Protocol::Http1))),
            (json!("81"), Ok((81, Protocol::H2c))),
            (json!(82), Ok((82, Protocol::H2c))),
            (json!("dns"), Err("spec.wake.fallback.port: Service \"sorry\" has no TCP port \"dns\"")),
            (json!(8080), Err("spec.wake.fallback.port: Service \"sorry\" has no TCP port 8080")),
            (json!(443), Err(tls)),
        ];
        for (port, expected) in rows {
            let fallback: Fallback =
                from_value(json!({"service": "sorry", "port": port, "after": "1s"})).expect("readable");
            match (resolve(&fallback, Some(&all), None), expected) {
                (Ok(found), Ok((number, protocol))) => {
                    assert_eq!((found.port, found.protocol, found.after_ms), (number, protocol, 1000), "{port}");
                }
                (Err((_, message)), Err(says)) => assert!(message.starts_with(says), "{port}: {message}"),
                (found, _) => panic!("{port}: {found:?}"),
            }
        }
        let fallback: Fallback = from_value(json!({"service": "sorry"})).expect("readable");
        let unfit = [
            (None, FALLBACK_NOT_FOUND),
            (Some(json!({"type": "ExternalName", "externalName": "example.com"})), FALLBACK_UNFIT),
            (Some(json!({"clusterIP": "None", "ports": [{"port": 80}]})), FALLBACK_UNFIT),
            (Some(json!({"clusterIP": "10.0.0.9"})), FALLBACK_NOT_FOUND),
        ];
        for (spec, expected) in unfit {
            let found = resolve(&fallback, spec.clone().map(service).as_ref(), None);
            assert_eq!(found.map_err(|(reason, _)| reason), Err(expected), "{spec:?}");
        }
    }

    /// Goal: members of a circle get the whole circle; objects that only lead to a circle get none.
    #[test]
    fn a_circle_is_found_from_each_of_its_members() {
        let fallbacks = Fallbacks::default();
        let edits: [(&str, &str, &[&str]); 5] =
            [("a", "b", &[]), ("b", "c", &["a"]), ("c", "a", &["b", "a", "c"]), ("d", "a", &[]), ("e", "plain", &[])];
        for (name, to, concerns) in edits {
            let concerned = fallbacks.apply(&key(name), Some(&spec(name, to)));
            assert_eq!(concerned, concerns.iter().map(|name| key(name)).collect::<Vec<_>>(), "{name}");
        }
        assert!(fallbacks.apply(&key("a"), Some(&spec("a", "b"))).is_empty(), "unchanged");
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
        assert_eq!(fallbacks.apply(&key("b"), None), [key("a"), key("c"), key("d")]);
        assert_eq!(fallbacks.circle("ns", "a", "b"), None, "not a circle any more");
        assert!(fallbacks.on(&key("c")).is_empty());
        let fallback: Fallback = from_value(json!({"service": "b"})).expect("readable");
        let way = ["a", "b", "a"].map(str::to_owned);
        let (reason, message) = resolve(&fallback, None, Some(&way)).expect_err("a circle");
        assert_eq!(reason, FALLBACK_CIRCLE);
        let begin = "spec.wake.fallback.service: \"b\" leads back to this workload (a -> b -> a): ";
        assert!(message.starts_with(begin), "{message}");
    }

    /// Goal: each member of a chain of hundreds follows at most the maximum number of steps, and an edit concerns only
    /// objects within that distance. A chain of the maximum length is valid, and a circle of that length is found from
    /// each member.
    #[test]
    fn each_member_of_a_long_chain_follows_at_most_eight_steps() {
        const LENGTH: usize = 300;
        let (fallbacks, name) = (Fallbacks::default(), |index: usize| format!("z{index}"));
        let put =
            |from: usize, to: usize| fallbacks.apply(&key(&name(from)), Some(&spec(&name(from), &name(to)))).len();
        for index in 0..LENGTH {
            assert_eq!(put(index, index + 1), index.min(STEPS_MAX), "{index}");
        }
        for index in 0..LENGTH {
            let followed = fallbacks.circle("ns", &name(index), &name(index + 1)).map(|way| way.len() - 1);
            let is_long = LENGTH - index > STEPS_MAX;
            assert_eq!(followed, is_long.then_some(STEPS_MAX + 1), "{index}");
        }
        let middle = LENGTH / 2;
        assert_eq!(put(middle, middle + 2), STEPS_MAX, "an edit in the middle");
        let fallback: Fallback = from_value(json!({"service": "z1"})).expect("readable");
        let way = fallbacks.circle("ns", "z0", "z1").expect("long");
        let (reason, message) = resolve(&fallback, None, Some(&way)).expect_err("too long");
        assert_eq!(reason, FALLBACK_CIRCLE);
        assert!(message.contains("\"z1\" has too many further fallbacks (z0 -> z1 -> z2"), "{message}");
        assert!(message.ends_with("z8 -> z9): a chain must have at most 8 fallbacks"), "{message}");

        put(STEPS_MAX - 1, 0);
        for index in 0..STEPS_MAX {
            let way = fallbacks.circle("ns", &name(index), &name((index + 1) % STEPS_MAX)).expect("a circle");
            assert_eq!((way.len() - 1, way.first()), (STEPS_MAX, way.last()), "{index}");
        }
    }

    #[test]
    fn an_edit_visits_each_object_that_leads_to_it_once() {
        let fallbacks = Fallbacks::default();
        for index in 0..2000 {
            let own = json!({"target": {"name": "t"}, "services": [{"name": "shared"}], "wake": {"fallback": {"service": "z"}}});
            let spec: ZeroScalerSpec = from_value(own).expect("readable");
            assert!(fallbacks.apply(&key(&format!("s{index}")), Some(&spec)).is_empty(), "no object falls back on it");
        }
        assert_eq!(fallbacks.apply(&key("z"), Some(&spec("z", "plain"))).len(), 2000);
        assert_eq!(fallbacks.apply(&key("y"), Some(&spec("y", "shared"))).len(), 0);
        assert_eq!(fallbacks.apply(&key("z"), Some(&spec("z", "other"))).len(), 2001);
    }
}
