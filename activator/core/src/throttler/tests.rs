//! Tests of capacity, slots and swaps from the view of a request.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::*;
use crate::testing::{Task, now};

fn at(n: u8) -> Destination {
    std::net::SocketAddr::from(([10, 0, 0, n], 8012)).into()
}

fn pods(ns: impl IntoIterator<Item = u8>) -> Destinations {
    Destinations::Pods(ns.into_iter().map(at).collect())
}

fn throttler(container_concurrency: u32, ns: impl IntoIterator<Item = u8>) -> Arc<Throttler> {
    let throttler = Throttler::new(container_concurrency, 100);
    throttler.update(pods(ns));
    throttler
}

fn rng() -> SmallRng {
    SmallRng::seed_from_u64(7)
}

fn pick(admitted: Admitted) -> Permit {
    admitted.pick(&mut rng()).expect("a permit implies a pod")
}

/// Starts a request that runs at once, and returns its permit.
fn run(throttler: &Arc<Throttler>) -> Permit {
    pick(now(throttler.acquire()).expect("room"))
}

fn wait(throttler: &Arc<Throttler>) -> Task<Acquire> {
    Task::new(throttler.acquire()).waiting()
}

fn capacity_of(throttler: &Arc<Throttler>) -> Capacity {
    throttler.load().capacity
}

/// Goal: a request without a limit that was admitted just before its pods were removed waits for the next pod at the
/// head of the queue. Knative panics in this case.
#[test]
fn a_request_admitted_just_before_its_pods_were_removed_waits_at_the_head() {
    for container_concurrency in [0, 1, 7] {
        let throttler = throttler(container_concurrency, [1]);
        let admitted = now(throttler.acquire()).expect("room");
        throttler.update(Destinations::NONE);
        let mut later = wait(&throttler);
        let admitted = admitted.pick(&mut rng()).expect_err("no pod");
        let mut back = Task::new(admitted.requeue()).waiting();
        throttler.set_concurrency(1);
        throttler.update(pods([2]));
        assert!(!later.is_woken(), "it arrived later");
        let permit = pick(back.woken().expect("room"));
        assert_eq!(permit.destination(), &at(2));
        drop(permit);
        drop(later.woken().expect("its turn"));
    }
}

/// Goal: pods are picked by Knative's policies. Rows: (container concurrency, pods) -> pod of each concurrent request.
#[test]
fn pods_are_picked_by_upstreams_policies() {
    let rows: [(u32, u8, &[u8]); 4] =
        [(1, 1, &[1]), (1, 2, &[1, 2]), (3, 5, &[1, 1, 1]), (5, 3, &[1, 2, 3, 1, 2, 3, 1, 2])];
    for (concurrency, count, expected) in rows {
        let throttler = throttler(concurrency, 1..=count);
        let permits: Vec<Permit> = expected.iter().map(|_| run(&throttler)).collect();
        let picked = permits.iter().map(|permit| permit.destination().clone());
        assert!(picked.eq(expected.iter().map(|n| at(*n))), "{concurrency} on {count}");
    }
}

/// Goal: a long request on a removed pod does not block the pod's successor, and its permit goes when it ends.
#[test]
fn a_request_on_a_retired_pod_takes_nothing_from_its_successor() {
    let throttler = throttler(1, [1]);
    let old = run(&throttler);
    throttler.update(pods([2]));
    let new = run(&throttler);
    assert_eq!(new.destination(), &at(2));
    let mut waits = wait(&throttler);
    drop(old);
    assert!(!waits.is_woken(), "the ended request ran on the former pod");
    assert_eq!(capacity_of(&throttler), Capacity::Limited(1));
    drop(new);
    drop(waits.woken().expect("its turn"));
}

#[test]
fn a_failed_pod_is_removed_at_once_and_its_requests_move() {
    let throttler = throttler(1, [1, 2]);
    let permit = run(&throttler);
    assert_eq!(permit.destination(), &at(1));
    assert!(throttler.mark_failed(&at(1)));
    assert!(!throttler.mark_failed(&at(1)), "already marked");
    let permit = pick(permit.give_up_pod());
    assert_eq!(permit.destination(), &at(2));
    let mut waits = wait(&throttler);
    // An update made before the failure was known does not bring the pod back; a successful probe does.
    throttler.update(pods([1, 2]));
    assert!(!waits.is_woken());
    assert!(throttler.restore(&at(1)));
    assert_eq!(pick(waits.woken().expect("room")).destination(), &at(1));
    // A pod that was unlisted is no longer failed when it returns.
    throttler.mark_failed(&at(1));
    throttler.update(pods([2]));
    throttler.update(pods([1, 2]));
    assert_eq!(capacity_of(&throttler), Capacity::Limited(2));
    // An unlisted pod cannot fail: a pod listed later at that address may be another one.
    assert!(!throttler.mark_failed(&at(9)));
    throttler.update(pods([1, 2, 9]));
    assert_eq!(capacity_of(&throttler), Capacity::Limited(3));
}

/// Goal: a request that prefers another pod moves to a free slot there and releases its own, or stays if there is none.
#[test]
fn a_request_moves_to_a_free_slot_of_another_pod_or_stays() {
    for container_concurrency in [1, 5] {
        let throttler = throttler(container_concurrency, [1, 2]);
        let mut permits: Vec<Permit> = (0..2 * container_concurrency).map(|_| run(&throttler)).collect();
        let moving = permits.pop().expect("at least two");
        let from = moving.destination().clone();
        let moving = moving.prefer_another(&mut rng());
        assert_eq!(moving.destination(), &from, "the other is full");
        let other = permits.iter().position(|permit| *permit.destination() != from).expect("half of them");
        drop(permits.remove(other));
        let moving = moving.prefer_another(&mut rng());
        assert_ne!(moving.destination(), &from, "the other has a slot");
        let next = run(&throttler);
        assert_eq!(next.destination(), &from, "the slot that it left");
        let _full = wait(&throttler);
        drop((moving, next));
    }
    let throttler = throttler(0, [1]);
    let only = run(&throttler).prefer_another(&mut rng());
    assert_eq!(only.destination(), &at(1));
    throttler.update(pods([1, 2]));
    let moved = only.prefer_another(&mut rng());
    assert_eq!(moved.destination(), &at(2));
    throttler.update(pods([1]));
    assert_eq!(throttler.load().in_flight, 1);
    let back = moved.prefer_another(&mut rng());
    assert_eq!((back.destination(), throttler.pods().len()), (&at(1), 1), "nothing runs on the retired one");
}

/// Goal: a request that only some pods suit moves to one of them even if others have room, or stays.
#[test]
fn a_request_moves_to_a_pod_that_suits_or_stays() {
    for container_concurrency in [0, 1, 5] {
        let throttler = throttler(container_concurrency, [1, 2, 3]);
        let is_third = |pod: &Destination| *pod == at(3);
        let moved = run(&throttler).prefer_another_that(is_third, &mut rng());
        assert_eq!(moved.destination(), &at(3));
        let from = moved.destination().clone();
        let moved = moved.prefer_another_that(|_| false, &mut rng());
        assert_eq!(moved.destination(), &from, "none suits");
        let other = run(&throttler);
        let from = other.destination().clone();
        let other = other.prefer_another_that(is_third, &mut rng());
        let expected = if container_concurrency == 1 { from } else { at(3) };
        assert_eq!(other.destination(), &expected, "with a limit of 1 it is full");
    }
}

#[test]
fn a_changed_queue_limit_applies_to_new_requests() {
    let throttler = throttler(1, []);
    let _waits = wait(&throttler);
    throttler.set_max_held(1);
    assert_eq!(now(throttler.acquire()).expect_err("one waits"), AdmissionError::QueueFull { limit: 1 });
    throttler.set_max_held(2);
    let _waits_too = wait(&throttler);
}

/// Goal: pods are listed while they may be picked or run a request, and pods without references are forgotten.
#[test]
fn a_pod_is_listed_while_it_is_used_and_then_forgotten() {
    let throttler = throttler(1, [1]);
    let listed = |throttler: &Arc<Throttler>| {
        let pods = throttler.pods();
        pods.iter().map(|pod| (pod.destination.clone(), pod.in_flight, pod.usable)).collect::<Vec<_>>()
    };
    let long = run(&throttler);
    throttler.update(pods([2]));
    assert_eq!(listed(&throttler), [(at(1), 1, false), (at(2), 0, true)]);
    throttler.update(pods([3]));
    assert_eq!(listed(&throttler), [(at(1), 1, false), (at(3), 0, true)], "2 was idle");
    drop(long);
    assert_eq!(listed(&throttler), [(at(3), 0, true)]);
    throttler.update(pods([3, 4]));
    let known = throttler.state.lock().known.keys().cloned().collect::<Vec<_>>();
    assert_eq!(known, [at(3), at(4)]);
}

#[test]
fn activators_divide_the_pods() {
    let throttler = throttler(1, [1, 2, 3]);
    assert_eq!(capacity_of(&throttler), Capacity::Limited(3), "index unknown: all");
    throttler.set_activators(Activators::Known { index: 1, count: 2 });
    let only = run(&throttler);
    assert_eq!(only.destination(), &at(2));
    let mut second = wait(&throttler);
    throttler.set_activators(Activators::Known { index: 0, count: 1 });
    drop(second.woken().expect("alone, so all pods"));
    throttler.set_activators(Activators::Known { index: 1, count: 2 });
    throttler.set_concurrency(0);
    let usable = throttler.pods().iter().filter(|pod| pod.usable).count();
    assert_eq!(usable, 3, "without a limit every activator uses all pods");
}

#[test]
fn behind_a_cluster_ip_the_ready_pods_are_the_capacity() {
    let throttler = throttler(3, []);
    let cluster_ip = |ready| Destinations::ClusterIp { destination: "10.1.0.1:80".parse().expect("address"), ready };
    throttler.update(cluster_ip(7));
    throttler.set_activators(Activators::Known { index: 0, count: 2 });
    assert_eq!(capacity_of(&throttler), Capacity::Limited(10));
    let permit = run(&throttler);
    assert_eq!(permit.destination().as_str(), "10.1.0.1:80");
    assert!(!throttler.mark_failed(permit.destination()), "there is no alternative");
    throttler.update(cluster_ip(0));
    assert_eq!(capacity_of(&throttler), Capacity::CLOSED);
    throttler.set_concurrency(0);
    throttler.update(cluster_ip(1));
    assert_eq!(capacity_of(&throttler), Capacity::Unlimited);
}

// === every sequence of operations ===

#[derive(Clone, Debug)]
enum Op {
    Arrive,
    Poll(usize),
    Pick(usize),
    GiveUpPod(usize),
    PreferAnother(usize),
    Finish(usize),
    Abandon(usize),
    Pods(Vec<u8>),
    Fail(u8),
    Restore(u8),
    Concurrency(u32),
    Activators(Option<(u32, u32)>),
}

fn any_op() -> impl Strategy<Value = Op> {
    let activators = (1u32..4).prop_flat_map(|count| (0..count, Just(count)));
    prop_oneof![
        6 => Just(Op::Arrive),
        5 => (0usize..8).prop_map(Op::Poll),
        5 => (0usize..8).prop_map(Op::Pick),
        1 => (0usize..8).prop_map(Op::GiveUpPod),
        2 => (0usize..8).prop_map(Op::PreferAnother),
        4 => (0usize..8).prop_map(Op::Finish),
        1 => (0usize..8).prop_map(Op::Abandon),
        3 => prop::collection::vec(0u8..4, 0..4).prop_map(Op::Pods),
        1 => (0u8..4).prop_map(Op::Fail),
        1 => (0u8..4).prop_map(Op::Restore),
        1 => prop::sample::select(vec![0, 1, 2, 5]).prop_map(Op::Concurrency),
        1 => prop::option::of(activators).prop_map(Op::Activators),
    ]
}

#[derive(Default)]
struct Requests {
    waiting: Vec<Task<Acquire>>,
    admitted: Vec<Admitted>,
    running: Vec<Permit>,
}

fn apply(throttler: &Arc<Throttler>, requests: &mut Requests, op: Op, rng: &mut SmallRng) {
    let nth = |n: usize, len: usize| n.checked_rem(len);
    let admit = |requests: &mut Requests, mut task: Task<Acquire>| match task.poll() {
        Poll::Pending => requests.waiting.push(task),
        Poll::Ready(Ok(admitted)) => requests.admitted.push(admitted),
        Poll::Ready(Err(refusal)) => panic!("{refusal:?}"),
    };
    match op {
        Op::Arrive => admit(requests, Task::new(throttler.acquire())),
        Op::Poll(n) => {
            let Some(n) = nth(n, requests.waiting.len()) else { return };
            let task = requests.waiting.remove(n);
            admit(requests, task);
        }
        Op::Pick(n) => {
            let Some(n) = nth(n, requests.admitted.len()) else { return };
            match requests.admitted.remove(n).pick(rng) {
                Ok(permit) => requests.running.push(permit),
                Err(admitted) => {
                    let load = throttler.load();
                    assert!(load.in_flight > load.capacity.permits(), "a permit implies a pod: {load:?}");
                    admit(requests, Task::new(admitted.requeue()));
                }
            }
        }
        Op::GiveUpPod(n) => {
            let Some(n) = nth(n, requests.running.len()) else { return };
            requests.admitted.push(requests.running.remove(n).give_up_pod());
        }
        Op::PreferAnother(n) => {
            let Some(n) = nth(n, requests.running.len()) else { return };
            let permit = requests.running.remove(n);
            let (before, in_flight) = (permit.destination().clone(), throttler.load().in_flight);
            let permit = permit.prefer_another(rng);
            let more = |pod: &&PodLoad| pod.destination == *permit.destination() && *permit.destination() != before;
            if let (Some(pod), limit @ 1..) = (throttler.pods().iter().find(more), throttler.state.lock().concurrency) {
                assert!(pod.in_flight <= limit, "moved to a full pod: {pod:?}");
            }
            assert_eq!(throttler.load().in_flight, in_flight, "the permit is kept");
            requests.running.push(permit);
        }
        Op::Finish(n) => {
            let Some(n) = nth(n, requests.running.len()) else { return };
            drop(requests.running.remove(n));
        }
        Op::Abandon(n) => {
            let Some(n) = nth(n, requests.waiting.len()) else { return };
            drop(requests.waiting.remove(n));
        }
        Op::Pods(ns) => throttler.update(pods(ns)),
        Op::Fail(n) => drop(throttler.mark_failed(&at(n))),
        Op::Restore(n) => drop(throttler.restore(&at(n))),
        Op::Concurrency(n) => throttler.set_concurrency(n),
        Op::Activators(known) => throttler
            .set_activators(known.map_or(Activators::Unknown, |(index, count)| Activators::Known { index, count })),
    }
}

proptest! {
    /// Goal: a permit within capacity always implies a pod, no request waits beside a free permit, and nothing is left
    /// behind.
    #[test]
    fn a_permit_implies_a_pod(ops in prop::collection::vec(any_op(), 1..150)) {
        let throttler = Throttler::new(1, 1000);
        let (mut requests, mut rng) = (Requests::default(), rng());
        for op in ops {
            apply(&throttler, &mut requests, op, &mut rng);
            let load = throttler.load();
            prop_assert!(load.queued == 0 || load.in_flight >= load.capacity.permits(), "{:?}", load);
            let on_pods: u32 = throttler.pods().iter().map(|pod| pod.in_flight).sum();
            prop_assert_eq!(on_pods as usize, requests.running.len());
        }
        requests = Requests::default();
        prop_assert!(requests.running.is_empty());
        let load = throttler.load();
        prop_assert_eq!((load.in_flight, load.queued), (0, 0));
        throttler.set_activators(Activators::Unknown);
        throttler.set_concurrency(3);
        throttler.update(Destinations::NONE);
        throttler.update(pods([1, 2]));
        prop_assert_eq!(throttler.load().capacity, Capacity::Limited(6), "no capacity is left over");
    }

    /// Goal: while pods and limit stay the same, a pod never receives more than the limit, and all slots can be used.
    #[test]
    fn all_slots_are_used_and_no_more(limit in 1u32..7, count in 1u8..6) {
        let throttler = throttler(limit, 0..count);
        let permits: Vec<Permit> = (0..limit * u32::from(count)).map(|_| run(&throttler)).collect();
        prop_assert!(throttler.pods().iter().all(|pod| pod.in_flight == limit));
        let _waits = wait(&throttler);
        drop(permits);
    }
}

/// Goal: slots hold under real parallelism and swaps, and no request is stranded. Method: threads take, check, move and
/// release slots while pods are added and removed. A count beside the throttler tracks the requests of each pod.
#[test]
fn slots_hold_under_parallel_swaps() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let throttler = throttler(1, [0, 1]);
    let running: Arc<[AtomicU32; 3]> = Arc::new(std::array::from_fn(|_| AtomicU32::new(0)));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (throttler, running) = (throttler.clone(), Arc::clone(&running));
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed);
                for _ in 0..2_000 {
                    let mut admitted = block_on(throttler.acquire());
                    let mut permit = loop {
                        match admitted.pick(&mut rng) {
                            Ok(permit) => break permit,
                            Err(back) => admitted = block_on(back.requeue()),
                        }
                    };
                    for _ in 0..2 {
                        let pod = (0..3).find(|n| &at(*n) == permit.destination()).expect("a listed pod");
                        let before = running[usize::from(pod)].fetch_add(1, Ordering::SeqCst);
                        assert_eq!(before, 0, "two requests on a pod with one slot");
                        std::hint::spin_loop();
                        running[usize::from(pod)].fetch_sub(1, Ordering::SeqCst);
                        permit = permit.prefer_another(&mut rng);
                    }
                    drop(permit);
                }
            });
        }
        scope.spawn(|| {
            for round in 0..2_000u32 {
                throttler.update(pods([0, 1, 2].into_iter().filter(|n| round >> n & 1 == 0 || round % 5 == 0)));
                std::thread::yield_now();
            }
            throttler.update(pods([0, 1, 2]));
        });
    });
    let load = throttler.load();
    assert_eq!((load.in_flight, load.queued, load.capacity), (0, 0, Capacity::Limited(3)));
}

/// Waits on this thread until the permit is granted.
fn block_on(mut acquire: Acquire) -> Admitted {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match Pin::new(&mut acquire).poll(&mut context) {
            Poll::Ready(outcome) => return outcome.expect("the queue is long enough"),
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Counter of requests that ended on pods that are no longer held.
#[derive(Default)]
struct Ends(AtomicUsize);

impl Ended for Ends {
    fn ended(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Goal: pods of held shards are used except for the slots of siblings. A request on a pod that was given up stays
/// counted until its end, takes nothing from other pods, and its end is reported.
#[test]
fn shards_are_held_and_given_up() {
    let (throttler, ends) = (throttler(2, [1, 2]), Arc::<Ends>::default());
    let [one, two] = [1, 2].map(at);
    let [first, second] = [&one, &two].map(Shards::of_pod);
    assert_ne!(first, second);
    throttler.hold_shards(ends.clone());
    assert_eq!((capacity_of(&throttler), throttler.is_cold()), (Capacity::CLOSED, false), "siblings may have pods");
    let mut held = wait(&throttler);
    throttler.hold(Shards::ALL, &Running::from([(one.clone(), 2), (two.clone(), 1)]));
    let running = pick(held.woken().expect("a slot is free"));
    assert_eq!(running.destination(), &two);
    let mut held = wait(&throttler);
    throttler.hold(Shards::ALL, &Running::from([(one.clone(), 1)]));
    let other = pick(held.woken().expect("a sibling's request has ended"));
    assert_eq!((other.destination(), throttler.running(Shards::ALL)), (&one, Running::new()));
    throttler.hold(first, &Running::from([(one.clone(), 1)]));
    assert_eq!(throttler.running(first), Running::from([(two.clone(), 1)]));
    let _waits = wait(&throttler);
    drop(running);
    assert_eq!((ends.0.load(Ordering::SeqCst), throttler.running(first)), (1, Running::new()));
    throttler.send_elsewhere(true);
    assert_eq!(now(throttler.acquire()).expect_err("siblings have the other pods"), AdmissionError::Elsewhere);
    throttler.send_elsewhere(false);
    drop(other);
    throttler.hold(first, &Running::new());
    let both = [run(&throttler), run(&throttler)];
    assert!(both.iter().all(|permit| permit.destination() == &one));
    throttler.divide();
    assert_eq!(capacity_of(&throttler), Capacity::Limited(4));
}
