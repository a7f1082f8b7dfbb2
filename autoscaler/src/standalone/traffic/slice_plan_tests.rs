//! Tests of the desired slices.

use super::*;
use autoscaler_core::ports::slices::is_urgent;
use serde_json::json;

fn served(name: &str, port: u16, is_carried: bool) -> ServedPort {
    let id = PortId { name: name.to_owned(), port };
    let (workload, protocol, private) = (id.clone(), "TCP".into(), name.to_owned());
    ServedPort { workload, id, protocol, app_protocol: None, private, is_carried }
}

fn at(address: &str, number: u16, ready: bool) -> Listed {
    Listed { address: address.parse().expect("an address"), number, ready }
}

fn pods(ready: bool) -> Vec<Arc<EndpointSlice>> {
    let value = json!({
        "metadata": {"name": "p", "namespace": "ns"}, "addressType": "IPv4",
        "ports": [{"name": "web", "port": 8080}, {"name": "db", "port": 5432}, {"name": "dns", "port": 53}],
        "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": ready}}],
    });
    vec![Arc::new(serde_json::from_value(value).expect("a slice"))]
}

fn activators() -> Vec<Arc<EndpointSlice>> {
    let value = json!({
        "metadata": {"name": "a", "namespace": "system"}, "addressType": "IPv4", "ports": [{"name": "http", "port": 8012}],
        "endpoints": [{"addresses": ["10.0.0.1"], "zone": "z", "nodeName": "n", "hints": {"forZones": [{"name": "z"}]}}],
    });
    vec![Arc::new(serde_json::from_value(value).expect("a slice"))]
}

fn inputs<'a>(
    ports: &'a [(ServedPort, Vec<Listed>)],
    private: &'a [Arc<EndpointSlice>],
    activators: &'a [Arc<EndpointSlice>],
) -> Inputs<'a> {
    Inputs {
        namespace: "ns",
        service: "hello",
        families: &[],
        ports,
        mode: PathMode::Proxy,
        is_asleep: false,
        private,
        activators,
        labels: [(names::SIDE.to_owned(), names::SERVICE_TYPE_PUBLIC.to_owned())].into(),
        owner: OwnerReference {
            kind: "ZeroScaler".into(),
            uid: "u".into(),
            controller: Some(true),
            ..OwnerReference::default()
        },
    }
}

/// Formats each slice: name, whether activators watch it, destination, ports, addresses, and their readiness.
fn describe_slices(outcome: &SlicePlan) -> Vec<String> {
    let line = |slice: &EndpointSlice| {
        let labels = slice.metadata.labels.clone().unwrap_or_default();
        let public = if labels.contains_key(names::SIDE) { "public" } else { "other" };
        let ports = slice.ports.iter().flatten();
        let ports: Vec<_> =
            ports.map(|p| format!("{}:{}", p.name.clone().unwrap_or_default(), p.port.unwrap_or(0))).collect();
        let endpoints: Vec<_> = slice
            .endpoints
            .iter()
            .flatten()
            .map(|e| {
                let ready = e.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true);
                format!("{}{}", e.addresses[0], if ready { "" } else { "(not ready)" })
            })
            .collect();
        let name = slice.metadata.name.as_deref().unwrap_or_default().trim_start_matches("hello-zeroscale-");
        format!("{name} {public} {} {} {}", labels[names::LEADS_TO], ports.join(","), endpoints.join(","))
    };
    outcome.slices.iter().map(line).collect()
}

/// Goal: each row of the table, for two carried ports and one other port.
#[test]
fn each_port_leads_to_its_own_number_or_to_pods() {
    let (a, b) = ("10.0.0.1", "10.0.0.2");
    let both = |ready| (vec![at(a, 20_000, ready)], vec![at(a, 20_001, ready)]);
    let none = || (vec![], vec![]);
    let to_activators = "ipv4-0 public activators web:20000,db:20001 10.0.0.1";
    let to_unready_activators = "ipv4-0 public activators web:20000,db:20001 10.0.0.1(not ready)";
    let (web_to_a, web_to_b) =
        ("ipv4-0 public activators web:20000 10.0.0.1", "ipv4-1 public activators web:20000 10.0.0.2");
    let to_pods = "ipv4-0 public pods web:8080,db:5432 10.1.0.1";
    let to_unready_pods = "ipv4-0 public pods web:8080,db:5432 10.1.0.1(not ready)";
    let db_to_pods = "ipv4-1 public pods db:5432 10.1.0.1";
    let other = "ipv4-other-0 other pods dns:53 10.1.0.1";
    let other_not_ready = "ipv4-other-0 other pods dns:53 10.1.0.1(not ready)";
    let (proxy, asleep, serve) = ((PathMode::Proxy, false), (PathMode::Proxy, true), (PathMode::Serve, false));
    let one_on_both = (vec![at(a, 20_000, true), at(b, 20_000, true)], vec![at(a, 20_001, true)]);
    let web_alone = (vec![at(a, 20_000, true)], vec![]);
    // (case, activators of web and db, pods are ready, (mode, asleep)) -> (slices, (in path, led))
    type Row<'a> = (&'a str, (Vec<Listed>, Vec<Listed>), bool, (PathMode, bool), Vec<&'a str>, (bool, bool));
    let rows: [Row<'_>; 10] = [
        ("both ports are proven", both(true), true, proxy, vec![to_activators, other], (true, true)),
        ("one of two on one port", one_on_both, true, proxy, vec![to_activators, web_to_b, other], (true, true)),
        ("one port is not proven", web_alone, true, proxy, vec![web_to_a, db_to_pods, other], (false, true)),
        ("no port is proven", none(), true, proxy, vec![to_pods, other], (false, true)),
        ("no port is proven, and the pods are about to go", none(), true, asleep, vec![other], (false, false)),
        ("Serve", both(true), true, serve, vec![to_pods, other], (false, true)),
        ("Serve, and no pod is ready", both(true), false, serve, vec![to_activators, other_not_ready], (true, true)),
        ("terminating, and pods are ready", both(false), true, proxy, vec![to_pods, other], (false, true)),
        (
            "terminating, and no pod is ready",
            both(false),
            false,
            proxy,
            vec![to_unready_activators, other_not_ready],
            (true, false),
        ),
        ("neither activators nor pods", none(), false, proxy, vec![to_unready_pods, other_not_ready], (false, false)),
    ];
    let activators = activators();
    for (case, (web, db), ready, (mode, is_asleep), expected, effect) in rows {
        let ports =
            [(served("web", 80, true), web), (served("db", 5432, true), db), (served("dns", 53, false), vec![])];
        let private = pods(ready);
        let outcome = desired(&Inputs { mode, is_asleep, ..inputs(&ports, &private, &activators) });
        assert_eq!(describe_slices(&outcome), expected, "{case}");
        assert_eq!((outcome.is_in_path, outcome.is_led), effect, "{case}");
    }
}

/// Goal: destinations are read back as written, for this object alone. An activator keeps its zone and node, but no
/// hint.
#[test]
fn destinations_are_read_back_from_slices() {
    let ports = [
        (served("web", 80, true), vec![at("10.0.0.1", 20_000, true), at("fd00::1", 20_000, true)]),
        (served("db", 5432, true), vec![at("10.0.0.1", 20_001, true)]),
    ];
    let activators = activators();
    let outcome = desired(&inputs(&ports, &[], &activators));
    let names: Vec<_> =
        outcome.slices.iter().map(|slice| (slice.address_type.as_str(), slice.metadata.name.as_deref())).collect();
    assert_eq!(names, [("IPv4", Some("hello-zeroscale-ipv4-0")), ("IPv6", Some("hello-zeroscale-ipv6-0"))]);
    let first = outcome.slices[0].endpoints.as_ref().expect("endpoints")[0].clone();
    assert_eq!((first.zone.as_deref(), first.node_name.as_deref(), first.hints), (Some("z"), Some("n"), None));
    let slices: Vec<_> = outcome.slices.into_iter().map(Arc::new).collect();
    let expected: BTreeMap<_, _> = ports.iter().map(|(port, listed)| (port.id.name.clone(), listed.clone())).collect();
    let slices = || slices.iter().map(|slice: &Arc<EndpointSlice>| &**slice);
    assert_eq!(listed(slices(), "u"), expected);
    assert_eq!(listed(slices(), "another"), BTreeMap::new());
    let families = ["IPv6".to_owned()];
    let one = desired(&Inputs { families: &families, ..inputs(&ports, &[], &activators) });
    assert_eq!(one.slices.len(), 1, "only families of the Service");
    assert!(!one.is_led, "db has no IPv6 endpoint");
}

/// Goal: the most urgent port determines when all are written; only carried ports count.
#[test]
fn the_most_urgent_port_counts() {
    let (a, b, c) = (at("10.0.0.1", 20_000, true), at("10.0.0.2", 20_000, true), at("10.0.0.3", 20_000, true));
    let destinations = |web: &[Listed], db: &[Listed]| {
        BTreeMap::from([("web".to_owned(), web.to_vec()), ("db".to_owned(), db.to_vec())])
    };
    let of_ports = |carried: &[&str], before: &_, after: &_| {
        changes(carried, before, after).any(|(before, after)| is_urgent(before, after, |_| true))
    };
    let of_both = |before: &_, after: &_| of_ports(&["web", "db"], before, after);
    let both = destinations(&[a, b], &[a, b]);
    assert!(!of_both(&both, &destinations(&[a, b, c], &[a, b, c])));
    assert!(!of_both(&destinations(&[a, b], &[a]), &both));
    assert!(of_both(&destinations(&[a, b], &[]), &both));
    assert!(!of_ports(&["web"], &destinations(&[a, b], &[]), &both));
}
