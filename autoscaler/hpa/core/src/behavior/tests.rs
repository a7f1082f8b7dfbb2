//! Tests of the order of floating-point operations, of edge cases and of properties. The decisions of Kubernetes'
//! controller are recorded in `tests/conformance` (kinds `hpa_normalize` and `hpa_normalize_legacy`).

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
fn an_unknown_select_policy_picks_the_largest_change() {
    let limits = |select| {
        let rules = rules("P2/60 %50/60", "P2/60 %50/60", (0, 0), Some(select));
        let memory = Memory::default();
        (rules.scale_up_limit(&memory, 7, NOW), rules.scale_down_limit(&memory, 7, NOW))
    };
    assert_eq!((limits("Max"), limits("Other")), ((11, 3), (11, 3)));
}

#[test]
fn doubling_the_largest_scale_does_not_overflow() {
    assert_eq!(scale_up_limit_without_behavior(i32::MAX), i32::MAX);
}

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

#[test]
fn the_default_scale_down_window_is_the_option_in_whole_seconds() {
    let rules = Rules::from_behavior(&HorizontalPodAutoscalerBehavior::default(), Duration::from_millis(1_900));
    let windows = [&rules.up, &rules.down].map(|rules| rules.stabilization_window_seconds.unwrap_or(0));
    assert_eq!(windows, [0, 1]);
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
