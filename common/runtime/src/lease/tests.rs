//! What an [`Ownership`] answers; the rules of the leases themselves are tested where they are.

use super::*;

/// Goal: the write margin is part of the answer.
#[tokio::test(start_paused = true)]
async fn writes_stop_two_seconds_before_the_lease_ends() {
    let until = Instant::now() + Duration::from_secs(10);
    let views = Arc::new(RwLock::new(vec![View { holder: None, until: Some(until) }]));
    let (_keep, changes) = watch::channel(0);
    let ownership = Ownership { views, changes };
    for (advance, owns, may_write) in [(0, true, true), (8, true, true), (1, true, false), (1, false, false)] {
        tokio::time::advance(Duration::from_secs(advance)).await;
        assert_eq!((ownership.owns(0), ownership.may_write(0)), (owns, may_write), "after {advance} s more");
    }
    assert!(!ownership.owns(7), "a bucket that does not exist is nobody's");
}
