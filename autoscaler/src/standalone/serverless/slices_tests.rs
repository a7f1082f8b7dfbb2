//! Tables of the path: who serves, in which slices, and which writes lead there.

use super::*;
use serde_json::json;

fn slice_of(name: &str, ports: &[(&str, i32)], endpoints: &[(&str, bool)]) -> Arc<EndpointSlice> {
    let ports: Vec<_> =
        ports.iter().map(|(name, port)| json!({"name": name, "port": port, "protocol": "TCP"})).collect();
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|(address, ready)| json!({"addresses": [address], "conditions": {"ready": ready, "serving": ready, "terminating": false}}))
        .collect();
    let value = json!({
        "metadata": {"name": name}, "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
    });
    Arc::new(serde_json::from_value(value).expect("a slice"))
}

fn traffic(name: &str) -> PublicPort {
    PublicPort { name: Some(name.into()), protocol: "TCP".into(), app_protocol: None, leads_to: LeadsTo::Traffic }
}

fn inputs<'a>(
    mode: Mode,
    ports: &'a [PublicPort],
    private: &'a [Arc<EndpointSlice>],
    activators: &'a [Arc<EndpointSlice>],
) -> Inputs<'a> {
    Inputs {
        namespace: "ns",
        service: "hello",
        ports,
        mode,
        num_activators: 0,
        target: "hello",
        traffic_port: "http",
        activator_port: 8012,
        private,
        activators,
        labels: [(names::SIDE.to_owned(), names::SERVICE_TYPE_PUBLIC.to_owned())].into(),
        owner: OwnerReference { uid: "sks".into(), controller: Some(true), ..OwnerReference::default() },
    }
}

/// Ports by name, and addresses.
type Summary = (Vec<(String, i32)>, Vec<String>);

/// Ports and addresses of each slice.
fn summary(outcome: &Outcome) -> Vec<Summary> {
    let ports = |slice: &EndpointSlice| {
        let ports = slice.ports.iter().flatten();
        ports.map(|p| (p.name.clone().unwrap_or_default(), p.port.unwrap_or_default())).collect()
    };
    let addresses = |slice: &EndpointSlice| {
        slice.endpoints.iter().flatten().flat_map(|e| e.addresses.iter().cloned()).collect::<Vec<_>>()
    };
    outcome.slices.iter().map(|slice| (ports(slice), addresses(slice))).collect()
}

#[test]
fn the_path_follows_the_mode_and_what_is_ready() {
    let ports = [traffic("http")];
    let pods = |ready: bool| vec![slice_of("p", &[("http", 9000)], &[("10.0.0.1", ready)])];
    let activators = |ready: bool| vec![slice_of("a", &[("http", 8012), ("http2", 8013)], &[("10.9.0.1", ready)])];
    let (to_pods, to_activators) = (("10.0.0.1", 9000, Route::Pods), ("10.9.0.1", 8012, Route::Activators));
    let rows = [
        (Mode::Serve, true, true, to_pods),
        (Mode::Serve, true, false, to_pods),
        (Mode::Serve, false, true, to_activators),
        (Mode::Serve, false, false, to_pods),
        (Mode::Proxy, true, true, to_activators),
        (Mode::Proxy, true, false, to_pods),
        (Mode::Proxy, false, true, to_activators),
        (Mode::Proxy, false, false, to_pods),
    ];
    for (mode, pods_ready, activators_ready, (address, port, route)) in rows {
        let (private, activators) = (pods(pods_ready), activators(activators_ready));
        let outcome = desired(&inputs(mode, &ports, &private, &activators));
        let row = format!("{mode:?}, pods {pods_ready}, activators {activators_ready}");
        assert_eq!(summary(&outcome), [(vec![("http".to_owned(), port)], vec![address.to_owned()])], "{row}");
        assert_eq!((outcome.route, outcome.pods_ready), (route, usize::from(pods_ready)), "{row}");
        let ready = outcome.slices[0].endpoints.iter().flatten().all(is_ready);
        assert_eq!(ready, route == Route::Activators || pods_ready, "{row}: conditions tell the truth");
    }
}

#[test]
fn nothing_known_means_no_slice() {
    let ports = [traffic("http")];
    assert_eq!(desired(&inputs(Mode::Proxy, &ports, &[], &[])).slices, []);
}

/// Upstream's picks: eight activators in two slices, five or all of them
/// wanted.
#[test]
fn a_subset_of_the_activators_is_chosen_by_hash() {
    let ports = [traffic("http")];
    let four = |subnet: u8| -> Vec<String> { (1..=4).map(|i| format!("10.1.{subnet}.{i}")).collect() };
    let slice = |name: &str, subnet: u8| {
        let addresses = four(subnet);
        let endpoints: Vec<(&str, bool)> = addresses.iter().map(|a| (a.as_str(), true)).collect();
        slice_of(name, &[("http", 8012)], &endpoints)
    };
    let activators = [slice("a", 1), slice("b", 2)];
    let chosen = |n: i32| {
        let inputs = Inputs {
            num_activators: n,
            target: "to-proxy-with-subset",
            ..inputs(Mode::Proxy, &ports, &[], &activators)
        };
        summary(&desired(&inputs)).into_iter().flat_map(|(_, addresses)| addresses).collect::<Vec<_>>()
    };
    assert_eq!(chosen(5), ["10.1.1.1", "10.1.1.4", "10.1.2.2", "10.1.2.3", "10.1.2.4"]);
    for all in [0, 8, 9] {
        assert_eq!(chosen(all).len(), 8, "{all}");
    }
}

#[test]
fn h2c_takes_the_activators_other_port() {
    let ports = [traffic("http2")];
    let named = [slice_of("a", &[("http", 8012), ("http2", 8013)], &[("10.9.0.1", true)])];
    let unnamed = [slice_of("a", &[("web", 1)], &[("10.9.0.1", true)])];
    for activators in [&named, &unnamed] {
        let inputs =
            Inputs { traffic_port: "http2", activator_port: 8013, ..inputs(Mode::Proxy, &ports, &[], activators) };
        assert_eq!(summary(&desired(&inputs))[0].0, [("http2".to_owned(), 8013)]);
    }
}

#[test]
fn a_port_that_is_no_traffic_leads_to_the_pods_in_every_mode() {
    let metrics = PublicPort { leads_to: LeadsTo::Pods("also-0".into()), ..traffic("metrics") };
    let ports = [traffic("web"), metrics];
    let private = [slice_of("p", &[("http", 9000), ("also-0", 9100)], &[("10.0.0.1", true)])];
    let activators = [slice_of("a", &[("http", 8012)], &[("10.9.0.1", true)])];
    let one = |name: &str, port: i32, address: &str| (vec![(name.to_owned(), port)], vec![address.to_owned()]);
    let proxied = desired(&inputs(Mode::Proxy, &ports, &private, &activators));
    assert_eq!(summary(&proxied), [one("web", 8012, "10.9.0.1"), one("metrics", 9100, "10.0.0.1")]);
    let served = desired(&inputs(Mode::Serve, &ports, &private, &activators));
    assert_eq!(summary(&served), [one("web", 9000, "10.0.0.1"), one("metrics", 9100, "10.0.0.1")]);
    assert_eq!(proxied.slices[1], served.slices[1], "a switch does not touch what is no traffic");
    let labelled: Vec<_> = proxied.slices.iter().map(is_labelled).collect();
    assert_eq!(labelled, [true, false], "activators look for themselves among the traffic alone");
}

fn is_labelled(slice: &EndpointSlice) -> bool {
    slice.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(names::SIDE))
}

/// Goal: an activator finds itself once, by the port named as in `activator-service` or by the only one.
#[test]
fn activators_are_told_by_one_slice_whatever_the_ports_are_called() {
    let activators = [slice_of("a", &[("http", 8012)], &[("10.9.0.1", true)])];
    let rows = [(vec!["http", "more"], 1), (vec!["web"], 1), (vec!["web", "more"], 2)];
    for (names, slices) in rows {
        let ports: Vec<_> = names.iter().map(|name| traffic(name)).collect();
        let outcome = desired(&inputs(Mode::Proxy, &ports, &[], &activators));
        assert_eq!(outcome.slices.len(), slices, "{names:?}");
        let labelled: Vec<_> = outcome.slices.iter().filter(|slice| is_labelled(slice)).collect();
        assert_eq!(labelled.len(), 1, "{names:?}");
        let ports = labelled[0].ports.as_deref().unwrap_or_default();
        assert!(ports.len() == 1 || ports.iter().any(|port| port.name.as_deref() == Some("http")), "{names:?}");
    }
}

#[test]
fn pods_on_different_ports_get_slices_of_their_own() {
    let ports = [traffic("http")];
    let private = [
        slice_of("old", &[("http", 9000)], &[("10.0.0.1", true)]),
        slice_of("new", &[("http", 9001)], &[("10.0.0.2", true)]),
        slice_of("new-too", &[("http", 9001)], &[("10.0.0.3", true), ("10.0.0.2", true)]),
    ];
    let slices = summary(&desired(&inputs(Mode::Serve, &ports, &private, &[])));
    let port = |number: i32| vec![("http".to_owned(), number)];
    assert_eq!(
        slices,
        [(port(9000), vec!["10.0.0.1".to_owned()]), (port(9001), vec!["10.0.0.2".to_owned(), "10.0.0.3".to_owned()]),]
    );
}

#[test]
fn a_slice_holds_a_thousand_endpoints_at_most() {
    let ports = [traffic("http")];
    let addresses: Vec<String> = (0..2500).map(|i| format!("10.0.{}.{}", i / 250, i % 250)).collect();
    let endpoints: Vec<(&str, bool)> = addresses.iter().map(|a| (a.as_str(), true)).collect();
    let private = [slice_of("p", &[("http", 9000)], &endpoints)];
    let outcome = desired(&inputs(Mode::Serve, &ports, &private, &[]));
    let sizes: Vec<_> = summary(&outcome).iter().map(|(_, addresses)| addresses.len()).collect();
    assert_eq!(sizes, [1000, 1000, 500]);
    let names: BTreeSet<_> = outcome.slices.iter().map(|slice| slice.metadata.name.clone()).collect();
    assert_eq!(names.len(), 3);
}

/// Goal: a switch is one update, a repeat is nothing, and what Kubernetes left behind goes.
#[test]
fn writes_are_few_and_the_one_that_moves_the_path_comes_first() {
    let ports = [traffic("http")];
    let private = [slice_of("p", &[("http", 9000)], &[("10.0.0.1", true)])];
    let activators = [slice_of("a", &[("http", 8012)], &[("10.9.0.1", true)])];
    let serve = desired(&inputs(Mode::Serve, &ports, &private, &activators)).slices;
    let proxy = desired(&inputs(Mode::Proxy, &ports, &private, &activators)).slices;
    let created = writes(&[], serve.clone());
    assert!(matches!(&created[..], [Write::Create(slice)] if is_ours(slice)));
    let mut stored = serve[0].clone();
    stored.metadata.resource_version = Some("7".into());
    let stored = [Arc::new(stored)];
    assert_eq!(writes(&stored, serve.clone()), []);
    let left_behind = slice_of("hello-x7k2p", &[("http", 9000)], &[("10.0.0.1", true)]);
    let switch = writes(&[left_behind, stored[0].clone()], proxy.clone());
    match &switch[..] {
        [Write::Update(slice), Write::Delete(name)] => {
            assert_eq!((slice.metadata.resource_version.as_deref(), name.as_str()), (Some("7"), "hello-x7k2p"));
            assert_eq!((&slice.endpoints, &slice.ports), (&proxy[0].endpoints, &proxy[0].ports));
        }
        other => panic!("{other:?}"),
    }
}
