//! Tests of reconciles of a Metric: the health of a collection is reported once, and the collection ends with the
//! object.

use super::fixture::{Exchange, Fixture, condition, expect};
use super::kpa_knative::{METRICS, autoscaler, fixture, metric, status};
use crate::cluster::error::Error;
use crate::scale::CollectionHealth;
use common_api::metric_status::CollectionError;
use serde_json::{Value, json};

/// Creates a new Metric with this health of its collection.
fn new_metric(health: Option<CollectionHealth>) -> Fixture {
    let f = fixture();
    f.put_autoscaler(autoscaler(json!({}), status("True", "", 10, 1, 1)));
    f.put_metric(metric("hello-private", "pa"));
    *f.fakes.health.lock() = health;
    f
}

async fn pass(f: &mut Fixture, script: Vec<Exchange>) -> Result<(), Error> {
    f.play(script, async |cx, key| cx.knative().metric.reconcile(key).await).await
}

fn put_status() -> Exchange {
    expect(&format!("PUT {METRICS}/hello/status"))
}

/// Expects a status in which the Metric is ready, or the reason why it is not.
fn reports(status: &'static str, reason: &'static str, message: &'static str) -> Exchange {
    put_status().with(move |body: &Value| {
        assert_eq!(condition(body, "Ready"), (status.into(), reason.into(), message.into()));
    })
}

const ERROR: &str = "Failed to reconcile metric collection: the-error";

#[tokio::test]
async fn a_new_metric_is_ready_if_it_is_collected_and_its_status_is_written() {
    for health in [None, Some(Ok(()))] {
        let mut f = new_metric(health);
        let refused = pass(&mut f, vec![put_status().refused(500, "inducing failure")]).await.expect_err("refused");
        assert!(refused.to_string().contains("inducing failure"), "{refused}");
        pass(&mut f, vec![reports("True", "", "")]).await.expect("a pass");
        let collecting = f.fakes.collecting.lock().clone().expect("collected");
        assert_eq!(collecting.scrape_target.as_deref(), Some("hello-private"));
    }
}

#[tokio::test]
async fn an_error_is_reported_once() {
    for (error, status, reason, message) in [
        (CollectionError::Other("the-error".into()), "False", "CollectionFailed", ERROR),
        (CollectionError::NoEndpoints("none".into()), "Unknown", "NoEndpoints", "none"),
        (CollectionError::DidNotReceiveStat("none".into()), "False", "DidNotReceiveStat", "none"),
    ] {
        let mut f = new_metric(Some(Err(error)));
        pass(&mut f, vec![reports(status, reason, message)]).await.expect(reason);
        pass(&mut f, vec![]).await.expect("the same error again");
        *f.fakes.health.lock() = Some(Ok(()));
        pass(&mut f, vec![reports("True", "", "")]).await.expect("no error any more");
    }
}

#[tokio::test]
async fn a_collection_ends_with_its_metric_or_its_leadership() {
    for led_by_another in [false, true] {
        let mut f = new_metric(None);
        pass(&mut f, vec![put_status()]).await.expect("a pass");
        assert!(f.fakes.collecting.lock().is_some());
        if led_by_another {
            *f.fakes.led_by_another.lock() = true;
        } else {
            f.cx.knative().objects.metrics.apply(&f.key, "", None);
        }
        pass(&mut f, vec![]).await.expect("nothing to write");
        assert!(f.fakes.collecting.lock().is_none(), "led by another: {led_by_another}");
    }
}
