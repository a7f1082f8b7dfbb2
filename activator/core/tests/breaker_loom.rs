//! Tests of the breaker under every interleaving of a few threads.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p activator-core --test breaker_loom --release
//! ```
//!
//! Each model ends with the same checks: no request waits beside a free permit (a lost wake-up would hang, which loom
//! reports), and received = in flight + queued + refused + finished + abandoned.
#![cfg(loom)]

use activator_core::breaker::{Acquire, AdmissionError, Breaker, Capacity, Load, NotAdmitted, Permit};
use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

fn breaker(permits: u32, queue_limit: u32) -> Arc<Breaker> {
    Arc::new(Breaker::new(Capacity::Limited(permits), queue_limit))
}

fn acquire(breaker: &Arc<Breaker>) -> Result<Permit<Arc<Breaker>>, AdmissionError> {
    block_on(Acquire::new(Arc::clone(breaker)))
}

/// Polls once, like a task that is dropped afterwards.
fn poll_once(acquire: &mut Acquire<Arc<Breaker>>) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    Future::poll(std::pin::Pin::new(acquire), &mut context).is_ready()
}

/// Returns the work of another thread: it waits for a permit and releases it.
fn acquire_and_release(breaker: &Arc<Breaker>) -> impl FnOnce() + use<> {
    let breaker = Arc::clone(breaker);
    move || drop(acquire(&breaker).expect("room in the queue"))
}

fn idle(breaker: &Breaker, capacity: u32) {
    let expected = Load { in_flight: 0, queued: 0, capacity: Capacity::Limited(capacity) };
    assert_eq!(breaker.load(), expected, "every permit was released and no request waits");
}

#[test]
fn two_requests_share_one_permit() {
    loom::model(|| {
        let breaker = breaker(1, 1);
        let other = thread::spawn(acquire_and_release(&breaker));
        let permit = acquire(&breaker).expect("room in the queue");
        assert_eq!(breaker.load().in_flight, 1, "never two");
        drop(permit);
        other.join().expect("no panic");
        idle(&breaker, 1);
        assert_eq!(breaker.not_admitted(), NotAdmitted::default());
    });
}

#[test]
fn capacity_raised_while_a_request_queues_reaches_it() {
    loom::model(|| {
        let breaker = breaker(0, 1);
        let raise = thread::spawn({
            let breaker = Arc::clone(&breaker);
            move || breaker.set_capacity(Capacity::Limited(1))
        });
        drop(acquire(&breaker).expect("room in the queue"));
        raise.join().expect("no panic");
        idle(&breaker, 1);
    });
}

/// Goal: a permit granted to a request that is cancelled at any moment goes to the next one. Method: one request holds
/// the permit, one waits and is cancelled, one stays.
#[test]
fn a_permit_granted_to_a_cancelled_request_is_passed_on() {
    loom::model(|| {
        let breaker = breaker(1, 2);
        let permit = acquire(&breaker).expect("a free permit");
        let mut cancelled = Acquire::new(Arc::clone(&breaker));
        assert!(!poll_once(&mut cancelled));
        let stays = thread::spawn(acquire_and_release(&breaker));
        let releases = thread::spawn(move || drop(permit));
        drop(cancelled);
        stays.join().expect("no panic");
        releases.join().expect("no panic");
        idle(&breaker, 1);
        assert_eq!(breaker.not_admitted(), NotAdmitted { refused: 0, abandoned: 1 });
    });
}

#[test]
fn a_returning_request_and_a_newcomer_both_get_their_turn() {
    loom::model(|| {
        let breaker = breaker(1, 2); // The returning request counts to the queue too.
        let permit = acquire(&breaker).expect("a free permit");
        let newcomer = thread::spawn(acquire_and_release(&breaker));
        drop(block_on(permit.requeue()).expect("waiting is allowed"));
        newcomer.join().expect("no panic");
        idle(&breaker, 1);
    });
}

#[test]
fn a_refusal_reaches_a_request_that_is_about_to_wait() {
    loom::model(|| {
        let breaker = breaker(0, 1);
        let refuses = thread::spawn({
            let breaker = Arc::clone(&breaker);
            move || breaker.refuse_waiting(Some(AdmissionError::Gone))
        });
        assert_eq!(acquire(&breaker).err(), Some(AdmissionError::Gone));
        refuses.join().expect("no panic");
        idle(&breaker, 0);
        assert_eq!(breaker.not_admitted(), NotAdmitted { refused: 1, abandoned: 0 });
    });
}

/// Goal: a request that only tries never takes a permit from a waiter, and never gets one too many.
#[test]
fn try_acquire_takes_no_permit_from_a_waiter() {
    loom::model(|| {
        let breaker = breaker(1, 1);
        let tries = thread::spawn({
            let breaker = Arc::clone(&breaker);
            move || drop(breaker.try_acquire())
        });
        drop(acquire(&breaker).expect("room in the queue"));
        tries.join().expect("no panic");
        idle(&breaker, 1);
    });
}
