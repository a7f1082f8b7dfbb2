//! Tests of the ledger of port numbers: release of numbers.

use super::fixture::{Fixture, expect};
use super::hosts::lists;
use crate::standalone::unlisted::QUERY_INTERVAL;
use common::RevisionKey as Key;
use serde_json::{Value, json};

const MAP: &str = "PUT /api/v1/namespaces/system/configmaps/ports.20000";

/// Puts the map of the first numbers with these lines, as reported by the watch.
fn put_map(f: &Fixture, version: &str, lines: &Value) {
    let metadata = json!({"name": "ports.20000", "namespace": "system", "resourceVersion": version});
    let map = serde_json::from_value(json!({"metadata": metadata, "data": lines})).expect("a ConfigMap");
    f.cx.cluster().port_allocator.ledger.apply(&Key::new("system", "ports.20000"), version, Some(map));
}

fn is_released(line: &Value, rest: &str) -> bool {
    line.as_str().is_some_and(|line| line.starts_with("released:") && line.ends_with(rest))
}

/// Goal: with several namespaces, one without permissions counts as listed and empty. Its numbers stay allocated until
/// the API server reports that their workloads do not exist. The namespace is queried once in an interval, and other
/// workloads do not wait for it.
#[tokio::test(start_paused = true)]
async fn numbers_of_an_unreadable_namespace_stay_allocated() {
    let mut f = Fixture::within(&["denied", "shop"]);
    put_map(&f, "70", &json!({"20000": "held denied/a ua 80 web", "20001": "held shop/b ub 80 web"}));
    let one = expect(MAP).with(|body: &Value| {
        assert_eq!(body["data"]["20000"], "held denied/a ua 80 web");
        assert!(is_released(&body["data"]["20001"], " shop/b ub 80 web"), "{body}");
    });
    let denied = lists("denied", &[]).refused(403, "forbidden");
    f.reconcile_numbers(vec![denied, lists("shop", &[]), one]).await.expect("a pass");
    put_map(&f, "101", &json!({"20000": "held denied/a ua 80 web", "20001": "released:1700000000 shop/b ub 80 web"}));
    f.reconcile_numbers(vec![]).await.expect("no query before the interval ends");
    tokio::time::advance(QUERY_INTERVAL).await;
    let both =
        expect(MAP).with(|body: &Value| assert!(is_released(&body["data"]["20000"], " denied/a ua 80 web"), "{body}"));
    f.reconcile_numbers(vec![lists("denied", &[]), both]).await.expect("readable again, and without ZeroScalers");
}
