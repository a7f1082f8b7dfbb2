//! Tests of texts, of status writes and of scaling to zero. Whole reconciles of Kubernetes' controller are recorded in
//! `tests/conformance` (kind `hpa_reconcile`).

use super::*;
use crate::tests::scenario::{NOW, Scenario, bogus, cpu, external, object, scenario};

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
fn events_of_an_unusable_selector_or_a_failed_write_name_the_cause() {
    let busy = || scenario((1, 100), 3, vec![cpu(30)]).using(&[300, 500, 700]);
    let mut unselective = busy();
    unselective.scale = unselective.scale.map(|scale| Scale { selector: String::new(), ..scale });
    let why = "selector is required";
    assert_eq!(
        unselective.pass().events,
        [format!("SelectorRequired: {why}"), format!("FailedComputeMetricsReplicas: {why}")]
    );
    let text = "pods by selector app=web are controlled by multiple HPAs: [shop/rival shop/web]";
    let ambiguous = Scenario { rival: Some("app"), ..busy() }.pass();
    assert_eq!(ambiguous.events[0], format!("AmbiguousSelector: {text}"));
    let failed = Scenario { writes: vec![WriteResult::Failed("no".into())], ..busy() }.pass();
    let why = "cpu resource utilization (percentage of request) above target; error: no";
    assert_eq!(failed.events, [format!("FailedRescale: New size: 5; reason: {why}")]);
}

/// Goal: only this controller's own change to zero sets ScaledToZero, and only with the gate and a metric that needs no
/// pods.
#[test]
fn scaling_to_zero_sets_the_condition() {
    let to_zero = || scenario((0, 5), 5, vec![object("Value", 20_000)]).total(0);
    let rescaled = ["+SucceededRescale", "+ValidMetricFound", "-DesiredWithinRange"];
    let asleep = [&rescaled[..], &["+ScaledToZero"]].concat();
    for (mut scenario, conditions) in [
        (to_zero().with_gate(), &asleep[..]),
        (scenario((0, 5), 5, vec![external(14_400, 0)]).total(0).with_gate(), &asleep),
        (to_zero(), &rescaled),
        (scenario((0, 5), 5, vec![cpu(50)]).with_gate(), &[&rescaled[..], &["-NotScaledToZero"]].concat()),
    ] {
        let result = scenario.pass();
        assert_eq!((result.desired, result.conditions), (0, conditions.iter().map(ToString::to_string).collect()));
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
            value(2, 0, 10_000, 0).with_gate().marked().behaving(),
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

/// Goal: a waking target gets `minReplicas` even if a limit allows less.
#[test]
fn waking_scales_to_the_minimum_despite_a_limit() {
    let mut scenario = scenario((2, 5), 0, vec![object("Value", 1_000)]).total(9_000).with_gate().marked().behaving();
    let up = scenario.spec.behavior.as_mut().and_then(|behavior| behavior.scale_up.as_mut()).expect("filled in");
    up.policies = Some(vec![crate::defaults::policy("Percent", 100, 60)]);
    assert_eq!(scenario.pass().desired, 2);
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
    assert_eq!(conclusion.events[0], Event::warning("FailedGetScale", "down".into()));
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
