//! Tests of the scale-to-zero state machine, row by row.

use super::*;

const WINDOW: Duration = secs(300);
const GRACE: Duration = secs(60);

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Returns an input with one replica, nothing desired, a positive probe, and every feature on.
fn input(active: Active) -> Input {
    Input {
        desired: Some(0),
        current_replicas: 1,
        bounds: Bounds::default(),
        scale_to_zero: true,
        active,
        stable_window: WINDOW,
        activation_timeout: secs(121) + ACTIVATION_TIMEOUT_BUFFER,
        grace_period: GRACE,
        pod_retention: Duration::ZERO,
        path: PathMode::Serve,
        proxy_for: Duration::ZERO,
        probe_needed: true,
        probe: ProbeResult::InPath,
        warm_in: None,
        unheard: false,
    }
}

fn active(for_secs: u64) -> Input {
    input(Active::True(secs(for_secs)))
}

fn inactive(for_secs: u64) -> Input {
    input(Active::False(secs(for_secs)))
}

fn activating(for_secs: f64) -> Input {
    input(Active::Unknown(Duration::from_secs_f64(for_secs)))
}

fn min(min: i32) -> Bounds {
    Bounds { min, max: None }
}

/// (want, patch, seconds until the next decision).
type Row = (Option<i32>, Option<i32>, Option<u64>);

fn check(rows: impl IntoIterator<Item = (&'static str, Input, Row)>) {
    for (name, input, expected) in rows {
        let outcome = decide(&input);
        let got = (outcome.want, outcome.patch, outcome.requeue.map(|after| after.as_secs()));
        assert_eq!(got, expected, "{name}: {outcome:?}");
        assert_eq!(outcome.probe, ProbeNeed::None, "{name}");
    }
}

#[test]
fn an_active_revision_keeps_one_pod_until_it_was_idle_for_a_window() {
    check([
        ("a second short", active(299), (Some(1), None, Some(1))),
        ("a shorter window", Input { stable_window: secs(45), ..active(44) }, (Some(1), None, Some(1))),
        ("a shorter window, over", Input { stable_window: secs(45), ..active(300) }, (Some(0), None, None)),
        ("ten replicas", Input { current_replicas: 10, ..active(299) }, (Some(1), Some(1), Some(1))),
        ("exactly a window", active(300), (Some(0), None, None)),
        ("in the path already", Input { path: PathMode::Proxy, ..active(300) }, (Some(0), None, Some(3))),
        (
            "two replicas, initialized long ago",
            Input { current_replicas: 2, ..active(120) },
            (Some(1), Some(1), Some(180)),
        ),
        ("no replica left", Input { current_replicas: 0, ..active(10) }, (Some(1), Some(1), Some(290))),
    ]);
}

#[test]
fn the_last_pod_goes_after_grace_and_retention() {
    let retained = |retention, input| Input { pod_retention: secs(retention), ..input };
    let proxied = |secs_: u64, input| Input { proxy_for: secs(secs_), ..input };
    check([
        ("grace", inactive(60), (Some(0), Some(0), None)),
        ("a second short", inactive(59), (Some(0), None, Some(60))),
        ("in the path for a second less", proxied(59, inactive(59)), (Some(0), None, Some(1))),
        ("in the path for the grace period", proxied(60, inactive(59)), (Some(0), Some(0), None)),
        ("retention beyond grace", retained(120, inactive(60)), (Some(0), None, Some(60))),
        ("retention as long as grace", retained(60, inactive(60)), (Some(0), Some(0), None)),
        ("retention over, in the path", retained(42, proxied(60, inactive(59))), (Some(0), Some(0), None)),
        ("retention over, not in the path", retained(42, inactive(59)), (Some(0), None, Some(60))),
        ("retention exactly over", retained(59, proxied(60, inactive(59))), (Some(0), Some(0), None)),
        ("retention counts though in the path", retained(90, proxied(600, inactive(59))), (Some(0), None, Some(31))),
        ("born without pods", Input { current_replicas: 0, ..inactive(0) }, (Some(0), None, Some(60))),
        ("no pod left", Input { current_replicas: 0, ..inactive(60) }, (Some(0), None, None)),
        (
            "no probe needed",
            Input { probe_needed: false, probe: ProbeResult::NotInPath, ..inactive(60) },
            (Some(0), Some(0), None),
        ),
    ]);
}

/// Goal: without proof the last pod stays, whatever the clocks say. The outcome that requests proof is safe to apply.
#[test]
fn the_last_pod_waits_for_proof() {
    for (probe, need) in [(ProbeResult::NotAsked, ProbeNeed::Ask), (ProbeResult::NotInPath, ProbeNeed::Retry)] {
        let outcome = decide(&Input { probe, ..inactive(100_000) });
        let expected =
            ScaleOutcome { want: Some(0), patch: None, requeue: None, probe: need, reason: Reason::ProbePending };
        assert_eq!(outcome, expected, "{probe:?}");
    }
    for never in [active(300), active(0), activating(10.0), Input { desired: Some(3), ..inactive(60) }] {
        let outcome = decide(&Input { probe: ProbeResult::NotAsked, ..never });
        assert_eq!(outcome.probe, ProbeNeed::None, "only the last pod needs proof: {never:?}");
    }
}

#[test]
fn an_activation_is_given_up_after_its_timeout() {
    check([
        ("still waiting", activating(75.5), (None, None, Some(151))),
        ("exactly the timeout", activating(151.0), (None, None, Some(151))),
        ("beyond it", activating(152.0), (Some(0), Some(0), None)),
        ("a shorter one", Input { activation_timeout: secs(35), ..activating(36.0) }, (Some(0), Some(0), None)),
        ("desired unknown, too", Input { desired: None, ..activating(152.0) }, (Some(0), Some(0), None)),
        ("no condition never times out", input(Active::Absent), (None, None, Some(151))),
    ]);
}

#[test]
fn bounds_come_before_everything() {
    let ten = |bounds, input| Input { bounds, current_replicas: 10, ..input };
    let max = Bounds { min: 0, max: Some(8) };
    check([
        ("min, grace not over", ten(min(2), inactive(59)), (Some(2), Some(2), None)),
        ("min, grace over", ten(min(2), inactive(60)), (Some(2), Some(2), None)),
        ("desired", Input { desired: Some(10), ..input(Active::Absent) }, (Some(10), Some(10), None)),
        ("max", Input { desired: Some(10), bounds: max, ..input(Active::Absent) }, (Some(8), Some(8), None)),
        ("up again", Input { desired: Some(10), ..inactive(30) }, (Some(10), Some(10), None)),
        (
            "from zero",
            Input { desired: Some(1), current_replicas: 0, ..input(Active::Absent) },
            (Some(1), Some(1), None),
        ),
        (
            "initial scale",
            Input { desired: Some(1), current_replicas: 0, bounds: min(2), ..activating(1.0) },
            (Some(2), Some(2), None),
        ),
        (
            "initial scale is there",
            Input { desired: Some(1), current_replicas: 5, bounds: min(5), ..activating(1.0) },
            (Some(5), None, None),
        ),
        (
            "unknown while activating is the minimum",
            Input { desired: None, bounds: min(3), ..activating(1.0) },
            (Some(3), Some(3), None),
        ),
        (
            "bounds below zero ask for nothing",
            Input { bounds: Bounds { min: -2, max: Some(-1) }, ..inactive(60) },
            (Some(0), Some(0), None),
        ),
    ]);
}

#[test]
fn an_unknown_scale_changes_nothing() {
    check([
        ("inactive", Input { desired: None, current_replicas: 0, ..inactive(0) }, (None, None, None)),
        ("active", Input { desired: None, current_replicas: 12, ..active(5) }, (None, None, None)),
        ("whatever the bounds", Input { desired: None, bounds: min(3), ..active(5) }, (None, None, None)),
    ]);
}

#[test]
fn without_scale_to_zero_one_pod_stays() {
    let off = |input| Input { scale_to_zero: false, current_replicas: 10, ..input };
    check([
        ("active", off(active(900)), (Some(1), Some(1), None)),
        ("inactive", off(inactive(900)), (Some(1), Some(1), None)),
        ("with a minimum", off(Input { bounds: min(2), ..active(900) }), (Some(2), Some(2), None)),
        ("unknown", off(Input { desired: None, ..active(900) }), (None, None, None)),
    ]);
}

/// Goal: an owner that does not know the load yet removes no pod, and decides again when it does.
#[test]
fn a_takeover_scales_up_and_not_down() {
    let warming =
        |desired, current, input| Input { desired, current_replicas: current, warm_in: Some(secs(40)), ..input };
    check([
        ("fewer", warming(Some(2), 5, active(900)), (Some(5), None, Some(40))),
        ("none", warming(Some(0), 5, active(900)), (Some(5), None, Some(40))),
        ("none, inactive", warming(Some(0), 1, inactive(900)), (Some(0), None, Some(40))),
        (
            "none, inactive, not less than one",
            Input { bounds: min(1), ..warming(Some(0), 1, inactive(900)) },
            (Some(1), None, Some(40)),
        ),
        ("as many", warming(Some(5), 5, active(900)), (Some(5), None, None)),
        ("more", warming(Some(9), 5, active(900)), (Some(9), Some(9), None)),
        ("unknown", warming(None, 5, active(900)), (None, None, None)),
        ("nothing there", warming(Some(0), 0, inactive(900)), (Some(0), None, None)),
    ]);
    let lowered = Input { bounds: Bounds { min: 0, max: Some(3) }, ..warming(Some(2), 5, active(900)) };
    let outcome = decide(&lowered);
    assert_eq!((outcome.want, outcome.patch), (Some(3), Some(3)), "a maximum is a command, not a measurement");
    let leaving = decide(&Input { active: inactive(900).active, desired: Some(0), ..lowered });
    assert_eq!((leaving.want, leaving.patch), (Some(3), Some(3)), "also for one that is inactive");
}

/// Goal: each outcome has its reason. Every two reasons have different texts, except the two steps of an idle
/// revision's way to zero.
#[test]
fn each_outcome_says_why() {
    use std::collections::{HashMap, HashSet};
    let retained = Input { pod_retention: secs(90), ..inactive(61) };
    let mut texts: HashMap<_, _> = [Reason::Metrics, Reason::MetricFailed].map(|r| (r, r.explain())).into();
    for (input, reason) in [
        (Input { desired: None, ..active(5) }, Reason::Unknown),
        (Input { desired: Some(3), ..active(5) }, Reason::Desired),
        (Input { bounds: min(3), ..active(5) }, Reason::Bounds),
        (Input { current_replicas: 3, warm_in: Some(secs(1)), ..active(5) }, Reason::Warming),
        (Input { warm_in: Some(secs(1)), ..inactive(60) }, Reason::Warming),
        (Input { current_replicas: 0, warm_in: Some(secs(1)), ..inactive(60) }, Reason::Zero),
        (Input { scale_to_zero: false, ..active(5) }, Reason::ScaleToZeroDisabled),
        (activating(1.0), Reason::Activating),
        (activating(152.0), Reason::ActivationTimedOut),
        (active(5), Reason::ActiveRecently),
        (active(300), Reason::Idle),
        (Input { unheard: true, ..inactive(60) }, Reason::Unheard),
        (Input { probe: ProbeResult::NotAsked, ..inactive(60) }, Reason::ProbePending),
        (retained, Reason::PodRetention),
        (inactive(5), Reason::GracePeriod),
        (inactive(60), Reason::Zero),
    ] {
        assert_eq!(decide(&input).reason, reason, "{input:?}");
        texts.insert(reason, reason.explain());
    }
    assert_eq!(texts.remove(&Reason::Zero), Some(texts[&Reason::Idle]));
    let distinct: HashSet<_> = texts.values().collect();
    assert!(distinct.len() == 15 && !distinct.contains(&""), "{texts:?}");
}

/// Goal: a desired scale that combines load and metrics names its source. Every other reason has priority.
#[test]
fn a_wish_of_load_and_metrics_says_whose_it_was() {
    use hpa_core::decision::{Limit, Stabilization};
    let answer = |held, measured| Answer {
        desired: Some(3),
        metric: "cpu".into(),
        measured,
        asked: 3,
        failing: 0,
        held,
        stabilization: Stabilization::Ready,
        limit: Limit::WithinRange,
    };
    for (reason, held, measured, expected) in [
        (Reason::Desired, false, false, Reason::Desired),
        (Reason::Desired, false, true, Reason::Metrics),
        (Reason::Desired, true, false, Reason::MetricFailed),
        (Reason::Desired, true, true, Reason::MetricFailed),
        (Reason::Bounds, true, true, Reason::Bounds),
        (Reason::Idle, false, true, Reason::Idle),
    ] {
        assert_eq!(reason.of_answer(&answer(held, measured)), expected, "{reason:?}, {held}, {measured}");
    }
}

/// Goal: a desired scale of zero does not remove the last pod once an activator does not report. A revision without
/// pods stays at zero.
#[test]
fn the_last_pod_stays_while_an_activator_cannot_be_heard() {
    let unheard = |input| decide(&Input { unheard: true, ..input });
    let held =
        ScaleOutcome { want: Some(0), patch: None, requeue: None, probe: ProbeNeed::None, reason: Reason::Unheard };
    assert_eq!(unheard(inactive(3600)), held, "and nothing is probed meanwhile");
    assert_eq!(decide(&inactive(3600)).patch, Some(0));
    assert_eq!(unheard(Input { current_replicas: 0, ..inactive(3600) }).reason, Reason::Zero, "asleep already");
    assert_eq!(unheard(Input { desired: Some(3), ..inactive(3600) }).patch, Some(3), "more is always possible");
}
