//! Tests of the ledger of port numbers: release of numbers.

use super::fixture::{Exchange, Fixture, expect};
use crate::standalone::unlisted::AGAIN;
use autoscaler_core::ports::{Access, Wanted};
use common::RevisionKey as Key;
use common::names;
use common::ports::PortId;
use serde_json::{Value, json};
use std::sync::Arc;

const MAP: &str = "PUT /api/v1/namespaces/system/configmaps/ports.20000";

/// Expects an empty list of a namespace's ZeroScalers.
fn no_scalers(namespace: &str) -> Exchange {
    let list = json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScalerList", "metadata": {}, "items": []});
    expect(&format!("GET /apis/zeroscale.dev/v1alpha1/namespaces/{namespace}/zeroscalers")).answered(200, list)
}

/// Puts the map of the first numbers with these lines, as reported by the watch.
fn put_map(f: &Fixture, version: &str, lines: &Value) {
    let metadata = json!({"name": "ports.20000", "namespace": "system", "resourceVersion": version});
    let map = serde_json::from_value(json!({"metadata": metadata, "data": lines})).expect("a ConfigMap");
    f.cx.cluster().numbers.ledger.apply(&Key::new("system", "ports.20000"), version, Some(map));
}

fn is_released(line: &Value, rest: &str) -> bool {
    line.as_str().is_some_and(|line| line.starts_with("released:") && line.ends_with(rest))
}

/// Goal: with several namespaces, one without permissions counts as listed and empty. Its numbers stay allocated until
/// the API server reports that their workloads do not exist. It is queried seldom, and other workloads do not wait for
/// it.
#[tokio::test(start_paused = true)]
async fn numbers_of_a_namespace_that_may_not_be_read_stay_held() {
    let mut f = Fixture::within(&["denied", "shop"]);
    put_map(&f, "70", &json!({"20000": "held denied/a ua 80 web", "20001": "held shop/b ub 80 web"}));
    let one = expect(MAP).with(|body: &Value| {
        assert_eq!(body["data"]["20000"], "held denied/a ua 80 web");
        assert!(is_released(&body["data"]["20001"], " shop/b ub 80 web"), "{body}");
    });
    let denied = no_scalers("denied").refused(403, "forbidden");
    f.look_at_numbers(vec![denied, no_scalers("shop"), one]).await.expect("a pass");
    put_map(&f, "101", &json!({"20000": "held denied/a ua 80 web", "20001": "released:1795000000 shop/b ub 80 web"}));
    f.look_at_numbers(vec![]).await.expect("nobody is asked again so soon");
    tokio::time::advance(AGAIN).await;
    let both =
        expect(MAP).with(|body: &Value| assert!(is_released(&body["data"]["20000"], " denied/a ua 80 web"), "{body}"));
    f.look_at_numbers(vec![no_scalers("denied"), both]).await.expect("the rights are back, and nobody is there");
}

/// Goal: slices that a tenant writes, with our labels and an owner of our kind, occupy no numbers: neither if they
/// name the whole range, nor if the owner is a ZeroScaler of the tenant.
#[tokio::test(start_paused = true)]
async fn forged_slices_take_no_numbers() {
    let mut f = Fixture::within(&["evil", "shop"]);
    let numbers = f.cx.cluster().numbers.clone();
    numbers.exists(&Key::new("evil", "own"), Some("own"));
    for (n, owner) in ["own", "none"].into_iter().enumerate() {
        for (part, first) in (20_000..30_000_u16).step_by(100).enumerate() {
            let ports: Vec<Value> =
                (first..first + 100).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
            let slice = json!({
                "metadata": {"name": format!("s{n}-{part}"), "namespace": "evil", "labels": {
                    "kubernetes.io/service-name": "s", names::LEADS_TO: names::LEADS_TO_ACTIVATORS,
                    "endpointslice.kubernetes.io/managed-by": names::MANAGED_BY,
                }, "ownerReferences": [
                    {"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "name": owner, "uid": owner, "controller": true},
                ]},
                "addressType": "IPv4", "ports": ports, "endpoints": [{"addresses": ["10.0.0.1"]}],
            });
            let slice = Arc::new(serde_json::from_value(slice).expect("a slice"));
            numbers.slice(&Key::new("evil", format!("s{n}-{part}")), Some(&slice));
        }
    }
    let key = Key::new("shop", "a");
    numbers.exists(&key, Some("ua"));
    numbers.want(
        &key,
        "ua",
        vec![Wanted { port: PortId { name: "web".into(), port: 80 }, listed: None, shown: None }],
        Access::Open,
    );
    let map = expect("POST /api/v1/namespaces/system/configmaps").with(|body: &Value| {
        let lines = body["data"].as_object().expect("lines");
        assert!(lines.values().any(|line| line == "held shop/a ua 80 web"), "{body}");
    });
    f.look_at_numbers(vec![map]).await.expect("a number is given");
}
