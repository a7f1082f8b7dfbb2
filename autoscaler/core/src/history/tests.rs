//! Tests that the history stores changes, extends equal decisions, and stays within its bounds.

use proptest::prelude::*;

use super::*;
use crate::bounds::Bounds;
use crate::decider::Recommendation;
use crate::decider::tests::decided;
use crate::scale_to_zero::Reason;

fn scale(desired: i32, stable: f64) -> Decision {
    decided(desired, -111, stable)
}

fn secs(n: i64) -> Timestamp {
    Timestamp::from_secs(n)
}

#[test]
fn an_equal_decision_extends_the_last_entry() {
    let mut history = History::default();
    assert!(history.record(secs(100), &scale(1, 50.0)));
    assert!(!history.record(secs(102), &scale(1, 60.0)), "another load, but the same decision");
    assert!(history.record(secs(104), &scale(2, 90.0)));
    assert!(history.record(secs(106), &Err(Unknown::NoData)));
    assert!(!history.record(secs(108), &Err(Unknown::NoData)));
    assert!(history.record(secs(110), &Err(Unknown::Pods)));
    let entries: Vec<_> = history.entries().map(|e| (e.since, e.lasted_secs, e.decisions)).collect();
    assert_eq!(entries, [(100, 2, 2), (104, 0, 1), (106, 2, 2), (110, 0, 1)]);
    let first = &history.entries().next().expect("an entry").outcome;
    assert!(matches!(first, EntryOutcome::Scale { stable: 50.0, .. }), "the inputs of the change: {first:?}");
}

#[test]
fn a_relevant_change_of_a_decision_makes_a_new_entry() {
    let base = scale(1, 50.0).expect("a scale");
    let same_sign = Recommendation { excess_burst_capacity: -5, ..base };
    for (what, changed, is_new) in [
        ("capacity of the same sign", same_sign, false),
        ("capacity's sign", Recommendation { excess_burst_capacity: 0, ..base }, true),
        ("mode", Recommendation { panicking: true, ..base }, true),
        ("rule", Recommendation { rule: Rule::PanicFloor, ..base }, true),
        ("scale", Recommendation { desired: 0, ..base }, true),
    ] {
        let mut history = History::default();
        history.record(secs(0), &Ok(base));
        assert_eq!(history.record(secs(2), &Ok(changed)), is_new, "{what}");
        assert_eq!(history.record(secs(4), &Ok(base)), is_new, "{what}, and back");
    }
}

fn action(wanted: i32, patched: bool, reason: Reason) -> Action {
    Action { patched, ..Action::planned(Some(wanted), 0, Bounds { min: 0, max: Some(9) }, reason) }
}

#[test]
fn decisions_and_actions_extend_their_own_entries_only() {
    let mut history = History::default();
    assert!(history.record(secs(100), &scale(1, 50.0)));
    assert!(history.act(secs(100), action(1, true, Reason::Desired)));
    for now in [102, 104] {
        assert!(!history.record(secs(now), &scale(1, 50.0)));
        assert!(!history.act(secs(now), action(1, false, Reason::Desired)), "the pods exist: no change");
    }
    assert!(history.act(secs(106), action(1, true, Reason::Desired)), "replicas restored after another writer");
    assert!(history.act(secs(108), action(0, false, Reason::GracePeriod)));
    let entries: Vec<_> =
        history.entries().map(|e| (e.since, e.lasted_secs, matches!(e.outcome, EntryOutcome::Action(_)))).collect();
    assert_eq!(entries, [(100, 4, false), (100, 4, true), (106, 0, true), (108, 0, true)]);
}

#[test]
fn a_changed_action_makes_a_new_entry() {
    let base = action(3, false, Reason::Desired);
    for (what, changed, is_new) in [
        ("the replicas alone", Action { replicas: Some(3), ..base }, false),
        ("scale", Action { wanted: Some(4), ..base }, true),
        ("nothing known", Action { wanted: None, ..base }, true),
        ("minimum", Action { min: 1, ..base }, true),
        ("maximum", Action { max: None, ..base }, true),
        ("a patch", Action { patched: true, ..base }, true),
        ("rule", Action { because: Cause::Rule(Reason::Bounds), ..base }, true),
        ("obstacle", Action { because: Cause::Obstacle(Obstacle::LeaseEnding), ..base }, true),
    ] {
        let mut history = History::default();
        history.act(secs(0), base);
        assert_eq!(history.act(secs(2), changed), is_new, "{what}");
    }
}

#[test]
fn every_obstacle_has_its_own_text() {
    let all = [
        Obstacle::Invalid,
        Obstacle::TargetNotFound,
        Obstacle::TargetChanges,
        Obstacle::ServiceNotOwned,
        Obstacle::ServicePending,
        Obstacle::NoPrivateService,
        Obstacle::LeaseEnding,
        Obstacle::NotAccepted,
        Obstacle::Contested,
    ];
    let words: std::collections::BTreeSet<_> = all.iter().map(|obstacle| obstacle.explain()).collect();
    assert!(words.len() == all.len() && !words.contains(""), "{words:?}");
    assert_eq!(Cause::Obstacle(Obstacle::Invalid).explain(), Obstacle::Invalid.explain());
    assert_eq!(Cause::Rule(Reason::Bounds).explain(), Reason::Bounds.explain());
}

#[test]
fn entries_are_flat_json_and_their_cause_reads_back() {
    let mut history = History::default();
    history.record(secs(100), &scale(3, 50.5));
    history.record(secs(102), &Err(Unknown::NotAttested));
    history.act(secs(103), action(1, true, Reason::ProbePending));
    history.act(secs(104), Action::refused(Obstacle::ServiceNotOwned));
    let json: Vec<_> = history.entries().map(|e| serde_json::to_value(e).expect("plain values")).collect();
    let expected = serde_json::json!([
        {
            "since": 100, "lastedSecs": 0, "decisions": 1, "desired": 3, "excessBurstCapacity": -111, "ready": 1,
            "stable": 50.5, "panic": 0.0, "target": 70.0, "panicking": false, "rule": "stableLoad"
        },
        {"since": 102, "lastedSecs": 0, "decisions": 1, "unknown": "notAttested"},
        {
            "since": 103, "lastedSecs": 0, "decisions": 1, "wanted": 1, "replicas": 0, "patched": true,
            "min": 0, "max": 9, "because": "probePending"
        },
        {
            "since": 104, "lastedSecs": 0, "decisions": 1, "wanted": null, "replicas": null, "patched": false,
            "min": 0, "max": null, "because": "serviceNotOwned"
        },
    ]);
    assert_eq!(serde_json::Value::from(json.clone()), expected);
    let causes = [Cause::Rule(Reason::ProbePending), Cause::Obstacle(Obstacle::ServiceNotOwned)];
    for (entry, cause) in json[2..].iter().zip(causes) {
        assert_eq!(serde_json::from_value::<Cause>(entry["because"].clone()).expect("a cause"), cause);
    }
}

/// Goal: the metric that asked for the most is named, and the same result again is no change.
#[test]
fn combined_results_have_entries_of_their_own() {
    let blended = |desired, metric: &str, failing| BlendedScale {
        desired,
        metric: metric.into(),
        measured: true,
        asked: 4,
        failing,
        ..BlendedScale::default()
    };
    let mut history = History::default();
    assert!(!history.blend(secs(0), &blended(None, "cpu", 0)), "nothing is known");
    assert!(history.record(secs(1), &scale(1, 50.0)));
    assert!(history.blend(secs(1), &blended(Some(4), "cpu", 0)));
    assert!(history.act(secs(1), action(4, true, Reason::Metrics)));
    assert!(!history.blend(secs(3), &BlendedScale { asked: 5, ..blended(Some(4), "cpu", 0) }));
    assert!(history.blend(secs(5), &blended(Some(4), "memory", 0)));
    assert!(history.blend(secs(7), &blended(Some(4), "memory", 2)));
    let json: Vec<_> = history.entries().map(|e| serde_json::to_value(e).expect("plain values")).collect();
    assert_eq!(json[1]["metric"], "cpu");
    assert_eq!((&json[1]["asked"], &json[1]["desired"], &json[1]["lastedSecs"]), (&4.into(), &4.into(), &2.into()));
    assert_eq!((&json[1]["stabilization"], &json[4]["failing"]), (&"ReadyForNewScale".into(), &2.into()));
}

#[test]
fn memory_grows_with_the_entries() {
    let mut history = History::default();
    assert_eq!(history.entries.capacity(), 0);
    for (entries, space) in [(1, GROWTH), (2, GROWTH), (GROWTH, GROWTH), (GROWTH + 1, 2 * GROWTH)] {
        while history.entries.len() < entries {
            history.record(secs(0), &scale(history.entries.len() as i32, 0.0));
        }
        assert_eq!(history.entries.capacity(), space, "{entries} entries");
    }
}

proptest! {
    /// Goal: under any sequence there are at most 64 entries and 4 KiB, and the latest decision or action is always the
    /// last entry of its source.
    #[test]
    fn a_history_stays_within_its_bounds(
        steps in prop::collection::vec((0_i64..100, 0_i32..4, any::<bool>()), 0..300),
    ) {
        let (mut history, mut now) = (History::default(), 0);
        for (step, desired, acts) in steps {
            now += step;
            let outcome = if acts {
                let action = action(desired, false, Reason::Desired);
                history.act(secs(now), action);
                EntryOutcome::Action(action)
            } else {
                history.record(secs(now), &scale(desired, 1.0));
                EntryOutcome::from_decision(&scale(desired, 1.0))
            };
            let last = history.entries().rfind(|entry| matches!(entry.outcome, EntryOutcome::Action(_)) == acts).expect("just recorded");
            prop_assert!(last.outcome.equals(&outcome), "{:?}", last);
            prop_assert_eq!(last.since + i64::from(last.lasted_secs), now);
            prop_assert!(history.entries().len() <= ENTRIES_MAX);
            let bytes = size_of::<History>() + history.entries.capacity() * size_of::<Entry>();
            prop_assert!(bytes <= BYTES_MAX, "{} bytes", bytes);
        }
    }
}
