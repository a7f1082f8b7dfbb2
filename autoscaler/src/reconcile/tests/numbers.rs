//! The ledger of port numbers: how they come back.

use super::fixture::{Exchange, Fixture, expect};
use crate::standalone::unread::AGAIN;
use autoscaler_core::ports::ORPHANED_AFTER;
use common::RevisionKey as Key;
use serde_json::{Value, json};
use std::time::Duration;

const A: &str = "10.9.0.1";
const MAP: &str = "PUT /api/v1/namespaces/system/configmaps/ports.20000";

fn list(namespace: &str) -> Exchange {
    let list = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList", "metadata": {}, "items": []});
    expect(&format!("GET /apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")).answered(200, list)
}

/// No ZeroScaler of a namespace.
fn no_scalers(namespace: &str) -> Exchange {
    let list = json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScalerList", "metadata": {}, "items": []});
    expect(&format!("GET /apis/zeroscale.dev/v1alpha1/namespaces/{namespace}/zeroscalers")).answered(200, list)
}

/// The map of the first numbers, with these lines, as the watch tells of it.
fn put_map(f: &Fixture, version: &str, lines: &Value) {
    let metadata = json!({"name": "ports.20000", "namespace": "system", "resourceVersion": version});
    let map = serde_json::from_value(json!({"metadata": metadata, "data": lines})).expect("a ConfigMap");
    f.cx.cluster().numbers.ledger.apply(&Key::new("system", "ports.20000"), version, Some(map));
}

/// Goal: where several namespaces are looked at, one whose rights are missing counts as listed, and empty. Its numbers stay
/// held until the API server says that there are no workloads that have them; it is asked seldom, and others do not wait
/// for it.
#[tokio::test(start_paused = true)]
async fn numbers_of_a_namespace_that_may_not_be_read_stay_held() {
    let mut f = Fixture::within(&["denied", "shop"]);
    put_map(&f, "70", &json!({"20000": "held denied/a ua 80 web", "20001": "held shop/b ub 80 web"}));
    f.look_at_numbers(vec![]).await.expect("their ZeroScalers may still come");
    tokio::time::advance(ORPHANED_AFTER).await;
    let left = json!({"20000": "held denied/a ua 80 web", "20001": "closing shop/b ub 80 web"});
    let closing = expect(MAP).with({
        let left = left.clone();
        move |body: &Value| assert_eq!(body["data"], left)
    });
    let denied = no_scalers("denied").refused(403, "forbidden");
    f.look_at_numbers(vec![denied, no_scalers("shop"), closing]).await.expect("a pass");
    put_map(&f, "101", &left);
    f.look_at_numbers(vec![]).await.expect("nobody is asked again so soon");
    tokio::time::advance(AGAIN).await;
    let closing = expect(MAP).with(|body: &Value| assert_eq!(body["data"]["20000"], "closing denied/a ua 80 web"));
    f.look_at_numbers(vec![no_scalers("denied"), closing]).await.expect("the rights are back, and nobody is there");
}

/// Goal: numbers whose slices may not be listed stay as they are, since somebody may be led there; those of other namespaces
/// do not wait for them.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_may_not_be_listed_keeps_its_own_numbers_alone() {
    let mut f = Fixture::standalone();
    let map = json!({
        "metadata": {"name": "ports.20000", "namespace": "system", "resourceVersion": "70"},
        "data": {"20000": "closing gone/a ua 80 web", "20001": "closing shop/b ub 80 web"},
    });
    let map = serde_json::from_value(map).expect("a ConfigMap");
    f.cx.cluster().numbers.ledger.apply(&Key::new("system", "ports.20000"), "70", Some(map));
    f.activators(&[(A, true)]);
    for _ in 0..2 {
        f.look_at_numbers(vec![]).await.expect("nothing to write");
    }
    f.hear_closing(A, &[(20_000, "ua"), (20_001, "ub")]);
    f.look_at_numbers(vec![]).await.expect("nothing to write");
    tokio::time::advance(Duration::from_secs(60)).await;
    let denied = || list("gone").refused(403, "forbidden");
    f.look_at_numbers(vec![denied(), list("shop")]).await.expect_err("it says so");
    tokio::time::advance(Duration::from_secs(30)).await;
    let closed = expect(MAP).with(|body: &Value| {
        let lines = json!({"20000": "closing gone/a ua 80 web", "20001": "closed shop/b ub 80 web"});
        assert_eq!(body["data"], lines);
    });
    f.look_at_numbers(vec![closed, denied()]).await.expect_err("it says so again");
}
