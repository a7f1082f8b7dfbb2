//! Tests of notifications to the reconciler, and of stats that make an evaluation due.

use super::*;
use crate::decider::Unknown;
use crate::decider::tests::decided;

fn spec(initial_scale: i32, total_value: f64, burst: f64) -> DeciderSpec {
    DeciderSpec {
        target_value: total_value * 0.7,
        total_value,
        target_burst_capacity: BurstCapacity::from_number(burst),
        initial_scale,
        ..DeciderSpec::default()
    }
}

fn decision(desired: i32, excess_burst_capacity: i32) -> Decision {
    decided(desired, excess_burst_capacity, 0.0)
}

fn status(desired: Option<i32>, excess_burst_capacity: i32) -> ScaleStatus {
    ScaleStatus { desired, excess_burst_capacity, warm_up_left: None, unattested: false }
}

#[test]
fn a_new_revision_is_as_if_its_initial_scale_were_ready() {
    for (initial, total, burst, expected) in [
        (1, 100.0, 0.0, 0),
        (1, 100.0, -1.0, -1),
        (2, 25.0, 42.0, 8),
        (1, 100.0, 211.0, -111),
        (1, 0.5, 1.0, 0), // −0.5, truncated and not floored.
    ] {
        let spec = spec(initial, total, burst);
        assert_eq!(ScaleStatus::initial(&spec), status(None, expected), "{initial} × {total} − {burst}");
        assert_eq!(ScaleStatus::adopted(&spec, 0), status(Some(0), expected), "found asleep");
        assert_eq!(ScaleStatus::adopted(&spec, 3), status(None, expected), "found awake");
    }
}

#[test]
fn the_reconciler_is_notified_of_a_new_scale_or_a_new_sign() {
    let mut status = status(None, -111);
    for (desired, ebc, notified, why) in [
        (1, -1, true, "first decision"),
        (1, -1, false, "the same"),
        (1, -9, false, "another capacity of the same sign"),
        (1, 0, true, "0 counts as positive"),
        (1, 1984, false, "so does more"),
        (1, -1, true, "below zero"),
        (2, -1, true, "another scale"),
        (0, 5, true, "both"),
    ] {
        assert_eq!(status.apply(&decision(desired, ebc), true), notified, "{why}");
        assert_eq!((status.desired, status.excess_burst_capacity), (Some(desired), ebc), "{why}: stored all the same");
    }
    let before = status;
    assert!(!status.apply(&Err(Unknown::NoData), true));
    assert_eq!(status, before, "an unknown input changes nothing");
    let mut first = self::status(None, 5);
    assert!(first.apply(&decision(0, 5), true), "zero is a change if nothing was known");
}

/// Goal: the reconciler is notified when the warm-up after a takeover ends, and when the last pod of an idle revision
/// may go because every activator has reported again.
#[test]
fn the_reconciler_is_notified_when_a_wait_ends() {
    let mut status = ScaleStatus::taken_over(&DeciderSpec::default());
    status.desired = Some(1);
    let unknown = Err(Unknown::NotAttested);
    assert!(!status.apply(&unknown, true) && status.warm_up_left.is_some(), "an unknown input changes nothing");
    assert!(status.apply(&decision(1, 0), true) && status.warm_up_left.is_none(), "the warm-up is over");
    assert!(!status.apply(&unknown, false) && status.unattested);
    assert!(!status.apply(&decision(1, 0), true) && !status.unattested, "pods are still desired");
    assert!(status.apply(&decision(0, 0), false), "another scale");
    assert!(!status.apply(&unknown, false));
    assert!(status.apply(&decision(0, 0), true), "its last pod may go");
}

#[test]
fn traffic_at_zero_does_not_wait_for_a_tick() {
    // (desired, concurrency, target known to be empty) -> evaluated at once
    for (desired, concurrency, empty, expected) in [
        (Some(0), 1.0, false, true),
        (Some(0), 0.5, true, true),
        (Some(0), 0.0, true, false),
        (Some(1), 1.0, true, false),
        (None, 1.0, false, false),
        (None, 1.0, true, true),
        (None, 0.0, true, false),
    ] {
        let got = status(desired, 0).wakes(concurrency, empty);
        assert_eq!(got, expected, "{desired:?}, {concurrency}, {empty}");
    }
}
