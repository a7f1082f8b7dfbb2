//! One test for each row of the table of what is superseded, in its order.

use std::collections::BTreeMap;
use std::time::Duration;

use super::condition::ConditionType;
use super::decision::{Limit, Stabilization};
use super::memory::{Memory, Recommendation};
use super::pod::{Container, InitContainer, Pod};
use super::reconcile::{Scale, ScaleError, WriteResult};
use super::scenario::{NOW, Scenario, bogus, cpu, external, object, scenario};
use super::status::quantity;
use super::tolerance::Tolerances;
use super::{legacy, totals, usage};

fn busy() -> Scenario {
    scenario((1, 6), 3, vec![cpu(30)]).using(&[300, 500, 700])
}

fn idle(min: i32) -> Scenario {
    scenario((min, 6), 3, vec![cpu(50)]).using(&[0, 0, 0])
}

#[test]
fn there_are_no_forbidden_windows() {
    for (mut scenario, desired) in [(busy(), 5), (idle(1), 1)] {
        scenario.status.last_scale_time = Some(NOW);
        assert_eq!(scenario.pass().desired, desired, "scaled a moment ago");
    }
    let mut remembered = idle(1);
    remembered.memory.recommendations = vec![Recommendation { replicas: 3, at: NOW - Duration::from_secs(299) }];
    assert_eq!(remembered.pass().desired, 3, "a recommendation holds it instead");
}

#[test]
fn trouble_with_the_scale_is_able_to_scale_being_false() {
    let mut unreadable = busy();
    unreadable.scale = Err(ScaleError::Read("down".into()));
    let mut unwritable = busy();
    unwritable.writes = vec![WriteResult::Failed("down".into())];
    for (mut scenario, reason) in [(unreadable, "FailedGetScale"), (unwritable, "FailedUpdateScale")] {
        scenario.pass();
        let condition = &scenario.status.conditions[0];
        assert_eq!((&condition.kind, condition.status), (&ConditionType::AbleToScale, Some(false)));
        assert_eq!(condition.reason, reason);
    }
}

#[test]
fn waiting_is_able_to_scale_being_true() {
    for (stabilization, reason) in [
        (Stabilization::Ready, "ReadyForNewScale"),
        (Stabilization::Up, "ScaleUpStabilized"),
        (Stabilization::Down, "ScaleDownStabilized"),
    ] {
        assert_eq!(stabilization.reason(), reason);
    }
    let mut held = idle(1);
    held.memory = Memory::default();
    held.pass();
    let condition = held.status.conditions.iter().find(|c| c.kind == ConditionType::AbleToScale).expect("it is set");
    assert_eq!((condition.status, condition.reason.as_str()), (Some(true), "ScaleDownStabilized"));
}

#[test]
fn what_computing_fails_at_is_scaling_active_being_false() {
    for (mut scenario, reason) in [
        (scenario((1, 6), 3, vec![bogus()]), "InvalidMetricSourceType"),
        (scenario((1, 6), 0, vec![cpu(1)]), "ScalingDisabled"),
    ] {
        scenario.pass();
        let condition = scenario.status.conditions.last().expect("it is set");
        assert_eq!((&condition.kind, condition.status), (&ConditionType::ScalingActive, Some(false)));
        assert_eq!(condition.reason, reason);
    }
}

#[test]
fn being_capped_is_scaling_limited_being_true() {
    let reasons = [Limit::TooFew, Limit::TooMany, Limit::ScaleUp, Limit::ScaleDown].map(Limit::reason);
    assert_eq!(reasons, ["TooFewReplicas", "TooManyReplicas", "ScaleUpLimit", "ScaleDownLimit"]);
    let mut floor = idle(2);
    floor.pass();
    let condition =
        floor.status.conditions.iter().find(|c| c.kind == ConditionType::ScalingLimited).expect("it is set");
    assert_eq!((condition.status, condition.reason.as_str()), (Some(true), "TooFewReplicas"));
}

#[test]
fn no_event_speaks_of_defaults_computations_or_conversions() {
    let gone = ["DefaultPolicy", "DesiredReplicasComputed", "FailedConvertHPA"];
    for mut scenario in [busy(), idle(1), scenario((1, 6), 3, vec![bogus()]), scenario((1, 6), 3, Vec::new())] {
        let events = scenario.pass().events;
        assert!(events.iter().all(|event| gone.iter().all(|reason| !event.starts_with(reason))), "{events:?}");
    }
}

#[test]
fn the_current_replicas_are_those_of_the_spec() {
    let mut scenario = scenario((1, 6), 3, vec![cpu(50)]).using(&[500; 3]);
    scenario.scale = Ok(Scale { spec_replicas: 3, status_replicas: 6, selector: "app=web".into() });
    let seen = scenario.pass();
    assert_eq!((seen.desired, scenario.status.current_replicas, seen.attempts), (3, 3, 0));
}

#[test]
fn none_stays_none() {
    let mut scenario = scenario((1, 6), 0, vec![cpu(50)]);
    let seen = scenario.pass();
    assert_eq!((seen.desired, seen.attempts), (0, 0));
}

#[test]
fn the_minimum_decides_whether_nothing_becomes_one() {
    assert_eq!(idle(1).pass().desired, 1);
    assert_eq!(idle(0).pass().desired, 0);
}

#[test]
fn growth_is_limited_by_policies_where_there_is_a_behavior() {
    let unlimited = || scenario((1, 100), 3, vec![cpu(1)]).using(&[900; 3]);
    assert_eq!(unlimited().pass().desired, 6, "twice");
    assert_eq!(unlimited().behaving(None, None).pass().desired, 7, "four more, by the default policies");
}

#[test]
fn one_failing_metric_does_not_stop_the_others() {
    let mut scenario = busy();
    scenario.spec.metrics.insert(0, bogus());
    assert_eq!(scenario.pass().desired, 5);
}

#[test]
fn a_ratio_at_the_end_of_the_tolerance_holds() {
    let tolerances = Tolerances { up: 0.1, down: 0.1 };
    let ratio = 1100.0 / 1000.0_f64;
    assert!((1.0 - ratio).abs() > 0.1, "the old test");
    assert!(tolerances.admits(ratio) && tolerances.admits(0.9));
}

/// Method: a target of 300 %, above what a pod can use.
#[test]
fn missing_pods_use_the_target_if_it_is_above_their_request() {
    let run = |percent, missing_value| {
        let requests = BTreeMap::from([("a", 1000), ("b", 1000)]);
        let sample = |value| usage::Sample { value, ..usage::Sample::default() };
        let samples = [("a", sample(200)), ("b", sample(missing_value))].into();
        usage::utilization(&samples, &requests, percent).expect("requests").ratio
    };
    let mut scenario = scenario((1, 9), 2, vec![cpu(300)]);
    scenario.pods = vec![('r', 200, 1000), ('r', -1, 1000)];
    assert_eq!(scenario.pass().desired, 2);
    assert!((run(300, 3000) * 2.0).ceil() > (run(300, 1000) * 2.0).ceil(), "by the request alone it would be one");
}

#[test]
fn doubt_about_missing_pods_never_turns_shrinking_into_growing() {
    let mut surge = scenario((1, 9), 2, vec![cpu(50)]);
    surge.pods = vec![('r', 100, 1000), ('r', 100, 1000), ('r', -1, 1000)];
    assert_eq!(surge.pass().desired, 2, "three pods, of which one is missing, for a scale of two");
}

#[test]
fn too_large_results_are_the_largest_integer() {
    let tolerances = Tolerances { up: 0.1, down: 0.1 };
    assert_eq!(totals::average_of(tolerances, 1, &[i64::MAX], 1).replicas, i32::MAX);
    assert_eq!(totals::sum(&[i64::MAX, i64::MAX]), i64::MAX);
    assert_eq!(legacy::scale_up_limit(i32::MAX), i32::MAX);
}

#[test]
fn a_conflict_is_tried_again() {
    let mut scenario = busy();
    scenario.writes = vec![WriteResult::Conflict("modified".into()); 4];
    let seen = scenario.pass();
    assert_eq!((seen.desired, seen.attempts), (5, 5));
}

#[test]
fn averages_of_memory_are_written_in_bytes() {
    assert_eq!(quantity(Some("memory"), 128 * 1024 * 1024 * 1000).to_string(), "128Mi");
    assert_eq!(quantity(Some("cpu"), 128).to_string(), "128m");
}

#[test]
fn sidecars_and_pods_as_a_whole_request_too() {
    let container = |name: &str, cpu| Container { name: name.into(), requests: [("cpu".to_owned(), cpu)].into() };
    let mut pod = Pod {
        containers: vec![container("app", 100)],
        init_containers: vec![InitContainer { container: container("side", 50), restarts: true }],
        ..Pod::default()
    };
    assert_eq!(pod.request(None, "cpu"), Ok(150));
    pod.requests = [("cpu".to_owned(), 800)].into();
    assert_eq!(pod.request(None, "cpu"), Ok(800));
}

#[test]
fn the_gate_alone_does_not_wake_a_target_at_zero() {
    let asleep = || scenario((0, 6), 0, vec![object("Value", 1000), external(1000, 0)]).total(5000).with_gate();
    assert_eq!(asleep().pass().desired, 0);
    assert_eq!(asleep().marked().pass().desired, 4, "ours; the legacy rules go to four at once");
}
