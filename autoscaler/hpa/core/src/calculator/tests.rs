//! Tests of replicas from values of pods: tables and properties.

use std::time::Duration;

use common::time::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::options::Options;
use crate::pod::{Container, Phase, Pod, Readiness};
use crate::tests::inputs;
use crate::tolerance::Tolerances;
use crate::usage::{PodUsage, PodValue, of_pods, of_resource};

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
        containers: vec![
            ("app".to_owned(), [("cpu".to_owned(), *value)].into()),
            ("other".to_owned(), [("cpu".to_owned(), 0)].into()),
        ],
    };
    values.iter().enumerate().filter(|(_, value)| **value >= 0).map(usage).collect()
}

struct Case<'a> {
    current: i32,
    states: &'a str,
    values: &'a [i64],
    /// Requests of the pods; the last one applies to all further pods.
    requests: &'a [i64],
    tolerances: Tolerances,
    container: Option<&'a str>,
}

impl Case<'_> {
    fn run(&self, target: i32) -> Result<(i32, Utilization), String> {
        let request = |i: usize| self.requests.get(i).or(self.requests.last()).copied();
        let pods: Vec<Pod> = self.states.chars().enumerate().map(|(i, state)| pod(i, state, request(i))).collect();
        let pods: Vec<&Pod> = pods.iter().collect();
        let usages = usages(self.values);
        let samples = of_resource(&usages, self.container, "cpu");
        let options = options();
        let inputs = inputs(&options, self.current, self.tolerances, &pods);
        utilization(&inputs, samples, (self.container, "cpu"), target)
    }

    /// Returns replicas, percentage and average.
    fn answer(&self, target: i32) -> (i32, i32, i64) {
        let (replicas, utilization) = self.run(target).expect("an answer");
        (replicas, utilization.percent, utilization.average)
    }
}

#[test]
fn utilization_counts_pods_by_their_state() {
    const R8: &[i64] = &[200, 600, 1000, 500, 500];
    const R25: &[i64] = &[800, 400, 620, 580, 604, 596, 602, 598, 600, 600];
    // (row, current, pods, values, requests, target, percent, average, replicas)
    for (row, current, states, values, requests, target, percent, average, replicas) in [
        (1, 3, "rrr", &[600, 1000, 1400][..], &[2000][..], 30, 50, 1000, 5),
        (2, 3, "urr", &[600, 1000, 1400], &[2000], 30, 60, 1200, 4),
        (3, 3, "hrr", &[600, 1000, 1400], &[2000], 30, 60, 1200, 4),
        (4, 3, "ruu", &[800, 1000, 1400], &[2000], 30, 40, 800, 3),
        (5, 3, "rhh", &[800, 1000, 1400], &[2000], 30, 40, 800, 3),
        (6, 2, "rrff", &[1000, 1400], &[2000], 30, 60, 1200, 4),
        (7, 2, "rrdd", &[1000, 1400, 9, 9], &[2000], 30, 60, 1200, 4),
        (8, 5, "rrrrr", R8, &[2000], 50, 28, 560, 3),
        (9, 5, "rrruu", R8, &[2000], 50, 30, 600, 2),
        (10, 5, "rrrhh", R8, &[2000], 50, 30, 600, 2),
        (11, 5, "rpppp", &[200], &[2000], 50, 10, 200, 1),
        (12, 5, "rrrrrff", R8, &[2000], 50, 28, 560, 3),
        (12, 5, "rrrrrdd", R8, &[2000], 50, 28, 560, 3),
        (13, 3, "rrr", &[2020, 2060, 2040], &[1800, 2000, 2200], 100, 102, 2040, 3),
        (14, 4, "rrrr", &[8000, 19000, 6000, 14000, 6400, 4000], &[2000], 100, 587, 11750, 24),
        (15, 4, "rrrr", &[800, 190], &[2000], 100, 24, 495, 3),
        (16, 2, "rr", &[2000], &[2000], 100, 100, 2000, 2),
        (17, 2, "rr", &[3800], &[2000], 100, 190, 3800, 2),
        (18, 2, "rr", &[1200], &[2000], 100, 60, 1200, 2),
        (19, 3, "urr", &[200, 900], &[2000], 50, 45, 900, 3),
        (20, 3, "hrr", &[200, 900], &[2000], 50, 45, 900, 3),
        (21, 3, "urr", &[200, 4000], &[2000], 50, 200, 4000, 4),
        (22, 4, "urrr", &[200, 200, 200], &[2000], 50, 10, 200, 3),
        (23, 4, "urrr", &[400, 200, 200], &[2000, 2000, 4000, 4000], 300, 6, 200, 2),
        (24, 2, "rrr", &[200, 200], &[2000], 50, 10, 200, 2),
        (25, 10, "rrrrrrrrrr", &[300; 10], R25, 56, 50, 300, 9),
        (26, 10, "rrrrrrrrrr", &[300; 10], R25, 55, 50, 300, 10),
        // Our own rows. At exactly the target a missing pod is left out. Above it, the pod counts as idle, which is
        // just enough here.
        (27, 2, "rr", &[1000], &[2000], 50, 50, 1000, 2),
        (28, 2, "rrr", &[6000], &[2000], 100, 300, 6000, 2),
    ] {
        let case = Case { current, states, values, requests, tolerances: EVEN, container: None };
        assert_eq!(case.answer(target), (replicas, percent, average), "R{row}");
    }
}

#[test]
fn a_utilization_that_cannot_be_computed_says_why() {
    for (states, values, requests, error) in [
        ("r", &[-1, 100][..], &[2000][..], "no metrics returned matched known pods"),
        ("r", &[400], &[], "missing request for cpu in container app of Pod p0"),
        ("", &[400], &[], "no pods returned by selector while calculating replica count"),
        ("uh", &[400, 400], &[2000], "did not receive metrics for targeted pods (pods might be unready)"),
    ] {
        let case = Case { current: 1, states, values, requests, tolerances: EVEN, container: None };
        assert_eq!(case.run(100).map_err(|e| e.to_string()), Err(error.to_owned()));
    }
}

/// Goal: one container of each pod is measured, and only its request counts.
#[test]
fn one_container_of_each_pod_can_be_measured() {
    for (current, states, values, target, percent, average, replicas) in [
        (3, "rrr", &[300, 500, 700][..], 30, 50, 500, 5),
        (3, "hrr", &[300, 500, 700], 30, 60, 600, 4),
        (2, "rrff", &[500, 700], 30, 60, 600, 4),
        (2, "rrdd", &[500, 700, 9, 9], 30, 60, 600, 4),
        (5, "rrrrr", &[100, 300, 500, 250, 250], 50, 28, 280, 3),
        (5, "rrruu", &[100, 300, 500, 250, 250], 50, 30, 300, 2),
        (5, "rpppp", &[100], 50, 10, 100, 1),
        (5, "rrrhh", &[100, 300, 500, 1000, 1000], 50, 30, 300, 2),
    ] {
        let case = Case { current, states, values, requests: &[1000], tolerances: EVEN, container: Some("app") };
        assert_eq!(case.answer(target), (replicas, percent, average), "{states} {values:?}");
    }
}

#[test]
fn up_and_down_have_tolerances_of_their_own() {
    for (values, down, up, percent, replicas) in [
        ([1818, 2020, 2222], 0.0, 0.0, 101, 4),
        ([3780, 3820, 3800], 0.1, 2.0, 190, 3),
        ([2200, 2160, 2180], 2.0, 0.08, 109, 4),
        ([1320, 1280, 1300], 0.36, 0.1, 65, 3),
        ([1320, 1280, 1300], 0.34, 0.1, 65, 2),
    ] {
        let tolerances = Tolerances { up, down };
        let requests = &[1800, 2000, 2200];
        let case = Case { current: 3, states: "rrr", values: &values, requests, tolerances, container: None };
        assert_eq!(case.run(100).map(|(replicas, a)| (a.percent, replicas)), Ok((percent, replicas)), "{values:?}");
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
        let case =
            Case { current, states: &states, values: &values, requests: &[100], tolerances: EVEN, container: None };
        assert_eq!(case.run(target).map(|(replicas, _)| replicas), Ok(replicas), "{pods} at {percent}");
    }
}

/// Goal: assumptions may hold a change back, but never reverse it.
#[test]
fn an_assumption_never_turns_a_change_round() {
    let cautious =
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
        assert_eq!(cautious(current, first, second, pods), expected, "{current}, {first} to {second}, {pods} values");
    }
}

/// Goal: the edge case in the module header.
#[test]
fn few_existing_pods_shrink_a_large_target_at_twice_its_load() {
    let case = Case { current: 4, states: "r", values: &[200], requests: &[200], tolerances: EVEN, container: None };
    assert_eq!(case.run(50).map(|(replicas, _)| replicas), Ok(2));
}

fn plain(current: i32, states: &str, values: &[i64], target: i64, tolerances: Tolerances) -> (i64, i32) {
    let pods: Vec<Pod> = states.chars().enumerate().map(|(i, state)| pod(i, state, None)).collect();
    let pods: Vec<&Pod> = pods.iter().collect();
    let value = |(i, v): (usize, &i64)| PodValue { pod: format!("p{i}"), value: *v, ..PodValue::default() };
    let values: Vec<PodValue> = values.iter().enumerate().map(value).collect();
    let options = options();
    let inputs = inputs(&options, current, tolerances, &pods);
    let answer = average(&inputs, false, of_pods(&values), target).expect("an answer");
    (answer.value, answer.replicas)
}

#[test]
fn metrics_of_pods_are_plain_values() {
    for (current, states, values, target, average, replicas) in [
        (3, "rrr", &[20000, 10000, 30000][..], 15000, 20000, 4),
        (3, "rrh", &[50000, 10000, 30000], 15000, 30000, 6),
        (3, "hrh", &[50000, 15000, 30000], 15000, 31666, 7),
        (5, "rrrrr", &[12000; 5], 20000, 12000, 3),
        (3, "rrr", &[20000, 21000, 21000], 20000, 20666, 3),
        (5, "rrrrr", &[20000, 19000, 21000], 20000, 20000, 5),
        (2, "rrr", &[10000, 10000], 17000, 10000, 2),
        (1, "r", &[8600], 4400, 8600, 2),
        (2, "rp", &[20000], 20000, 20000, 2), // Exactly on target: the pending pod is left out.
    ] {
        assert_eq!(plain(current, states, values, target, EVEN), (average, replicas), "{states} {values:?}");
    }
    let narrow = Tolerances { up: 0.01, down: 0.1 };
    assert_eq!(plain(3, "rrr", &[20000, 21000, 21000], 20000, narrow), (20666, 4));
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
            let case = Case { current, states: &states, values, requests: &[request], tolerances, container: None };
            case.run(target).map(|(replicas, _)| replicas)
        };
        let mut busier = values.clone();
        busier[at.index(values.len())] += more;
        prop_assert!(run(&values).expect("replicas") <= run(&busier).expect("replicas"));
        let target = i64::from(target) * 10;
        prop_assert!(plain(current, &states, &values, target, tolerances).1
            <= plain(current, &states, &busier, target, tolerances).1);
    }

    /// Goal: settled pods with an average within tolerance of the target keep their scale.
    #[test]
    fn within_tolerance_nothing_moves(
        count in 1_usize..30, target in 10_i64..1000, off in -0.1..0.1_f64, tolerance in 0.11..0.5_f64,
    ) {
        let value = (target as f64 * (1.0 + off)) as i64;
        let current = i32::try_from(count).expect("few");
        let tolerances = Tolerances { up: tolerance, down: tolerance };
        prop_assume!(tolerances.admits(value as f64 / target as f64));
        let (states, values) = ("r".repeat(count), vec![value; count]);
        prop_assert_eq!(plain(current, &states, &values, target, tolerances).1, current);
        let percent = i32::try_from(target).expect("small");
        let case = Case { current, states: &states, values: &values, requests: &[100], tolerances, container: None };
        prop_assert_eq!(case.run(percent).map(|(replicas, _)| replicas), Ok(current));
    }
}
