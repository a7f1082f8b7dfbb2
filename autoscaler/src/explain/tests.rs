//! Tests of the page and the table, over a real admin port.

use super::*;
use crate::certificate::Certificate;
use crate::scale::fixture::{sources, subject};
use crate::scale::{Deciders, Initial, Surroundings};
use autoscaler_core::bounds::Bounds;
use autoscaler_core::engine::BlendedScale;
use autoscaler_core::history::{Action, Obstacle};
use autoscaler_core::scale_to_zero::Reason;
use common::ownership::{Holder, bucket_names};
use common::time::Timestamp;
use common_runtime::admin::Admin;
use common_runtime::clock::Clock;
use common_runtime::lease::Ownership;
use common_runtime::telemetry::Metrics;
use hpa_core::decision::Limit;
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;

fn multiscaler() -> Arc<Multiscaler> {
    let clock = Clock::starting_at(Timestamp::from_secs(1_785_542_400));
    Arc::new(Multiscaler::new(sources(clock, &Metrics::default()), true))
}

/// Returns the page of an autoscaler that owns everything.
fn own_page(multiscaler: Arc<Multiscaler>) -> Page {
    let me = Holder { pod_name: "as-0".into(), pod_ip: [127, 0, 0, 1].into() };
    page("ZeroScaler", multiscaler, Shares::new(bucket_names(1), Ownership::alone(1, &me)))
}

/// Goal: the admin port serves the table of a revision, with the reason of each change, and that of a
/// HorizontalPodAutoscaler. An unknown revision gets an error message.
#[tokio::test]
async fn explanations_are_served_on_the_admin_port() {
    let (multiscaler, shutdown) = (multiscaler(), CancellationToken::new());
    let key = RevisionKey::new("ns", "hello");
    multiscaler.ensure(&key, subject(), Initial::Adopted(0));
    multiscaler.observe(&key, Surroundings { activators_in_path: true, replicas: Some(0) });
    multiscaler.stat_recorded(&key, 1.0, ""); // Not collected, so nothing can be decided; the table says so.
    let document = json!({
        hpa::explain::SUBJECT: "shop/web", "replicas": 2, "desired": 4, "minReplicas": 1, "maxReplicas": 9,
    });
    let horizontal: Page =
        Arc::new(move |path| (path == "/explain/shop/web").then(|| json(StatusCode::OK, document.to_string())));
    let pages = vec![horizontal, own_page(multiscaler)];
    let listen = ([127, 0, 0, 1], 0).into();
    let admin = admin::serve(listen, Metrics::default(), pages, shutdown.clone()).await.expect("bind");

    let table = why(admin, None, "ns/hello").await.expect("explained");
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines[0], "ns/hello: wants 0 (replicas 0), 70.00 concurrency a pod, activators in the path");
    assert!(lines[2].starts_with("2026-08-01 00:00:0"), "{table}");
    assert!(lines[2].ends_with("unknown: pods cannot be counted"), "{table}");

    let table = why(admin, None, "shop/web").await.expect("explained");
    assert_eq!(table.lines().next(), Some("shop/web: replicas 2, wants 4, bounds 1..9"));

    let error = why(admin, None, "ns/nobody").await.expect_err("unknown").to_string();
    assert_eq!(error, "ns/nobody: this autoscaler scales no ZeroScaler of that name");
    for bad in ["hello", "a/b/c", "/b", ""] {
        let error = why(admin, None, bad).await.expect_err(bad).to_string();
        assert!(error.contains("NAMESPACE/NAME"), "{error}");
    }
    shutdown.cancel();
}

/// Goal: an admin port with a certificate is queried over TLS, and a certificate that proves something else is
/// rejected.
#[tokio::test]
async fn explanations_are_served_over_tls() {
    let (multiscaler, shutdown) = (multiscaler(), CancellationToken::new());
    multiscaler.ensure(&RevisionKey::new("ns", "hello"), subject(), Initial::Adopted(0));
    let pages = vec![own_page(multiscaler)];
    let (ours, theirs) = (Certificate::new("localhost"), Certificate::new("localhost"));
    let config = ours.server(&shutdown).await;
    let admin = Admin { metrics: None, pages, tls: Some(config) };
    let admin = admin.serve(([127, 0, 0, 1], 0).into(), shutdown.clone()).await.expect("bind");

    let trust = ours.trust("localhost", &shutdown).await;
    let table = why(admin, Some(&trust), "ns/hello").await.expect("explained");
    assert!(table.starts_with("ns/hello: wants 0"), "{table}");
    for (certificate, name) in [(&theirs, "localhost"), (&ours, "elsewhere")] {
        let trust = certificate.trust(name, &shutdown).await;
        let error = format!("{:#}", why(admin, Some(&trust), "ns/hello").await.expect_err("not trusted"));
        let parts = [admin.to_string(), format!("must contain the name {name}")];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let plain = why(admin, None, "ns/hello").await.expect_err("only TLS is served");
    assert!(!plain.to_string().is_empty());
    shutdown.cancel();
}

/// Goal: the reconciler's actions are reported with bounds and reason, even for a refused revision without a loop.
/// They disappear when the revision is forgotten.
#[tokio::test]
async fn actions_are_explained() {
    let (multiscaler, key) = (multiscaler(), RevisionKey::new("ns", "hello"));
    let explained = || multiscaler.explain(&key).map(|explanation| words::table(&document(&key, &explanation)));
    assert_eq!(explained(), None);
    multiscaler.record_action(&key, Action::refused(Obstacle::ServiceNotOwned));
    multiscaler.record_action(&key, Action::refused(Obstacle::ServiceNotOwned));
    let refused = explained().expect("explained");
    assert!(refused.starts_with("ns/hello: no decision yet\n"), "{refused}");
    assert_eq!(refused.lines().count(), 3, "one entry: {refused}");
    assert!(refused.ends_with("refused: the public Service belongs to another owner\n"), "{refused}");

    multiscaler.ensure(&key, subject(), Initial::Adopted(0));
    let bounds = Bounds { min: 0, max: Some(3) };
    let planned = Action::planned(Some(3), 0, bounds, Reason::Bounds);
    multiscaler.record_action(&key, Action { patched: true, ..planned });
    multiscaler.record_action(&key, Action::planned(Some(0), 1, Bounds { max: None, ..bounds }, Reason::ProbePending));
    let table = explained().expect("explained");
    let rows: Vec<_> = table.lines().skip(2).collect();
    assert_eq!(rows.len(), 3, "{table}");
    let kept = "idle; the last pod stays until activators are certain to receive new requests";
    assert!(rows[0].ends_with(&format!("replicas 1 kept, wanted 0, bounds 0..: {kept}")), "{table}");
    let raised = "the load requires it, within the minimum and the maximum";
    assert!(rows[1].ends_with(&format!("replicas 0 -> 3, bounds 0..3: {raised}")), "{table}");

    Deciders::remove(&*multiscaler, &key);
    assert_eq!(explained().expect("the history is kept").lines().count(), 5);
    multiscaler.forget(&key);
    assert_eq!(explained(), None);
}

/// Goal: if metrics are evaluated, the table names the winning metric and the result of its recommendation.
#[tokio::test]
async fn the_winning_metric_is_named() {
    let (multiscaler, key) = (multiscaler(), RevisionKey::new("ns", "hello"));
    multiscaler.ensure(&key, subject(), Initial::Adopted(0));
    let scale = BlendedScale {
        desired: Some(6),
        metric: "cpu resource".into(),
        measured: true,
        asked: 9,
        limit: Limit::ScaleUp,
        ..BlendedScale::default()
    };
    multiscaler.blended(&key, &scale);
    multiscaler.blended(&key, &BlendedScale { failing: 2, held: true, limit: Limit::WithinRange, asked: 0, ..scale });
    let explanation = multiscaler.explain(&key).expect("a loop");
    let table = words::table(&document(&key, &explanation));
    let rows: Vec<_> = table.lines().skip(2).collect();
    assert!(rows[1].contains("      6 ") && rows[1].ends_with("  cpu resource requires 9, ScaleUpLimit"), "{table}");
    let held = "cpu resource requires 0; 2 of the metrics fail, so the replicas are not reduced";
    assert!(rows[0].ends_with(held), "{table}");
}

#[tokio::test]
async fn another_owner_is_named() {
    let (assign, ownership) = Ownership::manual(1);
    let other = Holder { pod_name: "as-1".into(), pod_ip: [10, 0, 0, 2].into() };
    assign.set(0, Some(other), false);
    let shares = Shares::new(bucket_names(1), ownership);
    let response = answer("ZeroScaler", &multiscaler(), &shares, &RevisionKey::new("ns", "hello"));
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let body = response.into_body().collect().await.expect("body").to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("another autoscaler decides about it: as-1 at 10.0.0.2"));
}
