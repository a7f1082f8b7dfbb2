//! Tests of Metric and ServerlessService whose labels and annotations differ from the PodAutoscaler's.

use super::fixture::{Exchange, Fixture, expect};
use super::kpa_knative::{METRICS, SKSS, autoscaler, metric, pass, serverless, settled, status};
use common::scaling::Aggregation;
use serde_json::{Value, json};

const ALGORITHM: &str = "autoscaling.knative.dev/metric-aggregation-algorithm";

fn put(collection: &str, check: impl Fn(&Value) + 'static) -> Exchange {
    expect(&format!("PUT {collection}/hello")).with(move |body| check(&body["metadata"]))
}

/// Returns a settled Knative revision whose PodAutoscaler is then edited.
fn edited(annotations: Value) -> Fixture {
    let active = || status("True", "", 10, 1, 11);
    let f = settled(json!({}), active(), serverless("Serve", 3, "pa"), 11, 1, Some(11), 0);
    f.put_autoscaler(autoscaler(annotations, active()));
    f
}

/// Goal: an edited averaging algorithm reaches the Metric, and from there the collector; a second reconcile writes
/// nothing.
#[tokio::test]
async fn an_edited_algorithm_reaches_the_collector() {
    let mut f = edited(json!({ALGORITHM: "weighted-exponential"}));
    let script = || {
        vec![
            put(METRICS, |meta| {
                assert_eq!(meta["annotations"][ALGORITHM], "weighted-exponential");
                assert_eq!(meta["annotations"]["autoscaling.knative.dev/metric"], "concurrency");
                assert_eq!(meta["resourceVersion"], "30", "a concurrent write is not overwritten");
            }),
            put(SKSS, |meta| {
                assert_eq!(meta["annotations"][ALGORITHM], "weighted-exponential");
                assert!(meta["annotations"]["autoscaling.knative.dev/metric"].is_null());
            }),
        ]
    };
    pass(&mut f, script()).await.expect("a pass");
    pass(&mut f, vec![]).await.expect("no change");
    let status = expect(&format!("PUT {METRICS}/hello/status"));
    f.play(vec![status], async |cx, key| cx.knative().metric.reconcile(key).await).await.expect("a pass of the Metric");
    let collecting = f.fakes.collecting.lock().clone().expect("collected");
    assert_eq!(collecting.aggregation, Aggregation::WeightedExponential);
}

#[tokio::test]
async fn a_removed_setting_is_removed_from_both_objects() {
    let mut f = edited(json!({}));
    let with_more = |mut value: Value, version: &str| {
        value["metadata"]["annotations"] = json!({
            "autoscaling.knative.dev/class": "kpa.autoscaling.knative.dev", ALGORITHM: "linear", "example.com/note": "mine",
        });
        value["metadata"]["labels"] = json!({"serving.knative.dev/revision": "other", "team": "blue"});
        value["metadata"]["resourceVersion"] = json!(version);
        value
    };
    f.put_serverless(with_more(serverless("Serve", 3, "pa"), "20"));
    f.put_metric(with_more(metric("hello-private", "pa"), "30"));
    let check = |meta: &Value| {
        assert!(meta["annotations"][ALGORITHM].is_null(), "{meta}");
        assert_eq!(meta["annotations"]["example.com/note"], "mine");
        assert_eq!(meta["labels"]["serving.knative.dev/revision"], "hello");
        assert_eq!(meta["labels"]["serving.knative.dev/configuration"], "config");
        assert_eq!(meta["labels"]["team"], "blue");
    };
    pass(&mut f, vec![put(METRICS, check), put(SKSS, check)]).await.expect("a pass");
}
