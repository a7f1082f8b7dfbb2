//! Tests that the communication between processes grows with activity, not with the number of workloads.

use common::config::PortRange;
use sim::many::{Changes, Size, Streams, allocate, changes, lease_writes, streams};

const SIZE: Size = Size { workloads: 10_000, busy: 300, ended: 300, activators: 20, autoscalers: 10 };
/// Number of activators that a workload with one pod needs by default.
const CARRIERS: u64 = 2;

/// Goal: workloads at zero and workloads whose requests have ended are in no frame, which has only an attestation then.
#[test]
fn idle_workloads_are_in_no_frame() {
    let asleep = streams(&Size { busy: 0, ended: 0, ..SIZE });
    let (up, across) = (asleep.up_all(), asleep.across_all());
    assert_eq!((up.frames, up.stats, up.attestations), (20, 0, 20));
    assert_eq!((across.stats, across.attestations), (0, 20 * 9 * 2));
    assert_eq!(streams(&Size { busy: 0, ..SIZE }), asleep, "requests that have ended");
    let busy = streams(&Size { ended: 0, ..SIZE });
    assert_eq!(streams(&SIZE), busy, "requests that have ended, beside busy workloads");
    assert_eq!(streams(&Size { workloads: 100_000, ..SIZE }), busy, "workloads at zero");
}

/// Goal: each activator that carries a workload reports it once. The report reaches the owner of its bucket through at
/// most one other autoscaler, and no other process records it.
#[test]
fn only_the_owner_of_its_bucket_records_a_stat() {
    for (activators, autoscalers) in [(2, 10), (20, 10), (20, 1), (40, 10)] {
        let size = Size { activators, autoscalers, ..SIZE };
        let reported = size.busy as u64 * CARRIERS.min(activators as u64);
        let found = streams(&size);
        assert_eq!(found.up_all().stats, reported, "{size:?}");
        assert_eq!(found.recorded, [(1, reported)].into(), "{size:?}: each is recorded once");
        assert_eq!(found.strayed, 0, "{size:?}");
        let across = found.across_all().stats;
        assert!(across <= reported && (autoscalers > 1 || across == 0), "{size:?}: {across} of {reported}");
    }
}

/// Goal: bytes of stats grow with busy workloads, and not with activators or buckets.
#[test]
fn stats_grow_only_with_busy_workloads() {
    let bytes = |activators, autoscalers, busy| {
        let Streams { up, across, .. } = streams(&Size { activators, autoscalers, busy, ended: 0, ..SIZE });
        let up: u64 = up.iter().map(|traffic| traffic.bytes).sum();
        (up, across.values().map(|traffic| traffic.bytes).sum::<u64>())
    };
    let of_stats = |activators, autoscalers, busy| {
        let (all, idle) = (bytes(activators, autoscalers, busy), bytes(activators, autoscalers, 0));
        (all.0 - idle.0, all.1 - idle.1)
    };
    let near = |one: u64, other: u64| one.abs_diff(other) * 20 <= other;
    let (up, across) = of_stats(20, 10, 300);
    let twice = of_stats(40, 10, 300);
    assert!(near(twice.0, up) && near(twice.1, across), "twice the activators: {twice:?} of {:?}", (up, across));
    let buckets = of_stats(20, 20, 300);
    assert!(near(buckets.0, up) && buckets.1 < across * 6 / 5, "twice the buckets: {buckets:?} of {:?}", (up, across));
    let more = of_stats(20, 10, 600);
    assert!(near(more.0, up * 2) && near(more.1, across * 2), "twice the busy: {more:?} of {:?}", (up, across));
}

/// Goal: if one activator of twenty shuts down gracefully, only the slices of workloads that it carries change, with
/// one write each, and the same when it returns. No workload has fewer activators meanwhile. An activator that dies is
/// removed before its successor has responded.
#[test]
fn an_activator_that_ends_changes_only_the_slices_that_name_it() {
    let size = Size { workloads: 4_000, ..SIZE };
    let expected = size.workloads * CARRIERS as usize / size.activators;
    let [end, back, dies] = changes(&size);
    let Changes { touched, urgent, writes, lacked } = end;
    assert!(touched.abs_diff(expected) * 8 < expected, "{touched} of {expected}");
    assert_eq!((urgent, writes, lacked), (touched, touched, 0), "another activator replaces it");
    assert_eq!(back, Changes { touched, urgent: 0, writes: touched, lacked: 0 });
    assert_eq!(dies, Changes { touched, urgent: touched, writes: touched * 2, lacked: 0 });
    for end in changes(&Size { activators: 2, ..size }) {
        assert_eq!((end.touched, end.writes), (size.workloads, size.workloads), "two activators carry all workloads");
    }
}

/// Goal: each lease is renewed every three seconds, and every autoscaler holds one.
#[test]
fn each_autoscaler_renews_one_lease_every_three_seconds() {
    for autoscalers in [1, 2, 10] {
        let (writes, most) = lease_writes(autoscalers);
        assert!((writes * 3.0 / autoscalers as f64 - 1.0).abs() < 0.05, "{writes} a second for {autoscalers}");
        assert_eq!(most, 1);
    }
}

/// Goal: workloads that cannot get a number do not slow down a plan, which delays all other work.
#[test]
fn a_plan_stays_fast_without_free_numbers() {
    let enough = allocate(40_000, PortRange { first: 20_000, last: 64_999 });
    assert_eq!((enough.allocated, enough.exhausted, enough.maps), (40_000, 0, 80));
    let short = allocate(40_000, PortRange { first: 20_000, last: 29_999 });
    // A hundred namespaces are far from their quotas, so all numbers are allocated.
    assert_eq!((short.allocated, short.exhausted, short.maps), (10_000, 30_000, 20));
    assert!(short.duration < enough.duration * 20, "{short:?} beside {enough:?}");
}
