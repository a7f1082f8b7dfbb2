//! Whole reconciles in one table: pods in all states, other kinds of metrics, and the effect of the last scaling.

use crate::reconcile::WriteResult;
use crate::tests::scenario::{NOW, PassResult, Scenario, bogus, cpu, external, object, pods_metric, scenario};

const OK: &str = "+SucceededRescale +ValidMetricFound -DesiredWithinRange";
const HELD: &str = "+ReadyForNewScale +ValidMetricFound -DesiredWithinRange";
const JUMP: &str = "+SucceededRescale";

/// Builds pods from letters and usage, each with the same request.
fn pods(mut scenario: Scenario, letters: &str, usage: &[i64], request: i64) -> Scenario {
    scenario.pods = letters.chars().zip(usage).map(|(letter, usage)| (letter, *usage, request)).collect();
    scenario
}

/// Sets the stored status to a scaling a moment ago.
fn just_scaled(mut scenario: Scenario) -> Scenario {
    scenario.status.last_scale_time = Some(crate::status::time(NOW));
    scenario
}

fn metric_scenario(bounds: (i32, i32), values: &[i64]) -> Scenario {
    let mut scenario = scenario(bounds, 3, vec![pods_metric(15_000)]);
    scenario.values = Ok(values.to_vec());
    scenario
}

#[test]
fn whole_passes_come_to_what_upstreams_come_to() {
    const LOW: &[i64] = &[100, 300, 500, 250, 250];
    const SURPLUS: &[i64] = &[4000, 9500, 3000, 7000, 3200, 2000];
    let busy = || scenario((2, 6), 3, vec![cpu(30)]);
    let capped = "+SucceededRescale +ValidMetricFound +TooManyReplicas";
    for (case, mut scenario, desired, conditions, labels) in [
        ("one hot", pods(busy(), "hrr", &[300, 500, 700], 1000), 4, OK, "scale_up,none"),
        ("two hot", pods(busy(), "rhh", &[400, 500, 700], 1000), 3, HELD, "none,none"),
        (
            "terminating ignored",
            pods(scenario((2, 6), 2, vec![cpu(30)]), "rrdd", &[500, 700, 9, 9], 1000),
            4,
            OK,
            "scale_up,none",
        ),
        (
            "same, last two unready",
            pods(scenario((2, 6), 5, vec![cpu(50)]), "rrruu", LOW, 1000),
            2,
            OK,
            "scale_down,none",
        ),
        ("same, last two hot", pods(scenario((2, 6), 5, vec![cpu(50)]), "rrrhh", LOW, 1000), 2, OK, "scale_down,none"),
        (
            "superfluous series",
            pods(scenario((2, 6), 4, vec![cpu(100)]), "rrrrgg", SURPLUS, 1000),
            6,
            capped,
            "scale_up,none",
        ),
        ("lastScaleTime, below min", just_scaled(scenario((2, 6), 1, vec![cpu(30)])), 2, JUMP, "scale_up,none"),
        ("lastScaleTime, above max", just_scaled(scenario((2, 5), 6, vec![cpu(30)])), 5, JUMP, "scale_down,none"),
        (
            "lastScaleTime, metrics",
            just_scaled(metric_scenario((1, 5), &[20_000, 10_000, 30_000])),
            4,
            OK,
            "scale_up,none",
        ),
        (
            "Object Value down",
            pods(scenario((2, 6), 5, vec![object("Value", 20_000)]), "rrrrr", &[0; 5], 1000).total(12_000),
            3,
            OK,
            "scale_down,none",
        ),
        ("External Value up", scenario((2, 6), 3, vec![external(6_666, 0)]).total(8_600), 4, OK, "scale_up,none"),
        (
            "0, no marker, gate on",
            scenario((0, 6), 0, vec![cpu(50), bogus()]).with_gate(),
            0,
            "+SucceededGetScale -ScalingDisabled",
            "none,none",
        ),
        (
            "no event when size unchanged",
            pods(scenario((1, 5), 2, vec![cpu(50)]), "rr", &[200, 200], 400),
            2,
            HELD,
            "none,none",
        ),
    ] {
        let PassResult { desired: got, conditions: seen, action, error, events, .. } = scenario.pass();
        assert_eq!((got, seen.join(" ").as_str()), (desired, conditions), "{case}");
        assert_eq!(format!("{action},{error}"), labels, "{case}");
        assert_eq!(events.is_empty(), action == "none", "{case}: {events:?}");
    }
}

/// The computed value is reported; the desired replicas stay.
#[test]
fn a_scale_that_cannot_be_written() {
    let mut scenario = pods(scenario((1, 5), 3, vec![cpu(100)]), "rrr", &[150; 3], 100);
    scenario.writes = vec![WriteResult::Failed("the etcd is on fire".into())];
    let seen = scenario.pass();
    assert_eq!((seen.desired, seen.action, seen.error), (3, "none", "internal"));
    assert_eq!(seen.conditions, ["-FailedUpdateScale", "+ValidMetricFound", "-DesiredWithinRange"]);
    assert!(seen.events[0].contains("New size: 5;"), "{:?}", seen.events);
    assert_eq!(scenario.status.current_metrics.map(|metrics| metrics.len()), Some(1));
}
