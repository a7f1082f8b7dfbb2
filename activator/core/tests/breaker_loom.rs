//! The breaker under every interleaving of a few threads.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p activator-core --test breaker_loom --release
//! ```
//!
//! Each model ends with the same claims: nobody is left waiting beside a free place (a lost wake-up would hang, which
//! loom reports), and received = in flight + queued + refused + finished + abandoned.
//!
//! The second half has spares from the start; each of its threads says which shelf is its own.
#![cfg(loom)]

use activator_core::breaker::{Acquire, Breaker, Capacity, Load, Permit, Refusal, TurnedAway, set_lane};
use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

fn breaker(places: u32, queue_limit: u32) -> Arc<Breaker> {
    Arc::new(Breaker::new(Capacity::Limited(places), queue_limit))
}

fn acquire(breaker: &Arc<Breaker>) -> Result<Permit<Arc<Breaker>>, Refusal> {
    block_on(Acquire::new(Arc::clone(breaker)))
}

/// One poll, as a task does that is then dropped.
fn poll_once(acquire: &mut Acquire<Arc<Breaker>>) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    Future::poll(std::pin::Pin::new(acquire), &mut context).is_ready()
}

/// What another thread does: takes a place, waiting for it if need be, and gives it back.
fn takes_its_turn(breaker: &Arc<Breaker>) -> impl FnOnce() + use<> {
    let breaker = Arc::clone(breaker);
    move || drop(acquire(&breaker).expect("room in the queue"))
}

fn idle(breaker: &Breaker, capacity: u32) {
    let expected = Load { in_flight: 0, queued: 0, capacity: Capacity::Limited(capacity) };
    assert_eq!(breaker.load(), expected, "every place came back and nobody waits");
}

#[test]
fn two_requests_share_one_place() {
    loom::model(|| {
        let breaker = breaker(1, 1);
        let other = thread::spawn(takes_its_turn(&breaker));
        let permit = acquire(&breaker).expect("room in the queue");
        assert_eq!(breaker.load().in_flight, 1, "never two");
        drop(permit);
        other.join().expect("no panic");
        idle(&breaker, 1);
        assert_eq!(breaker.turned_away(), TurnedAway::default());
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

/// One holds the place, one waits and leaves at any moment, one stays: whatever was granted to the one that left goes
/// on.
#[test]
fn a_grant_to_one_who_leaves_is_passed_on() {
    loom::model(|| {
        let breaker = breaker(1, 2);
        let permit = acquire(&breaker).expect("a free place");
        let mut leaves = Acquire::new(Arc::clone(&breaker));
        assert!(!poll_once(&mut leaves));
        let stays = thread::spawn(takes_its_turn(&breaker));
        let gives_back = thread::spawn(move || drop(permit));
        drop(leaves);
        stays.join().expect("no panic");
        gives_back.join().expect("no panic");
        idle(&breaker, 1);
        assert_eq!(breaker.turned_away(), TurnedAway { refused: 0, abandoned: 1 });
    });
}

#[test]
fn a_returning_request_and_a_newcomer_both_get_their_turn() {
    loom::model(|| {
        let breaker = breaker(1, 2); // The one that returns stands in line too.
        let permit = acquire(&breaker).expect("a free place");
        let newcomer = thread::spawn(takes_its_turn(&breaker));
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
            move || breaker.refuse_waiting(Some(Refusal::Gone))
        });
        assert_eq!(acquire(&breaker).err(), Some(Refusal::Gone));
        refuses.join().expect("no panic");
        idle(&breaker, 0);
        assert_eq!(breaker.turned_away(), TurnedAway { refused: 1, abandoned: 0 });
    });
}

/// Who only tries never takes a place from one who waits, and never gets one too many.
#[test]
fn trying_beside_a_waiter_is_safe() {
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

// === spares ===

/// Places of which one lies on the main thread's shelf, which is 0.
fn with_spares(places: u32, queue_limit: u32) -> Arc<Breaker> {
    let breaker = Arc::new(Breaker::with_spares(Capacity::Limited(places), queue_limit, 2));
    drop(breaker.try_acquire().expect("a free place"));
    breaker
}

fn on<T: 'static>(lane: usize, run: impl FnOnce() -> T + 'static) -> thread::JoinHandle<T> {
    thread::spawn(move || {
        set_lane(lane);
        run()
    })
}

/// One takes and gives back by way of its shelf, while another finds no place in the word and is about to wait.
#[test]
fn a_spare_reaches_a_request_that_is_about_to_wait() {
    for lane in [0, 1] {
        loom::model(move || {
            let breaker = with_spares(1, 1);
            let other = on(lane, takes_its_turn(&breaker));
            if let Some(permit) = breaker.try_acquire() {
                assert_eq!(breaker.load().in_flight, 1, "never two");
                drop(permit);
            }
            other.join().expect("no panic");
            idle(&breaker, 1);
            assert_eq!(breaker.turned_away(), TurnedAway::default());
        });
    }
}

/// A place is put back where there is a shelf for it, and the one who needs it is about to wait on another thread.
#[test]
fn a_place_given_back_to_a_shelf_is_not_lost_to_a_waiter() {
    loom::model(|| {
        let breaker = with_spares(2, 1);
        let [one, other] = [(); 2].map(|()| acquire(&breaker).expect("a free place"));
        let waits = on(1, takes_its_turn(&breaker));
        drop(one);
        waits.join().expect("no panic");
        drop(other);
        idle(&breaker, 2);
    });
}

/// Whatever lies on the shelves, a smaller capacity holds from when it is set.
#[test]
fn a_smaller_capacity_takes_spares_too() {
    loom::model(|| {
        let breaker = with_spares(2, 1);
        let takes = on(0, {
            let breaker = Arc::clone(&breaker);
            move || {
                breaker.try_acquire().is_some_and(|permit| {
                    std::mem::forget(permit); // It runs on.
                    true
                })
            }
        });
        breaker.set_capacity(Capacity::Limited(1));
        let here = breaker.try_acquire();
        let there = takes.join().expect("no panic");
        assert!(here.is_some() != there, "one place, and it is found");
        assert_eq!(breaker.load().in_flight, 1);
    });
}

/// Three threads that try at once get what there is and no more, wherever it lies.
#[test]
fn all_places_are_found_and_no_more() {
    loom::model(|| {
        let breaker = with_spares(2, 1);
        let tries = [0, 1].map(|lane| {
            let breaker = Arc::clone(&breaker);
            on(lane, move || {
                let permit = breaker.try_acquire();
                let got = u32::from(permit.is_some());
                std::mem::forget(permit);
                got
            })
        });
        let got: u32 = tries.into_iter().map(|tries| tries.join().expect("no panic")).sum();
        assert_eq!(got, 2, "nobody is turned away from a free place");
        assert!(breaker.try_acquire().is_none());
        assert_eq!(breaker.load().in_flight, 2);
    });
}

/// What is counted is what runs at one instant, while places go to shelves and come from them.
#[test]
fn counting_beside_requests_that_come_and_go_is_exact() {
    loom::model(|| {
        let breaker = with_spares(4, 1);
        let _runs = acquire(&breaker).expect("a free place");
        let other = on(1, {
            let breaker = Arc::clone(&breaker);
            move || drop(breaker.try_acquire().expect("a free place"))
        });
        assert!((1..=2).contains(&breaker.load().in_flight));
        drop(breaker.try_acquire().expect("a free place"));
        other.join().expect("no panic");
        assert_eq!(breaker.load().in_flight, 1);
    });
}

#[test]
fn a_returning_request_gets_its_turn_beside_spares() {
    loom::model(|| {
        let breaker = with_spares(2, 2); // The one that returns stands in line too.
        let permit = acquire(&breaker).expect("a free place");
        let other = on(1, takes_its_turn(&breaker));
        drop(block_on(permit.requeue()).expect("waiting is allowed"));
        other.join().expect("no panic");
        idle(&breaker, 2);
    });
}
