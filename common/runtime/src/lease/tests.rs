//! What an [`Ownership`] answers; the rules of the leases themselves are tested where they are.

use super::*;

/// Goal: the write margin is part of the answer.
#[tokio::test(start_paused = true)]
async fn writes_stop_two_seconds_before_the_lease_ends() {
    let until = Instant::now() + Duration::from_secs(10);
    let views = Arc::new(RwLock::new(vec![View { holder: None, until: Some(until), believed_until: None }]));
    let (_keep, changes) = watch::channel(0);
    let ownership = Ownership { views, changes };
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
    let ownership = Ownership { views: Arc::new(RwLock::new(vec![view])), changes };
    tokio::time::advance(Duration::from_millis(14_999)).await;
    assert_eq!(ownership.holder(0), Some(holder));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(ownership.holder(0), None);
}
