//! Tests of the ledger of hosts, and of the status of workloads whose hosts are refused.

use super::fixture::{Exchange, Fixture, assert_condition, condition, expect, reports};
use super::kpa_knative::status;
use super::kpa_standalone::{pass as kpa_pass, put_settled, scaler};
use crate::cluster::error::Error;
use crate::standalone::unlisted::QUERY_INTERVAL;
use common::RevisionKey as Key;
use common::hosts::ledger::{self, Grants};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/system/configmaps";
const NAMESPACES: [&str; 3] = ["ns", "shop", "evil"];

/// Puts a ZeroScaler `NAMESPACE/NAME`, created in that year, that claims these hosts. `None`: removes it.
fn claim(f: &Fixture, key: &str, year: i32, hosts: Option<&str>) {
    let (namespace, name) = key.split_once('/').expect("a key");
    let key_of = Key::new(namespace, name);
    let Some(hosts) = hosts else {
        f.remove_scaler(&key_of);
        return;
    };
    let mut value = scaler(json!({"hosts": list(hosts)}), Value::Null);
    value["metadata"]["namespace"] = json!(namespace);
    value["metadata"]["name"] = json!(name);
    value["metadata"]["uid"] = json!(format!("{key}#{year}"));
    value["metadata"]["creationTimestamp"] = json!(format!("{year}-01-01T00:00:00Z"));
    f.put_autoscaler_as(&key_of, value);
}

fn list(hosts: &str) -> Vec<&str> {
    hosts.split(", ").map(str::trim).collect()
}

async fn pass(f: &mut Fixture, script: Vec<Exchange>) -> Result<(), Error> {
    f.play(script, async |cx, _| cx.standalone().ledger.reconcile(&Key::new("system", "hosts")).await).await
}

fn fixture() -> Fixture {
    listed(Fixture::standalone())
}

fn listed(f: Fixture) -> Fixture {
    for namespace in NAMESPACES {
        f.put_namespace(namespace, None);
    }
    let hosts = &f.cx.cluster().hosts;
    hosts.namespaces.listed();
    hosts.ledger.listed();
    f
}

/// Puts a map, as reported by the watch.
fn put_map(f: &Fixture, namespace: &str, grants: &Value) {
    let grants: Grants = serde_json::from_value(grants.clone()).expect("grants");
    let name = ledger::map_name(namespace);
    let labels = json!({"zeroscale.dev/ledger": "hosts"});
    let metadata = json!({"name": name, "namespace": "system", "resourceVersion": "71", "labels": labels});
    let map = json!({"metadata": metadata, "data": ledger::data(&grants)});
    let map = serde_json::from_value(map).expect("a ConfigMap");
    f.cx.cluster().hosts.ledger.apply(&Key::new("system", name), "71", Some(map));
}

/// Expects a list request for the ZeroScalers of a namespace, and returns these.
pub(super) fn lists(namespace: &str, scalers: &[Value]) -> Exchange {
    let items: Vec<_> = scalers.iter().map(|metadata| json!({"metadata": metadata})).collect();
    let list =
        json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScalerList", "metadata": {}, "items": items});
    expect(&format!("GET /apis/zeroscale.dev/v1alpha1/namespaces/{namespace}/zeroscalers")).answered(200, list)
}

/// Expects a new map with this content.
fn creates(grants: Value) -> Exchange {
    map(&format!("POST {MAPS}"), grants)
}

/// Expects a map with this content.
fn map(line: &str, grants: Value) -> Exchange {
    expect(line).with(move |body| {
        let text = body["data"]["hosts"].as_str().expect("data");
        assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), grants);
        assert_eq!(body["metadata"]["labels"]["zeroscale.dev/ledger"], "hosts");
    })
}

#[tokio::test]
async fn a_host_stays_with_its_owner_and_then_goes_to_the_oldest_claimant() {
    let mut f = fixture();
    claim(&f, "shop/web", 2024, Some("x.example.com"));
    let made = creates(json!({"web": {"uid": "shop/web#2024", "hosts": ["x.example.com"]}}))
        .with(|body| assert_eq!(body["metadata"]["name"], "hosts.shop"));
    pass(&mut f, vec![made]).await.expect("a pass");
    pass(&mut f, vec![]).await.expect("nothing to do: the written map is known");

    claim(&f, "evil/old", 2020, Some("x.example.com, *.example.com"));
    claim(&f, "ns/older", 2022, Some("x.example.com"));
    let made = creates(json!({"old": {"uid": "evil/old#2020", "hosts": ["*.example.com"]}}));
    pass(&mut f, vec![made]).await.expect("an older claimant takes no host");
    claim(&f, "shop/web", 2024, Some("http://x.example.com"));
    pass(&mut f, vec![]).await.expect("an invalid edit releases no host");

    claim(&f, "shop/web", 2024, None);
    let grants = json!({"old": {"uid": "evil/old#2020", "hosts": ["*.example.com", "x.example.com"]}});
    let script = vec![expect(&format!("DELETE {MAPS}/hosts.shop")), map(&format!("PUT {MAPS}/hosts.evil"), grants)];
    pass(&mut f, script).await.expect("a released host goes to the oldest claimant");
}

/// Goal: a map that cannot be written blocks only the hosts that it should lose. No workload gets them before the map
/// has lost them.
#[tokio::test]
async fn a_map_that_cannot_be_written_blocks_only_the_hosts_it_should_lose() {
    let mut f = fixture();
    claim(&f, "shop/web", 2024, Some("x.example.com"));
    pass(&mut f, vec![expect(&format!("POST {MAPS}"))]).await.expect("a pass");
    claim(&f, "shop/web", 2024, None);
    claim(&f, "evil/old", 2020, Some("x.example.com"));
    claim(&f, "ns/b", 2021, Some("y.example.com"));
    let delete = || expect(&format!("DELETE {MAPS}/hosts.shop"));
    let made = creates(json!({"b": {"uid": "ns/b#2021", "hosts": ["y.example.com"]}}));
    pass(&mut f, vec![delete().refused(403, "forbidden"), made]).await.expect_err("one map could not be written");
    let made = creates(json!({"old": {"uid": "evil/old#2020", "hosts": ["x.example.com"]}}));
    pass(&mut f, vec![delete(), made]).await.expect("the host is granted");
}

/// Goal: names of another namespace's Services, and hosts that a namespace may not use, are not granted. When a
/// namespace is created, other workloads lose names of its Services at once.
#[tokio::test]
async fn reserved_hosts_are_never_granted() {
    let mut f = fixture();
    f.put_namespace("evil", Some("*.evil.example.com, hello.shop"));
    claim(&f, "evil/a", 2020, Some("hello.shop, x.example.org, a.evil.example.com"));
    claim(&f, "ns/b", 2021, Some("hello.later, x.later"));
    let script = vec![
        creates(json!({"a": {"uid": "evil/a#2020", "hosts": ["a.evil.example.com"]}})),
        creates(json!({"b": {"uid": "ns/b#2021", "hosts": ["hello.later", "x.later"]}})),
    ];
    pass(&mut f, script).await.expect("a pass");
    f.put_namespace("later", None);
    pass(&mut f, vec![expect(&format!("DELETE {MAPS}/hosts.ns"))]).await.expect("taken back");
}

#[tokio::test]
async fn nothing_is_written_before_the_first_lists_or_without_leadership() {
    let mut unknown = Fixture::standalone();
    claim(&unknown, "shop/web", 2024, Some("x.example.com"));
    pass(&mut unknown, vec![]).await.expect("a pass");
    let mut led = fixture();
    claim(&led, "shop/web", 2024, Some("x.example.com"));
    *led.fakes.led_by_another.lock() = true;
    pass(&mut led, vec![]).await.expect("a pass");
}

/// Goal: with several namespaces, one without permissions counts as listed and empty. Its hosts stay granted, and no
/// other workload gets them, until the API server reports that their holders are gone. The namespace is queried once in
/// an interval.
#[tokio::test(start_paused = true)]
async fn hosts_of_an_unreadable_namespace_stay_granted() {
    let mut f = listed(Fixture::within(&NAMESPACES));
    put_map(&f, "shop", &json!({"web": {"uid": "u", "hosts": ["x.example.com"]}}));
    claim(&f, "evil/old", 2020, Some("x.example.com, y.example.com"));
    let others = json!({"old": {"uid": "evil/old#2020", "hosts": ["y.example.com"]}});
    pass(&mut f, vec![lists("shop", &[]).refused(403, "forbidden"), creates(others.clone())]).await.expect("a pass");
    put_map(&f, "evil", &others);
    pass(&mut f, vec![]).await.expect("no query before the interval ends");
    tokio::time::advance(QUERY_INTERVAL).await;
    let there = lists("shop", &[json!({"name": "web", "uid": "u"})]);
    pass(&mut f, vec![there]).await.expect("readable again, and not listed yet");
    tokio::time::advance(QUERY_INTERVAL).await;
    pass(&mut f, vec![lists("shop", &[]).refused(500, "not now")]).await.expect_err("the query failed");

    let both = json!({"old": {"uid": "evil/old#2020", "hosts": ["x.example.com", "y.example.com"]}});
    let delete = || expect(&format!("DELETE {MAPS}/hosts.shop"));
    let put = map(&format!("PUT {MAPS}/hosts.evil"), both);
    let another = lists("shop", &[json!({"name": "web", "uid": "another"})]);
    // The watch does not report the end of the map here, so it is deleted again.
    pass(&mut f, vec![another, delete(), put, delete()]).await.expect("the holder is gone");
}

#[tokio::test]
async fn a_namespace_outside_the_install_has_no_hosts() {
    let mut f = listed(Fixture::within(&["ns", "evil"]));
    put_map(&f, "shop", &json!({"web": {"uid": "u", "hosts": ["x.example.com"]}}));
    pass(&mut f, vec![expect(&format!("DELETE {MAPS}/hosts.shop"))]).await.expect("a pass");
}

/// Goal: hosts that are not granted are reported with the reason, and everything else is served.
#[tokio::test]
async fn hosts_that_are_not_granted_are_reported_with_the_reason() {
    let mut f = fixture();
    f.put_namespace("ns", Some("*.example.com, *.prod"));
    f.put_namespace("prod", None);
    put_map(&f, "shop", &json!({"web": {"uid": "u", "hosts": ["x.example.com"]}}));
    let conflict = "host x.example.com belongs to ZeroScaler shop/web, which claimed it first";
    let refused = [
        "host hello.prod is refused: it is the name of a Service in namespace \"prod\"",
        "host x.example.org is refused: the annotation zeroscale.dev/hosts of the Namespace does not allow it",
    ];
    for (hosts, reason) in [
        ("x.example.com, y.example.com, hello.prod, x.example.org", "HostConflict"),
        ("y.example.com, hello.prod, x.example.org", "HostRefused"),
    ] {
        put_settled(&f, json!({"hosts": list(hosts)}), status("False", "NoTraffic", 3600, 0, 0), 0);
        f.decides(Some(0), -1);
        let script = vec![reports().with(move |body| {
            assert_condition(body, "HostsOwned", "False", reason);
            assert_condition(body, "Ready", "False", reason);
            assert_condition(body, "Adopted", "True", "Adopted");
            assert_eq!(body["status"]["service"], "hello");
            let message = condition(body, "HostsOwned").2;
            assert_eq!(message.contains(conflict), reason == "HostConflict", "{message}");
            assert!(refused.iter().all(|text| message.contains(text)), "{message}");
            assert!(!message.contains("y.example.com"), "{message}");
        })];
        kpa_pass(&mut f, script).await.expect("a pass");
    }
}
