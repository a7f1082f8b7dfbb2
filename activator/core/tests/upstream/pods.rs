//! Rows about the pods that an activator uses, and their capacity.

use activator_core::breaker::Capacity;
use activator_core::destination::{Destination, Destinations};
use activator_core::own_index::{Activators, own_index};
use activator_core::throttler::{CapacityInputs, Permit, Throttler, assign, capacity};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

const M: i64 = 2_147_483_647;

fn known(index: u32, count: u32) -> Activators {
    Activators::Known { index, count }
}

/// Goal: the capacity equals Knative's. Rows: (container concurrency, backends, trackers, activators, own index) ->
/// capacity. No trackers: behind a cluster IP.
#[test]
fn capacity_is_upstreams() {
    type Row = ((u32, i64, Option<usize>, u32, u32), i64);
    let rows: [Row; 22] = [
        ((10, 1, None, 0, 0), 10),
        ((10, 10, None, 0, 0), 100),
        ((10, 100, None, 0, 0), 1000),
        ((10, 10, None, 5, 0), 20),
        ((10, 10, None, 200, 0), 1),
        ((10, 0, None, 200, 0), 0),
        ((3, 7, None, 2, 0), 10),
        ((1, 3, None, 2, 0), 1),
        ((10, 0, Some(1), 1, 0), 10),
        ((10, -1, Some(2), 1, 0), 20),
        ((10, -1, Some(2), 2, 0), 10),
        ((10, -1, Some(3), 2, 0), 20),
        ((10, -1, Some(3), 2, 1), 10),
        ((1, 5, Some(5), 2, 0), 3),
        ((1, 5, Some(5), 2, 1), 2),
        ((42, 6, Some(6), 4, 0), 84),
        ((100, 25_000_000, None, 1, 0), M),
        ((0, 0, None, 0, 0), 0),
        ((0, 0, None, 200, 0), 0),
        // Knative's unlimited breaker clamps these values to 1, which opens it.
        ((0, 1, None, 0, 0), M),
        ((0, 10, None, 200, 0), M),
        ((0, 1, Some(3), 2, 1), M),
    ];
    for ((container_concurrency, backends, trackers, activators, index), expected) in rows {
        let position = if activators == 0 { Activators::Unknown } else { known(index, activators) };
        let position = if container_concurrency == 0 { Activators::Unknown } else { position };
        let assigned = trackers.map_or(0, |trackers| assign(trackers, position).count());
        let assigned = u32::try_from(assigned).expect("few");
        let inputs = CapacityInputs { container_concurrency, backends, assigned, activators };
        assert_eq!(capacity(inputs), expected, "{inputs:?}");
        if container_concurrency == 0 && trackers.is_some() {
            assert_eq!(assigned, 3, "all trackers");
        }
    }
    let many = CapacityInputs { container_concurrency: 0, backends: 1, assigned: u32::MAX / 2 + 5, activators: 1 };
    assert_eq!(capacity(many), M, "the helper alone");
}

/// Goal: slices of pods equal Knative's. Rows: (pods, activators, own index) -> (begin, end, has a leftover pod).
#[test]
fn pods_are_cut_into_upstreams_slices() {
    let rows = [
        ((1, 1, 0), (0, 1, false)),
        ((1, 2, 0), (0, 1, false)),
        ((1, 2, 1), (0, 1, false)),
        ((2, 3, 1), (1, 2, false)),
        ((2, 3, 2), (0, 1, false)),
        ((3, 3, 2), (2, 3, false)),
        ((10, 3, 0), (0, 3, true)),
        ((10, 3, 1), (3, 6, false)),
        ((10, 3, 2), (6, 9, false)),
        ((150, 5, 0), (0, 30, false)),
        ((150, 5, 1), (30, 60, false)),
        ((150, 5, 4), (120, 150, false)),
    ];
    for ((pods, activators, index), (begin, end, extra)) in rows {
        let assigned: Vec<usize> = assign(pods, known(index, activators)).collect();
        let (adjacent, rest) = assigned.split_at(end - begin);
        assert!(adjacent.iter().copied().eq(begin..end), "{pods} {activators} {index}: {adjacent:?}");
        assert_eq!(rest.len(), usize::from(extra), "{pods} {activators} {index}: {rest:?}");
    }
}

/// Goal: each activator gets the same pods as in Knative. Rows: (pods, activators) -> positions of each activator.
#[test]
fn every_activator_gets_upstreams_pods() {
    type Row<'a> = ((usize, u32), &'a [&'a [usize]]);
    let rows: [Row<'_>; 11] = [
        ((0, 3), &[&[], &[], &[]]),
        ((1, 3), &[&[0], &[0], &[0]]),
        ((3, 2), &[&[0, 2], &[1]]),
        ((5, 2), &[&[0, 1, 4], &[2, 3]]),
        ((6, 4), &[&[0, 4], &[1, 5], &[2], &[3]]),
        ((7, 3), &[&[0, 1, 6], &[2, 3], &[4, 5]]),
        ((8, 5), &[&[0, 5], &[1, 6], &[2, 7], &[3], &[4]]),
        ((10, 3), &[&[0, 1, 2, 9], &[3, 4, 5], &[6, 7, 8]]),
        ((20, 3), &[&[0, 1, 2, 3, 4, 5, 18], &[6, 7, 8, 9, 10, 11, 19], &[12, 13, 14, 15, 16, 17]]),
        (
            (24, 5),
            &[&[0, 1, 2, 3, 20], &[4, 5, 6, 7, 21], &[8, 9, 10, 11, 22], &[12, 13, 14, 15, 23], &[16, 17, 18, 19]],
        ),
        ((3, 5), &[&[0], &[1], &[2], &[0], &[1]]),
    ];
    let positions = |pods, position| assign(pods, position).collect::<Vec<_>>();
    for ((pods, activators), expected) in rows {
        for (index, expected) in (0..).zip(expected) {
            assert_eq!(positions(pods, known(index, activators)), *expected, "{index} of {activators}, {pods} pods");
        }
    }
    assert_eq!(positions(4, Activators::Unknown), [0, 1, 2, 3], "index -1: all");
    assert_eq!(positions(4, known(0, 1)), [0, 1, 2, 3], "alone: all");
}

#[test]
fn an_activators_index_is_its_position_among_the_addresses() {
    let own = "10.10.10.3";
    type Row<'a> = (&'a [&'a str], Activators);
    let rows: [Row<'_>; 5] = [
        (&[], Activators::Unknown),
        (&["11.11.11.11", "11.11.11.12"], Activators::Unknown),
        (&["10.10.10.3", "11.11.11.11"], known(0, 2)),
        (&["10.10.10.1", "10.10.10.2", "10.10.10.3", "11.11.11.11"], known(2, 4)),
        (&["10.10.10.1", "10.10.10.2", "10.10.10.3"], known(2, 3)),
    ];
    for (addresses, expected) in rows {
        assert_eq!(own_index(own, addresses.iter().copied()), expected, "{addresses:?}");
    }
    assert_eq!(own_index("10.0.0.2", ["10.0.0.2", "10.0.0.10"]), known(1, 2), "as text");
}

fn at(n: u8) -> Destination {
    std::net::SocketAddr::from(([10, 0, 0, n], 8012)).into()
}

fn throttler(concurrency: u32, pods: u8) -> Arc<Throttler> {
    let throttler = Throttler::new(concurrency, 100);
    throttler.update(Destinations::Pods((1..=pods).map(at).collect()));
    throttler
}

/// Returns the permit of a request that is admitted at once, or `None` if it would wait.
fn run(throttler: &Arc<Throttler>, rng: &mut SmallRng) -> Option<Permit> {
    let mut acquire = throttler.acquire();
    match Pin::new(&mut acquire).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(admitted) => Some(admitted.expect("not refused").pick(rng).expect("a permit implies a pod")),
        Poll::Pending => None,
    }
}

fn octet(permit: &Permit) -> String {
    permit.destination().as_str().trim_start_matches("10.0.0.").trim_end_matches(":8012").to_owned()
}

/// Goal: of two activators and three pods, one activator has one pod, and a second request waits until its deadline.
#[test]
fn two_activators_divide_three_pods() {
    let (throttler, mut rng) = (throttler(1, 3), SmallRng::seed_from_u64(1));
    throttler.set_activators(own_index("130.0.0.2", ["130.0.0.1", "130.0.0.2"]));
    assert_eq!(throttler.load().capacity, Capacity::Limited(1));
    let _first = run(&throttler, &mut rng).expect("room");
    assert!(run(&throttler, &mut rng).is_none());
    throttler.set_activators(own_index("130.0.0.2", ["130.0.0.2"]));
    assert_eq!(throttler.load().capacity, Capacity::Limited(3), "alone again: all pods");
}

/// Goal: pods are picked by Knative's policies. Rows: (container concurrency, pods, concurrent requests) -> pod of
/// each. The rows about the cursor (lists that are cut under it) are in the tests of the policies.
#[test]
fn pods_are_picked_by_upstreams_policies() {
    let mut rng = SmallRng::seed_from_u64(5);
    let rows: [(u32, u8, &[&str]); 4] =
        [(1, 2, &["1", "2"]), (3, 5, &["1", "1", "1"]), (5, 3, &["1", "2", "3"]), (1, 1, &["1"])];
    for (concurrency, pods, expected) in rows {
        let throttler = throttler(concurrency, pods);
        let permits: Vec<Permit> = expected.iter().map(|_| run(&throttler, &mut rng).expect("room")).collect();
        assert_eq!(permits.iter().map(octet).collect::<Vec<_>>(), *expected, "{concurrency} on {pods}");
    }
    let one = throttler(1, 1);
    let first = run(&one, &mut rng);
    assert!(first.is_some() && run(&one, &mut rng).is_none(), "one slot: the second request gets none");

    let single = throttler(0, 1);
    let weight = || single.pods().first().map_or(0, |pod| pod.in_flight);
    let (first, second) = (run(&single, &mut rng), run(&single, &mut rng));
    assert_eq!(weight(), 2, "choice of two, 1 pod");
    drop(second);
    assert_eq!(weight(), 1);
    drop(first);

    let two = throttler(0, 2);
    let (first, second) = (run(&two, &mut rng).expect("open"), run(&two, &mut rng).expect("open"));
    let freed = octet(&second);
    assert_ne!(octet(&first), freed, "the second pick differs");
    drop(second);
    assert_eq!(octet(&run(&two, &mut rng).expect("open")), freed, "and is picked again once free");
    drop(first);
    let picked: std::collections::BTreeSet<String> =
        (0..100).map(|_| octet(&run(&two, &mut rng).expect("open"))).collect();
    assert_eq!(picked.len(), 2, "both appear");
}
