//! Tests of the breaker: a table of cases, and a model that is compared after every operation.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use proptest::prelude::*;

use super::*;
use crate::testing::{Task, now};

type Waiting = Task<Acquire<Arc<Breaker>>>;

fn breaker(places: u32, queue_limit: u32) -> Arc<Breaker> {
    Arc::new(Breaker::new(Capacity::Limited(places), queue_limit))
}

fn arrive(breaker: &Arc<Breaker>) -> Waiting {
    Task::new(Acquire::new(Arc::clone(breaker)))
}

fn load(breaker: &Breaker) -> (u32, u32) {
    let load = breaker.load();
    (load.in_flight, load.queued)
}

#[test]
fn the_third_of_three_is_refused_with_one_place_and_one_in_the_queue() {
    let breaker = breaker(1, 1);
    let first = now(breaker.acquire()).expect("a free place");
    let mut second = arrive(&breaker).waiting();
    let refusal = now(breaker.acquire()).expect_err("the queue is full");
    assert_eq!(refusal, AdmissionError::QueueFull { limit: 1 });
    drop(first);
    drop(second.woken().expect("its turn"));
    assert_eq!(load(&breaker), (0, 0));
    assert_eq!(breaker.turned_away(), TurnedAway { refused: 1, abandoned: 0 });
}

#[test]
fn trying_never_queues() {
    let breaker = breaker(1, 1);
    let first = breaker.try_acquire().expect("a free place");
    assert!(breaker.try_acquire().is_none());
    drop(first);
    drop(breaker.try_acquire().expect("given back"));
    assert_eq!(breaker.turned_away(), TurnedAway::default(), "who only tries was not received");
}

#[test]
fn waiters_run_as_capacity_comes() {
    let breaker = breaker(0, 2);
    let (mut first, mut second) = (arrive(&breaker).waiting(), arrive(&breaker).waiting());
    breaker.set_capacity(Capacity::Limited(1));
    let place = first.woken().expect("first come");
    assert!(!second.is_woken());
    drop(place);
    drop(second.woken().expect("then the second"));
    assert_eq!(load(&breaker), (0, 0));
}

#[test]
fn cancelled_waiters_leave_room_for_later_ones() {
    let breaker = breaker(0, 2);
    for _ in 0..2 {
        let both = (arrive(&breaker).waiting(), arrive(&breaker).waiting());
        assert_eq!(load(&breaker), (0, 2));
        drop(both);
        assert_eq!(load(&breaker), (0, 0));
    }
    assert_eq!(breaker.turned_away(), TurnedAway { refused: 0, abandoned: 4 });
}

#[test]
fn a_place_granted_to_one_who_left_goes_to_the_next() {
    let breaker = breaker(1, 3);
    let place = now(breaker.acquire()).expect("a free place");
    let (gone, mut next) = (arrive(&breaker).waiting(), arrive(&breaker).waiting());
    drop(place);
    assert!(gone.is_woken() && !next.is_woken());
    assert_eq!(load(&breaker), (1, 1), "granted is in flight");
    drop(gone);
    let place = next.woken().expect("passed on");
    assert_eq!(load(&breaker), (1, 0));
    drop(place);
    assert_eq!(breaker.turned_away(), TurnedAway { refused: 0, abandoned: 1 });
}

#[test]
fn newcomers_do_not_overtake() {
    let breaker = breaker(1, 3);
    let place = now(breaker.acquire()).expect("a free place");
    let mut first = arrive(&breaker).waiting();
    let mut second = arrive(&breaker).waiting();
    drop(place);
    // The permit belongs to the first waiter, although its task has not run yet.
    assert!(breaker.try_acquire().is_none());
    let mut newcomer = arrive(&breaker).waiting();
    drop(first.woken().expect("first"));
    drop(second.woken().expect("second"));
    drop(newcomer.woken().expect("last"));
    drop(breaker.try_acquire().expect("the fast path is open again"));
}

#[test]
fn a_returned_request_comes_before_all_that_never_ran() {
    let breaker = breaker(2, 1);
    let [one, two] = [now(Acquire::new(Arc::clone(&breaker))), now(Acquire::new(Arc::clone(&breaker)))]
        .map(|place| place.expect("a free place"));
    let mut arrived = arrive(&breaker).waiting();
    breaker.set_capacity(Capacity::CLOSED);
    // They exceed the queue's limit, since they were admitted before.
    let mut one = Task::new(one.requeue()).waiting();
    let mut two = Task::new(two.requeue()).waiting();
    assert_eq!(load(&breaker), (0, 3));
    breaker.set_capacity(Capacity::Limited(1));
    let place = one.woken().expect("first to return");
    assert!(!two.is_woken() && !arrived.is_woken());
    drop(place);
    drop(two.woken().expect("second to return"));
    drop(arrived.woken().expect("then who never ran"));
}

/// Goal: a loop around pick and requeue lets other tasks run, even if the permit is granted again at once.
#[test]
fn a_returned_request_waits_for_one_turn_of_its_task() {
    let breaker = breaker(1, 1);
    let place = now(Acquire::new(Arc::clone(&breaker))).expect("a free place");
    let mut returned = Task::new(place.requeue()).waiting();
    drop(returned.woken().expect("granted at once"));
    assert_eq!(load(&breaker), (0, 0));
}

#[test]
fn a_returning_request_that_is_dropped_unpolled_gives_its_place_back() {
    let breaker = breaker(1, 1);
    let place = now(Acquire::new(Arc::clone(&breaker))).expect("a free place");
    let mut waiter = arrive(&breaker).waiting();
    drop(place.requeue());
    drop(waiter.woken().expect("the place that was given back"));
}

#[test]
fn unlimited_admits_all_until_closed() {
    let breaker = breaker(0, 10);
    let mut held: Vec<Waiting> = (0..10).map(|_| arrive(&breaker).waiting()).collect();
    breaker.set_capacity(Capacity::Unlimited);
    let places: Vec<_> = held.iter_mut().map(|waiter| waiter.woken().expect("open")).collect();
    let one_more = now(breaker.acquire()).expect("open");
    assert_eq!(breaker.load(), Load { in_flight: 11, queued: 0, capacity: Capacity::Unlimited });
    breaker.set_capacity(Capacity::CLOSED);
    let _waits = arrive(&breaker).waiting();
    drop((places, one_more));
    assert_eq!(load(&breaker), (0, 1), "closed stays closed, whoever gives back");
}

#[test]
fn shrinking_interrupts_nobody() {
    let breaker = breaker(3, 3);
    let places: Vec<_> = (0..3).map(|_| breaker.try_acquire().expect("a free place")).collect();
    breaker.set_capacity(Capacity::Limited(1));
    let mut waiter = arrive(&breaker).waiting();
    let mut places = places.into_iter();
    drop((places.next(), places.next()));
    assert!(!waiter.is_woken(), "one still runs, and one may");
    drop(places.next());
    drop(waiter.woken().expect("room at last"));
}

#[test]
fn a_large_release_wakes_everyone_in_batches() {
    let breaker = breaker(0, 1000);
    let mut held: Vec<Waiting> = (0..1000).map(|_| arrive(&breaker).waiting()).collect();
    breaker.set_capacity(Capacity::Limited(999));
    let woken = held.iter().filter(|waiter| waiter.is_woken()).count();
    assert_eq!((woken, load(&breaker)), (999, (999, 1)));
    assert!(!held[999].is_woken(), "the last to come is the one left");
    held.iter_mut().take(1).for_each(|waiter| drop(waiter.woken()));
    assert!(held[999].is_woken());
}

#[test]
fn refusing_to_wait_refuses_those_who_wait_and_those_who_come() {
    let breaker = breaker(1, 10);
    let place = now(Acquire::new(Arc::clone(&breaker))).expect("a free place");
    let mut waiter = arrive(&breaker).waiting();
    let failing = AdmissionError::Failing { reason: "container exits with 1".into() };
    breaker.refuse_waiting(Some(failing.clone()));
    assert_eq!(waiter.woken().expect_err("refused"), failing);
    assert_eq!(now(breaker.acquire()).expect_err("refused"), failing);
    assert_eq!(now(place.requeue()).expect_err("refused"), failing);
    assert_eq!(load(&breaker), (0, 0));
    drop(now(breaker.acquire()).expect("who need not wait is served"));
    breaker.refuse_waiting(None);
    let place = now(breaker.acquire()).expect("a free place");
    let _waits = arrive(&breaker).waiting();
    drop(place);
    assert_eq!(breaker.turned_away(), TurnedAway { refused: 3, abandoned: 0 });
}

#[test]
fn a_changed_queue_limit_applies_to_newcomers() {
    let breaker = breaker(0, 2);
    let _waiting = [arrive(&breaker).waiting(), arrive(&breaker).waiting()];
    breaker.set_queue_limit(1);
    assert_eq!(now(breaker.acquire()).expect_err("over the new limit"), AdmissionError::QueueFull { limit: 1 });
    assert_eq!(load(&breaker), (0, 2), "who waits stays");
    breaker.set_queue_limit(3);
    let _third = arrive(&breaker).waiting();
}

/// Goal: a future of the breaker is only a key and a handle. The cost of a held request beside its socket is
/// negligible.
#[test]
fn a_wait_is_small() {
    assert!(size_of::<Acquire<Arc<Breaker>>>() <= 32, "{} bytes", size_of::<Acquire<Arc<Breaker>>>());
}

// === every sequence of operations ===

#[derive(Clone, Debug)]
enum Op {
    Arrive,
    Try,
    /// Polls the nth waiter, woken or not.
    Poll(usize),
    Abandon(usize),
    Finish(usize),
    Requeue(usize),
    Capacity(Option<u32>),
    Limit(u32),
    Refuse(bool),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => Just(Op::Arrive),
        1 => Just(Op::Try),
        4 => (0usize..8).prop_map(Op::Poll),
        2 => (0usize..8).prop_map(Op::Abandon),
        4 => (0usize..8).prop_map(Op::Finish),
        2 => (0usize..8).prop_map(Op::Requeue),
        2 => prop::option::weighted(0.9, 0u32..4).prop_map(Op::Capacity),
        1 => (0u32..6).prop_map(Op::Limit),
        1 => any::<bool>().prop_map(Op::Refuse),
    ]
}

/// The rule in its simplest form: two lists, a count and a capacity.
#[derive(Default)]
struct Model {
    places: u32,
    running: u32,
    limit: u32,
    refusing: bool,
    returned: VecDeque<usize>,
    arrived: VecDeque<usize>,
    /// Outcomes that no future has read yet: granted or refused.
    outcomes: std::collections::BTreeMap<usize, bool>,
    received: u64,
    refused: u64,
    finished: u64,
    abandoned: u64,
}

impl Model {
    fn queued(&self) -> usize {
        self.returned.len() + self.arrived.len()
    }

    fn grant(&mut self) {
        while self.running < self.places {
            let Some(first) = self.returned.pop_front().or_else(|| self.arrived.pop_front()) else { return };
            self.outcomes.insert(first, true);
            self.running += 1;
        }
    }

    fn leave(&mut self, id: usize) {
        self.returned.retain(|other| *other != id);
        self.arrived.retain(|other| *other != id);
    }
}

/// The breaker and its model, side by side.
struct Bench {
    breaker: Arc<Breaker>,
    model: Model,
    waiting: Vec<(usize, Waiting)>,
    running: Vec<Permit<Arc<Breaker>>>,
    next: usize,
}

impl Bench {
    fn new() -> Self {
        let model = Model { places: 1, limit: 3, ..Model::default() };
        Self { breaker: breaker(1, 3), model, waiting: Vec::new(), running: Vec::new(), next: 0 }
    }

    /// Polls a new request whose outcome the model has already decided: `Some(true)` runs, `Some(false)` is refused,
    /// `None` waits.
    fn first_poll(&mut self, mut task: Waiting, expected: Option<bool>) {
        match (task.poll(), expected) {
            (Poll::Ready(Ok(permit)), Some(true)) => self.running.push(permit),
            (Poll::Ready(Err(_)), Some(false)) => {}
            (Poll::Pending, None) => self.waiting.push((self.next, task)),
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
    }

    fn apply(&mut self, op: Op) {
        let model = &mut self.model;
        match op {
            Op::Arrive => {
                model.received += 1;
                let expected = if model.running < model.places && model.queued() == 0 {
                    model.running += 1;
                    Some(true)
                } else if model.refusing || model.queued() >= model.limit as usize {
                    model.refused += 1;
                    Some(false)
                } else {
                    model.arrived.push_back(self.next);
                    None
                };
                let task = arrive(&self.breaker);
                self.first_poll(task, expected);
                self.next += 1;
            }
            Op::Try => {
                let free = model.running < model.places && model.queued() == 0;
                let permit = self.breaker.try_acquire();
                assert_eq!(permit.is_some(), free);
            }
            Op::Poll(n) => {
                let Some(n) = n.checked_rem(self.waiting.len()) else { return };
                let (id, task) = &mut self.waiting[n];
                match (task.poll(), self.model.outcomes.remove(id)) {
                    (Poll::Pending, None) => return,
                    (Poll::Ready(Ok(permit)), Some(true)) => self.running.push(permit),
                    (Poll::Ready(Err(_)), Some(false)) => {}
                    (got, expected) => panic!("{got:?} instead of {expected:?}"),
                }
                self.waiting.remove(n);
            }
            Op::Abandon(n) => {
                let Some(n) = n.checked_rem(self.waiting.len()) else { return };
                let (id, task) = self.waiting.remove(n);
                drop(task);
                match self.model.outcomes.remove(&id) {
                    Some(true) => {
                        self.model.abandoned += 1;
                        self.model.running -= 1;
                        self.model.grant();
                    }
                    Some(false) => {} // Already counted as refused.
                    None => {
                        self.model.abandoned += 1;
                        self.model.leave(id);
                    }
                }
            }
            Op::Finish(n) => {
                let Some(n) = n.checked_rem(self.running.len()) else { return };
                drop(self.running.swap_remove(n));
                self.model.finished += 1;
                self.model.running -= 1;
                self.model.grant();
            }
            Op::Requeue(n) => {
                let Some(n) = n.checked_rem(self.running.len()) else { return };
                let task = Task::new(self.running.swap_remove(n).requeue());
                let model = &mut self.model;
                model.running -= 1;
                let expected = if model.refusing {
                    model.refused += 1;
                    Some(false)
                } else {
                    model.returned.push_back(self.next);
                    None
                };
                model.grant();
                self.first_poll(task, expected);
                self.next += 1;
            }
            Op::Capacity(places) => {
                model.places = places.unwrap_or(Capacity::MAX);
                model.grant();
                self.breaker.set_capacity(places.map_or(Capacity::Unlimited, Capacity::Limited));
            }
            Op::Limit(limit) => {
                model.limit = limit;
                self.breaker.set_queue_limit(limit);
            }
            Op::Refuse(refusing) => {
                model.refusing = refusing;
                if refusing {
                    for id in model.returned.drain(..).chain(model.arrived.drain(..)) {
                        model.outcomes.insert(id, false);
                        model.refused += 1;
                    }
                }
                self.breaker.refuse_waiting(refusing.then_some(AdmissionError::Gone));
            }
        }
    }

    fn check(&self) {
        let (load, away) = (self.breaker.load(), self.breaker.turned_away());
        let model = &self.model;
        assert_eq!((load.in_flight, load.queued as usize), (model.running, model.queued()));
        assert_eq!((away.refused, away.abandoned), (model.refused, model.abandoned));
        let sum = u64::from(load.in_flight) + u64::from(load.queued) + away.refused + model.finished + away.abandoned;
        assert_eq!(model.received, sum, "received = in flight + queued + refused + finished + abandoned");
        assert!(load.queued == 0 || load.in_flight >= load.capacity.places(), "somebody waits beside a free place");
        for (id, task) in &self.waiting {
            assert!(task.is_woken() || !model.outcomes.contains_key(id), "request {id} was not woken");
        }
    }
}

proptest! {
    /// Goal: the breaker does what the model does, wakes the requests that the model serves, and keeps the invariant of
    /// its counts.
    #[test]
    fn every_sequence_of_operations_agrees_with_the_model(ops in prop::collection::vec(any_op(), 1..120)) {
        let mut bench = Bench::new();
        for op in ops {
            bench.apply(op);
            bench.check();
        }
        // Nothing is left behind.
        bench.waiting.clear();
        bench.running.clear();
        prop_assert_eq!(load(&bench.breaker), (0, 0));
    }
}
