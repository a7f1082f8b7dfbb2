//! Tests of the table of the [module](super), row by row, and of properties that hold for any input.

use super::*;
use hpa_core::defaults::policy;
use k8s_openapi::api::autoscaling::v2::HPAScalingRules;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const FREE: Bounds = Bounds { min: 0, max: None };

fn measured(proposal: i32, failed: u16) -> Measured {
    Measured { proposal: Some((proposal, Arc::from("cpu"))), failed, first_failure: None }
}

/// Returns a measurement without a result: all metrics failed, or there are none.
fn nothing(failed: u16) -> Measured {
    Measured { proposal: None, failed, first_failure: None }
}

/// Returns a behavior without windows, with these policies for scaling up and down.
fn behavior(up: &[(&str, i32, i32)], down: &[(&str, i32, i32)]) -> Behavior {
    let rules = |policies: &[(&str, i32, i32)]| {
        let policies: Vec<_> = policies.iter().map(|(kind, value, period)| policy(kind, *value, *period)).collect();
        let policies = Some(policies).filter(|policies| !policies.is_empty());
        Some(HPAScalingRules { stabilization_window_seconds: Some(0), policies, ..HPAScalingRules::default() })
    };
    Behavior { scale_up: rules(up), scale_down: rules(down) }
}

fn input<'a>(current: i32, load: Option<i32>, measured: Option<&'a Measured>) -> Input<'a> {
    Input { now: NOW, current, bounds: FREE, load, load_name: "concurrency", measured, behavior: None }
}

/// Goal: the largest result wins, and a failure or an unknown load never scales down. No windows, and policies that do
/// not limit. Rows: (replicas, load, metrics, failures) -> (desired, winner).
#[test]
fn the_largest_result_wins_and_a_failure_never_scales_down() {
    let free = behavior(&[("Percent", 100_000, 15)], &[]);
    for ((current, load, proposal, failed), (desired, metric)) in [
        // Without replicas, only the load counts.
        ((0, Some(0), Some(7), 0), (Some(0), "concurrency")),
        ((0, Some(3), Some(7), 0), (Some(3), "concurrency")),
        ((0, Some(3), None, 2), (Some(3), "concurrency")),
        ((0, None, Some(7), 0), (None, "concurrency")),
        // The largest result.
        ((2, Some(3), Some(5), 0), (Some(5), "cpu")),
        ((2, Some(6), Some(5), 0), (Some(6), "concurrency")),
        ((5, Some(2), Some(3), 0), (Some(3), "cpu")),
        ((5, Some(3), Some(3), 0), (Some(3), "concurrency")), // On a tie, the load.
        ((5, Some(0), Some(3), 0), (Some(3), "cpu")),         // The metric works off a queue without a request.
        // Only the load decides on the last pod.
        ((1, Some(0), Some(1), 0), (Some(0), "cpu")),
        ((1, Some(0), Some(0), 0), (Some(0), "cpu")),
        ((3, Some(0), Some(1), 0), (Some(0), "cpu")),
        ((1, Some(1), Some(0), 0), (Some(1), "concurrency")),
        ((1, Some(0), Some(2), 0), (Some(2), "cpu")),
        // A failure prevents scaling down and to zero, but not up.
        ((3, Some(2), None, 1), (Some(3), "concurrency")),
        ((3, Some(3), None, 1), (Some(3), "concurrency")), // As many as there are: nothing is held.
        ((1, Some(0), None, 1), (Some(1), "concurrency")),
        ((3, Some(5), None, 1), (Some(5), "concurrency")),
        ((3, Some(2), Some(6), 1), (Some(6), "cpu")),
        // An unknown load has the same effect.
        ((3, None, Some(2), 0), (None, "cpu")),
        ((3, None, Some(6), 0), (Some(6), "cpu")),
        ((3, None, None, 1), (None, "concurrency")),
    ] {
        let measured = proposal.map_or_else(|| nothing(failed), |proposal| measured(proposal, failed));
        let input = Input { behavior: Some(&free), ..input(current, load, Some(&measured)) };
        let blended = Blend::default().combine(&input);
        let row = format!("{current} {load:?} {proposal:?} {failed}");
        assert_eq!((blended.desired, &*blended.metric), (desired, metric), "{row}");
        assert_eq!(blended.held, failed > 0 && blended.asked < current, "{row}");
    }
}

/// Goal: a measurement contains the winner, the number of failures, and the first failure's reason.
#[test]
fn a_measurement_summarizes_the_combined_metrics() {
    use hpa_core::combine::{Combined, CombinedOutcome};
    use hpa_core::measure::Failure;
    let failure = |reason, inner: &str| Failure { reason, inner: inner.into(), outer: "all of it".into() };
    let combined = |outcome, failures| Combined { outcome, statuses: Vec::new(), failures, proposals: Vec::new() };
    let won = CombinedOutcome::Proposed { replicas: 3, metric: "cpu".into() };
    assert_eq!(Measured::from_combined(&combined(won, Vec::new())), measured(3, 0));
    assert_eq!(Measured::from_combined(&combined(CombinedOutcome::NoMetrics, Vec::new())), nothing(0));
    let failures = vec![failure("FailedGetPodsMetric", "down"), failure("FailedGetObjectMetric", "up")];
    let expected = Measured { proposal: None, failed: 2, first_failure: Some(("FailedGetPodsMetric", "down".into())) };
    assert_eq!(Measured::from_combined(&combined(CombinedOutcome::Failed, failures)), expected);
}

/// Goal: a measurement with a failure that asks for the current replicas is recorded among the recommendations that
/// hold up later ones.
#[test]
fn a_measurement_with_a_failure_is_recorded() {
    let mut blend = Blend::default();
    let mut ask = |seconds, load, measured: Measured| {
        let now = NOW + Duration::from_secs(seconds);
        blend.combine(&Input { now, ..input(3, Some(load), Some(&measured)) })
    };
    assert_eq!(ask(0, 3, measured(3, 0)).desired, Some(3));
    assert_eq!(ask(200, 3, measured(3, 1)).desired, Some(3));
    let calm = ask(310, 1, measured(1, 0));
    assert_eq!((calm.desired, calm.stabilization), (Some(3), Stabilization::Down), "110 s after the failure");
    assert_eq!(ask(501, 1, measured(1, 0)).desired, Some(1));
}

#[test]
fn before_the_first_measurement_nothing_scales_down() {
    let mut blend = Blend::default();
    assert_eq!(blend.combine(&input(3, Some(0), None)).desired, Some(3));
    assert_eq!(blend.combine(&input(3, Some(4), None)).desired, Some(4));
    assert_eq!(blend.combine(&input(0, Some(1), None)).desired, Some(1), "the first request wakes");
}

#[test]
fn without_metrics_a_behavior_governs_the_load() {
    let (slow, none) = (behavior(&[("Pods", 1, 60)], &[]), nothing(0));
    let ask = |load| Input { behavior: Some(&slow), ..input(2, Some(load), Some(&none)) };
    let blended = Blend::default().combine(&ask(9));
    assert_eq!((blended.desired, blended.limit), (Some(3), Limit::ScaleUp));
    assert_eq!(Blend::default().combine(&ask(0)).desired, Some(0));
}

/// Goal: without a behavior the metrics are stabilized over five minutes, and the load scales up without waiting for
/// them.
#[test]
fn without_a_behavior_only_the_metrics_are_stabilized_and_limited() {
    let mut blend = Blend::default();
    let at = |seconds| NOW + Duration::from_secs(seconds);
    let mut ask = |seconds, current, load, proposal| {
        let measured = measured(proposal, 0);
        blend.combine(&Input { now: at(seconds), ..input(current, Some(load), Some(&measured)) })
    };
    let many = ask(0, 2, 1, 50);
    assert_eq!((many.desired, many.limit), (Some(6), Limit::ScaleUp), "4 pods at once");
    assert_eq!(ask(1, 2, 30, 50).desired, Some(30), "the load has its own limits");
    let calm = ask(15, 30, 1, 3);
    assert_eq!((calm.desired, calm.stabilization), (Some(30), Stabilization::Down));
    assert_eq!(ask(302, 30, 1, 3).desired, Some(3), "five minutes later");
    assert_eq!(ask(603, 3, 0, 1).desired, Some(0), "to zero without requests");
}

#[test]
fn a_scale_from_zero_begins_with_an_empty_memory() {
    let slow = behavior(&[("Pods", 1, 60)], &[]);
    let mut blend = Blend::default();
    let ask = |current, load| Input { behavior: Some(&slow), ..input(current, Some(load), None) };
    assert_eq!(blend.combine(&ask(1, 5)).desired, Some(2));
    blend.scaled(Some(&slow), 1, 2, NOW);
    assert_eq!(blend.combine(&ask(2, 5)).desired, Some(2), "one was added already");
    assert_eq!(blend.combine(&ask(0, 5)).desired, Some(5), "from zero at once, policies or not");
    blend.scaled(Some(&slow), 0, 5, NOW);
    assert_eq!(blend.combine(&ask(5, 9)).desired, Some(6), "the scale from zero does not count");
}

#[test]
fn bounds_apply_to_a_behavior() {
    let free = behavior(&[("Percent", 100_000, 15)], &[]);
    let many = measured(9, 0);
    let bounds = Bounds { min: 2, max: Some(4) };
    let blended = |current, load, proposal| {
        let input = Input { bounds, behavior: Some(&free), ..input(current, Some(load), Some(proposal)) };
        let blended = Blend::default().combine(&input);
        (blended.desired, blended.limit)
    };
    assert_eq!(blended(3, 0, &many), (Some(4), Limit::TooMany));
    assert_eq!(blended(3, 1, &measured(1, 0)), (Some(2), Limit::TooFew));
}

prop_compose! {
    fn any_measured()(proposal in proptest::option::of(-1..20_i32), failed in 0..3_u16) -> Measured {
        proposal.map_or_else(|| nothing(failed), |proposal| measured(proposal, failed))
    }
}

prop_compose! {
    fn any_behavior()(
        up in (1..5_i32, 1..60_i32), down in (1..5_i32, 1..60_i32), windows in (0..30_i32, 0..30_i32),
    ) -> Behavior {
        let mut behavior = behavior(&[("Pods", up.0, up.1)], &[("Pods", down.0, down.1)]);
        for (rules, window) in [(&mut behavior.scale_up, windows.0), (&mut behavior.scale_down, windows.1)] {
            if let Some(rules) = rules {
                rules.stabilization_window_seconds = Some(window);
            }
        }
        behavior
    }
}

/// Runs a target that follows the desired scale. Steps are (pause in seconds, load, measurement). Returns (second,
/// from, to) of each step.
fn run(
    steps: &[(u64, Option<i32>, Option<Measured>)],
    behavior: Option<&Behavior>,
    start: i32,
) -> Vec<(u64, i32, i32)> {
    let (mut blend, mut current, mut second, mut changes) = (Blend::default(), start, 0, Vec::new());
    for (pause, load, measured) in steps {
        second += pause;
        let now = NOW + Duration::from_secs(second);
        let blended = blend.combine(&Input { now, behavior, ..input(current, *load, measured.as_ref()) });
        let wanted = blended.desired.unwrap_or(current);
        if wanted != current {
            blend.scaled(behavior, current, wanted, now);
        }
        changes.push((second, current, wanted));
        current = wanted;
    }
    changes
}

fn any_steps() -> impl Strategy<Value = Vec<(u64, Option<i32>, Option<Measured>)>> {
    let step = (0..20_u64, proptest::option::weighted(0.9, 0..20_i32), proptest::option::weighted(0.9, any_measured()));
    proptest::collection::vec(step, 1..40)
}

proptest! {
    /// Goal: more load never means fewer pods, whatever the history.
    #[test]
    fn more_load_never_means_fewer_pods(
        steps in any_steps(), current in 0..20_i32, load in 0..20_i32, extra in 0..20_i32, last in any_measured(),
        behavior in proptest::option::of(any_behavior()),
    ) {
        let mut blend = Blend::default();
        for (i, (_, load, measured)) in steps.iter().enumerate() {
            let now = NOW - Duration::from_secs(u64::try_from(steps.len() - i).unwrap_or(1));
            blend.combine(&Input { now, behavior: behavior.as_ref(), ..input(current, *load, measured.as_ref()) });
        }
        let ask = |load| Input { behavior: behavior.as_ref(), ..input(current, Some(load), Some(&last)) };
        let (less, more) = (blend.clone().combine(&ask(load)), blend.combine(&ask(load + extra)));
        prop_assert!(less.desired <= more.desired, "{less:?} {more:?}");
    }

    /// Goal: a failing metric or an unknown load never removes a pod. The known results may still add some.
    #[test]
    fn a_failure_or_an_unknown_load_never_scales_down(
        steps in any_steps(), behavior in proptest::option::of(any_behavior()), start in 1..20_i32,
    ) {
        for ((_, load, measured), (_, from, to)) in steps.iter().zip(run(&steps, behavior.as_ref(), start)) {
            let failing = measured.as_ref().is_none_or(|measured| measured.failed > 0);
            if from > 0 && (failing || load.is_none()) {
                prop_assert!(to >= from, "{measured:?} {load:?}: {from} to {to}");
            }
            if from > 0 && to == 0 {
                prop_assert_eq!(*load, Some(0), "only the load removes the last pod");
            }
        }
    }

    /// Goal: no change exceeds a policy's limit for its period, whatever the source. A scale from zero is not subject
    /// to policies.
    #[test]
    fn policies_limit_all_sources_together(steps in any_steps(), behavior in any_behavior(), start in 1..20_i32) {
        let policy = |rules: &Option<HPAScalingRules>| {
            let policy = &rules.as_ref().expect("set").policies.as_ref().expect("set")[0];
            (policy.value, u64::try_from(policy.period_seconds).expect("positive"))
        };
        let (up, down) = (policy(&behavior.scale_up), policy(&behavior.scale_down));
        let changes = run(&steps, Some(&behavior), start);
        for (i, (second, ..)) in changes.iter().enumerate() {
            let since = changes[..i].iter().rposition(|(_, from, _)| *from == 0).map_or(0, |wake| wake + 1);
            let within =
                |period| changes[since..=i].iter().filter(move |(at, from, _)| at + period > *second && *from > 0);
            let net = |period| within(period).map(|(_, from, to)| to - from).sum::<i32>();
            let (_, from, to) = changes[i];
            prop_assert!(to <= from || net(up.1) <= up.0, "{changes:?}");
            // The step from one pod to none belongs to the load, whatever the policy has allowed before.
            let allowed = net(down.1) + i32::from(to == 0) >= -down.0;
            prop_assert!(to.max(1) >= from || allowed, "{changes:?}");
        }
    }

    /// Goal: without replicas the metrics do not matter.
    #[test]
    fn from_zero_the_load_alone_decides(load in proptest::option::of(0..20_i32), measured in any_measured()) {
        prop_assert_eq!(Blend::default().combine(&input(0, load, Some(&measured))).desired, load);
    }
}
