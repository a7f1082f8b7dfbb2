//! Short runs of all faults, which assert what must hold on any machine, even a busy one.

use common::backend::{Probe, ProbeKind, Protocol};
use faults::client_timeouts::{self, WAITING_MAX};
use faults::far;
use faults::netns::Fault;
use faults::pod_failure::{Plan, run};
use faults::stalls::Stalls;
use std::time::Duration;

/// Maximum time of a request. The intended bound is 1.5 s if only keep-alive can detect the failure, and 1 s otherwise;
/// the rest is a reserve for other work of the machine.
const SOON: Duration = Duration::from_millis(2500);

/// Maximum number of threads that a request passes through. A busy machine may delay each.
const THREADS: u32 = 10;

/// Goal: no GET fails. A POST fails only if it was on its way to the pod that failed, and its response names the
/// activator. All other requests succeed.
fn one_of_three_pods_fails(fault: Fault) {
    one_pod_fails(&[Protocol::Http1, Protocol::H2c], fault, Duration::from_millis(50));
}

fn one_pod_fails(protocols: &[Protocol], fault: Fault, work: Duration) {
    let start = |protocol: &Protocol| {
        let plan = Plan { fault, protocol: *protocol, work, after: Duration::from_secs(3) };
        std::thread::spawn(move || run(plan))
    };
    let runs: Vec<_> = protocols.iter().map(start).collect();
    for run in runs {
        let figures = run.join().expect("no panic").expect("root, and iproute2");
        println!("{figures}");
        assert_eq!((figures.gets_failed, figures.unnamed), (0, 0), "{figures}");
        let soon = SOON + THREADS * figures.late + figures.stalled;
        assert!(figures.get_worst < soon && figures.post_worst < soon, "{figures}");
        assert!(figures.last_failed_sent < soon, "{figures}");
        assert_eq!(figures.streams_whole, figures.streams, "{figures}");
        assert!(figures.stream_broken.is_some_and(|after| after < soon), "{figures}");
    }
}

#[test]
fn a_pods_link_is_deleted() {
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

/// Goal: the same holds if every request needs its own connection, and all sent bytes are acknowledged when the pod
/// fails.
#[test]
fn a_pod_whose_connections_are_all_in_use_becomes_a_black_hole() {
    one_pod_fails(&[Protocol::Http1], Fault::BlackHole, Duration::from_millis(1500));
}

#[test]
fn a_pod_is_killed() {
    one_of_three_pods_fails(Fault::Reset);
}

/// Goal: a pod wakes at any distance, even if the round trip takes over a second and no probe connects within its own
/// timeout.
#[test]
fn a_far_pod_wakes() {
    let rows = [
        (200, Protocol::Http1, ProbeKind::Tcp.into()),
        (200, Protocol::H2c, Probe::http("/")),
        (1200, Protocol::Http1, Probe::http("/")),
        (1200, Protocol::H2c, ProbeKind::Tcp.into()),
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

/// Goal: clients that time out leave nothing behind: no waiting request, and no bytes, tasks or descriptors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_time_out_leave_nothing_behind() {
    let stalls = Stalls::new();
    let figures = client_timeouts::run(Duration::from_secs(6)).await.expect("it starts");
    println!("{figures}");
    assert!(figures.answered > 0 && figures.reached > figures.answered / 2, "{figures}");
    assert!(figures.in_flight_max <= 2, "the pod takes two at a time: {figures}");
    // 200 more requests arrive in each second in which no client can time out.
    let waiting_max = f64::from(WAITING_MAX) + 200.0 * stalls.total().as_secs_f64();
    assert!(f64::from(figures.queued_max) <= waiting_max, "{figures}threads stalled {:?}", stalls.total());
    assert_eq!(figures.held_after, (0, 0), "{figures}");
    assert!(figures.after.tasks <= figures.before.tasks + 2, "idle connections to the pod aside: {figures}");
}
