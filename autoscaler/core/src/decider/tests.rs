//! Tests of what Zeroscale adds to Knative's decider, and of the properties of all decisions. Knative's own decisions
//! are recorded in `tests/conformance` (kinds `scale` and `pipeline`).

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::scale_to_zero::tests::secs;

fn epoch() -> Timestamp {
    Timestamp::from_secs(1_700_000_000)
}

/// Returns a spec with rates of 10, threshold 2, a window of 60 s, a total a third above the target, reachable.
fn spec(target: f64, burst: f64) -> DeciderSpec {
    DeciderSpec {
        max_scale_up_rate: 10.0,
        max_scale_down_rate: 10.0,
        target_value: target,
        total_value: target / 0.75,
        target_burst_capacity: BurstCapacity::from_number(burst),
        initial_scale: 0,
        ..DeciderSpec::default()
    }
}

/// Returns a decision of one ready pod, for tests of what follows from it.
pub(crate) fn decided(desired: i32, excess_burst_capacity: i32, stable: f64) -> Decision {
    let (inputs, rule) = (Inputs { ready: 1, stable, panic: 0.0, target: 70.0 }, Rule::StableLoad);
    Ok(Recommendation { desired, excess_burst_capacity, panicking: false, rule, inputs, warm_up_left: None })
}

fn observation(after: Duration, ready: u32, stable: f64, panic: f64) -> Observation {
    Observation { now: epoch() + after, ready: Ok(ready), load: Ok(Load { stable, panic }), attested: true }
}

/// Makes one evaluation at `after`. Returns desired, burst capacity and panicking.
fn tick(decider: &mut Decider, spec: &DeciderSpec, after: Duration, ready: u32, load: (f64, f64)) -> (i32, i32, bool) {
    let r = decider.decide(spec, &observation(after, ready, load.0, load.1)).expect("a valid observation");
    assert_eq!(r.panicking, decider.is_panicking());
    (r.desired, r.excess_burst_capacity, r.panicking)
}

/// Creates a decider in stable mode, whatever the number of ready pods.
fn stable_decider(spec: &DeciderSpec) -> Decider {
    Decider::new(spec, 0, epoch())
}

/// Creates a decider that has been in panic mode since `ago` before the epoch, at a scale of `floor`.
fn panicking(spec: &DeciderSpec, ago: Duration, floor: u32) -> Decider {
    Decider { panic_floor: floor as i32, ..Decider::new(spec, 2, epoch() - ago) }
}

/// Goal: without a count of pods or without metrics there is no decision, and the state does not change.
#[test]
fn an_unknown_input_changes_nothing() {
    let spec = spec(10.0, 100.0);
    let mut decider = panicking(&spec, secs(59), 5).taken_over();
    let before = format!("{decider:?}");
    let late = observation(secs(300), 1, 0.0, 0.0);
    for (ready, load, expected) in [
        (Err(Unknown::Pods), late.load, Unknown::Pods),
        (Ok(1), Err(Unknown::NoData), Unknown::NoData),
        (Err(Unknown::Pods), Err(Unknown::NoData), Unknown::Pods),
    ] {
        let decision = decider.decide(&spec, &Observation { ready, load, ..late });
        assert_eq!(decision, Err(expected));
        assert_eq!(format!("{decider:?}"), before, "{expected}");
    }
}

#[test]
fn an_edited_delay_applies_only_if_edits_are_live() {
    let spec = |delay| DeciderSpec { panic_threshold: 100.0, scale_down_delay: secs(delay), ..spec(10.0, 0.0) };
    // (delay at creation, delay after the edit) -> desired after a fall from 4 to 0: frozen, live.
    for (created, edited, frozen, live) in [(0, 60, 0, 0), (60, 0, 4, 0), (60, 2, 4, 0), (2, 60, 0, 4)] {
        for (expected, decider) in [
            (frozen, Decider::new(&spec(created), 0, epoch())),
            (live, Decider::new(&spec(created), 0, epoch()).with_live_delay()),
        ] {
            let mut decider = decider;
            tick(&mut decider, &spec(created), secs(0), 0, (40.0, 40.0));
            let (desired, ..) = tick(&mut decider, &spec(edited), secs(10), 0, (0.0, 0.0));
            // A window of one slot releases the value in any case.
            assert_eq!(desired, expected, "from {created} s to {edited} s, live {}", decider.delay_is_live);
        }
    }
    let mut decider = Decider::new(&spec(0), 0, epoch()).with_live_delay();
    tick(&mut decider, &spec(60), secs(0), 0, (40.0, 40.0));
    assert_eq!(tick(&mut decider, &spec(60), secs(10), 0, (0.0, 0.0)).0, 4, "a delay added later holds");
}

/// Goal: after a takeover each decision contains the time until the window is full, counted from the first valid
/// evaluation.
#[test]
fn after_a_takeover_the_stable_window_fills_first() {
    let spec = spec(10.0, 100.0);
    let warm_up_left = |decider: &mut Decider, at: u64| {
        let decision = decider.decide(&spec, &observation(secs(at), 0, 5.0, 5.0));
        decision.expect("valid").warm_up_left.map(|left| left.as_secs())
    };
    let mut decider = stable_decider(&spec).taken_over();
    let _ = decider.decide(&spec, &Observation { load: Err(Unknown::NoData), ..observation(secs(0), 0, 0.0, 0.0) });
    for (at, expected) in [(100, Some(60)), (102, Some(58)), (159, Some(1)), (160, None), (162, None)] {
        assert_eq!(warm_up_left(&mut decider, at), expected, "at {at} s");
    }
    assert_eq!(warm_up_left(&mut stable_decider(&spec), 0), None, "a new revision has no window to fill");
}

/// Goal: a partial load raises the scale, but lowers nothing and ends no panic. It leaves a gap that the window must
/// fill before the scale can fall.
#[test]
fn a_partial_load_can_only_raise_the_scale() {
    let spec = spec(10.0, 100.0);
    let part = |decider: &mut Decider, at: u64, ready: u32, load: f64| {
        let partial = Observation { attested: false, ..observation(secs(at), ready, load, load) };
        decider.decide(&spec, &partial).map(|r| (r.desired, r.warm_up_left))
    };
    let whole = |decider: &mut Decider, at: u64, ready: u32, load: f64| {
        let decision = decider.decide(&spec, &observation(secs(at), ready, load, load));
        decision.map(|r| (r.desired, r.warm_up_left)).expect("a whole load")
    };
    let unknown = Err(Unknown::NotAttested);
    let mut decider = stable_decider(&spec);
    assert_eq!(whole(&mut decider, 0, 3, 30.0), (3, None));
    assert_eq!(part(&mut decider, 2, 3, 10.0), unknown, "fewer");
    assert_eq!(part(&mut decider, 4, 3, 30.0), unknown, "as many");
    assert_eq!(part(&mut decider, 6, 3, 50.0), Ok((5, Some(secs(60)))), "more");
    assert_eq!(part(&mut decider, 8, 3, 40.0), unknown, "more than are ready, fewer than were desired");
    assert!(!decider.is_panicking());
    assert_eq!(part(&mut decider, 10, 3, 60.0), Ok((6, Some(secs(60)))));
    assert!(decider.is_panicking(), "twice the pods");
    assert_eq!(part(&mut decider, 200, 6, 0.0), unknown);
    assert!(decider.is_panicking(), "the end of the burst is not known");
    assert_eq!(whole(&mut decider, 202, 6, 20.0), (2, Some(secs(60))), "complete again, and the gap fills");
    assert_eq!(whole(&mut decider, 262, 6, 20.0), (2, None));

    let mut once = stable_decider(&spec);
    assert_eq!(whole(&mut once, 0, 3, 30.0), (3, None));
    assert_eq!(part(&mut once, 2, 3, 10.0), unknown);
    assert_eq!(whole(&mut once, 4, 3, 10.0), (1, None), "a single miss leaves no gap");

    let mut created = stable_decider(&spec);
    assert_eq!(part(&mut created, 0, 4, 70.0), unknown, "more than four may have been desired");
    assert_eq!(part(&mut created, 2, 4, 40.0), unknown, "four are ready, and nothing scales down");
    assert_eq!(part(&mut created, 4, 4, 41.0), Ok((5, Some(secs(60)))));
    let silent = Observation { load: Err(Unknown::NoData), attested: false, ..observation(secs(6), 4, 0.0, 0.0) };
    assert_eq!(created.decide(&spec, &silent), Err(Unknown::NotAttested));
}

#[test]
fn each_decision_names_the_rule_that_determined_it() {
    let plain = spec(10.0, 100.0);
    let (stable, panicking) = (|| stable_decider(&plain), |floor| panicking(&plain, secs(5), floor));
    // (decider, activation scale, ready, stable, panic) -> rule
    let cases = [
        ("load", stable(), 0, 5, 50.0, 50.0, Rule::StableLoad),
        ("burst", stable(), 0, 1, 50.0, 90.0, Rule::PanicLoad),
        ("up", stable(), 0, 1, 1000.0, 5.0, Rule::ScaleUpRate),
        ("down", stable(), 0, 100, 1.0, 1.0, Rule::ScaleDownRate),
        ("idle", stable(), 0, 1, 0.0, 0.0, Rule::StableLoad),
        ("negative load", stable(), 0, 1, -50.0, -50.0, Rule::StableLoad),
        ("down rate requires as much", stable(), 0, 10, 10.0, 10.0, Rule::StableLoad),
        ("up rate allows as much", stable(), 0, 1, 100.0, 10.0, Rule::StableLoad),
        ("floor is reached again", panicking(5), 0, 5, 50.0, 10.0, Rule::StableLoad),
        ("both windows agree", panicking(1), 0, 5, 50.0, 50.0, Rule::StableLoad),
        ("floor", panicking(9), 0, 5, 10.0, 10.0, Rule::PanicFloor),
        ("activation", stable(), 3, 1, 1.0, 0.0, Rule::ActivationScale),
        ("as many as the activation scale", stable(), 3, 3, 30.0, 0.0, Rule::StableLoad),
    ];
    let mut explained = std::collections::HashMap::new();
    for (name, mut decider, activation_scale, ready, stable, panic, rule) in cases {
        let spec = DeciderSpec { activation_scale, ..plain.clone() };
        let decision = decider.decide(&spec, &observation(Duration::ZERO, ready, stable, panic));
        let got = decision.expect("valid");
        assert_eq!(got.rule, rule, "{name}");
        assert_eq!(got.inputs, Inputs { ready, stable, panic, target: 10.0 }, "{name}");
        explained.insert(rule, rule.explain());
    }
    let delayed = DeciderSpec { scale_down_delay: secs(60), ..plain };
    let mut decider = stable_decider(&delayed);
    let _ = decider.decide(&delayed, &observation(secs(0), 5, 50.0, 5.0));
    let again = decider.decide(&delayed, &observation(secs(2), 5, 50.0, 5.0));
    assert_eq!(again.map(|r| r.rule), Ok(Rule::StableLoad), "held, and required by the load");
    let decision = decider.decide(&delayed, &observation(secs(2), 5, 20.0, 5.0));
    assert_eq!(decision.map(|r| (r.desired, r.rule)), Ok((5, Rule::ScaleDownDelay)));
    explained.insert(Rule::ScaleDownDelay, Rule::ScaleDownDelay.explain());
    let words: std::collections::BTreeSet<_> = explained.values().collect();
    assert!(words.len() == 7 && !words.contains(&""), "each rule has its own text: {words:?}");
}

fn any_spec() -> impl Strategy<Value = DeciderSpec> {
    let rates = (1.01..1000.0, 1.01..10.0, 0.01..200.0, 1.1..10.0);
    (rates, -1.0..300.0, 6_u64..120, 0_u64..60, 0..5, any::<bool>()).prop_map(
        |((up, down, target, threshold), burst, window, delay, activation, reachable)| DeciderSpec {
            max_scale_up_rate: up,
            max_scale_down_rate: down,
            panic_threshold: threshold,
            stable_window: secs(window),
            scale_down_delay: secs(delay),
            activation_scale: activation,
            reachable,
            ..spec(target, burst)
        },
    )
}

/// Returns ticks: seconds since the last one, ready pods, and both loads.
fn any_history() -> impl Strategy<Value = Vec<(u64, u32, f64, f64)>> {
    prop::collection::vec((1_u64..40, 0_u32..300, 0.0..5000.0, 0.0..5000.0), 0..40)
}

fn replay(spec: &DeciderSpec, history: &[(u64, u32, f64, f64)]) -> (Decider, Duration) {
    let (mut decider, mut now) = (Decider::new(spec, 1, epoch()), Duration::ZERO);
    for (step, ready, stable, panic) in history {
        now += secs(*step);
        let _ = decider.decide(spec, &observation(now, *ready, *stable, *panic));
    }
    (decider, now + secs(2))
}

proptest! {
    /// Goal: more load never means fewer pods, whatever the history.
    #[test]
    fn desired_is_monotonic_in_load(
        spec in any_spec(),
        history in any_history(),
        ready in 0_u32..300,
        (stable, panic) in (0.0..5000.0, 0.0..5000.0),
        (more_stable, more_panic) in (0.0..5000.0, 0.0..5000.0),
    ) {
        let (mut decider, now) = replay(&spec, &history);
        let mut twin = decider.clone();
        let less = decider.decide(&spec, &observation(now, ready, stable, panic));
        let more = twin.decide(&spec, &observation(now, ready, stable + more_stable, panic + more_panic));
        let of = |decision: Decision| decision.map(|r| (r.desired, r.excess_burst_capacity));
        let ((fewer, spare), (pods, spare_of_more)) = (of(less).expect("valid"), of(more).expect("valid"));
        prop_assert!(fewer <= pods && spare >= spare_of_more, "{less:?} and {more:?}");
    }

    /// Goal: one decision changes the scale within its rates, unless an older decision or the activation scale holds it
    /// up.
    #[test]
    fn desired_stays_within_the_limits(spec in any_spec(), history in any_history(), ready in 0_u32..300, load in 0.0..1e6) {
        let (mut decider, now) = replay(&spec, &history);
        let decision = decider.decide(&spec, &observation(now, ready, load, load));
        let r = decision.expect("valid");
        let pods = f64::from(ready.max(1));
        let up = (pods * spec.max_scale_up_rate).ceil() as i32;
        let down = if spec.reachable { (pods / spec.max_scale_down_rate).floor() as i32 } else { 0 };
        prop_assert!(r.desired >= down.min(up) && r.desired >= 0, "{r:?}");
        let held = matches!(r.rule, Rule::PanicFloor | Rule::ScaleDownDelay | Rule::ActivationScale);
        prop_assert!(r.desired <= up || held, "{r:?}");
    }

    /// Goal: without a scale-down delay, the scale never falls in panic mode.
    #[test]
    fn a_panic_never_scales_down(spec in any_spec(), history in any_history(), rest in any_history()) {
        let spec = DeciderSpec { scale_down_delay: Duration::ZERO, ..spec };
        let (mut decider, mut now) = replay(&spec, &history);
        let mut last = None;
        for (step, ready, stable, panic) in rest {
            now += secs(step);
            let decision = decider.decide(&spec, &observation(now, ready, stable, panic));
            let r = decision.expect("valid");
            if let (true, Some(last)) = (r.panicking, last) {
                prop_assert!(r.desired >= last, "{r:?} after {last}");
            }
            last = r.panicking.then_some(r.desired);
        }
    }
}
