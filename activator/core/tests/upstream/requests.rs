//! Rows about the breaker.

use activator_core::breaker::{Acquire, AdmissionError, Breaker, Capacity, Permit};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

type Waiting = Acquire<Arc<Breaker>>;

/// Creates a breaker from queue depth and permits, in the order of Knative's constructor.
fn breaker(depth: u32, permits: u32) -> Arc<Breaker> {
    Arc::new(Breaker::new(Capacity::Limited(permits), depth))
}

fn arrive(breaker: &Arc<Breaker>) -> Waiting {
    Acquire::new(breaker.clone())
}

fn poll(waiting: &mut Waiting) -> Poll<Result<Permit<Arc<Breaker>>, AdmissionError>> {
    Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop()))
}

fn admitted(waiting: &mut Waiting) -> Permit<Arc<Breaker>> {
    match poll(waiting) {
        Poll::Ready(Ok(permit)) => permit,
        other => panic!("not admitted: {other:?}"),
    }
}

/// Goal: limits are checked as in Knative. Parameters that make Knative's constructor abort cannot be expressed here:
/// counts are unsigned, a queue of length 0 makes a breaker that refuses at once, and there is no maximum besides the
/// capacity.
#[test]
fn limits_are_checked_as_upstream() {
    let breaker = breaker(0, 1);
    let _running = admitted(&mut arrive(&breaker));
    assert!(matches!(poll(&mut arrive(&breaker)), Poll::Ready(Err(AdmissionError::QueueFull { limit: 0 }))));
    assert_eq!(Capacity::Limited(u32::MAX).permits(), i32::MAX as u32, "a larger value is treated as the maximum");
}

#[test]
fn requests_run_wait_or_are_refused_as_upstream() {
    // 1,1,1: of three concurrent requests two proceed in turn, the third is refused.
    let one = breaker(1, 1);
    let (mut first, mut second, mut third) = (arrive(&one), arrive(&one), arrive(&one));
    let running = admitted(&mut first);
    assert!(poll(&mut second).is_pending());
    assert!(matches!(poll(&mut third), Poll::Ready(Err(AdmissionError::QueueFull { limit: 1 }))));
    drop(running);
    drop(admitted(&mut second));

    // 1,1,1: reserve, reserve; after a release once more. Also while another request runs.
    let reserved = one.try_acquire();
    assert!(reserved.is_some() && one.try_acquire().is_none());
    drop(reserved);
    let running = admitted(&mut arrive(&one));
    assert!(one.try_acquire().is_none());
    drop(running);
    assert!(one.try_acquire().is_some());

    // 1,1,0: two wait (Knative's queue counts the request that will run), then capacity 1: both finish.
    let closed = breaker(2, 0);
    let (mut first, mut second) = (arrive(&closed), arrive(&closed));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    closed.set_capacity(Capacity::Limited(1));
    drop(admitted(&mut first));
    drop(admitted(&mut second));

    // 1,1,0: cancelled twice; a later pair still works.
    closed.set_capacity(Capacity::CLOSED);
    for _ in 0..2 {
        let mut pair = (arrive(&closed), arrive(&closed));
        assert!(poll(&mut pair.0).is_pending() && poll(&mut pair.1).is_pending());
    }
    assert_eq!(closed.load().queued, 0);
}

#[test]
fn a_new_capacity_applies_at_once() {
    // (1, 0): try_acquire fails; two requests wait until capacity 1, then exactly one passes.
    let semaphore = breaker(10, 0);
    assert!(semaphore.try_acquire().is_none());
    let (mut first, mut second) = (arrive(&semaphore), arrive(&semaphore));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    semaphore.set_capacity(Capacity::Limited(1));
    let _passed = admitted(&mut first);
    assert!(poll(&mut second).is_pending());

    // (3, 1): capacity reads 3 after it is set; a taken permit stays taken.
    let semaphore = breaker(10, 1);
    let taken = admitted(&mut arrive(&semaphore));
    semaphore.set_capacity(Capacity::Limited(3));
    assert_eq!(semaphore.load().capacity, Capacity::Limited(3));

    // (1, 1): a permit is a value, so it cannot be released twice.
    drop(taken);
    assert_eq!(semaphore.load().in_flight, 0);
}

/// Goal: without a limit, requests wait while the breaker is closed until the caller gives up. All run while it is
/// open, and opening it releases waiting ones.
#[test]
fn without_a_limit_all_requests_run_or_wait() {
    let infinite = Arc::new(Breaker::new(Capacity::CLOSED, 10));
    let mut impatient = arrive(&infinite);
    assert!(poll(&mut impatient).is_pending());
    drop(impatient);
    assert_eq!(infinite.not_admitted().abandoned, 1);
    let mut waiting = arrive(&infinite);
    assert!(poll(&mut waiting).is_pending());
    infinite.set_capacity(Capacity::Unlimited);
    drop(admitted(&mut waiting));
    drop(admitted(&mut arrive(&infinite)));
    // pack(256, 513): both counts are stored independently.
    let counts = breaker(10, 513);
    let _running: Vec<_> = (0..256).map(|_| admitted(&mut arrive(&counts))).collect();
    assert_eq!((counts.load().in_flight, counts.load().capacity), (256, Capacity::Limited(513)));
}
