//! Tests of ports and probes, and of the whole backend.

use super::*;
use crate::standalone::services::service_ports::target_with as target;
use common_api::zeroscaler::Wake;
use serde_json::{Value, json};

fn choice(probe: &str) -> ProbeChoice {
    Wake { probe: probe.to_owned(), ..Wake::default() }.probe()
}

#[test]
fn the_port_follows_from_the_service_its_name_or_uniqueness() {
    let named = |names: &[(&str, i32)]| {
        let ports: Vec<_> = names.iter().map(|(name, port)| json!({"name": name, "containerPort": port})).collect();
        target(json!([{"name": "app", "ports": ports}]))
    };
    let name = |name: &str| Some(IntOrString::String(name.to_owned()));
    let number = |number| Some(IntOrString::Int(number));
    let by_name = |name: &str, number| Ok(BackendPort { target: IntOrString::String(name.into()), number });
    let by_number = |number| Ok(BackendPort { target: IntOrString::Int(number), number });
    let rows = [
        (named(&[("metrics", 9100), ("http", 8080)]), None, by_name("http", 8080)),
        (named(&[("metrics", 9100), ("grpc", 50051)]), None, by_name("grpc", 50051)),
        (named(&[("web", 8080)]), None, by_name("web", 8080)),
        (named(&[("a", 1), ("b", 2)]), None, Err("several TCP ports (1, 2)")),
        (named(&[]), None, Err("declares none")),
        (named(&[("a", 1), ("b", 2)]), number(2), by_number(2)),
        (named(&[("a", 1), ("b", 2)]), name("b"), by_name("b", 2)),
        (named(&[("a", 1), ("http", 2)]), number(7), by_number(7)),
        (named(&[("a", 1)]), name("c"), Err("targetPort \"c\": must be the name of a container port")),
        (named(&[("http-autometric", 9090), ("http", 8080)]), number(7), by_number(8012)),
    ];
    for (target, leads_to, expected) in rows {
        match (port(&target, leads_to.as_ref(), Protocol::Http1), expected) {
            (Err(message), Err(expected)) => assert!(message.contains(expected), "{message}"),
            (found, expected) => assert_eq!(found, expected.map_err(str::to_owned), "{leads_to:?} {target:?}"),
        }
    }
    let udp = target(json!([{"name": "app", "ports": [
        {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 8080, "protocol": "TCP"},
    ]}]));
    assert_eq!(port(&udp, None, Protocol::Http1).ok(), by_number(8080).ok(), "only TCP counts");
}

#[test]
fn readiness_is_the_containers_own_probe_if_an_activator_can_send_it() {
    let probed = |extra: Value| {
        let mut container = json!({"name": "app", "ports": [
            {"name": "http", "containerPort": 8080}, {"name": "admin", "containerPort": 9000},
        ]});
        for (name, value) in extra.as_object().expect("an object") {
            container[name] = value.clone();
        }
        target(json!([container]))
    };
    let http = |path: &str, port: Option<u16>| Probe { port, ..Probe::http(path) };
    let tcp = |port: Option<u16>| Probe { port, ..ProbeKind::Tcp.into() };
    let grpc = || Probe { service: "s".into(), ..ProbeKind::Grpc.into() };
    let ready = |action: Value| json!({"readinessProbe": action});
    let rows = [
        (json!({}), "", tcp(None)),
        (ready(json!({"httpGet": {"path": "/ready", "port": 8080}})), "", http("/ready", None)),
        (ready(json!({"httpGet": {"path": "ready", "port": "admin"}})), "", http("/ready", Some(9000))),
        (ready(json!({"httpGet": {"port": "http"}})), "", http("/", None)),
        (ready(json!({"httpGet": {"port": "nowhere"}})), "", Probe::default()),
        (ready(json!({"httpGet": {"path": "/ready", "port": "admin", "scheme": "HTTPS"}})), "", Probe::default()),
        (ready(json!({"httpGet": {"port": 8080, "scheme": "GOPHER"}})), "", Probe::default()),
        (ready(json!({"httpGet": {"port": 8080, "host": "10.0.0.1"}})), "", Probe::default()),
        (ready(json!({"tcpSocket": {"port": "http"}})), "", tcp(None)),
        (ready(json!({"tcpSocket": {"port": 9000}})), "", tcp(Some(9000))),
        (ready(json!({"grpc": {"port": 8080, "service": "s"}})), "", grpc()),
        (ready(json!({"exec": {"command": ["true"]}})), "", Probe::default()),
        (json!({"startupProbe": {"tcpSocket": {"port": 8080}}}), "", Probe::default()),
        (json!({"startupProbe": {"tcpSocket": {"port": 8080}}}), "tcp", tcp(None)),
        (ready(json!({"tcpSocket": {"port": 9000}})), "http:/live", http("/live", None)),
        (json!({}), "kubernetes", Probe::default()),
    ];
    for (extra, annotation, expected) in rows {
        let target = probed(extra.clone());
        let port = port(&target, None, Protocol::Http1).expect("a port");
        assert_eq!(probes(&target, &choice(annotation), &port), [expected], "{extra} {annotation:?}");
    }
    let header = json!({"httpGet": {"path": "/", "port": 8080, "httpHeaders": [{"name": "Host", "value": "x"}]}});
    let target = probed(ready(header));
    let port = port(&target, None, Protocol::Http1).expect("a port");
    let headers = vec![ProbeHeader { name: "Host".to_owned(), value: "x".to_owned() }];
    assert_eq!(probes(&target, &choice(""), &port), [Probe { headers, ..Probe::http("/") }]);
}

/// Goal: each container's probe counts, that of the container for requests first. A probe that an activator cannot
/// send, or a readiness gate, leaves the whole pod to Kubernetes.
#[test]
fn a_pod_is_ready_once_all_of_its_containers_are() {
    let app = json!({"name": "app", "ports": [{"name": "http", "containerPort": 8080}]});
    let proxy = |readiness: Value| {
        json!({"name": "proxy", "ports": [{"name": "status", "containerPort": 15021}],
        "readinessProbe": readiness})
    };
    let sidecar = |container: Value| {
        let mut container = container;
        container["restartPolicy"] = json!("Always");
        json!([container, {"name": "setup", "readinessProbe": {"exec": {}}}])
    };
    let get = json!({"httpGet": {"path": "/healthz/ready", "port": "status"}});
    let both = || vec![ProbeKind::Tcp.into(), Probe { port: Some(15021), ..Probe::http("/healthz/ready") }];
    let rows = [
        (json!({"containers": [proxy(get.clone()), app]}), both()),
        (json!({"containers": [app], "initContainers": sidecar(proxy(get.clone()))}), both()),
        (json!({"containers": [app, {"name": "log"}]}), vec![ProbeKind::Tcp.into()]),
        (json!({"containers": [app, proxy(json!({"exec": {"command": ["true"]}}))]}), vec![Probe::default()]),
        (json!({"containers": [app, {"name": "log", "startupProbe": get}]}), vec![Probe::default()]),
        (json!({"containers": [app], "readinessGates": [{"conditionType": "a/b"}]}), vec![Probe::default()]),
    ];
    for (pod, expected) in rows {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"template": {"spec": pod}}});
        let target = Target::from_object(&serde_json::from_value(object).expect("an object"));
        let port = BackendPort { target: IntOrString::Int(8080), number: 8080 };
        assert_eq!(probes(&target, &choice(""), &port), expected, "{pod}");
    }
}

#[test]
fn a_backend_contains_all_that_an_activator_needs() {
    let target = target(json!([{"name": "app", "ports": [{"containerPort": 8080}]}]));
    let target = Target { host_network: true, ..target };
    let original: ZeroScaler = serde_json::from_value(json!({
        "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "metadata": {"name": "a"},
        "spec": {
            "target": {"name": "a"}, "concurrency": 3, "ports": [{"name": "web", "protocol": "h2c"}],
            "timeouts": {"request": "1m", "idle": "2s"}, "wake": {"timeout": "10s", "maxHeld": 50},
        },
    }))
    .expect("a ZeroScaler");
    let port = port(&target, None, Protocol::H2c).expect("a port");
    let expected = Backend {
        protocol: Protocol::H2c,
        container_concurrency: 3,
        host_network: true,
        wake_timeout_ms: 10_000,
        request_timeout_ms: 60_000,
        idle_timeout_ms: 2_000,
        max_held: 50,
        ..Backend::plain("")
    };
    assert_eq!(backend(&original, &target, &port), expected);
}

#[test]
fn the_first_port_determines_the_protocol_of_the_shared_ports() {
    let rows = [
        (json!([]), Protocol::Http1),
        (json!([{"name": "grpc", "protocol": "h2c"}, {"name": "web", "protocol": "http1"}]), Protocol::H2c),
        (json!([{"name": "web", "protocol": "http1"}, {"name": "grpc", "protocol": "h2c"}]), Protocol::Http1),
        (json!([{"name": "web"}, {"name": "grpc", "protocol": "h2c"}]), Protocol::Http1),
    ];
    for (ports, expected) in rows {
        let object = json!({"metadata": {"name": "a"}, "spec": {"target": {"name": "a"}, "ports": ports}});
        let object: ZeroScaler = serde_json::from_value(object).expect("a ZeroScaler");
        assert_eq!(protocol(&object), expected, "{ports}");
    }
}
