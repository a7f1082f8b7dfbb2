//! Tests of whole reconciles. The limit on scale-ups without a behavior is in effect here.

use super::*;
use crate::behavior::Rules;
use crate::defaults::policy;
use crate::memory::Recommendation;
use crate::tests::scenario::{NOW, Scenario, bogus, cpu, external, object, pods_metric, scenario};
use k8s_openapi::api::autoscaling::v2::HPAScalingRules;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const OK: &str = "+SucceededRescale +ValidMetricFound -DesiredWithinRange";
const HELD: &str = "+ReadyForNewScale +ValidMetricFound -DesiredWithinRange";
const TO_BOUND: &str = "+SucceededRescale";

/// Checks the desired replicas, the conditions, and the labels.
#[track_caller]
fn expect(mut scenario: Scenario, desired: i32, conditions: &str, labels: &str) {
    let result = scenario.pass();
    assert_eq!(
        (result.desired, result.conditions.join(" ").as_str(), format!("{},{}", result.action, result.error).as_str()),
        (desired, conditions, labels)
    );
}

#[test]
fn metrics_scale_up() {
    let unready = |usage: [i64; 3], states: [char; 3]| {
        let pods = states.into_iter().zip(usage).map(|(state, usage)| (state, usage, 1000)).collect();
        Scenario { pods, ..scenario((2, 6), 3, vec![cpu(30)]) }
    };
    expect(unready([300, 500, 700], ['r', 'r', 'r']), 5, OK, "scale_up,none");
    expect(unready([300, 500, 700], ['u', 'r', 'r']), 4, OK, "scale_up,none");
    expect(unready([400, 500, 700], ['r', 'u', 'u']), 3, HELD, "none,none");
    let values = Ok(vec![50_000, 15_000, 30_000]);
    let pods = Scenario { values, ..scenario((2, 6), 3, vec![pods_metric(15_000)]) };
    expect(pods, 6, "+SucceededRescale +ValidMetricFound +TooManyReplicas", "scale_up,none");
    expect(scenario((2, 6), 3, vec![object("AverageValue", 10_000)]).total(40_000), 4, OK, "scale_up,none");
    expect(scenario((2, 6), 3, vec![external(6_666, 0)]).total(8_600), 4, OK, "scale_up,none");
    expect(scenario((2, 6), 3, vec![external(0, 2_222)]).total(8_600), 4, OK, "scale_up,none");
}

#[test]
fn metrics_scale_down_unless_a_recent_recommendation_was_higher() {
    let low = [100, 300, 500, 250, 250];
    expect(scenario((2, 6), 5, vec![cpu(50)]).using(&low), 3, OK, "scale_down,none");
    let fresh = Scenario { memory: Memory::default(), ..scenario((2, 6), 5, vec![cpu(50)]).using(&low) };
    expect(fresh, 5, "+ScaleDownStabilized +ValidMetricFound -DesiredWithinRange", "none,none");
    let at = |replicas, age| Recommendation { replicas, at: NOW - std::time::Duration::from_secs(age) };
    let memory = Memory { recommendations: vec![at(10, 600), at(4, 60)], ..Memory::default() };
    let mixed = Scenario { memory, pods: vec![('r', 50, 100); 3], ..scenario((1, 5), 4, vec![cpu(100)]) };
    expect(mixed, 4, "+ScaleDownStabilized +ValidMetricFound -DesiredWithinRange", "none,none");
}

#[test]
fn within_tolerance_the_scale_holds() {
    let busy = || {
        let pods = vec![('r', 1010, 900), ('r', 1030, 1000), ('r', 1020, 1100)];
        Scenario { pods, ..scenario((1, 5), 3, vec![cpu(100)]) }
    };
    let tolerating =
        |text: &str| HPAScalingRules { tolerance: Some(Quantity(text.into())), ..HPAScalingRules::default() };
    expect(busy(), 3, HELD, "none,none");
    expect(busy().behaving(Some(tolerating("0.01")), None), 4, OK, "scale_up,none");
    let mut gate_off = busy().behaving(Some(tolerating("0.01")), None);
    gate_off.gates.configurable_tolerance = false;
    expect(gate_off, 3, HELD, "none,none");
    let idle = scenario((1, 5), 3, vec![cpu(100)]).using(&[300; 3]);
    expect(idle.behaving(None, Some(tolerating("0.9"))), 3, HELD, "none,none");
    let mut surge = scenario((1, 8), 4, vec![cpu(50)]).using(&[500; 5]);
    surge.scale = surge.scale.map(|scale| Scale { status_replicas: 5, ..scale });
    expect(surge, 4, HELD, "none,none");
}

#[test]
fn bounds_are_kept_with_and_without_metrics() {
    for usage in [[10, 95, 10], [0, 0, 0]] {
        let conditions = "+SucceededRescale +ValidMetricFound +TooFewReplicas";
        expect(scenario((2, 5), 3, vec![cpu(90)]).using(&usage), 2, conditions, "scale_down,none");
    }
    expect(scenario((0, 5), 3, vec![cpu(90)]).using(&[0; 3]), 0, OK, "scale_down,none");
    expect(scenario((3, 5), 0, vec![cpu(90)]), 0, "+SucceededGetScale -ScalingDisabled", "none,none");
    expect(scenario((3, 5), 2, vec![cpu(90)]), 3, TO_BOUND, "scale_up,none");
    expect(scenario((3, 5), 10, vec![cpu(90)]), 5, TO_BOUND, "scale_down,none");
}

#[test]
fn a_change_into_the_bounds_is_recorded_with_a_behavior() {
    let mut scenario = scenario((3, 5), 10, vec![cpu(90)]).behaving(None, None);
    assert_eq!(scenario.pass().desired, 5);
    assert_eq!(scenario.memory.scale_downs.iter().map(|e| e.change).collect::<Vec<_>>(), [5]);
    assert_eq!(scenario.memory.recommendations.len(), 1, "no recommendation was made");
}

#[test]
fn failed_metrics_change_neither_the_scale_nor_the_desired_replicas() {
    let failed = |reason: &str| format!("+SucceededGetScale -{reason}");
    for (metric, reason) in [
        (cpu(50), "FailedGetResourceMetric"),
        (pods_metric(1000), "FailedGetPodsMetric"),
        (object("Value", 1000), "FailedGetObjectMetric"),
        (external(1000, 0), "FailedGetExternalMetric"),
        (bogus(), "InvalidMetricSourceType"),
    ] {
        let mut scenario = scenario((1, 100), 3, vec![metric]);
        (scenario.values, scenario.total) = (Err("down".into()), Err("down".into()));
        expect(scenario, 3, &failed(reason), "none,internal");
    }
    let unmeasured = Scenario { pods: vec![('r', -1, 1000); 4], ..scenario((2, 6), 4, vec![cpu(50)]) };
    expect(unmeasured, 4, &failed("FailedGetResourceMetric"), "none,internal");
    let without_request = Scenario { pods: vec![('r', 200, 0)], ..scenario((1, 5), 1, vec![cpu(50)]) };
    expect(without_request, 1, &failed("FailedGetResourceMetric"), "none,internal");
}

#[test]
fn a_partial_failure_blocks_only_scaling_down() {
    let failing = |scenario: Scenario| Scenario { total: Err("down".into()), ..scenario };
    let up = |other| failing(scenario((2, 6), 3, vec![cpu(30), other]).using(&[300, 400, 500]));
    expect(up(bogus()), 4, OK, "scale_up,internal");
    expect(up(external(1000, 0)), 4, OK, "scale_up,internal");
    let down = |other| failing(scenario((2, 6), 5, vec![cpu(50), other]).using(&[100, 300, 500, 250, 250]));
    expect(down(bogus()), 5, "+SucceededGetScale -InvalidMetricSourceType", "none,internal");
    expect(down(external(1000, 0)), 5, "+SucceededGetScale -FailedGetExternalMetric", "none,internal");
    expect(scenario((0, 6), 0, vec![cpu(50), bogus()]), 0, "+SucceededGetScale -ScalingDisabled", "none,none");
    let mut both = scenario((1, 5), 3, vec![cpu(10), pods_metric(15_000)]).using(&[100, 200, 300]);
    both.values = Ok(vec![20_000, 10_000, 30_000]);
    expect(both, 5, "+SucceededRescale +ValidMetricFound +TooManyReplicas", "scale_up,none");
}

#[test]
fn the_result_of_each_metric_is_counted() {
    let mut scenario = scenario((2, 6), 3, vec![cpu(30), bogus(), external(1000, 0)]).using(&[300, 400, 500]);
    scenario.total = Err("down".into());
    let mut memory = std::mem::take(&mut scenario.memory);
    let (finish, _) = scenario.finish(&mut memory);
    let runs = finish.conclude(Ok(())).metrics;
    let runs: Vec<_> = runs.iter().map(|r| (r.kind.as_str(), r.action.as_str(), r.error.as_str())).collect();
    assert_eq!(runs, [("Resource", "scale_up", "none"), ("Bogus", "none", "spec"), ("External", "none", "internal")]);
}

#[test]
fn a_selector_must_be_present_valid_and_unambiguous() {
    let selecting = |selector: &str| {
        let mut scenario = scenario((1, 100), 3, vec![cpu(30)]).using(&[300, 500, 700]);
        scenario.scale = scenario.scale.map(|scale| Scale { selector: selector.into(), ..scale });
        scenario
    };
    let invalid = "+SucceededGetScale -InvalidSelector";
    expect(selecting(""), 3, invalid, "none,internal");
    expect(selecting("cheddar cheese"), 3, invalid, "none,internal");
    assert_eq!(
        selecting("").pass().events,
        ["SelectorRequired: selector is required", "FailedComputeMetricsReplicas: selector is required",]
    );
    let beside = |rival| Scenario { rival: Some(rival), ..selecting("app=web") };
    expect(beside("app=other"), 5, OK, "scale_up,none");
    for rival in ["app=web", "app in (web,other)"] {
        expect(beside(rival), 3, "+SucceededGetScale -AmbiguousSelector", "none,internal");
    }
    let text = "pods by selector app=web are controlled by multiple HPAs: [shop/rival shop/web]";
    assert_eq!(beside("app").pass().events[0], format!("AmbiguousSelector: {text}"));
}

#[test]
fn an_unreadable_scale_changes_only_its_condition() {
    for error in [ScaleError::Read("down".into()), ScaleError::Kind("down".into())] {
        let mut scenario = scenario((1, 100), 3, vec![cpu(30)]);
        scenario.status.desired_replicas = 7;
        scenario.scale = Err(error);
        let result = scenario.pass();
        assert_eq!((result.desired, result.conditions.join(" ")), (7, "-FailedGetScale".into()));
        assert_eq!((result.events, result.error), (vec!["FailedGetScale: down".to_owned()], "internal"));
    }
    let mut malformed = scenario((1, 100), 3, vec![cpu(30)]);
    malformed.spec.scale_target_ref.api_version = Some("a/b/c".into());
    let result = malformed.pass();
    assert_eq!((result.conditions.join(" ").as_str(), result.error), ("-FailedGetScale", "spec"));
}

#[test]
fn a_write_is_tried_five_times_on_conflicts_and_once_otherwise() {
    let rescale = |writes| Scenario { writes, ..scenario((1, 6), 3, vec![cpu(50)]).using(&[600, 700, 800]) }.pass();
    let conflict = || WriteResult::Conflict("modified".into());
    let result = rescale(vec![conflict()]);
    assert_eq!((result.desired, result.attempts, result.action, result.error), (5, 2, "scale_up", "none"));
    let failed = "-FailedUpdateScale +ValidMetricFound -DesiredWithinRange";
    for (writes, attempts) in [(vec![conflict(); 9], 5), (vec![WriteResult::Failed("no".into())], 1)] {
        let result = rescale(writes);
        assert_eq!((result.desired, result.attempts, result.action, result.error), (3, attempts, "none", "internal"));
        assert_eq!(result.conditions.join(" "), failed);
        assert!(result.events[0].starts_with(
            "FailedRescale: New size: 5; reason: cpu resource utilization (percentage of request) above target; error: "
        ));
    }
}

/// Goal: a reconcile with the same result as the previous one writes no status, whatever the result, but repeats its
/// events. The exception is a rejected write of the scale: the scale was readable, so `AbleToScale` was True in between
/// and its time changes, as upstream's does.
#[test]
fn a_repeated_result_writes_no_status() {
    let low = || scenario((2, 6), 5, vec![cpu(50), external(1000, 0)]).using(&[100, 300, 500, 250, 250]);
    let busy = || scenario((2, 6), 3, vec![cpu(30)]).using(&[300, 500, 700]);
    let with = |mut scenario: Scenario, change: &dyn Fn(&mut Scenario)| {
        change(&mut scenario);
        scenario
    };
    let selector = |text: &'static str| {
        move |s: &mut Scenario| s.scale = s.scale.clone().map(|scale| Scale { selector: text.into(), ..scale })
    };
    let down = |s: &mut Scenario| (s.values, s.total) = (Err("down".into()), Err("down".into()));
    let failing = |s: &mut Scenario| s.writes = vec![WriteResult::Failed("no".into())];
    let conflicting = |s: &mut Scenario| s.writes = vec![WriteResult::Conflict("modified".into()); 5];
    for (case, mut scenario, events) in [
        ("at rest", scenario((2, 6), 2, vec![cpu(50)]).using(&[500, 500]), 0),
        ("asleep", scenario((3, 5), 0, vec![cpu(90)]), 0),
        ("asleep, with the gate", scenario((3, 5), 0, vec![cpu(90)]).with_gate(), 0),
        ("an unreadable scale", with(busy(), &|s| s.scale = Err(ScaleError::Read("not found".into()))), 1),
        ("an unknown kind", with(busy(), &|s| s.scale = Err(ScaleError::Kind("no matches".into()))), 1),
        ("a malformed version", with(busy(), &|s| s.spec.scale_target_ref.api_version = Some("a/b/c".into())), 1),
        ("no selector", with(busy(), &selector("")), 2),
        ("invalid selector", with(busy(), &selector("cheddar cheese")), 2),
        ("ambiguous selector", with(busy(), &|s| s.rival = Some("app=web")), 2),
        ("cpu fails", with(busy(), &down), 2),
        ("an unknown metric", scenario((1, 9), 3, vec![bogus()]), 2),
        ("one of two fails", with(low(), &|s| s.total = Err("down".into())), 2),
        ("one of two fails, and the other holds", with(low().using(&[500; 5]), &|s| s.total = Err("down".into())), 1),
        ("the write fails", with(busy(), &failing), 1),
        ("the write conflicts", with(busy(), &conflicting), 1),
        ("the write into the bounds fails", with(scenario((1, 2), 3, vec![cpu(90)]), &failing), 1),
    ] {
        assert!(scenario.pass().written, "{case}: first reconcile");
        for turn in 1..4 {
            scenario.now = NOW + std::time::Duration::from_secs(15 * turn);
            let result = scenario.pass();
            let expected =
                scenario.status.conditions.iter().flatten().any(|c| c.reason.as_deref() == Some("FailedUpdateScale"));
            assert_eq!(result.written, expected, "{case}: {result:?}");
            assert_eq!(result.events.len(), events, "{case}: {:?}", result.events);
        }
    }
}

/// Goal: any difference is written, even if only a message differs. Times change only with the status of a condition.
#[test]
fn a_changed_result_writes_the_status() {
    let since = |scenario: &Scenario| {
        let time = scenario.status.conditions.as_ref().and_then(|list| list[0].last_transition_time.as_ref());
        status::timestamp(time.expect("a time"))
    };
    let mut scenario = scenario((2, 6), 3, vec![cpu(30)]).using(&[300, 300, 300]);
    scenario.scale = Err(ScaleError::Read("not found".into()));
    assert!(scenario.pass().written);
    let first = since(&scenario);
    scenario.now = NOW + std::time::Duration::from_secs(15);
    scenario.scale = Err(ScaleError::Read("forbidden".into()));
    assert!(scenario.pass().written, "another message");
    assert_eq!((first, since(&scenario)), (NOW, NOW));
    scenario.scale = Ok(Scale { spec_replicas: 3, status_replicas: 3, selector: "app=web".into() });
    assert!(scenario.pass().written, "the scale can be read again");
    assert_eq!(since(&scenario), scenario.now);
    assert!(!scenario.pass().written);
    scenario.pods[0].1 = 310;
    assert!(scenario.pass().written, "another measurement");
}

/// Goal: if the scale cannot be read, the unrelated parts of the status stay, even those set by other clients. A
/// rebuilt status drops the parts of other clients, and is written for that reason.
#[test]
fn a_rebuilt_status_drops_the_observed_generation_of_another_client() {
    let mut scenario = scenario((2, 6), 2, vec![cpu(50)]).using(&[500, 500]);
    scenario.pass();
    scenario.status.observed_generation = Some(7);
    let readable = std::mem::replace(&mut scenario.scale, Err(ScaleError::Read("down".into())));
    assert!(scenario.pass().written);
    assert_eq!(scenario.status.observed_generation, Some(7));
    scenario.scale = readable;
    assert!(scenario.pass().written);
    assert_eq!(scenario.status.observed_generation, None);
    assert!(!scenario.pass().written);
}

/// Goal: an event names the cause of a change, even if no metric caused it.
#[test]
fn the_event_of_each_change_names_its_reason() {
    let value =
        |min: i32, current, target, total| scenario((min, 5), current, vec![object("Value", target)]).total(total);
    let above = "Service metric hits above target";
    for (mut scenario, size, reason) in [
        (value(1, 2, 10_000, 20_000), 4, above),
        (value(1, 4, 20_000, 10_000), 2, "All metrics below target"),
        (scenario((3, 5), 2, vec![cpu(90)]), 3, "Current number of replicas below Spec.MinReplicas"),
        (scenario((3, 5), 10, vec![cpu(90)]), 5, "Current number of replicas above Spec.MaxReplicas"),
        // From zero: the metric's proposal above the minimum, and the minimum if the metric proposes 0.
        (value(2, 0, 10_000, 40_000).with_gate().marked(), 4, above),
        (
            value(2, 0, 10_000, 0).with_gate().marked().behaving(None, None),
            2,
            "Current number of replicas below Spec.MinReplicas",
        ),
        // As upstream: without a behavior the limits raise the proposal first. The reason stays empty, as for an
        // unchanged proposal.
        (value(2, 0, 10_000, 0).with_gate().marked(), 2, ""),
    ] {
        let result = scenario.pass();
        assert_eq!(result.events, [format!("SuccessfulRescale: New size: {size}; reason: {reason}")]);
        assert_eq!(result.desired, size);
    }
}

/// Goal: the requests of a reconcile concern its own autoscaler, and its errors name that autoscaler or its target.
#[test]
fn requests_and_errors_concern_the_reconciled_autoscaler() {
    let mut scenario = scenario((1, 9), 3, vec![cpu(30)]).using(&[300, 500, 700]);
    let reference = format!("{}/shop/{}", scenario.spec.scale_target_ref.kind, scenario.spec.scale_target_ref.name);
    assert!(reference.len() > "/shop/".len());

    let scale = std::mem::replace(&mut scenario.scale, Err(ScaleError::Read("down".into())));
    let (finish, _) = scenario.finish(&mut Memory::default());
    let conclusion = finish.conclude(Err("busy".into()));
    assert_eq!(conclusion.error, Some(format!("failed to query scale subresource for {reference}: down")));
    assert_eq!(conclusion.desired_replicas, None, "not decided");
    assert!(conclusion.events.iter().any(|event| event.reason == "FailedUpdateStatus"), "{:?}", conclusion.events);

    scenario.scale = scale;
    let mut memory = Memory::default();
    let (finish, cluster) = scenario.finish(&mut memory);
    assert_eq!(cluster.selected, Some(Selector::parse("app=web").expect("readable")));
    assert_eq!(cluster.written, [5]);
    let conclusion = finish.conclude(Err("busy".into()));
    assert_eq!(conclusion.error.as_deref(), Some("failed to update status for web: busy"));
    assert_eq!((conclusion.desired_replicas, conclusion.error_label), (Some(5), ErrorLabel::Internal));
}

/// Goal: at zero, the gate, the condition ScaledToZero and the kinds of metrics decide.
#[test]
fn only_the_controller_that_scaled_to_zero_wakes_the_target() {
    let value =
        |min: i32, current, target, total| scenario((min, 5), current, vec![object("Value", target)]).total(total);
    let awake = "-NotScaledToZero +SucceededRescale +ValidMetricFound";
    let within = format!("{awake} -DesiredWithinRange");
    expect(value(0, 0, 15_000, 20_000).with_gate().marked(), 2, &within, "scale_up,none");
    expect(value(0, 0, 1_000, 1_000).with_gate().marked(), 1, &within, "scale_up,none");
    expect(value(2, 0, 15_000, 10_000).with_gate().marked(), 2, &format!("{awake} +TooFewReplicas"), "scale_up,none");
    let disabled = "+SucceededGetScale -ScalingDisabled";
    expect(value(0, 0, 15_000, 20_000).with_gate(), 0, disabled, "none,none");
    expect(scenario((1, 5), 0, vec![cpu(50)]).with_gate(), 0, disabled, "none,none");
    expect(scenario((1, 5), 0, vec![cpu(50)]), 0, disabled, "none,none");
    for min in [0, 2] {
        expect(value(min, 0, 15_000, 20_000).marked(), 0, disabled, "none,none");
    }
    // A metric of pods has no effect at zero. With a minimum it is requested, and fails because there are no pods.
    let of_pods = |min| scenario((min, 5), 0, vec![cpu(50)]).with_gate().marked();
    expect(of_pods(0), 0, "+ScaledToZero +SucceededGetScale -ScalingDisabled", "none,none");
    expect(of_pods(2), 0, "+ScaledToZero +SucceededGetScale -FailedGetResourceMetric", "none,internal");
    let asleep = format!("{OK} +ScaledToZero");
    expect(value(0, 5, 20_000, 0).with_gate(), 0, &asleep, "scale_down,none");
    let queue = scenario((0, 5), 5, vec![external(14_400, 0)]).total(0);
    expect(queue.with_gate(), 0, &asleep, "scale_down,none");
    expect(value(0, 5, 20_000, 0), 0, OK, "scale_down,none");
    let growing = || scenario((1, 5), 3, vec![cpu(30)]).using(&[300, 500, 700]).marked();
    expect(growing().with_gate(), 5, &format!("-NotScaledToZero {OK}"), "scale_up,none");
    expect(growing(), 5, OK, "scale_up,none");
}

/// Goal: a waking target gets `minReplicas` even if a limit allows less.
#[test]
fn waking_scales_to_the_minimum_despite_a_limit() {
    let policies = Some(vec![policy("Percent", 100, 60)]);
    let up = HPAScalingRules { policies, ..HPAScalingRules::default() };
    let mut scenario = scenario((2, 5), 0, vec![object("Value", 1_000)]).total(9_000).with_gate().marked();
    scenario = scenario.behaving(Some(up), None);
    let rules = scenario.spec.behavior.as_ref().map(|b| Rules::from_behavior(b, std::time::Duration::ZERO));
    assert_eq!(rules.map(|rules| rules.scale_up_limit(&Memory::default(), 0, NOW)), Some(0));
    assert_eq!(scenario.pass().desired, 2);
}
