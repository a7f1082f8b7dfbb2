//! Deadline of a request that returns to the queue.

use crate::rig::{self, Pod, Rig};
use http::{Request, StatusCode};
use std::time::Duration;

/// Method: a later request that has waited all the time has a later deadline, and so must be refused later.
#[tokio::test]
async fn a_request_that_is_queued_again_keeps_its_deadline() {
    const APART: Duration = Duration::from_secs(2);
    let rig = Rig::with_revision(|backend| (backend.container_concurrency, backend.timeout_ms) = (1, 6_000)).await;
    let pod = rig.only_pod(Pod::start(|_| std::future::pending()).await).await;
    let address = rig.address;
    let ask = || {
        tokio::spawn(async move {
            let answer = rig::ask(address, Request::get("/").header("host", "app.ns")).await;
            (answer, tokio::time::Instant::now())
        })
    };
    let early = ask();
    rig.until(|load| load.in_flight == 1).await;
    rig::until(|| pod.requests() == 1).await;
    tokio::time::sleep(APART).await; // Difference of the deadlines.
    let late = ask();
    rig.until(|load| load.queued == 1).await;
    pod.kill().await;
    rig.until(|load| load.queued == 2).await;
    let ((early, early_at), (late, late_at)) = (early.await.expect("no panic"), late.await.expect("no panic"));
    for answer in [early, late] {
        assert_eq!((answer.status, answer.header("x-zeroscale-reason")), (StatusCode::GATEWAY_TIMEOUT, "timeout"));
    }
    assert!(early_at < late_at, "the early request got a later deadline");
}
