//! Tests that the communication between processes grows with activity, not with the number of workloads.

use common::config::PortRange;
use sim::many::{Changes, Size, Streams, changes, lease_writes, numbers, streams};

const SIZE: Size = Size { workloads: 10_000, busy: 300, ended: 300, activators: 20, autoscalers: 10 };
/// Number of activators that a workload with one pod needs by the defaults.
const CARRIERS: u64 = 2;

/// Goal: a workload at zero, or whose requests have ended, is in no frame. Only attestations remain.
#[test]
fn who_is_not_busy_costs_nothing() {
    let asleep = streams(&Size { busy: 0, ended: 0, ..SIZE });
    let (up, across) = (asleep.up_all(), asleep.across_all());
    assert_eq!((up.frames, up.stats, up.attestations), (20, 0, 20));
    assert_eq!((across.stats, across.attestations), (0, 20 * 9 * 2));
    assert_eq!(streams(&Size { busy: 0, ..SIZE }), asleep, "requests that have ended");
    let busy = streams(&Size { ended: 0, ..SIZE });
    assert_eq!(streams(&SIZE), busy, "requests that have ended, beside those that have not");
    assert_eq!(streams(&Size { workloads: 100_000, ..SIZE }), busy, "workloads that sleep");
}

/// Goal: each activator that carries a workload reports it once. The report reaches the owner of its bucket through at
/// most one other autoscaler, and no other process records it.
#[test]
fn a_stat_reaches_the_owner_of_its_bucket_and_nobody_else() {
    for (activators, autoscalers) in [(2, 10), (20, 10), (20, 1), (40, 10)] {
        let size = Size { activators, autoscalers, ..SIZE };
        let reported = size.busy as u64 * CARRIERS.min(activators as u64);
        let found = streams(&size);
        assert_eq!(found.up_all().stats, reported, "{size:?}");
        assert_eq!(found.recorded, [(1, reported)].into(), "{size:?}: each once");
        assert_eq!(found.strayed, 0, "{size:?}");
        let across = found.across_all().stats;
        assert!(across <= reported && (autoscalers > 1 || across == 0), "{size:?}: {across} of {reported}");
    }
}

/// Goal: neither more activators nor more buckets increase the number of stats.
#[test]
fn streams_do_not_grow_with_activators_times_workloads() {
    let bytes = |activators, autoscalers, busy| {
        let Streams { up, across, .. } = streams(&Size { activators, autoscalers, busy, ended: 0, ..SIZE });
        let up: u64 = up.iter().map(|traffic| traffic.bytes).sum();
        (up, across.values().map(|traffic| traffic.bytes).sum::<u64>())
    };
    let idle = |activators, autoscalers| bytes(activators, autoscalers, 0);
    let of_stats = |activators, autoscalers, busy| {
        let (all, none) = (bytes(activators, autoscalers, busy), idle(activators, autoscalers));
        (all.0 - none.0, all.1 - none.1)
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
/// one write each, and the same when it returns. No workload has fewer activators meanwhile. One that dies is removed
/// before its successor has responded.
#[test]
fn one_activator_of_many_touches_a_part_of_the_slices() {
    let size = Size { workloads: 4_000, ..SIZE };
    let expected = size.workloads * CARRIERS as usize / size.activators;
    let [end, back, dies] = changes(&size);
    let Changes { touched, urgent, writes, lacked } = end;
    assert!(touched.abs_diff(expected) * 8 < expected, "{touched} of {expected}");
    assert_eq!((urgent, writes, lacked), (touched, touched, 0), "one goes, and another takes its place");
    assert_eq!(back, Changes { touched, urgent: 0, writes: touched, lacked: 0 });
    assert_eq!(dies, Changes { touched, urgent: touched, writes: touched * 2, lacked: 0 });
    for end in changes(&Size { activators: 2, ..size }) {
        assert_eq!((end.touched, end.writes), (size.workloads, size.workloads), "all carry all, where there are few");
    }
}

/// Goal: each lease is renewed every three seconds, and every autoscaler has one.
#[test]
fn leases_cost_what_they_are() {
    for autoscalers in [1, 2, 10] {
        let (writes, most) = lease_writes(autoscalers);
        assert!((writes * 3.0 / autoscalers as f64 - 1.0).abs() < 0.05, "{writes} a second for {autoscalers}");
        assert_eq!(most, 1);
    }
}

/// Goal: workloads that cannot get a number cost no more than others, since a plan delays all other work.
#[test]
fn a_plan_without_numbers_is_no_slower_than_one_with_them() {
    let enough = numbers(40_000, PortRange { first: 20_000, last: 64_999 });
    assert_eq!((enough.given, enough.without, enough.maps), (40_000, 0, 80));
    let short = numbers(40_000, PortRange { first: 20_000, last: 29_999 });
    // A hundred namespaces are far from their quotas, so all numbers are given.
    assert_eq!((short.given, short.without, short.maps), (10_000, 30_000, 20));
    assert!(short.took < enough.took * 20, "{short:?} beside {enough:?}");
}
