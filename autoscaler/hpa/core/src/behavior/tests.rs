//! Tests of the effect of a behavior on recommendations: tables and properties.

use proptest::prelude::*;

use super::super::memory::ScaleEvent;
use super::*;
use crate::defaults::policy;
use k8s_openapi::api::autoscaling::v2::HPAScalingPolicy;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

fn ago(seconds: u64) -> Timestamp {
    NOW - Duration::from_secs(seconds)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Parses `P4/15 %100/60`: pods or percent in a period.
fn policies(text: &str) -> Option<Vec<HPAScalingPolicy>> {
    let parse = |word: &str| {
        let (amount, period) = word[1..].split_once('/').expect(word);
        let kind = if word.starts_with('P') { "Pods" } else { "Percent" };
        policy(kind, amount.parse().expect(word), period.parse().expect(word))
    };
    (!text.is_empty()).then(|| text.split(' ').map(parse).collect())
}

fn rules(up: &str, down: &str, windows: (i32, i32), select: Option<&str>) -> Rules {
    let direction = |text, window| {
        let (policies, select_policy) = (policies(text), select.map(str::to_owned));
        Some(HPAScalingRules { stabilization_window_seconds: Some(window), select_policy, policies, tolerance: None })
    };
    let behavior =
        HorizontalPodAutoscalerBehavior { scale_up: direction(up, windows.0), scale_down: direction(down, windows.1) };
    Rules::from_behavior(&behavior, Duration::ZERO)
}

/// Builds events from changes and their ages.
fn events(list: &[(i32, u64)]) -> Vec<ScaleEvent> {
    list.iter().map(|&(change, age)| ScaleEvent { change, at: ago(age), outdated: false }).collect()
}

#[test]
fn policies_limit_the_change_of_a_period() {
    use Limit::{ScaleDown, ScaleUp, TooFew, TooMany, WithinRange};
    const CHANGES: &[(i32, u64)] = &[(1, 100), (5, 60), (9, 20)];
    // ((current, proposed), (min, max), up policies, down policies, up events, down events, replicas, limit)
    for ((current, proposed), (min, max), up, down, ups, downs, replicas, limit) in [
        ((3, 1000), (1, 2000), "%1/60", "", &[][..], &[][..], 4, ScaleUp),
        ((1000, 3), (3, 2000), "", "P20/60", &[], &[], 980, ScaleDown),
        ((10, 500), (1, 1000), "P2/60 %100/60", "", &[], &[], 20, ScaleUp),
        ((10, 50), (1, 1000), "P100/60", "", &[], &[], 50, WithinRange),
        ((100, 2), (1, 1000), "", "P20/60 %1/60", &[], &[], 80, ScaleDown),
        ((10, 2), (5, 1000), "", "%100/60", &[], &[], 5, TooFew),
        ((100, 500), (1, 200), "P300/60", "", CHANGES, &[], 200, TooMany),
        ((100, 500), (1, 1000), "P5/120", "", CHANGES, &[], 100, ScaleUp),
        ((100, 500), (1, 1000), "%200/120", "", CHANGES, &[], 255, ScaleUp),
        ((6, 24), (1, 1000), "%300/300", "", &[(4, 60)], &[(2, 60)], 16, ScaleUp),
        ((100, 2), (1, 1000), "", "P5/120", &[], CHANGES, 100, ScaleDown),
        ((10, 1), (1, 1000), "", "%50/180", &[(2, 60)], &[(4, 60)], 6, ScaleDown),
        // Exactly at a limit is within range. If two limits coincide, the bound is named.
        ((10, 20), (1, 1000), "", "", &[], &[], 20, WithinRange),
        ((10, 500), (1, 20), "", "", &[], &[], 20, TooMany),
        ((100, 80), (1, 1000), "", "P20/60", &[], &[], 80, WithinRange),
        ((100, 2), (80, 1000), "", "P20/60", &[], &[], 80, TooFew),
        // A proposal of the current replicas is not limited, even outside the bounds.
        ((5, 5), (1, 3), "", "", &[], &[], 5, WithinRange),
        ((1, 1), (3, 10), "", "", &[], &[], 1, WithinRange),
    ] {
        let memory = Memory { scale_ups: events(ups), scale_downs: events(downs), ..Memory::default() };
        let got = rules(up, down, (0, 0), None).bound(&memory, &Demand { current, proposed, min, max }, NOW);
        assert_eq!(got, (replicas, limit), "{current} to {proposed}, up {up}, down {down}");
    }
}

#[test]
fn the_select_policy_picks_the_largest_or_smallest_change_or_none() {
    let memory = Memory::default();
    let limits = |current, select| {
        let rules = rules("P2/60 %50/60", "P2/60 %50/60", (0, 0), Some(select));
        (rules.scale_up_limit(&memory, current, NOW), rules.scale_down_limit(&memory, current, NOW))
    };
    assert_eq!((limits(1, "Min").0, limits(5, "Min").1), (2, 3));
    assert_eq!((limits(1, "Max").0, limits(5, "Max").1), (3, 2));
    assert_eq!(limits(7, "Disabled"), (7, 7));
    assert_eq!(limits(7, "Other"), limits(7, "Max"));
    let rules = rules("P2/60", "P2/60", (0, 0), Some("Disabled"));
    let bound = |proposed| rules.bound(&memory, &Demand { current: 7, proposed, min: 1, max: 10 }, NOW);
    assert_eq!((bound(9), bound(3)), ((7, Limit::ScaleUp), (7, Limit::ScaleDown)));
}

#[test]
fn recommendations_within_a_window_hold_the_scale() {
    // (history, current, proposed, (up window, down window), stabilized, history after)
    for (history, current, proposed, windows, stabilized, after) in [
        (&[][..], 100, 5, (0, 0), 5, &[5][..]),
        (&[(4, 120), (5, 60)], 100, 3, (0, 180), 5, &[4, 5, 3]),
        (&[(4, 120), (5, 60)], 1, 7, (300, 0), 4, &[4, 5, 7]),
        (&[(10, 600), (9, 540)], 100, 3, (0, 0), 3, &[10, 3]),
        (&[(10, 6000), (6, 60), (5, 120), (9, 180)], 1, 100, (300, 0), 5, &[100, 6, 5, 9]),
        (&[(2, 6000), (1, 180)], 2, 3, (300, 300), 2, &[3, 1]),
        // Exactly as old as a window: it no longer counts, but is not replaced yet.
        (&[(10, 300)], 100, 3, (300, 60), 3, &[10, 3]),
        (&[(10, 300)], 100, 3, (60, 300), 3, &[10, 3]),
    ] {
        let recommendation = |&(replicas, age): &(i32, u64)| Recommendation { replicas, at: ago(age) };
        let mut memory = Memory { recommendations: history.iter().map(recommendation).collect(), ..Memory::default() };
        let demand = Demand { current, proposed, min: 1, max: 1000 };
        let rules = rules("", "", windows, None);
        assert_eq!(rules.stabilize(&mut memory, &demand, NOW), stabilized, "{history:?}, {current} to {proposed}");
        assert_eq!(memory.recommendations.iter().map(|r| r.replicas).collect::<Vec<_>>(), after, "{history:?}");
    }
}

/// Goal: the order of floating-point operations is upstream's.
#[test]
fn floating_point_operations_keep_upstreams_order() {
    let memory = Memory::default();
    for (current, percent, replicas) in [(100, 10, 111), (50, 10, 56), (1000, 14, 1141)] {
        let rules = rules(&format!("%{percent}/60"), "", (0, 0), None);
        assert_eq!(rules.scale_up_limit(&memory, current, NOW), replicas, "{percent} % up from {current}");
    }
    for (current, percent, replicas) in [(10, 90, 0), (10, 80, 1), (100, 55, 44), (1000, 7, 929)] {
        let rules = rules("", &format!("%{percent}/60"), (0, 0), None);
        assert_eq!(rules.scale_down_limit(&memory, current, NOW), replicas, "{percent} % down from {current}");
    }
}

/// Decides every `interval` seconds for a constant proposal, and returns the replicas after each decision.
fn replicas_over_time(rules: &Rules, start: i32, proposed: i32, interval: u64, steps: u64) -> Vec<i32> {
    let (mut memory, mut current) = (Memory::default(), start);
    let step = |i: u64| {
        let now = NOW + seconds(i * interval);
        let demand = Demand { current, proposed, min: 0, max: i32::MAX };
        let replicas = rules.decide(&mut memory, &demand, now).replicas;
        record_change(&mut memory, Some(rules), current, replicas, now);
        current = replicas;
        current
    };
    (0..steps).map(step).collect()
}

#[test]
fn policies_limit_each_step_towards_a_distant_proposal() {
    let defaults = rules("", "", (0, 0), None);
    assert_eq!(replicas_over_time(&defaults, 1, i32::MAX, 15, 6), [5, 10, 20, 40, 80, 160]);
    assert_eq!(replicas_over_time(&defaults, 3, i32::MAX, 15, 3), [7, 14, 28]);
    assert_eq!(replicas_over_time(&defaults, 0, i32::MAX, 15, 1), [4]);
    assert_eq!(replicas_over_time(&rules("%900/15", "", (0, 0), None), 0, 50, 15, 2), [0, 0], "a percentage of 0 is 0");
    let slow = rules("", "%10/60", (0, 0), None);
    assert_eq!(replicas_over_time(&slow, 100, 1, 60, 7), [90, 81, 72, 64, 57, 51, 45]);
    let half = rules("%50/60", "%25/60", (0, 0), None);
    assert_eq!(replicas_over_time(&half, 2, 100, 60, 2), [3, 5]);
    assert_eq!(replicas_over_time(&half, 7, 1, 60, 2), [5, 3]);
    let one = rules("P1/60", "", (0, 0), None);
    assert_eq!(replicas_over_time(&one, 1, 9, 15, 6), [2, 2, 2, 2, 3, 3], "one step in each period");
}

#[test]
fn a_change_is_kept_for_the_longest_period_of_its_direction() {
    let rules = rules("P9/15 P9/60", "P9/15", (0, 0), None);
    let mut memory = Memory::default();
    for (from, to, at) in [(1, 2, ago(30)), (2, 3, NOW), (3, 2, ago(30)), (2, 1, NOW)] {
        record_change(&mut memory, Some(&rules), from, to, at);
    }
    assert_eq!((memory.scale_ups.len(), memory.scale_downs.len()), (2, 1));
    let mut none = Memory::default();
    record_change(&mut none, None, 1, 2, NOW);
    assert_eq!(none, Memory::default(), "without a behavior nothing is limited");
}

#[test]
fn the_default_scale_down_window_is_the_option_in_whole_seconds() {
    let rules = Rules::from_behavior(&HorizontalPodAutoscalerBehavior::default(), Duration::from_millis(1_900));
    let windows = [&rules.up, &rules.down].map(|rules| rules.stabilization_window_seconds.unwrap_or(0));
    assert_eq!(windows, [0, 1]);
}

#[test]
fn without_a_behavior_the_bounds_and_doubling_limit_the_scale() {
    for (current, proposed, min, max, replicas, limit) in [
        (3, 1, 2, 8, 2, Limit::TooFew),
        (20, 1000, 1, 10, 10, Limit::TooMany),
        (3, 1000, 1, 2000, 6, Limit::ScaleUp),
        (0, 1000, 0, 2000, 4, Limit::ScaleUp),
        (i32::MAX, i32::MAX, 1, i32::MAX, i32::MAX, Limit::WithinRange),
    ] {
        let demand = Demand { current, proposed, min, max };
        let decision = decide_without_behavior(&mut Memory::default(), &demand, seconds(300), NOW);
        assert_eq!((decision.replicas, decision.limit), (replicas, limit), "{current} to {proposed}");
    }
}

/// Goal: a recommendation that was limited scales up the target later, too.
#[test]
fn without_a_behavior_an_old_recommendation_still_scales_up() {
    let mut memory = Memory::default();
    let demand = Demand { current: 4, proposed: 40, min: 1, max: 100 };
    assert_eq!(decide_without_behavior(&mut memory, &demand, seconds(300), NOW).replicas, 8);
    let later = Demand { current: 8, proposed: 6, ..demand };
    let decision = decide_without_behavior(&mut memory, &later, seconds(300), NOW + seconds(15));
    assert_eq!((decision.replicas, decision.stabilization), (16, Stabilization::Down));
}

proptest! {
    /// Goal: with `Min`, no period contains more change than each policy allows, whatever the proposals.
    #[test]
    fn with_min_no_period_exceeds_the_limit_of_any_policy(
        policies in prop::collection::vec((1_i32..8, prop::sample::select(vec![15_u64, 30, 60, 120])), 1..4),
        steps in prop::collection::vec((1_u64..40, 1_i32..60), 1..60),
    ) {
        let text: Vec<_> = policies.iter().map(|(pods, period)| format!("P{pods}/{period}")).collect();
        let text = text.join(" ");
        let rules = rules(&text, &text, (0, 0), Some("Min"));
        let (mut memory, mut current, mut now) = (Memory::default(), 20, NOW);
        let mut changes: Vec<(Timestamp, i32)> = Vec::new();
        for (pause, proposed) in steps {
            now = now + seconds(pause);
            let demand = Demand { current, proposed, min: 1, max: 100 };
            let replicas = rules.decide(&mut memory, &demand, now).replicas;
            if replicas == current {
                continue;
            }
            record_change(&mut memory, Some(&rules), current, replicas, now);
            changes.push((now, replicas - current));
            let grows = replicas > current;
            current = replicas;
            for (pods, period) in &policies {
                let recent = changes.iter().filter(|(at, _)| *at > now - seconds(*period));
                let net: i32 = recent.map(|(_, change)| change).sum();
                let change = if grows { net } else { -net };
                prop_assert!(change <= *pods, "{change} in {period} s under {text}");
            }
        }
    }

    #[test]
    fn a_larger_proposal_never_means_fewer_pods(
        current in 5_i32..50, proposed in 0_i32..100, more in 0_i32..50, windows in (0_i32..400, 0_i32..400),
        history in prop::collection::vec((0_i32..100, 0_u64..600), 0..10), change in 0_i32..5,
    ) {
        let rules = rules("P4/60 %50/15", "P3/30", windows, None);
        let memory = Memory {
            recommendations: history.iter().map(|&(replicas, age)| Recommendation { replicas, at: ago(age) }).collect(),
            scale_ups: events(&[(change, 10)]),
            scale_downs: events(&[(change, 20)]),
        };
        let demand = Demand { current, proposed, min: 2, max: 80 };
        let decide = |proposed| rules.decide(&mut memory.clone(), &Demand { proposed, ..demand }, NOW).replicas;
        prop_assert!(decide(proposed) <= decide(proposed + more));
        let without = |proposed| {
            decide_without_behavior(&mut memory.clone(), &Demand { proposed, ..demand }, seconds(300), NOW).replicas
        };
        prop_assert!(without(proposed) <= without(proposed + more));
    }
}
