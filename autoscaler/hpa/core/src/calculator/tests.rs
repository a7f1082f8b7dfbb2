//! Tests of errors, of the order of floating-point operations, and of properties. The decisions of Kubernetes'
//! controller are recorded in `tests/conformance` (kinds `hpa_resource` and `hpa_pods`).

use proptest::prelude::*;

use super::*;
use crate::options::Options;
use crate::pod::Pod;
use crate::tests::scenario::{Scenario, pod_values, scenario};
use crate::tests::{EVEN, inputs};
use crate::tolerance::Tolerances;
use crate::usage::{pod_samples, resource_samples};

/// Computes the replicas for pods with a state letter, a usage and a request each.
fn run(pods: Vec<(char, i64, i64)>, target: i32, tolerances: Tolerances) -> Result<i32, String> {
    let scenario = Scenario { pods, ..scenario((1, 9), 0, Vec::new()) };
    let (usages, pods) = (scenario.usages(), scenario.objects());
    let pods: Vec<&Pod> = pods.iter().collect();
    let (current, options) = (i32::try_from(pods.len()).expect("few"), Options::default());
    let inputs = inputs(&options, current, tolerances, &pods);
    utilization(&inputs, resource_samples(&usages, None, "cpu"), (None, "cpu"), target).map(|(replicas, _)| replicas)
}

/// Computes the replicas for ready pods with these values.
fn run_average(values: &[i64], target: i64, tolerances: Tolerances) -> i32 {
    let pods = scenario((1, 9), 0, Vec::new()).using(values).objects();
    let pods: Vec<&Pod> = pods.iter().collect();
    let (current, options) = (i32::try_from(pods.len()).expect("few"), Options::default());
    let (inputs, values) = (inputs(&options, current, tolerances, &pods), pod_values(values));
    average(&inputs, false, pod_samples(&values), target).expect("an answer").replicas
}

/// Returns ready pods that use these amounts and request the same.
fn ready(values: &[i64], request: i64) -> Vec<(char, i64, i64)> {
    values.iter().map(|value| ('r', *value, request)).collect()
}

#[test]
fn each_failure_of_a_utilization_has_its_error() {
    for (pods, error) in [
        (vec![('r', 400, 0)], "missing request for cpu in container app of Pod p0"),
        (vec![], "no pods returned by selector while calculating replica count"),
        (vec![('u', 400, 2000)], "did not receive metrics for targeted pods (pods might be unready)"),
    ] {
        assert_eq!(run(pods, 100, EVEN), Err(error.to_owned()));
    }
}

/// Goal: the order of floating-point operations is upstream's. Exact arithmetic would yield one less.
#[test]
fn floating_point_operations_keep_upstreams_order() {
    for (pods, percent, target, replicas) in [
        (25, 56, 50, 29),
        (25, 14, 50, 8),
        (50, 110, 50, 111),
        (10, 110, 100, 10),
        (10, 111, 100, 12),
        (10, 90, 100, 10),
        (10, 89, 100, 9),
    ] {
        assert_eq!(run(vec![('r', percent, 100); pods], target, EVEN), Ok(replicas), "{pods} at {percent}");
    }
}

/// Goal: assumptions may hold a change back, but never reverse it.
#[test]
fn an_assumption_never_reverses_a_change() {
    // (current, ratio as measured, ratio with assumptions, values) -> replicas
    for (current, first, second, pods, expected) in [
        (3, 0.5, 1.5, 4, 3), // From below to above: hold.
        (3, 1.5, 0.5, 4, 3), // From above to below: hold.
        (3, 1.0, 1.5, 4, 6), // Exactly on target there is no side to change.
        (3, 1.0, 0.5, 4, 2),
        (3, 1.5, 1.1, 4, 3), // Within tolerance now.
        (3, 1.5, 1.2, 4, 5),
        (3, 0.5, 0.8, 3, 3),
        (10, 1.5, 1.5, 2, 10), // More load, but fewer replicas by the number of values: hold.
        (1, 0.5, 0.5, 8, 1),   // Less load, but more replicas: hold.
    ] {
        let replicas = inputs(&Options::default(), current, EVEN, &[]).conservative(first, second, pods);
        assert_eq!(replicas, expected, "{current}, {first} to {second}, {pods} values");
    }
}

proptest! {
    /// Goal: more load never lowers the result for settled pods, which are ready, measured and as many as the scale
    /// says.
    #[test]
    fn more_load_never_means_fewer_pods(
        values in prop::collection::vec(0_i64..5000, 1..40), more in 0_i64..5000, at in any::<prop::sample::Index>(),
        target in 1_i32..300, request in 1_i64..4000, up in 0.0..0.5, down in 0.0..0.5,
    ) {
        let tolerances = Tolerances { up, down };
        let mut busier = values.clone();
        busier[at.index(values.len())] += more;
        let replicas = |values: &[i64]| run(ready(values, request), target, tolerances).expect("replicas");
        prop_assert!(replicas(&values) <= replicas(&busier));
        let target = i64::from(target) * 10;
        prop_assert!(run_average(&values, target, tolerances) <= run_average(&busier, target, tolerances));
    }

    /// Goal: settled pods with an average within tolerance of the target keep their scale.
    #[test]
    fn within_tolerance_the_scale_holds(
        count in 1_usize..30, target in 10_i64..1000, off in -0.1..0.1_f64, tolerance in 0.11..0.5_f64,
    ) {
        let value = (target as f64 * (1.0 + off)) as i64;
        let current = i32::try_from(count).expect("few");
        let tolerances = Tolerances { up: tolerance, down: tolerance };
        prop_assume!(tolerances.admits(value as f64 / target as f64));
        let values = vec![value; count];
        prop_assert_eq!(run_average(&values, target, tolerances), current);
        let percent = i32::try_from(target).expect("small");
        prop_assert_eq!(run(ready(&values, 100), percent, tolerances), Ok(current));
    }
}
