//! Tests of a deleted ZeroScaler: replicas are given back first, then the traffic, then our objects are deleted.

use super::fixture::{Exchange, Fixture, ago, expect, leads, reports};
use super::kpa_knative::{SCALE, status};
use super::kpa_standalone::{adopted_at, pass, public_service, scaler, taken_service};
use super::scalers::{ZS, adopted, at_version};
use autoscaler_core::path_mode::PathMode;
use serde_json::{Value, json};

fn deleted() -> Value {
    let mut object = adopted_at("2", scaler(json!({}), status("False", "NoTraffic", 3600, 0, 0)));
    object["metadata"]["deletionTimestamp"] = json!(ago(1));
    object
}

fn settled() -> Fixture {
    let f = Fixture::standalone();
    f.put_autoscaler(deleted());
    f.put_path(PathMode::Proxy, "hello", Some(3600));
    f.put_service(public_service("zs"));
    f.put_target(0);
    f
}

/// Returns a Service that the ZeroScaler with this uid has borrowed.
fn borrowed(by: &str, version: &str) -> Value {
    let mut value = at_version(&adopted(), version);
    value["metadata"]["annotations"]["zeroscale.dev/adopted-by"] = json!(by);
    value
}

/// Expects the removal of the finalizer.
fn freed() -> Exchange {
    expect(&format!("PATCH {ZS}"))
        .with(|body| assert_eq!(body["metadata"]["finalizers"], json!([])))
        .answered(200, deleted())
}

/// Goal: each step waits for the one before it. Method: the test advances the cluster's state between reconciles.
#[tokio::test]
async fn replicas_then_traffic_then_objects_then_the_finalizer() {
    let mut f = settled();
    let restored = expect(&format!("PATCH {SCALE}"))
        .with(|body| assert_eq!(body[0]["value"], 2))
        .answered(200, json!({"metadata": {"name": "hello", "resourceVersion": "61"}}));
    pass(&mut f, vec![restored]).await.expect("replicas are restored");
    pass(&mut f, vec![]).await.expect("waits for a ready pod: the activators keep the path");

    f.ready(1);
    let to_pods = leads().with(|path| assert_eq!(path["mode"], "Serve"));
    pass(&mut f, vec![to_pods]).await.expect("another path is requested");
    pass(&mut f, vec![]).await.expect("waits until the path has moved");

    f.put_path(PathMode::Serve, "hello", None);
    pass(&mut f, vec![freed()]).await.expect("the finalizer is removed");
    assert_eq!(f.cx.path(&f.key), None);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_ready_pod_is_bounded() {
    let mut f = settled();
    f.put_target(2);
    pass(&mut f, vec![]).await.expect("waits");
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    let to_pods = leads().with(|path| assert_eq!(path["mode"], "Serve"));
    pass(&mut f, vec![to_pods]).await.expect("continues without a ready pod");
}

#[tokio::test]
async fn a_target_that_was_never_adopted_is_left_alone() {
    let mut f = settled();
    let mut object = deleted();
    object["metadata"]["finalizers"] = json!([]);
    f.put_autoscaler(object);
    pass(&mut f, vec![]).await.expect("nothing to give back");
}

#[tokio::test]
async fn a_service_taken_over_by_another_owner_leaves_the_replicas_unchanged() {
    let mut f = settled();
    let mut object = deleted();
    object["metadata"].as_object_mut().expect("metadata").remove("deletionTimestamp");
    f.put_autoscaler(object);
    f.put_service(taken_service());
    let forgotten = |body: &Value| assert!(body["metadata"]["annotations"]["zeroscale.dev/adopted-replicas"].is_null());
    pass(&mut f, vec![freed().with(forgotten), reports()]).await.expect("a pass");
    assert!(f.fakes.scaled.lock().is_empty());
}

/// Goal: a borrowed Service is restored even if the ZeroScaler is invalid and its former spec is not known, if the
/// target is unreadable, or if another owner has the private Service.
#[tokio::test]
async fn a_service_that_cannot_be_served_is_given_back_too() {
    let rows = [
        ("its kind cannot be watched", Fixture::refuse_target as fn(&Fixture)),
        ("the private Service is another's", |f| {
            f.put_target(2);
            f.put_service(json!({"metadata": {"name": "hello-private", "namespace": "ns"}}));
        }),
        ("the object is broken", |f| {
            let mut object = deleted();
            object["spec"]["scale"] = json!({"window": "1s"});
            f.put_autoscaler(object);
            f.put_target(2);
        }),
    ];
    for (why, spoil) in rows {
        let mut f = settled();
        f.put_path(PathMode::Serve, "hello", Some(3600));
        f.put_service(borrowed("zs", "40"));
        spoil(&f);
        let script = vec![
            expect("PUT /api/v1/namespaces/ns/services/hello")
                .with(|body| assert_eq!(body["spec"]["selector"], json!({"app": "hello"}))),
            leads().with(|path| assert_eq!(path["inPath"], false)),
        ];
        let given = f.play(script, async |cx, key| cx.standalone().paths.reconcile(key).await).await;
        given.unwrap_or_else(|error| panic!("{why}: {error}"));
    }
}

/// Goal: the object stays while its Service is borrowed, for any time, because the Service would otherwise stay
/// without a selector. A Service that is gone, has another owner or is restored ends the wait.
#[tokio::test(start_paused = true)]
async fn the_object_stays_until_its_service_is_given_back() {
    let (gone, back) = (Value::Null, public_service("nobody"));
    for end in [gone, back, borrowed("another", "41")] {
        let mut f = settled();
        f.put_path(PathMode::Serve, "hello", None);
        f.put_service(borrowed("zs", "40"));
        f.put_target(2);
        f.ready(1);
        for _ in 0..2 {
            f.queued();
            pass(&mut f, vec![]).await.expect("the finalizer stays");
            tokio::time::advance(std::time::Duration::from_secs(91)).await;
            assert!(!f.queued().is_empty(), "queued again");
        }
        match end.is_null() {
            true => f.remove_service(),
            false => f.put_service(end),
        }
        pass(&mut f, vec![freed()]).await.expect("the finalizer is removed");
    }
}
