//! Two activators' throttlers on the same pods, with a session between them that the test carries by hand.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::slots::DEAD_AFTER;
use crate::testing::{Task, now};
use crate::throttler::{Acquire, Permit};
use parking_lot::Mutex;

/// What both have in common: the time, and what is on its way.
#[derive(Debug)]
struct World {
    now: Mutex<Instant>,
    wires: Mutex<VecDeque<(usize, Message)>>,
    cut: Mutex<Vec<(Destination, bool)>>,
}

#[derive(Debug)]
struct Side {
    world: Arc<World>,
    at: usize,
    peers: Mutex<Arc<Peers>>,
    /// The tick that comes next; later ones are forgotten.
    due: Mutex<Option<Instant>>,
}

impl Siblings for Side {
    fn now(&self) -> Instant {
        *self.world.now.lock()
    }

    fn peers(&self) -> Arc<Peers> {
        self.peers.lock().clone()
    }

    fn send(&self, to: &Peer, message: Message) {
        let to = name(1 - self.at) == *to;
        assert!(to, "to the other one");
        self.world.wires.lock().push_back((1 - self.at, message));
    }

    fn cut(&self, pod: &Destination, stopped: bool) {
        self.world.cut.lock().push((pod.clone(), stopped));
    }

    fn due(&self, at: Instant) {
        let mut due = self.due.lock();
        *due = Some(due.map_or(at, |due| due.min(at)));
    }
}

fn name(at: usize) -> Peer {
    Peer::from(format!("10.1.0.{at}").as_str())
}

fn pod(n: usize) -> Destination {
    std::net::SocketAddr::from(([10, 0, 0, u8::try_from(n).expect("few")], 8012)).into()
}

fn pods(n: usize) -> Destinations {
    Destinations::Pods((1..=n).map(pod).collect())
}

struct Pair {
    world: Arc<World>,
    sides: [Arc<Side>; 2],
    throttlers: [Throttler; 2],
}

impl Pair {
    /// Each with its own pods and the division among two.
    #[allow(clippy::disallowed_methods, reason = "an origin for made-up instants; nothing here waits")]
    fn new(limit: u32, n: usize) -> Self {
        let start = Instant::now() + Duration::from_secs(3600);
        let world = Arc::new(World { now: Mutex::new(start), wires: Mutex::default(), cut: Mutex::default() });
        let side = |at| {
            let peers = Mutex::new(Arc::new(Peers::new(start)));
            Arc::new(Side { world: world.clone(), at, peers, due: Mutex::default() })
        };
        let throttler = || Throttler::new(ContainerConcurrency::from_number(limit), 1000);
        let pair = Self { sides: [side(0), side(1)], world, throttlers: [throttler(), throttler()] };
        for throttler in &pair.throttlers {
            throttler.update(pods(n));
        }
        pair
    }

    fn pool(&self, at: usize, since: Instant) -> Pool {
        Pool::new(name(at), NonZeroU32::MIN, 0, since)
    }

    fn share(&self, at: usize, before: Before) {
        let now = *self.world.now.lock();
        let mut pool = self.pool(at, now - Duration::from_secs(60));
        if let Before::Alone(since) = before {
            pool.handle(Input::Members([name(at)].into()), &self.sides[at].peers(), since);
        }
        self.throttlers[at].share(self.sides[at].clone(), pool, before);
    }

    fn meet(&self) {
        for at in [0, 1] {
            let (now, other) = (*self.world.now.lock(), name(1 - at));
            Arc::make_mut(&mut *self.sides[at].peers.lock()).connected(&other, now);
            self.throttlers[at].tell(Input::Members([name(0), name(1)].into()));
            self.throttlers[at].tell(Input::Connected(other));
        }
        self.deliver();
    }

    fn deliver(&self) {
        loop {
            let Some((to, message)) = self.world.wires.lock().pop_front() else { return };
            self.throttlers[to].tell(Input::Received { from: name(1 - to), message });
        }
    }

    /// Time passes, with the ticks that are due.
    fn pass(&self, long: Duration) {
        let end = *self.world.now.lock() + long;
        let next = |side: &Arc<Side>| side.due.lock().filter(|due| *due <= end).map(|due| (due, side.at));
        while let Some((due, at)) = self.sides.iter().filter_map(next).min() {
            let mut now = self.world.now.lock();
            *now = due.max(*now);
            drop(now);
            self.sides[at].due.lock().take();
            self.throttlers[at].tell(Input::Tick);
            self.deliver();
        }
        *self.world.now.lock() = end;
        self.deliver();
    }

    /// Both share, and have agreed.
    fn settled(limit: u32, n: usize) -> Self {
        let pair = Self::new(limit, n);
        pair.share(0, Before::Others);
        pair.share(1, Before::Others);
        pair.meet();
        pair.pass(DEAD_AFTER);
        pair.pass(Duration::from_millis(20));
        pair
    }

    fn acquire(&self, at: usize) -> Task<Acquire> {
        Task::new(self.throttlers[at].acquire())
    }

    /// A request at `at` that has a slot, borrowed if need be.
    fn run(&self, at: usize) -> Permit {
        let mut task = self.acquire(at);
        if let std::task::Poll::Ready(admitted) = task.poll() {
            return pick(admitted.expect("admitted"));
        }
        self.deliver();
        pick(task.woken().expect("admitted"))
    }

    /// What runs on each pod, of both.
    fn in_flight(&self, n: usize) -> Vec<u32> {
        let of = |throttler: &Throttler, at: &Destination| {
            throttler.pods().iter().find(|pod| pod.destination == *at).map_or(0, |pod| pod.in_flight)
        };
        (1..=n).map(|n| self.throttlers.iter().map(|throttler| of(throttler, &pod(n))).sum()).collect()
    }

    /// Slots that the grantors think are in use.
    fn counted(&self) -> u32 {
        let of = |throttler: &Throttler| -> u32 {
            throttler.shared_pods().iter().filter(|(_, pod)| pod.held).map(|(_, pod)| pod.in_use).sum()
        };
        self.throttlers.iter().map(of).sum()
    }
}

fn pick(admitted: crate::throttler::Admitted) -> Permit {
    admitted.pick(&mut SmallRng::seed_from_u64(1)).expect("a slot is laid out for it")
}

/// Goal: either activator uses all pods, each pod runs what its limit says, and who comes next waits for whoever ends.
#[test]
fn each_uses_all_pods_and_none_runs_more_than_its_limit() {
    for at in [0, 1] {
        let pair = Pair::settled(1, 5);
        let mut running: Vec<Permit> = (0..5).map(|_| pair.run(at)).collect();
        assert_eq!(pair.in_flight(5), [1; 5]);
        let mut here = pair.acquire(at).waiting();
        pair.deliver();
        pair.pass(Duration::from_millis(1));
        let mut there = pair.acquire(1 - at).waiting();
        pair.deliver();
        assert!(!here.is_woken() && !there.is_woken());
        drop(running.pop());
        pair.deliver();
        let next = pick(here.woken().expect("the first that came"));
        assert!(!there.is_woken());
        drop(next);
        pair.deliver();
        drop(pick(there.woken().expect("the second")));
        drop(running);
        pair.deliver();
        assert_eq!((pair.in_flight(5), pair.counted()), (vec![0; 5], 0));
    }
}

/// Goal: slots come back on every way out: from a wait, from a place that was given and not used, from a pod given up.
#[test]
fn every_way_out_gives_the_slot_back() {
    let pair = Pair::settled(1, 2);
    for at in [0, 1] {
        let (one, two) = (pair.run(at), pair.run(at));
        let waits = pair.acquire(at).waiting();
        pair.deliver();
        drop(waits);
        pair.deliver();
        let given = pair.acquire(at).waiting();
        pair.deliver();
        drop(one);
        pair.deliver();
        assert!(given.is_woken());
        drop(given); // It was given a place, and has not looked.
        pair.deliver();
        assert_eq!(pair.counted(), 1);
        let mut again = Task::new(two.give_up_pod().requeue());
        assert!(again.poll().is_pending());
        pair.deliver();
        let admitted = again.woken().expect("its own place");
        drop(admitted); // Before it had a pod.
        pair.deliver();
        assert_eq!((pair.in_flight(2), pair.counted()), (vec![0; 2], 0));
        assert_eq!(pair.throttlers[at].load().in_flight, 0);
    }
}

/// Goal: requests without a wait cost no message.
#[test]
fn an_own_idle_slot_costs_no_message() {
    let pair = Pair::settled(1, 20);
    let own = |pair: &Pair| pair.throttlers[0].shared_pods().iter().filter(|(_, pod)| pod.held).count();
    assert!(own(&pair) > 0);
    for _ in 0..100 {
        let permit = pick(now(pair.throttlers[0].acquire()).expect("at once"));
        drop(permit);
    }
    let told = pair.world.wires.lock().iter().filter(|(_, message)| !matches!(message, Message::Free { .. })).count();
    // The end of what ran is told to whoever may count it; who grants tells nobody.
    assert_eq!(told, 0);
}

/// Goal: who was alone grants at once what it had, and counts what runs; the newcomer gets its part without a pause.
#[test]
fn what_runs_when_sharing_begins_is_counted() {
    let pair = Pair::new(1, 3);
    let running: Vec<Permit> = (0..3).map(|_| pick(now(pair.throttlers[0].acquire()).expect("room"))).collect();
    let mut held = pair.acquire(0).waiting();
    let start = *pair.world.now.lock();
    pair.share(0, Before::Alone(start - DEAD_AFTER));
    assert_eq!(pair.counted(), 3, "all are its own, and in use");
    pair.share(1, Before::Others);
    pair.meet();
    pair.pass(DEAD_AFTER);
    let mut there = pair.acquire(1).waiting();
    pair.deliver();
    assert!(!there.is_woken());
    drop(running);
    pair.deliver();
    let (one, other) = (pick(held.woken().expect("here")), pick(there.woken().expect("there")));
    assert!(pair.in_flight(3).iter().all(|runs| *runs <= 1));
    drop((one, other));
    pair.deliver();
    assert_eq!((pair.in_flight(3), pair.counted()), (vec![0; 3], 0));
}

/// Goal: when sharing ends, what runs still counts, and who waits goes on by the former rules.
#[test]
fn sharing_ends_in_the_midst_of_things() {
    let pair = Pair::settled(1, 2);
    let (one, two) = (pair.run(0), pair.run(0));
    let mut held = pair.acquire(0).waiting();
    pair.throttlers[0].unshare();
    assert!(!held.is_woken());
    let pod = one.destination().clone();
    drop(one);
    assert_eq!(pick(held.woken().expect("room")).destination(), &pod);
    drop(two);
    assert_eq!(pair.in_flight(2), [0; 2]);
    assert_eq!(pair.throttlers[0].load().capacity, Capacity::Limited(2));
}

/// Goal: a pod that has failed here is used neither here nor by a sibling that would borrow it here; it comes back.
#[test]
fn a_failed_pod_is_not_granted() {
    let pair = Pair::settled(1, 4);
    let own = pair.throttlers[0].shared_pods().into_iter().find(|(_, pod)| pod.held).expect("one of four").0;
    pair.throttlers[0].mark_failed(&own);
    let all: Vec<Permit> = (0..3).map(|_| pair.run(1)).collect();
    assert!(all.iter().all(|permit| *permit.destination() != own));
    let mut waits = pair.acquire(0).waiting();
    pair.deliver();
    assert!(!waits.is_woken());
    pair.throttlers[0].restore(&own);
    assert_eq!(pick(waits.woken().expect("it is back")).destination(), &own);
}

/// Goal: what must end is cut until it has ended, its slot counts until then, and a slot that was laid out and not taken yet
/// is taken by nobody; nor is there a place too many afterwards. A pod is cut once at a time, whatever runs there.
#[test]
fn what_is_cut_counts_until_it_has_ended() {
    let pair = Pair::settled(2, 1);
    let (one, two) = (pair.run(0), pair.run(0));
    let mut given = pair.acquire(0).waiting();
    pair.deliver();
    drop(one);
    pair.deliver(); // Its slot is laid out for the one that waits.
    assert!(given.is_woken());
    pair.throttlers[0].tell(Input::Stop);
    assert_eq!(*pair.world.cut.lock(), [(pod(1), true)]);
    let admitted = given.woken().expect("a place");
    assert!(admitted.pick(&mut SmallRng::seed_from_u64(1)).is_err(), "nothing is laid out any more");
    let counts = |pair: &Pair| (pair.in_flight(1).iter().sum::<u32>(), pair.throttlers[0].inner.breaker.capacity());
    assert_eq!(counts(&pair), (1, Capacity::Limited(1)), "it runs until its connection is broken");
    pair.throttlers[0].tell(Input::Tick);
    assert_eq!(pair.world.cut.lock().len(), 2, "it may have dialled meanwhile");
    drop(two);
    assert_eq!(counts(&pair), (0, Capacity::CLOSED));
    assert!(pair.acquire(0).poll().is_pending());
}

/// Goal: behind a cluster IP nothing is granted, and what ran before is not counted for ever.
#[test]
fn pods_that_are_not_listed_one_by_one_are_not_shared() {
    let pair = Pair::settled(1, 2);
    let (one, two) = (pair.run(0), pair.run(0));
    pair.throttlers[0].update(Destinations::ClusterIp { destination: pod(9), ready: 2 });
    assert!(!pair.throttlers[0].is_shared());
    drop((one, two));
    pair.throttlers[0].update(pods(2));
    pair.pass(DEAD_AFTER);
    pair.pass(Duration::from_millis(20));
    assert_eq!((pair.in_flight(2), pair.counted()), (vec![0; 2], 0));
    drop((pair.run(0), pair.run(0)));
}

/// Goal: while nobody waits, a request takes an own slot past the lock; what it took is counted before anything is lent.
#[test]
fn open_pods_are_closed_before_anything_is_lent() {
    let pair = Pair::settled(2, 6);
    let own: u32 = pair.throttlers[0].shared_pods().iter().filter(|(_, pod)| pod.held).map(|_| 2).sum();
    assert!((1..12).contains(&own) && pair.throttlers[0].inner.open.any());
    let guard = pair.throttlers[0].inner.shared.lock();
    let here: Vec<Permit> = (0..own).map(|_| pick(now(pair.throttlers[0].acquire()).expect("at once"))).collect();
    assert!(pair.throttlers[0].inner.open.any(), "nobody needed the lock");
    drop(guard);
    let there: Vec<Permit> = (own..12).map(|_| pair.run(1)).collect();
    let mut waits = pair.acquire(1).waiting();
    pair.deliver();
    assert!(!waits.is_woken() && pair.in_flight(6) == [2; 6]);
    drop(here);
    pair.deliver();
    drop(pick(waits.woken().expect("an idle one was lent")));
    drop(there);
    pair.deliver();
    assert_eq!((pair.in_flight(6), pair.counted()), (vec![0; 6], 0));
}

/// Goal: with threads that take, keep and give back at both at once, and messages that come at any time, no pod is above its
/// limit, and nothing is left over.
#[test]
fn threads_at_both_never_exceed_the_limit() {
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    const PODS: usize = 3;
    const TURNS: usize = 3000;
    let pair = Pair::settled(1, PODS);
    let running: Vec<AtomicUsize> = (0..PODS).map(|_| AtomicUsize::new(0)).collect();
    let (most, working) = (AtomicUsize::new(0), AtomicUsize::new(6));
    let over = AtomicBool::new(false);
    let turn = |throttler: &Throttler, rng: &mut SmallRng| {
        let mut acquire = Task::new(throttler.acquire());
        let permit = loop {
            match acquire.poll() {
                std::task::Poll::Pending => std::thread::yield_now(),
                std::task::Poll::Ready(admitted) => match admitted.expect("admitted").pick(rng) {
                    Ok(permit) => break permit,
                    Err(admitted) => acquire = Task::new(admitted.requeue()),
                },
            }
        };
        let at = (1..=PODS).position(|n| pod(n) == *permit.destination()).expect("one of them");
        let runs = running[at].fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(runs, Ordering::SeqCst);
        over.fetch_or(runs > 1, Ordering::SeqCst);
        (0..rng.random_range(0..20)).for_each(|_| std::thread::yield_now());
        running[at].fetch_sub(1, Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (throttler, turn, working) = (&pair.throttlers[thread % 2], &turn, &working);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(thread as u64);
                (0..TURNS).for_each(|_| turn(throttler, &mut rng));
                working.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while working.load(Ordering::SeqCst) > 0 {
            pair.pass(Duration::from_micros(100));
            std::thread::yield_now();
        }
    });
    pair.pass(Duration::from_millis(20));
    assert!(!over.load(Ordering::SeqCst), "{most:?} on a pod at once");
    assert_eq!((pair.in_flight(PODS), pair.counted(), most.into_inner()), (vec![0; PODS], 0, 1));
}

/// Goal: a slot whose request has left in the midst of things is nobody's for a moment, here and at a sibling.
#[test]
fn a_pod_notices_before_its_slot_is_given_again() {
    for at in [0, 1] {
        let pair = Pair::settled(1, 1);
        let left = pair.run(0);
        let mut waits = pair.acquire(at).waiting();
        pair.deliver();
        drop(left.abandon_pod());
        pair.deliver();
        pair.pass(NOTICED_AFTER - Duration::from_millis(1));
        assert!(!waits.is_woken() && pair.in_flight(1) == [1]);
        pair.pass(Duration::from_millis(1));
        drop(pick(waits.woken().expect("it is idle now")));
        pair.deliver();
        assert_eq!((pair.in_flight(1), pair.counted()), (vec![0], 0));
    }
}

/// Goal: slots that are kept go back each in its time, whatever else is due, and though nothing else happens.
/// Method: two requests leave one after the other, and one while a tick is due sooner.
#[test]
fn each_slot_that_is_kept_goes_back_in_its_time() {
    let pair = Pair::settled(1, 2);
    let (one, two) = (pair.run(0), pair.run(0));
    let mut waits = [pair.acquire(0).waiting(), pair.acquire(0).waiting()];
    pair.deliver();
    pair.pass(Duration::from_secs(1));
    drop(one.abandon_pod());
    pair.pass(NOTICED_AFTER / 2);
    drop(two.abandon_pod());
    pair.pass(NOTICED_AFTER);
    assert!(waits.iter_mut().all(|waits| waits.is_woken()));
    drop(waits);
    pair.pass(Duration::from_secs(1));
    assert_eq!((pair.in_flight(2), pair.counted()), (vec![0; 2], 0));

    drop(pair.run(0).abandon_pod());
    pair.sides[0].due(*pair.world.now.lock() + Duration::from_millis(1));
    pair.pass(NOTICED_AFTER + Duration::from_millis(20));
    assert_eq!((pair.in_flight(2), pair.counted()), (vec![0; 2], 0));
}

/// Goal: what a sibling says is taken in by a pool that is in touch with it, and else comes back.
#[test]
fn a_message_that_no_pool_takes_in_comes_back() {
    let pair = Pair::new(1, 1);
    let message = Message::Claim { pod: pod(1), number: 7 };
    let says = |pair: &Pair| pair.throttlers[0].receive(&name(1), message.clone());
    assert_eq!(says(&pair), Err(message.clone()), "nothing is shared");
    pair.share(0, Before::Others);
    assert_eq!(says(&pair), Err(message.clone()), "not with that one");
    pair.share(1, Before::Others);
    pair.meet();
    assert_eq!(says(&pair), Ok(()));
    let answers = |(_, sent): &(usize, Message)| matches!(sent, Message::Confirm { number: 7, .. });
    assert!(pair.world.wires.lock().iter().any(answers));
    pair.throttlers[0].unshare();
    assert_eq!(says(&pair), Err(message.clone()));
}
