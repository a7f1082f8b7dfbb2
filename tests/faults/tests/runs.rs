//! Short runs of everything in this crate, held to what must be so on any machine, and a busy one.

use common::backend::{HttpGet, Probe, Protocol};
use faults::client_timeouts::{self, WAITING_MAX};
use faults::far;
use faults::netns::Fault;
use faults::pod_failure::{Plan, run};
use faults::stalls::Stalls;
use std::time::Duration;

/// The bound is 1.5 s, where only keep-alive can tell, and a second else; the rest is for what a machine does besides.
const SOON: Duration = Duration::from_millis(2500);

/// A request passes through so many threads at most, each of which a busy machine may keep waiting.
const HANDS: u32 = 10;

/// Goal: no GET fails, a POST fails only if it was on its way to the pod that failed, and is told by whom; every other
/// answer goes on.
fn one_of_three_pods_fails(fault: Fault) {
    one_fails_in(&[Protocol::Http1, Protocol::H2c], fault, Duration::from_millis(50));
}

fn one_fails_in(protocols: &[Protocol], fault: Fault, work: Duration) {
    let start = |protocol: &Protocol| {
        let plan = Plan { fault, protocol: *protocol, work, after: Duration::from_secs(3) };
        std::thread::spawn(move || run(plan))
    };
    let runs: Vec<_> = protocols.iter().map(start).collect();
    for run in runs {
        let figures = run.join().expect("no panic").expect("root, and iproute2");
        println!("{figures}");
        assert_eq!((figures.gets_failed, figures.unnamed), (0, 0), "{figures}");
        let soon = SOON + HANDS * figures.late + figures.stalled;
        assert!(figures.get_worst < soon && figures.post_worst < soon, "{figures}");
        assert!(figures.last_failed_sent < soon, "{figures}");
        assert_eq!(figures.streams_whole, figures.streams, "{figures}");
        assert!(figures.stream_broken.is_some_and(|after| after < soon), "{figures}");
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

/// Goal: the same where every request needs a connection of its own, and all that was sent is acknowledged when the pod
/// goes.
#[test]
fn a_pod_whose_connections_are_all_in_use_becomes_a_black_hole() {
    one_fails_in(&[Protocol::Http1], Fault::BlackHole, Duration::from_millis(1500));
}

#[test]
fn a_pod_is_killed() {
    one_of_three_pods_fails(Fault::Reset);
}

/// Goal: a pod wakes however far it is: over a second, where a probe's connect is never answered in its own time.
#[test]
fn a_far_pod_wakes() {
    let over_http = Probe::Http(HttpGet::path("/").into());
    let rows = [
        (200, Protocol::Http1, Probe::Tcp { port: None }),
        (200, Protocol::H2c, over_http.clone()),
        (1200, Protocol::Http1, over_http),
        (1200, Protocol::H2c, Probe::Tcp { port: None }),
    ];
    let runs = rows.map(|(millis, protocol, probe)| {
        let plan = far::Plan { round_trip: Duration::from_millis(millis), protocol, probe };
        std::thread::spawn(move || far::run(plan))
    });
    for run in runs {
        let figures = run.join().expect("no panic").expect("root, iproute2 and /dev/net/tun; and that the pod wakes");
        println!("{figures}");
    }
}

/// Goal: clients that give up leave nothing behind: no request that waits, no byte, task or descriptor of theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_give_up() {
    let stalls = Stalls::new();
    let figures = client_timeouts::run(Duration::from_secs(6)).await.expect("it starts");
    println!("{figures}");
    assert!(figures.answered > 0 && figures.reached > figures.answered / 2, "{figures}");
    assert!(figures.in_flight_max <= 2, "the pod takes two at a time: {figures}");
    // 200 more come in each second in which nobody can give up.
    let waiting_max = f64::from(WAITING_MAX) + 200.0 * stalls.total().as_secs_f64();
    assert!(f64::from(figures.queued_max) <= waiting_max, "{figures}threads stalled {:?}", stalls.total());
    assert_eq!(figures.held_after, (0, 0), "{figures}");
    assert!(figures.after.tasks <= figures.before.tasks + 2, "idle connections to the pod aside: {figures}");
}
