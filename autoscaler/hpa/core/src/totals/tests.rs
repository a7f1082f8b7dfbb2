//! Tests of replicas from one value for all pods: tables and properties.

use proptest::prelude::*;

use super::*;
use crate::options::Options;
use crate::pod::{Phase, Pod, Readiness};
use crate::tests::inputs;
use crate::tolerance::Tolerances;

const EVEN: Tolerances = Tolerances { up: 0.1, down: 0.1 };
const NARROW: Tolerances = Tolerances { up: 0.01, down: 0.1 };
const MAX: i64 = i64::MAX;

fn run_value(current: i32, ready: usize, others: usize, total: i64, target: i64, tolerances: Tolerances) -> (i64, i32) {
    let pod = |status| Pod {
        phase: Phase::Running,
        ready: Some(Readiness { status: Some(status), last_transition: Default::default() }),
        ..Pod::default()
    };
    let pods: Vec<Pod> = (0..ready + others).map(|i| pod(i < ready)).collect();
    let pods: Vec<&Pod> = pods.iter().collect();
    let options = Options::default();
    let answer = value(&inputs(&options, current, tolerances, &pods), total, target).expect("there are pods");
    (answer.value, answer.replicas)
}

fn run_average(replicas: i32, total: i64, target: i64, tolerances: Tolerances) -> (i64, i32) {
    let answer = average_value(&inputs(&Options::default(), replicas, tolerances, &[]), total, target);
    (answer.value, answer.replicas)
}

fn run_external(replicas: i32, values: &[i64], target: i64) -> (i64, i32) {
    let answer = external_average_value(&inputs(&Options::default(), replicas, EVEN, &[]), values, target);
    (answer.value, answer.replicas)
}

#[test]
fn a_value_scales_the_ready_pods_by_its_ratio_to_the_target() {
    // (current, ready pods, unready pods, total, target, replicas)
    for (current, ready, others, total, target, replicas) in [
        (3, 3, 0, 20000, 15000, 4),
        (3, 1, 2, 50000, 10000, 5),
        (5, 5, 0, 12000, 20000, 3),
        (3, 3, 0, MAX, 1, i32::MAX),
        (3, 3, 0, MAX, MAX, 3),
        (3, 0, 3, 20000, 10000, 0),
        (0, 0, 0, 1000, 1000, 1),
        (0, 0, 0, 1050, 1000, 2),
        (0, 0, 0, 0, 1000, 0),
        (2, 2, 0, -5000, 1000, -10),
    ] {
        assert_eq!(run_value(current, ready, others, total, target, EVEN), (total, replicas), "{total} of {target}");
    }
    assert_eq!(run_value(3, 3, 0, 20666, 20000, NARROW), (20666, 4));
}

#[test]
fn an_average_is_a_share_of_the_status_replicas() {
    assert_eq!(run_average(3, 20000, 5000, EVEN), (6667, 4));
    assert_eq!(run_average(4, 20166, 5000, EVEN), (5042, 4));
    assert_eq!(run_average(4, 20208, 5000, NARROW), (5052, 5));
    assert_eq!(run_average(0, 8600, 2800, EVEN).1, 4, "without replicas the ratio is not within tolerance");
    for (replicas, values, target, average, wanted) in [
        (3, &[8600][..], 2150, 2867, 4),
        (1, &[MAX], MAX, MAX, 1),
        (12, &[-84001, 99960, 68040], 20000, MAX, i32::MAX),
        (4, &[4, MAX - 5, 100], 1, MAX, i32::MAX),
    ] {
        assert_eq!(run_external(replicas, values, target), (average, wanted), "{values:?} of {target}");
    }
}

#[test]
fn a_sum_is_capped_at_the_largest_integer() {
    assert_eq!(sum(&[MAX / 2 + 1, MAX / 2 + 1]), MAX);
    assert_eq!(sum(&[MAX, 1, -5]), MAX, "values after the cap are not added");
    assert_eq!(sum(&[MAX - 1, 1, -5]), MAX - 5, "a sum of exactly the largest integer is not capped");
    assert_eq!(sum_for_average(&[0, 5]), 5);
    assert_eq!(sum(&[-5, 3]), -2);
    assert_eq!(sum_for_average(&[5, -3]), 2);
    assert_eq!(sum_for_average(&[-1, 5]), MAX, "a negative partial sum");
}

#[test]
fn without_pods_a_value_only_holds_the_scale_or_scales_from_zero() {
    let at = |current, total| value(&inputs(&Options::default(), current, EVEN, &[]), total, 1000);
    assert_eq!(
        at(3, 5000),
        Err("unable to calculate ready pods: no pods returned by selector while calculating replica count".to_owned())
    );
    assert_eq!(at(3, 1050).map(|a| a.replicas), Ok(3));
    assert_eq!(at(0, 5000).map(|a| a.replicas), Ok(5));
}

proptest! {
    #[test]
    fn more_load_never_means_fewer_pods(
        current in 0_i32..200, total in 0_i64..1_000_000_000, more in 0_i64..1_000_000_000, target in 1_i64..1_000_000,
        up in 0.0..0.5, down in 0.0..0.5,
    ) {
        let tolerances = Tolerances { up, down };
        let ready = usize::try_from(current).expect("not negative");
        prop_assert!(run_value(current, ready, 1, total, target, tolerances).1
            <= run_value(current, ready, 1, total + more, target, tolerances).1);
        prop_assert!(run_average(current, total, target, tolerances).1
            <= run_average(current, total + more, target, tolerances).1);
    }

    #[test]
    fn within_tolerance_the_scale_holds(
        current in 1_i32..200, ready in 0_usize..5, target in 1_i64..1_000_000, off in -0.1..0.1_f64,
    ) {
        let total = (target as f64 * (1.0 + off)) as i64;
        prop_assume!(EVEN.admits(total as f64 / target as f64));
        prop_assert_eq!(run_value(current, ready, 1, total, target, EVEN).1, current);
        let total = target * i64::from(current);
        prop_assert_eq!(run_average(current, total, target, EVEN).1, current);
    }
}
