//! Short runs of everything in this crate, held to what must be so on any machine, and a busy one.

use common::backend::Protocol;
use faults::client_timeouts::{self, WAITING_MAX};
use faults::netns::Fault;
use faults::pod_failure::{Plan, run};
use std::time::Duration;

/// The bound is a second; the rest is for machines that are busy with other tests.
const SOON: Duration = Duration::from_millis(2500);

/// Goal: no GET fails, a POST fails only if it was on its way to the pod that failed, and is told by whom; every other answer goes on.
fn one_of_three_pods_fails(fault: Fault) {
    let runs = [Protocol::Http1, Protocol::H2c].map(|protocol| {
        let plan = Plan { fault, protocol, after: Duration::from_secs(3) };
        std::thread::spawn(move || run(plan))
    });
    for run in runs {
        let figures = run.join().expect("no panic").expect("root, and iproute2");
        println!("{figures}");
        assert_eq!((figures.gets_failed, figures.unnamed), (0, 0), "{figures}");
        assert!(figures.get_worst < SOON && figures.post_worst < SOON, "{figures}");
        assert!(figures.last_failed_sent < SOON, "{figures}");
        assert_eq!(figures.streams_whole, figures.streams, "{figures}");
        assert!(figures.stream_broken.is_some_and(|after| after < SOON), "{figures}");
    }
}

#[test]
fn a_pods_link_goes() {
    one_of_three_pods_fails(Fault::LinkGone);
}

#[test]
fn a_pod_becomes_unreachable() {
    one_of_three_pods_fails(Fault::Unreachable);
}

#[test]
fn a_pod_becomes_a_black_hole() {
    one_of_three_pods_fails(Fault::BlackHole);
}

#[test]
fn a_pod_is_killed() {
    one_of_three_pods_fails(Fault::Reset);
}

/// Goal: clients that give up leave nothing behind: no request that waits, no byte, task or descriptor of theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_give_up() {
    let figures = client_timeouts::run(Duration::from_secs(6)).await.expect("it starts");
    println!("{figures}");
    assert!(figures.answered > 0 && figures.reached > figures.answered / 2, "{figures}");
    assert!(figures.in_flight_max <= 2, "the pod takes two at a time: {figures}");
    assert!(figures.queued_max <= WAITING_MAX, "{figures}");
    assert_eq!(figures.held_after, (0, 0), "{figures}");
    assert!(figures.after.tasks <= figures.before.tasks + 2, "idle connections to the pod aside: {figures}");
}
