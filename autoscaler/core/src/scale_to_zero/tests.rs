//! Tests of what Zeroscale adds to Knative's way to zero, and of exact times. Knative's decisions are recorded in
//! `tests/conformance` (kind `apply_scale`).

use super::*;

const WINDOW: Duration = secs(300);
const GRACE: Duration = secs(60);

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Returns an input with one replica, nothing desired, a positive probe, and every feature on.
pub(crate) fn input(active: Active) -> Input {
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
        warm_up_left: None,
        unattested: false,
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

fn replicas(current_replicas: i32, input: Input) -> Input {
    Input { current_replicas, ..input }
}

fn desired(desired: i32, input: Input) -> Input {
    Input { desired: Some(desired), ..input }
}

fn unknown(input: Input) -> Input {
    Input { desired: None, ..input }
}

fn min(min: i32) -> Bounds {
    Bounds { min, max: None }
}

/// (wanted scale, patch, seconds until the next decision).
type Row = (Option<i32>, Option<i32>, Option<u64>);

fn check(rows: impl IntoIterator<Item = (&'static str, Input, Row)>) {
    for (name, input, expected) in rows {
        let outcome = decide(&input);
        let got = (outcome.wanted_scale, outcome.patch, outcome.requeue.map(|after| after.as_secs()));
        assert_eq!(got, expected, "{name}: {outcome:?}");
        assert_eq!(outcome.probe, ProbeNeed::None, "{name}");
    }
}

#[test]
fn a_time_that_is_exactly_over_counts_as_over_except_that_of_an_activation() {
    check([
        ("active for a window", active(300), (Some(0), None, None)),
        ("inactive for the grace period", inactive(60), (Some(0), Some(0), None)),
        (
            "retention over, in the path for the grace period",
            Input { pod_retention: secs(59), proxy_for: GRACE, ..inactive(59) },
            (Some(0), Some(0), None),
        ),
        ("activating for the timeout", activating(151.0), (None, None, Some(151))),
        ("no condition never times out", input(Active::Absent), (None, None, Some(151))),
    ]);
    assert!(Active::Absent.is_activating());
}

#[test]
fn bounds_below_zero_require_nothing() {
    let bounds = Bounds { min: -2, max: Some(-1) };
    check([("inactive", Input { bounds, ..inactive(60) }, (Some(0), Some(0), None))]);
}

/// Returns the outcome that keeps the last pod of an idle revision.
fn keep(probe: ProbeNeed, reason: Reason) -> ScaleOutcome {
    ScaleOutcome { wanted_scale: Some(0), patch: None, requeue: None, probe, reason }
}

/// Goal: without proof the last pod stays, whatever the clocks say. The outcome that requests proof is safe to apply.
#[test]
fn the_last_pod_waits_for_proof() {
    for (probe, need) in [(ProbeResult::NotProbed, ProbeNeed::Probe), (ProbeResult::NotInPath, ProbeNeed::Retry)] {
        let outcome = decide(&Input { probe, ..inactive(100_000) });
        assert_eq!(outcome, keep(need, Reason::ProbePending), "{probe:?}");
    }
    for never in [active(300), active(0), activating(10.0), desired(3, inactive(60))] {
        let outcome = decide(&Input { probe: ProbeResult::NotProbed, ..never });
        assert_eq!(outcome.probe, ProbeNeed::None, "only the last pod needs proof: {never:?}");
    }
}

/// Goal: an owner that does not know the load yet removes no pod, and decides again when it does.
#[test]
fn a_takeover_scales_up_and_not_down() {
    let warming = |desired, current_replicas, input| {
        let warm_up_left = Some(secs(40));
        Input { desired, current_replicas, warm_up_left, ..input }
    };
    let at_least_one = Input { bounds: min(1), ..warming(Some(0), 1, inactive(900)) };
    check([
        ("fewer", warming(Some(2), 5, active(900)), (Some(5), None, Some(40))),
        ("none", warming(Some(0), 5, active(900)), (Some(5), None, Some(40))),
        ("none, inactive", warming(Some(0), 1, inactive(900)), (Some(0), None, Some(40))),
        ("none, inactive, not less than one", at_least_one, (Some(1), None, Some(40))),
        ("as many", warming(Some(5), 5, active(900)), (Some(5), None, None)),
        ("more", warming(Some(9), 5, active(900)), (Some(9), Some(9), None)),
        ("unknown", warming(None, 5, active(900)), (None, None, None)),
        ("nothing there", warming(Some(0), 0, inactive(900)), (Some(0), None, None)),
    ]);
    let lowered = Input { bounds: Bounds { min: 0, max: Some(3) }, ..warming(Some(2), 5, active(900)) };
    let outcome = decide(&lowered);
    assert_eq!((outcome.wanted_scale, outcome.patch), (Some(3), Some(3)), "a maximum is a command, not a measurement");
    let leaving = decide(&Input { active: inactive(900).active, desired: Some(0), ..lowered });
    assert_eq!((leaving.wanted_scale, leaving.patch), (Some(3), Some(3)), "also for one that is inactive");
}

/// Goal: each outcome has its reason. Every two reasons have different texts, except the two steps of an idle
/// revision's way to zero.
#[test]
fn each_outcome_has_its_reason() {
    use std::collections::{HashMap, HashSet};
    let retained = Input { pod_retention: secs(90), ..inactive(61) };
    let mut texts: HashMap<_, _> = [Reason::Metrics, Reason::MetricFailed].map(|r| (r, r.explain())).into();
    for (input, reason) in [
        (unknown(active(5)), Reason::Unknown),
        (desired(3, active(5)), Reason::Desired),
        (Input { bounds: min(3), ..active(5) }, Reason::Bounds),
        (Input { current_replicas: 3, warm_up_left: Some(secs(1)), ..active(5) }, Reason::Warming),
        (Input { warm_up_left: Some(secs(1)), ..inactive(60) }, Reason::Warming),
        (Input { current_replicas: 0, warm_up_left: Some(secs(1)), ..inactive(60) }, Reason::Zero),
        (Input { scale_to_zero: false, ..active(5) }, Reason::ScaleToZeroDisabled),
        (activating(1.0), Reason::Activating),
        (activating(152.0), Reason::ActivationTimedOut),
        (active(5), Reason::ActiveRecently),
        (active(300), Reason::Idle),
        (Input { unattested: true, ..inactive(60) }, Reason::Unattested),
        (Input { probe: ProbeResult::NotProbed, ..inactive(60) }, Reason::ProbePending),
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
fn a_combined_scale_names_its_source() {
    let blended =
        |held, measured| BlendedScale { desired: Some(3), asked: 3, measured, held, ..BlendedScale::default() };
    for (reason, held, measured, expected) in [
        (Reason::Desired, false, false, Reason::Desired),
        (Reason::Desired, false, true, Reason::Metrics),
        (Reason::Desired, true, false, Reason::MetricFailed),
        (Reason::Desired, true, true, Reason::MetricFailed),
        (Reason::Bounds, true, true, Reason::Bounds),
        (Reason::Idle, false, true, Reason::Idle),
    ] {
        assert_eq!(reason.refined_by(&blended(held, measured)), expected, "{reason:?}, {held}, {measured}");
    }
}

/// Goal: a desired scale of zero does not remove the last pod once an activator does not report. A revision without
/// pods stays at zero.
#[test]
fn the_last_pod_stays_while_an_activator_does_not_report() {
    let unattested = |input| decide(&Input { unattested: true, ..input });
    let held = keep(ProbeNeed::None, Reason::Unattested);
    assert_eq!(unattested(inactive(3600)), held, "and nothing is probed meanwhile");
    assert_eq!(decide(&inactive(3600)).patch, Some(0));
    assert_eq!(unattested(replicas(0, inactive(3600))).reason, Reason::Zero, "asleep already");
    assert_eq!(unattested(desired(3, inactive(3600))).patch, Some(3), "scaling up is always possible");
}
