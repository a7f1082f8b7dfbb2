//! Tests of each field of a NetworkPolicy and its translation.

use super::*;
use crate::standalone::services::service_ports::target_with as target;
use serde_json::{Value, json};

/// Peers of the first rule: activators and autoscalers.
fn planes() -> Value {
    json!([{"podSelector": {"matchExpressions": [
        {"key": "app", "operator": "In", "values": ["activator", "autoscaler"]},
    ]}}])
}

/// Returns a workload whose Service leads to `web` (8080), 5432 and `metrics` (9100).
fn web() -> Target {
    target(json!([
        {"name": "app", "ports": [{"name": "web", "containerPort": 8080}, {"containerPort": 5432}]},
        {"name": "exporter", "ports": [{"name": "metrics", "containerPort": 9100}]},
    ]))
}

fn ports() -> [PodPort; 3] {
    let name = |name: &str| IntOrString::String(name.to_owned());
    [
        PodPort { target: name("web"), numbers: vec![18_000] },
        PodPort { target: IntOrString::Int(5432), numbers: vec![18_001] },
        PodPort { target: name("metrics"), numbers: vec![18_002, 18_007] },
    ]
}

fn translated(specs: &[Value], target: &Target, ports: &[PodPort]) -> Result<Value, String> {
    let specs: Vec<Spec> = specs.iter().map(|s| serde_json::from_value(s.clone()).expect("a policy")).collect();
    let names: Vec<String> = (0..specs.len()).map(|n| format!("p{n}")).collect();
    let policies: Vec<(&str, &Spec)> = names.iter().map(String::as_str).zip(&specs).collect();
    translate(&policies, "shop", target, ports).map(|rules| serde_json::to_value(rules).expect("JSON"))
}

/// Returns numbers as ports of a rule.
fn at(numbers: &[u16]) -> Value {
    numbers.iter().map(|number| json!({"protocol": "TCP", "port": number})).collect()
}

const ALL: [u16; 4] = [18_000, 18_001, 18_002, 18_007];

/// Goal: each field of a policy is translated as in the module's table.
/// Method: rules of one policy, and all resulting rules except the first, which admits activators and autoscalers.
#[test]
fn each_field_is_translated() {
    let own = json!({"matchLabels": {"kubernetes.io/metadata.name": "shop"}});
    let pods = json!({"matchLabels": {"role": "client"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]});
    let team = json!({"matchLabels": {"team": "a"}});
    let block = json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}});
    let expect = |from: Value, numbers: &[u16]| json!([{"from": from, "ports": at(numbers)}]);
    let from = |peers: Value| json!([{"from": peers}]);
    let same = |peers: Value| (from(peers.clone()), expect(peers, &ALL));
    let about = |ports: Value| json!([{"from": [&block], "ports": ports}]);
    let every_client = |numbers: &[u16]| json!([{"ports": at(numbers)}]);
    let no_client = json!([]);
    let peers_alike = [
        ("namespaceSelector", same(json!([{"namespaceSelector": team}]))),
        ("namespaceSelector of all", same(json!([{"namespaceSelector": {}}]))),
        ("both", same(json!([{"namespaceSelector": team, "podSelector": pods}]))),
        ("ipBlock", same(json!([block]))),
        ("several peers", same(json!([block, {"namespaceSelector": team}]))),
    ];
    let rows = [
        // Peers.
        ("no rules", json!([]), no_client.clone()),
        ("no peers", json!([{}]), every_client(&ALL)),
        ("an empty list of peers", from(json!([])), every_client(&ALL)),
        (
            "podSelector",
            from(json!([{"podSelector": pods}])),
            expect(json!([{"podSelector": pods, "namespaceSelector": own}]), &ALL),
        ),
        (
            "podSelector of all",
            from(json!([{"podSelector": {}}])),
            expect(json!([{"podSelector": {}, "namespaceSelector": own}]), &ALL),
        ),
        // Ports.
        ("an empty list of ports", about(json!([])), expect(json!([block]), &ALL)),
        ("a number", about(json!([{"port": 5432}])), expect(json!([block]), &[18_001])),
        ("the number of a named port", about(json!([{"port": 8080}])), expect(json!([block]), &[18_000])),
        ("TCP", about(json!([{"protocol": "TCP", "port": 9100}])), expect(json!([block]), &[18_002, 18_007])),
        ("all of TCP", about(json!([{"protocol": "TCP"}])), expect(json!([block]), &ALL)),
        ("UDP", about(json!([{"protocol": "UDP", "port": 5432}])), no_client.clone()),
        ("SCTP", about(json!([{"protocol": "SCTP"}])), no_client.clone()),
        ("a name", about(json!([{"port": "web"}])), expect(json!([block]), &[18_000])),
        ("another container's", about(json!([{"port": "metrics"}])), expect(json!([block]), &[18_002, 18_007])),
        ("a name that no container has", about(json!([{"port": "admin"}])), no_client.clone()),
        ("the Service's port", about(json!([{"port": 80}])), no_client.clone()),
        ("a range", about(json!([{"port": 5000, "endPort": 8080}])), expect(json!([block]), &[18_000, 18_001])),
        ("a range of one", about(json!([{"port": 5432, "endPort": 5432}])), expect(json!([block]), &[18_001])),
        ("a range beside it", about(json!([{"port": 5433, "endPort": 8079}])), no_client),
        (
            "several ports",
            about(json!([{"port": "web"}, {"port": 5432}, {"protocol": "UDP", "port": 9100}])),
            expect(json!([block]), &[18_000, 18_001]),
        ),
        // Rules.
        (
            "rules about different ports",
            json!([{"from": [block], "ports": [{"port": "web"}]}, {"from": [{"namespaceSelector": team}]}]),
            json!([
                {"from": [block], "ports": at(&[18_000])},
                {"from": [{"namespaceSelector": team}], "ports": at(&ALL)},
            ]),
        ),
        (
            "one of them for every client",
            json!([{"from": [block], "ports": [{"port": "web"}]}, {"ports": [{"port": 8080}]}, {"from": [block]}]),
            json!([{"ports": at(&[18_000])}, {"from": [block], "ports": at(&ALL)}]),
        ),
    ];
    let peers_alike = peers_alike.map(|(name, (ingress, expected))| (name, ingress, expected));
    for (name, ingress, expected) in rows.into_iter().chain(peers_alike) {
        let spec =
            json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": ingress});
        let rules = translated(&[spec], &web(), &ports()).unwrap_or_else(|why| panic!("{name}: {why}"));
        let first = json!({"from": planes(), "ports": at(&ALL)});
        let all: Vec<Value> = [first].into_iter().chain(expected.as_array().expect("rules").clone()).collect();
        assert_eq!(rules, Value::Array(all), "{name}");
    }
}

/// Goal: policies add up, as in Kubernetes. Without a policy every client is admitted. Without a number there is no
/// rule.
#[test]
fn policies_add_up() {
    let spec = |ingress: Value| json!({"podSelector": {}, "ingress": ingress});
    let a = json!({"ipBlock": {"cidr": "10.0.0.0/24"}});
    let b = json!({"namespaceSelector": {}});
    let (deny, first, second) = (spec(json!([])), spec(json!([{"from": [a]}])), spec(json!([{"from": [b]}])));
    let rest = |specs: &[Value]| {
        let rules = translated(specs, &web(), &ports()).expect("rules");
        rules.as_array().expect("rules")[1..].to_vec()
    };
    assert_eq!(rest(std::slice::from_ref(&deny)), Vec::<Value>::new());
    assert_eq!(rest(&[deny.clone(), first, second]), [json!({"from": [a, b], "ports": at(&ALL)})]);
    assert_eq!(rest(&[]), [json!({"ports": at(&ALL)})]);
    let unnumbered = ports().map(|port| PodPort { numbers: Vec::new(), ..port });
    assert_eq!(translated(&[deny], &web(), &unnumbered), Ok(json!([])));
}

#[test]
fn a_policy_that_cannot_be_translated_is_named() {
    let without_template = Target::default();
    let port = |port: IntOrString| [PodPort { target: port, numbers: Vec::new() }];
    let (named, number) = (port(IntOrString::String("web".into())), port(IntOrString::Int(8080)));
    let about = |ports: Value| json!([{"ports": ports}]);
    let both = json!([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}]);
    let many: Vec<Value> =
        (0..15_000).map(|n| json!({"ipBlock": {"cidr": format!("10.{}.{}.0/24", n / 256, n % 256)}})).collect();
    let rows = [
        (json!([{"from": [{}]}]), web(), &number, "a peer must have"),
        (both, web(), &number, "a peer with ipBlock must have no selector"),
        (about(json!([{"port": "web", "endPort": 9000}])), web(), &number, "endPort requires a port number"),
        (about(json!([{"endPort": 9000}])), web(), &number, "endPort requires a port number"),
        (about(json!([{"port": 8080}])), without_template.clone(), &named, "declares no port \"web\""),
        (about(json!([{"port": "http"}])), without_template.clone(), &number, "declares no port \"http\""),
        (about(json!([{"port": "http"}])), without_template.clone(), &named, "declares no port \"http\""),
    ];
    for (ingress, target, port, expected) in rows {
        let why = translated(&[json!({"podSelector": {}, "ingress": ingress})], &target, port).expect_err(expected);
        assert!(why.starts_with("NetworkPolicy \"p0\" cannot be followed: ") && why.contains(expected), "{why}");
    }
    let by_name = json!({"podSelector": {}, "ingress": about(json!([{"port": "web"}]))});
    let same = translated(&[by_name], &without_template, &named);
    assert_eq!(same, Ok(json!([])), "both have the same name");
    let long = translated(&[json!({"podSelector": {}, "ingress": [{"from": many}]})], &web(), &ports());
    assert!(long.expect_err("too long").contains("exceed 512 KiB"));
}
