//! The ledger of port numbers: how they come back.

use super::fixture::{Exchange, Fixture, expect};
use common::RevisionKey as Key;
use serde_json::{Value, json};
use std::time::Duration;

const A: &str = "10.9.0.1";
const MAP: &str = "PUT /api/v1/namespaces/system/configmaps/ports.20000";

fn list(namespace: &str) -> Exchange {
    let list = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList", "metadata": {}, "items": []});
    expect(&format!("GET /apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")).answered(200, list)
}

/// Goal: numbers whose slices may not be listed stay as they are, since somebody may be led there; those of other namespaces
/// do not wait for them.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_may_not_be_listed_keeps_its_own_numbers_alone() {
    let mut f = Fixture::scalers();
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
