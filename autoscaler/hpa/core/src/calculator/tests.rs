//! Tests of replicas from values of pods: tables and properties.

use std::time::Duration;

use common::time::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::options::Options;
use crate::pod::{Container, Phase, Pod, Readiness};
use crate::tests::inputs;
use crate::tolerance::Tolerances;
use crate::usage::{PodUsage, PodValue, pod_samples, resource_samples};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const EVEN: Tolerances = Tolerances { up: 0.1, down: 0.1 };

fn options() -> Options {
    let (two_minutes, ten_seconds) = (Duration::from_secs(120), Duration::from_secs(10));
    Options { cpu_initialization_period: two_minutes, initial_readiness_delay: ten_seconds, ..Options::default() }
}

/// Builds pod `i` with a state letter: ready, unready, hot (not ready and started now), pending, failed or deleting.
fn pod(i: usize, state: char, request: Option<i64>) -> Pod {
    let age = Duration::from_secs(if state == 'h' { 0 } else { 180 });
    Pod {
        name: format!("p{i}"),
        phase: match state {
            'p' => Phase::Pending,
            'f' => Phase::Failed,
            _ => Phase::Running,
        },
        deleting: state == 'd',
        start_time: Some(NOW - age),
        ready: Some(Readiness { status: Some(!"uhp".contains(state)), last_transition: NOW - age }),
        containers: vec![Container {
            name: "app".into(),
            requests: request.map(|request| ("cpu".to_owned(), request)).into_iter().collect(),
            ..Container::default()
        }],
        ..Pod::default()
    }
}

/// Builds usages; a negative value means a missing one.
fn usages(values: &[i64]) -> Vec<PodUsage> {
    let usage = |(i, value): (usize, &i64)| PodUsage {
        pod: format!("p{i}"),
        timestamp: NOW,
        window: Duration::from_secs(60),
        containers: vec![("app".to_owned(), [("cpu".to_owned(), *value)].into())],
    };
    values.iter().enumerate().filter(|(_, value)| **value >= 0).map(usage).collect()
}

struct Case<'a> {
    current: i32,
    states: &'a str,
    values: &'a [i64],
    /// Request of each pod.
    request: Option<i64>,
    tolerances: Tolerances,
}

impl Case<'_> {
    fn run(&self, target: i32) -> Result<(i32, Utilization), String> {
        let pods: Vec<Pod> = self.states.chars().enumerate().map(|(i, state)| pod(i, state, self.request)).collect();
        let pods: Vec<&Pod> = pods.iter().collect();
        let usages = usages(self.values);
        let samples = resource_samples(&usages, None, "cpu");
        let options = options();
        let inputs = inputs(&options, self.current, self.tolerances, &pods);
        utilization(&inputs, samples, (None, "cpu"), target)
    }
}

#[test]
fn utilization_counts_pods_by_their_state() {
    for (current, states, values, target, percent, average, replicas) in [
        (3, "rrr", &[600, 1000, 1400][..], 30, 50, 1000, 5),
        (3, "urr", &[600, 1000, 1400], 30, 60, 1200, 4),
        (3, "rhh", &[800, 1000, 1400], 30, 40, 800, 3),
        (2, "rrff", &[1000, 1400], 30, 60, 1200, 4),
        (2, "rrdd", &[1000, 1400, 9, 9], 30, 60, 1200, 4),
        (5, "rpppp", &[200], 50, 10, 200, 1),
        (2, "rr", &[3800], 100, 190, 3800, 2),
        (2, "rr", &[1200], 100, 60, 1200, 2),
        (2, "rrr", &[200, 200], 50, 10, 200, 2),
        // At exactly the target a missing pod is left out. Above it, the pod counts as idle, which is just enough here.
        (2, "rr", &[1000], 50, 50, 1000, 2),
        (2, "rrr", &[6000], 100, 300, 6000, 2),
    ] {
        let case = Case { current, states, values, request: Some(2000), tolerances: EVEN };
        let (got, utilization) = case.run(target).expect("an answer");
        let got = (got, utilization.percent, utilization.average);
        assert_eq!(got, (replicas, percent, average), "{states} {values:?}");
    }
}

#[test]
fn each_failure_of_a_utilization_has_its_error() {
    for (states, values, request, error) in [
        ("r", &[-1, 100][..], Some(2000), "no metrics returned matched known pods"),
        ("r", &[400], None, "missing request for cpu in container app of Pod p0"),
        ("", &[400], None, "no pods returned by selector while calculating replica count"),
        ("uh", &[400, 400], Some(2000), "did not receive metrics for targeted pods (pods might be unready)"),
    ] {
        let case = Case { current: 1, states, values, request, tolerances: EVEN };
        assert_eq!(case.run(100).map_err(|e| e.to_string()), Err(error.to_owned()));
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
        let (states, values) = ("r".repeat(pods), vec![percent; pods]);
        let current = i32::try_from(pods).expect("few");
        let case = Case { current, states: &states, values: &values, request: Some(100), tolerances: EVEN };
        assert_eq!(case.run(target).map(|(replicas, _)| replicas), Ok(replicas), "{pods} at {percent}");
    }
}

/// Goal: assumptions may hold a change back, but never reverse it.
#[test]
fn an_assumption_never_reverses_a_change() {
    let conservative =
        |current, first, second, pods| inputs(&options(), current, EVEN, &[]).conservative(first, second, pods);
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
        let replicas = conservative(current, first, second, pods);
        assert_eq!(replicas, expected, "{current}, {first} to {second}, {pods} values");
    }
}

/// Goal: the edge case in the module header.
#[test]
fn a_target_with_few_existing_pods_shrinks_at_twice_its_load() {
    let case = Case { current: 4, states: "r", values: &[200], request: Some(200), tolerances: EVEN };
    assert_eq!(case.run(50).map(|(replicas, _)| replicas), Ok(2));
}

fn run_average(current: i32, states: &str, values: &[i64], target: i64, tolerances: Tolerances) -> (i64, i32) {
    let pods: Vec<Pod> = states.chars().enumerate().map(|(i, state)| pod(i, state, None)).collect();
    let pods: Vec<&Pod> = pods.iter().collect();
    let value = |(i, v): (usize, &i64)| PodValue { pod: format!("p{i}"), value: *v, ..PodValue::default() };
    let values: Vec<PodValue> = values.iter().enumerate().map(value).collect();
    let options = options();
    let inputs = inputs(&options, current, tolerances, &pods);
    let answer = average(&inputs, false, pod_samples(&values), target).expect("an answer");
    (answer.value, answer.replicas)
}

#[test]
fn an_average_counts_pods_by_their_state() {
    for (current, states, values, target, average, replicas) in [
        (3, "rrr", &[20000, 10000, 30000][..], 15000, 20000, 4),
        (3, "hrh", &[50000, 15000, 30000], 15000, 31666, 7),
        (5, "rrrrr", &[12000; 5], 20000, 12000, 3),
        (3, "rrr", &[20000, 21000, 21000], 20000, 20666, 3),
        (2, "rp", &[20000], 20000, 20000, 2), // Exactly on target: the pending pod is left out.
    ] {
        assert_eq!(run_average(current, states, values, target, EVEN), (average, replicas), "{states} {values:?}");
    }
    let narrow = Tolerances { up: 0.01, down: 0.1 };
    assert_eq!(run_average(3, "rrr", &[20000, 21000, 21000], 20000, narrow), (20666, 4));
}

proptest! {
    /// Goal: more load never lowers the result for settled pods, which are ready, measured and as many as the scale
    /// says.
    #[test]
    fn more_load_never_means_fewer_pods(
        values in prop::collection::vec(0_i64..5000, 1..40), more in 0_i64..5000, at in any::<prop::sample::Index>(),
        target in 1_i32..300, request in 1_i64..4000, up in 0.0..0.5, down in 0.0..0.5,
    ) {
        let states = "r".repeat(values.len());
        let current = i32::try_from(values.len()).expect("few");
        let tolerances = Tolerances { up, down };
        let run = |values: &[i64]| {
            let case = Case { current, states: &states, values, request: Some(request), tolerances };
            case.run(target).map(|(replicas, _)| replicas)
        };
        let mut busier = values.clone();
        busier[at.index(values.len())] += more;
        prop_assert!(run(&values).expect("replicas") <= run(&busier).expect("replicas"));
        let target = i64::from(target) * 10;
        prop_assert!(run_average(current, &states, &values, target, tolerances).1
            <= run_average(current, &states, &busier, target, tolerances).1);
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
        let (states, values) = ("r".repeat(count), vec![value; count]);
        prop_assert_eq!(run_average(current, &states, &values, target, tolerances).1, current);
        let percent = i32::try_from(target).expect("small");
        let case = Case { current, states: &states, values: &values, request: Some(100), tolerances };
        prop_assert_eq!(case.run(percent).map(|(replicas, _)| replicas), Ok(current));
    }
}
