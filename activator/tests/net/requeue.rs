//! Requests that return to the head of the queue.

use crate::rig::{Pod, Rig};
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;

/// Goal: a request that returned to the queue keeps its deadline. Method: a later request that has waited all the time
/// has a later deadline, and so must be refused later.
#[tokio::test]
async fn a_request_that_is_queued_again_keeps_its_deadline() {
    const APART: Duration = Duration::from_secs(2);
    let rig = Arc::new(
        Rig::with_revision(|backend| {
            backend.container_concurrency = 1;
            backend.timeout_ms = 6_000;
        })
        .await,
    );
    let pod = Pod::start(|_| std::future::pending()).await;
    rig.pods(&[pod.address]).await;
    let ask = || {
        let rig = rig.clone();
        tokio::spawn(async move {
            let answer = rig.get("app.ns", "/").await;
            (answer, tokio::time::Instant::now())
        })
    };
    let early = ask();
    rig.until(|load| load.in_flight == 1).await;
    crate::rig::until(|| pod.requests() == 1).await;
    tokio::time::sleep(APART).await; // Difference of the deadlines.
    let late = ask();
    rig.until(|load| load.queued == 1).await;
    pod.kill().await;
    rig.until(|load| load.queued == 2).await;
    let ((early, early_at), (late, late_at)) = (early.await.expect("no panic"), late.await.expect("no panic"));
    for answer in [early, late] {
        assert_eq!((answer.status, answer.header("x-zeroscale-reason")), (StatusCode::GATEWAY_TIMEOUT, "timeout"));
    }
    assert!(early_at < late_at, "it was given more time when it was queued again");
}
