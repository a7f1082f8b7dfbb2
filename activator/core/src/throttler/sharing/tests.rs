//! Two activators and the pods that they share, step by step and under load in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::breaker::Capacity;
use crate::destination::{Destination, Destinations};
use crate::own_index::Activators;
use crate::testing::{Task, now};
use crate::throttler::{Acquire, ContainerConcurrency, Permit, Throttler};

fn at(n: usize) -> Destination {
    std::net::SocketAddr::from(([10, 0, 0, u8::try_from(n).expect("few")], 8012)).into()
}

/// Activator `index` of two on `pods` pods.
fn throttler(concurrency: u32, pods: usize, index: u32, sharing: bool) -> Throttler {
    let throttler = Throttler::new(ContainerConcurrency::from_number(concurrency), 100_000);
    throttler.set_sharing(sharing);
    throttler.set_activators(Activators::Known { index, count: 2 });
    throttler.update(Destinations::Pods((1..=pods).map(at).collect()));
    throttler
}

fn run(throttler: &Throttler) -> Permit {
    now(throttler.acquire()).expect("room").pick(&mut SmallRng::seed_from_u64(1)).expect("a pod")
}

fn woken(task: &mut Task<Acquire>) -> Permit {
    task.woken().expect("a place").pick(&mut SmallRng::seed_from_u64(1)).expect("a pod")
}

/// Goal: of five pods each activator has two; the fifth gets the head of a queue in which somebody waits behind it.
#[test]
fn a_shared_pod_takes_what_own_pods_cannot_soon() {
    for index in [0, 1] {
        let throttler = throttler(1, 5, index, true);
        assert_eq!(throttler.load().capacity, Capacity::Limited(2), "own places only");
        let own = [run(&throttler), run(&throttler)];
        let mut first = Task::new(throttler.acquire()).waiting();
        assert!(!first.is_woken(), "an own pod will be free within half of the time");
        let mut second = Task::new(throttler.acquire()).waiting();
        let lent = woken(&mut first);
        assert_eq!(lent.destination(), &at(5));
        let mut third = Task::new(throttler.acquire()).waiting();
        assert!(!second.is_woken() && !third.is_woken(), "the shared pod takes one from each activator");
        let [one, other] = own;
        drop(one);
        drop(woken(&mut second));
        drop(woken(&mut third));
        drop((lent, other));
        assert_eq!(throttler.load().capacity, Capacity::Limited(2), "what was lent has been given back");
        assert!(throttler.pods().iter().all(|pod| pod.in_flight == 0));
    }
}

/// Goal: as many may wait for own pods as these can run half of; the next one is sent to a shared pod.
#[test]
fn half_of_what_own_pods_run_may_wait_for_them() {
    let throttler = throttler(4, 5, 0, true);
    let _own: Vec<_> = (0..8).map(|_| run(&throttler)).collect();
    let mut held: Vec<_> = (0..4).map(|_| Task::new(throttler.acquire()).waiting()).collect();
    assert!(held.iter().all(|task| !task.is_woken()), "four of eight");
    held.push(Task::new(throttler.acquire()).waiting());
    assert_eq!(held.iter().map(Task::is_woken).collect::<Vec<_>>(), [true, false, false, false, false]);
    assert_eq!(woken(&mut held[0]).destination(), &at(5));
}

/// Goal: a shared pod may be used and says so; a sibling's own pod may not, though a request still ends there.
#[test]
fn own_and_shared_pods_are_shown_as_usable() {
    let throttler = throttler(1, 5, 1, true);
    let usable = |throttler: &Throttler| {
        let pods = throttler.pods();
        pods.iter().map(|pod| (pod.destination.clone(), pod.usable)).collect::<Vec<_>>()
    };
    assert_eq!(usable(&throttler), [(at(3), true), (at(4), true), (at(5), true)]);
    let _on_third = run(&throttler);
    throttler.set_activators(Activators::Known { index: 0, count: 2 });
    assert_eq!(usable(&throttler), [(at(1), true), (at(2), true), (at(3), false), (at(5), true)]);
}

/// Goal: a shared slot that becomes free goes to the next in line, and an own place never counts for a shared one.
#[test]
fn own_places_and_shared_slots_are_not_confused() {
    let throttler = throttler(1, 5, 1, true);
    let (_one, other) = (run(&throttler), run(&throttler));
    let mut waiting: VecDeque<_> = (0..4).map(|_| Task::new(throttler.acquire()).waiting()).collect();
    let lent = woken(&mut waiting[0]);
    drop(other);
    let next = woken(&mut waiting[1]);
    assert_ne!(next.destination(), &at(5), "an own pod became free, and was found");
    drop(lent);
    let again = woken(&mut waiting[2]);
    assert_eq!(again.destination(), &at(5));
    assert!(!waiting[3].is_woken());
    drop(waiting);
    drop((next, again));
    assert_eq!(throttler.load().in_flight, 1);
}

/// Goal: who is given a shared slot and goes away passes it on.
#[test]
fn an_abandoned_slot_is_passed_on() {
    let throttler = throttler(1, 5, 0, true);
    let _own = [run(&throttler), run(&throttler)];
    let leaving = Task::new(throttler.acquire()).waiting();
    let mut staying = Task::new(throttler.acquire()).waiting();
    assert!(leaving.is_woken());
    drop(leaving);
    assert_eq!(woken(&mut staying).destination(), &at(5));
}

/// Goal: an activator whose own pods have all failed uses the common ones as its own; failed common ones are not used.
#[test]
fn failures_change_who_may_be_used() {
    let throttler = throttler(1, 5, 0, true);
    throttler.mark_failed(&at(1));
    throttler.mark_failed(&at(2));
    assert_eq!(run(&throttler).destination(), &at(5), "at once");
    throttler.restore(&at(1));
    throttler.mark_failed(&at(5));
    let _own = run(&throttler);
    let held: Vec<_> = (0..5).map(|_| Task::new(throttler.acquire()).waiting()).collect();
    assert!(held.iter().all(|task| !task.is_woken()));
}

/// Upstream's own case (Knative's table of two activators and three pods), which sharing is off for: one assigned pod,
/// and a second request waits.
#[test]
fn without_sharing_a_leftover_pod_belongs_to_one() {
    let throttler = throttler(1, 3, 1, false);
    assert_eq!(throttler.load().capacity, Capacity::Limited(1));
    let _first = run(&throttler);
    let second = Task::new(throttler.acquire()).waiting();
    let third = Task::new(throttler.acquire()).waiting();
    assert!(!second.is_woken() && !third.is_woken());
}

// Load in virtual time. Times are in microseconds.

const WORK: u64 = 50_000;
const RATE: f64 = 40.0;
const PODS: usize = 5;
const REQUESTS: usize = 40_000;

/// One pod with a queue-proxy: one request at a time, the others wait there in order.
#[derive(Default)]
struct PodModel {
    line: VecDeque<usize>,
}

/// Requests' latencies on each of two activators, in milliseconds, sorted.
struct Load<'a> {
    rng: SmallRng,
    arrivals: Vec<(u64, usize)>,
    throttlers: &'a [Throttler; 2],
}

fn arrivals(rng: &mut impl Rng, poisson: bool) -> Vec<(u64, usize)> {
    let mut all = Vec::new();
    for activator in 0..2 {
        let mut at = rng.random::<f64>() / RATE;
        for _ in 0..REQUESTS / 2 {
            all.push(((at * 1e6) as u64, activator));
            at += if poisson { -(1.0 - rng.random::<f64>()).ln() / RATE } else { 1.0 / RATE };
        }
    }
    all.sort_unstable();
    all
}

/// A pod's time for one request: the work and an exponential bit on top, a millisecond in the mean.
fn service(rng: &mut impl Rng) -> u64 {
    WORK + (-(1.0 - rng.random::<f64>()).ln() * 1_000.0) as u64
}

impl Load<'_> {
    fn run(mut self) -> [Vec<f64>; 2] {
        let mut latencies = [Vec::new(), Vec::new()];
        let mut pods: BTreeMap<Destination, PodModel> = (1..=PODS).map(|n| (at(n), PodModel::default())).collect();
        let mut running: BTreeMap<usize, Permit> = BTreeMap::new();
        let mut waiting: [VecDeque<(usize, Task<Acquire>)>; 2] = Default::default();
        let mut ends: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut next = 0;
        while next < self.arrivals.len() || !ends.is_empty() {
            let end = ends.peek().map(|Reverse((at, _))| *at);
            let arrival = self.arrivals.get(next).map(|(at, _)| *at);
            let time = match (arrival, end) {
                (Some(arrival), end) if end.is_none_or(|end| arrival < end) => {
                    let activator = self.arrivals[next].1;
                    // Flagged, so that it is polled below like one that was woken.
                    waiting[activator].push_back((next, Task::new(self.throttlers[activator].acquire())));
                    next += 1;
                    arrival
                }
                (_, Some(end)) => {
                    let Some(Reverse((_, request))) = ends.pop() else { break };
                    let permit = running.remove(&request).expect("it ran");
                    let (arrived, activator) = self.arrivals[request];
                    latencies[activator].push((end - arrived) as f64 / 1e3);
                    let pod = pods.get_mut(permit.destination()).expect("a pod");
                    pod.line.pop_front();
                    if let Some(following) = pod.line.front() {
                        ends.push(Reverse((end + service(&mut self.rng), *following)));
                    }
                    drop(permit);
                    end
                }
                _ => break,
            };
            for queue in &mut waiting {
                let newest = queue.len().checked_sub(1);
                let mut position = 0;
                while position < queue.len() {
                    let due = queue[position].1.is_woken() || Some(position) == newest;
                    let polled = if due { queue[position].1.poll() } else { std::task::Poll::Pending };
                    let std::task::Poll::Ready(admitted) = polled else {
                        position += 1;
                        continue;
                    };
                    let permit = admitted.expect("room to wait").pick(&mut self.rng).expect("a pod");
                    let (request, _) = queue.remove(position).expect("it is there");
                    let pod = pods.get_mut(permit.destination()).expect("a pod");
                    pod.line.push_back(request);
                    assert!(pod.line.len() <= 2, "more than one from each activator");
                    if pod.line.len() == 1 {
                        ends.push(Reverse((time + service(&mut self.rng), request)));
                    }
                    running.insert(request, permit);
                    position = 0; // Whoever was woken by this one's departure stands anywhere.
                }
            }
        }
        latencies.each_mut().map(|all| {
            all.sort_by(f64::total_cmp);
            std::mem::take(all)
        })
    }
}

/// The same arrivals before one queue and all pods.
fn ideal(rng: &mut impl Rng, arrivals: &[(u64, usize)]) -> Vec<f64> {
    let mut free: BinaryHeap<Reverse<u64>> = std::iter::repeat_n(Reverse(0), PODS).collect();
    let mut latencies: Vec<f64> = arrivals
        .iter()
        .map(|(arrived, _)| {
            let Reverse(at) = free.pop().expect("five");
            let end = at.max(*arrived) + service(rng);
            free.push(Reverse(end));
            (end - arrived) as f64 / 1e3
        })
        .collect();
    latencies.sort_by(f64::total_cmp);
    latencies
}

fn p99(sorted: &[f64]) -> f64 {
    sorted[sorted.len() * 99 / 100]
}

fn both(seed: u64, poisson: bool, sharing: bool) -> ([Vec<f64>; 2], Vec<f64>) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let arrivals = arrivals(&mut rng, poisson);
    let throttlers = [0, 1].map(|index| throttler(1, PODS, index, sharing));
    let ours = Load { rng: rng.clone(), arrivals: arrivals.clone(), throttlers: &throttlers }.run();
    (ours, ideal(&mut rng, &arrivals))
}

/// Goal: 40 requests/s of 50 ms on each of two activators before five pods: evenly spaced, no activator is worse off
/// for its fewer pods; at random, the 99th percentile stays within 1.5 of one ideal queue's. Without sharing, one
/// activator has no bound.
#[test]
fn two_activators_share_five_pods_nearly_like_one() {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for seed in [1, 2, 3] {
        let ([first, second], _) = both(seed, false, true);
        assert_eq!(first.len() + second.len(), REQUESTS);
        assert!(p99(&first) < 80.0 && p99(&second) < 80.0, "{seed}: {} and {} ms", p99(&first), p99(&second));

        let ([first, second], ideal) = both(seed, true, true);
        ours.extend(first);
        ours.extend(second);
        theirs.extend(ideal);
    }
    ours.sort_by(f64::total_cmp);
    theirs.sort_by(f64::total_cmp);
    let ratio = p99(&ours) / p99(&theirs);
    println!("99th percentile of {} requests: {ratio:.2} times {:.0} ms", ours.len(), p99(&theirs));
    assert!(ratio < 1.5, "{ratio}");
    let ([_, second], ideal) = both(1, true, false);
    assert!(p99(&second) > 5.0 * p99(&ideal), "without sharing: {} ms", p99(&second));
}
