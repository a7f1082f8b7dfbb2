//! Tests of [`Ownership`] and of the elector's writes. The rules of leases are tested in `common::election`.

use super::*;
use crate::tests::mock_api;
use http::Method;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio_util::sync::CancellationToken;

fn ownership(view: View) -> Ownership {
    Ownership { views: Arc::new(RwLock::new(vec![view])), writers: Writers::new(1), changes: watch::channel(0).1 }
}

/// Goal: a disconnected process, which observes no renewals, stops relying on the last observed holder.
#[tokio::test(start_paused = true)]
async fn a_holder_counts_until_its_lease_has_expired() {
    let holder = Holder { pod_name: "as-1".into(), pod_ip: [10, 0, 0, 1].into() };
    let believed_until = Some(Instant::now() + Duration::from_secs(15));
    let ownership = ownership(View { holder: Some(holder.clone()), until: None, believed_until });
    tokio::time::advance(Duration::from_millis(14_999)).await;
    assert_eq!(ownership.holder(0), Some(holder));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(ownership.holder(0), None);
}

/// Goal: a write begins only with the margin left, must be over before the lease ends, and prevents a handover of the
/// bucket until it has a response or can no longer be carried out.
#[tokio::test(start_paused = true)]
async fn a_lease_waits_for_writes_in_flight() {
    let until = Instant::now() + Duration::from_secs(10);
    let ownership = ownership(View { holder: None, until: Some(until), believed_until: None });
    let idle = || tokio_test::task::spawn(ownership.writers.idle(0));
    tokio_test::assert_ready!(idle().poll());

    let (first, second) = (ownership.begin_write(0).expect("held"), ownership.begin_write(0).expect("held"));
    assert_eq!(first.deadline(), Some(until - CANCEL_MARGIN));
    first.answered();
    let mut waiting = idle();
    tokio_test::assert_pending!(waiting.poll(), "the second is in flight");
    drop(second);
    tokio::time::sleep(CANCEL_MARGIN - Duration::from_millis(1)).await;
    tokio_test::assert_pending!(waiting.poll(), "it may still be carried out");
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert!(waiting.is_woken());
    tokio_test::assert_ready!(waiting.poll());

    tokio::time::sleep_until(until - WRITE_MARGIN).await;
    ownership.begin_write(0).expect("exactly the margin is left").answered();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(ownership.begin_write(0).is_none() && ownership.owns(0), "it is still held");
    tokio::time::sleep_until(until).await;
    assert!(!ownership.owns(0));
    assert!(ownership.begin_write(7).is_none() && !ownership.owns(7), "an unknown bucket has no owner");
}

/// Goal: if the namespace of the leases does not exist, creation is retried with pauses and not at the API server's
/// response rate. Method: an API server that stops responding after too many requests.
#[tokio::test(start_paused = true)]
async fn a_lease_without_a_namespace_is_created_again_with_pauses() {
    const TOO_OFTEN: usize = 100;
    let created = Arc::<AtomicUsize>::default();
    let counted = created.clone();
    let client = mock_api(move |request| {
        let is_create = request.method() == Method::POST;
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if is_watch || (is_create && counted.fetch_add(1, Ordering::Relaxed) >= TOO_OFTEN) {
            return None;
        }
        if !is_create && request.uri().path().ends_with("/leases") {
            return Some((200, json!({"metadata": {"resourceVersion": "1"}, "items": []})));
        }
        Some((404, json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "no"})))
    });
    let options = ElectorOptions {
        namespace: "nowhere".to_owned(),
        names: vec!["a".to_owned()],
        identity: "as-1_10.0.0.1".to_owned(),
        timing: Timing::STANDALONE,
        balance: false,
    };
    let shutdown = CancellationToken::new();
    let (ownership, released) = start(client, options, std::future::ready(()), shutdown.clone());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let created = created.load(Ordering::Relaxed);
    assert!((10..=21).contains(&created), "{created}");
    assert!(!ownership.owns(0));
    shutdown.cancel();
    released.await.expect("no panic");
}
