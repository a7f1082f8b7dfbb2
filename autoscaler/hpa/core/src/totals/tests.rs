//! Tests of sums and of properties. The decisions of Kubernetes' controller are recorded in `tests/conformance` (kinds
//! `hpa_object` and `hpa_external`).

use proptest::prelude::*;

use super::*;
use crate::options::Options;
use crate::pod::{Phase, Pod, Readiness};
use crate::tests::{EVEN, inputs};
use crate::tolerance::Tolerances;

const MAX: i64 = i64::MAX;

fn run_value(current: i32, ready: usize, others: usize, total: i64, target: i64, tolerances: Tolerances) -> i32 {
    let pod = |status| Pod {
        phase: Phase::Running,
        ready: Some(Readiness { status: Some(status), last_transition: Default::default() }),
        ..Pod::default()
    };
    let pods: Vec<Pod> = (0..ready + others).map(|i| pod(i < ready)).collect();
    let pods: Vec<&Pod> = pods.iter().collect();
    let options = Options::default();
    value(&inputs(&options, current, tolerances, &pods), total, target).expect("there are pods").replicas
}

fn run_average(replicas: i32, total: i64, target: i64, tolerances: Tolerances) -> i32 {
    average_value(&inputs(&Options::default(), replicas, tolerances, &[]), total, target).replicas
}

#[test]
fn a_sum_is_capped_at_the_largest_integer() {
    assert_eq!(sum(&[MAX, 1, -5]), MAX, "values after the cap are not added");
    assert_eq!(sum(&[MAX - 1, 1, -5]), MAX - 5, "a sum of exactly the largest integer is not capped");
}

#[test]
fn a_value_outside_the_tolerance_needs_pods() {
    let error = value(&inputs(&Options::default(), 3, EVEN, &[]), 5000, 1000).expect_err("no pods");
    assert_eq!(error, format!("unable to calculate ready pods: {NO_PODS}"));
}

proptest! {
    #[test]
    fn more_load_never_means_fewer_pods(
        current in 0_i32..200, total in 0_i64..1_000_000_000, more in 0_i64..1_000_000_000, target in 1_i64..1_000_000,
        up in 0.0..0.5, down in 0.0..0.5,
    ) {
        let tolerances = Tolerances { up, down };
        let ready = usize::try_from(current).expect("not negative");
        prop_assert!(run_value(current, ready, 1, total, target, tolerances)
            <= run_value(current, ready, 1, total + more, target, tolerances));
        prop_assert!(run_average(current, total, target, tolerances)
            <= run_average(current, total + more, target, tolerances));
    }

    #[test]
    fn within_tolerance_the_scale_holds(
        current in 1_i32..200, ready in 0_usize..5, target in 1_i64..1_000_000, off in -0.1..0.1_f64,
    ) {
        let total = (target as f64 * (1.0 + off)) as i64;
        prop_assume!(EVEN.admits(total as f64 / target as f64));
        prop_assert_eq!(run_value(current, ready, 1, total, target, EVEN), current);
        let total = target * i64::from(current);
        prop_assert_eq!(run_average(current, total, target, EVEN), current);
    }
}
