//! What an [`Ownership`] answers; the rules of the leases themselves are tested where they are.

use super::*;

/// Goal: the write margin is part of the answer.
#[tokio::test(start_paused = true)]
async fn writes_stop_two_seconds_before_the_lease_ends() {
    let until = Instant::now() + Duration::from_secs(10);
    let views = Arc::new(RwLock::new(vec![View { holder: None, until: Some(until), believed_until: None }]));
    let (_keep, changes) = watch::channel(0);
    let ownership = Ownership { views, writers: Writers::new(1), changes };
    for (advance, owns, may_write) in [(0, true, true), (8, true, true), (1, true, false), (1, false, false)] {
        tokio::time::advance(Duration::from_secs(advance)).await;
        assert_eq!((ownership.owns(0), ownership.may_write(0)), (owns, may_write), "after {advance} s more");
    }
    assert!(!ownership.owns(7), "a bucket that does not exist is nobody's");
}

/// Goal: a process that sees no renewals any more, being cut off, stops to believe in the holder it saw last.
#[tokio::test(start_paused = true)]
async fn a_holder_counts_until_its_lease_has_run_out_as_seen_from_here() {
    let holder = Holder { pod_name: "as-1".into(), pod_ip: [10, 0, 0, 1].into() };
    let believed_until = Some(Instant::now() + Duration::from_secs(15));
    let view = View { holder: Some(holder.clone()), until: None, believed_until };
    let (_keep, changes) = watch::channel(0);
    let ownership = Ownership { views: Arc::new(RwLock::new(vec![view])), writers: Writers::new(1), changes };
    tokio::time::advance(Duration::from_millis(14_999)).await;
    assert_eq!(ownership.holder(0), Some(holder));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(ownership.holder(0), None);
}

/// Goal: a write is begun only with the margin left, has to be over before the lease ends, and keeps the bucket from
/// changing hands: until it was answered, or until it can no longer be carried out.
#[tokio::test(start_paused = true)]
async fn a_lease_waits_for_writes_under_way() {
    let until = Instant::now() + Duration::from_secs(10);
    let view = View { holder: None, until: Some(until), believed_until: None };
    let writers = Writers::new(1);
    let (_keep, changes) = watch::channel(0);
    let ownership = Ownership { views: Arc::new(RwLock::new(vec![view])), writers: writers.clone(), changes };
    let idle = || tokio_test::task::spawn(writers.idle(0));
    tokio_test::assert_ready!(idle().poll());

    let (first, second) = (ownership.begin_write(0).expect("held"), ownership.begin_write(0).expect("held"));
    assert_eq!(first.deadline(), Some(until - CANCEL_MARGIN));
    first.answered();
    let mut waiting = idle();
    tokio_test::assert_pending!(waiting.poll(), "the second is under way");
    drop(second);
    tokio::time::sleep(CANCEL_MARGIN - Duration::from_millis(1)).await;
    tokio_test::assert_pending!(waiting.poll(), "it may still be carried out");
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert!(waiting.is_woken());
    tokio_test::assert_ready!(waiting.poll());

    tokio::time::sleep_until(until - WRITE_MARGIN).await;
    ownership.begin_write(0).expect("the margin is left to the instant").answered();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(ownership.begin_write(0).is_none());
    assert!(ownership.begin_write(7).is_none(), "a bucket that does not exist is nobody's");
}
