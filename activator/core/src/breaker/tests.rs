//! Tests of the breaker: a table of cases, and a model that is compared after every operation.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use proptest::prelude::*;

use super::*;
use crate::testing::{Task, now};

type Waiting = Task<Acquire<Arc<Breaker>>>;

fn breaker(permits: u32, queue_limit: u32) -> Arc<Breaker> {
    Arc::new(Breaker::new(Capacity::Limited(permits), queue_limit))
}

fn arrive(breaker: &Arc<Breaker>) -> Waiting {
    Task::new(Acquire::new(Arc::clone(breaker)))
}

fn load(breaker: &Breaker) -> (u32, u32) {
    let load = breaker.load();
    (load.in_flight, load.queued)
}

#[test]
fn a_requeued_request_that_is_dropped_unpolled_releases_its_permit() {
    let breaker = breaker(1, 1);
    let permit = now(Acquire::new(Arc::clone(&breaker))).expect("a free permit");
    let mut waiter = arrive(&breaker).waiting();
    drop(permit.requeue());
    drop(waiter.woken().expect("the released permit"));
}

#[test]
fn a_large_increase_of_capacity_wakes_all_waiters() {
    let breaker = breaker(0, 1000);
    let mut held: Vec<Waiting> = (0..1000).map(|_| arrive(&breaker).waiting()).collect();
    breaker.set_capacity(Capacity::Limited(999));
    let woken = held.iter().filter(|waiter| waiter.is_woken()).count();
    assert_eq!((woken, load(&breaker)), (999, (999, 1)));
    assert!(!held[999].is_woken(), "the last arrival still waits");
    held.iter_mut().take(1).for_each(|waiter| drop(waiter.woken()));
    assert!(held[999].is_woken());
}

/// Goal: a future of the breaker is only a key and a handle. The cost of a held request beside its socket is
/// negligible.
#[test]
fn the_future_of_a_waiting_request_is_small() {
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

/// Model of the rule: two lists, a count and a capacity.
#[derive(Default)]
struct Model {
    permits: u32,
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
        while self.running < self.permits {
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
        let model = Model { permits: 1, limit: 3, ..Model::default() };
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
                let expected = if model.running < model.permits && model.queued() == 0 {
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
                let free = model.running < model.permits && model.queued() == 0;
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
            Op::Capacity(permits) => {
                model.permits = permits.unwrap_or(Capacity::MAX);
                model.grant();
                self.breaker.set_capacity(permits.map_or(Capacity::Unlimited, Capacity::Limited));
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
        let (load, NotAdmitted { refused, abandoned }) = (self.breaker.load(), self.breaker.not_admitted());
        let model = &self.model;
        assert_eq!((load.in_flight, load.queued as usize), (model.running, model.queued()));
        assert_eq!((refused, abandoned), (model.refused, model.abandoned));
        let sum = u64::from(load.in_flight) + u64::from(load.queued) + refused + model.finished + abandoned;
        assert_eq!(model.received, sum, "received = in flight + queued + refused + finished + abandoned");
        assert!(load.queued == 0 || load.in_flight >= load.capacity.permits(), "a request waits beside a free permit");
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
