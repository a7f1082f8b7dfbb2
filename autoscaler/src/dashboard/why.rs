//! Explains in one sentence why a workload has its scale.
//!
//! The sentence begins with the state: `2 pods`, `asleep`, `waking`. Then follows the decisive cause: first anything
//! that a user must fix, then the effect of bounds, metrics and scale to zero on the load, then the load itself.

use crate::scale::multiscaler::LOAD_MIN;
use autoscaler_core::history::{Cause, EntryOutcome};
use autoscaler_core::scale_to_zero::Reason;
use common::scaling::{DeciderSpec, ScalingMetric};
use common::text::excerpt;
use common_api::zeroscaler::SleepState;
use std::fmt::Write;

/// Longest quoted text in a sentence, in characters.
const QUOTED_MAX: usize = 600;

/// Inputs of a sentence.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts<'a> {
    pub(super) state: SleepState,
    pub(super) ready: i32,
    pub(super) desired: Option<i32>,
    pub(super) min: Option<i32>,
    pub(super) max: Option<i32>,
    /// Set if its object is being deleted: it exists until everything is restored.
    pub(super) is_deleted: bool,
    /// Set if an operator has paused it.
    pub(super) is_paused: bool,
    /// Reason and message of Ready, if it is False.
    pub(super) refused: Option<(&'a str, &'a str)>,
    /// Seconds spent in this state.
    pub(super) since: Option<u64>,
    /// Parameters of its rule.
    pub(super) spec: Option<&'a DeciderSpec>,
    /// Load over the stable and the panic window.
    pub(super) load: Option<[f64; 2]>,
    pub(super) is_panicking: bool,
    /// Set if quoted texts are shown in full, and not cut to fit into a row.
    pub(super) is_whole: bool,
    /// Decisions and actions, oldest first.
    pub(super) history: &'a [EntryOutcome],
}

/// Beginning of the sentence of a sleeping workload; the rest follows from the time.
pub(super) const ASLEEP: &str = "asleep for ";

pub(super) fn why(facts: &Facts<'_>) -> String {
    if facts.is_deleted {
        let until = if facts.ready == 0 { "; this waits for a ready pod, for at most a minute" } else { "" };
        return format!("deleted: its replicas and its Service are being restored{until}");
    }
    let paused = if facts.is_paused { "paused: scaling and routing do not change" } else { "" };
    if let Some((reason, message)) = facts.refused {
        let (has_message, also) = (!message.is_empty(), if facts.is_paused { "; " } else { "" });
        return format!(
            "{paused}{also}not served: {reason}{}{}",
            if has_message { ": " } else { "" },
            facts.cut(message)
        );
    }
    if facts.is_paused {
        return paused.to_owned();
    }
    match facts.state {
        SleepState::Asleep => match facts.since {
            Some(seconds) => format!("{ASLEEP}{}: no requests", duration(seconds)),
            None => "asleep: no requests".to_owned(),
        },
        SleepState::FallingAsleep => "falling asleep: no requests, the last pods are terminating".to_owned(),
        SleepState::Waking => {
            let requested = facts.desired.unwrap_or(1).max(1);
            format!("waking: {} requested, none is ready yet", pods(requested))
        }
        SleepState::Awake => {
            format!("{}: {}", pods(facts.desired.filter(|desired| *desired > 0).unwrap_or(facts.ready)), awake(facts))
        }
        SleepState::Unknown => match action(facts) {
            Some(Cause::Obstacle(obstacle)) => format!("not known yet: {}", obstacle.explain()),
            _ => "not known yet".to_owned(),
        },
    }
}

/// Explains the number of pods of a workload that is awake.
fn awake(facts: &Facts<'_>) -> String {
    let load = || load(facts).unwrap_or_else(|| "the load is unknown".to_owned());
    match action(facts) {
        Some(Cause::Obstacle(obstacle)) => obstacle.explain().to_owned(),
        Some(Cause::Rule(Reason::Metrics)) => metric(facts).unwrap_or_else(load),
        Some(Cause::Rule(Reason::Bounds)) => match (facts.desired, facts.min, facts.max) {
            (Some(desired), Some(min), _) if desired == min => format!("the minimum; {}", load()),
            (Some(desired), _, Some(max)) if desired == max => format!("the maximum; {}", load()),
            _ => load(),
        },
        None | Some(Cause::Rule(Reason::Desired)) => load(),
        Some(Cause::Rule(other)) => other.explain().to_owned(),
    }
}

/// Describes the load, with its target per pod.
fn load(facts: &Facts<'_>) -> Option<String> {
    let decided =
        |outcome: &&EntryOutcome| matches!(outcome, EntryOutcome::Scale { .. } | EntryOutcome::Unknown { .. });
    if let Some(EntryOutcome::Unknown { unknown }) = facts.history.iter().rev().find(decided) {
        return Some(format!("there is no decision, because {unknown}"));
    }
    let (spec, [stable, panic]) = (facts.spec?, facts.load?);
    let (load, window) = if facts.is_panicking { (panic, spec.panic_window) } else { (stable, spec.stable_window) };
    let what = match spec.metric {
        ScalingMetric::Concurrency if number(load) == "1" => "request in flight",
        ScalingMetric::Concurrency => "requests in flight",
        ScalingMetric::Rps if load > 0.0 && load <= LOAD_MIN => "requests per second while some are in flight",
        ScalingMetric::Rps => "requests per second",
    };
    let mut text = if facts.is_panicking { "panic mode, ".to_owned() } else { String::new() };
    let total = spec.total_value;
    // Writing to a string does not fail.
    let _ = write!(text, "{} {what}, target {} per pod", number(load), number(total));
    if total > 0.0 && spec.target_value < total {
        let _ = write!(text, " ({:.0} %)", spec.target_value / total * 100.0);
    }
    let _ = write!(text, ", window {} s", window.as_secs());
    Some(text)
}

/// Describes the metric with the largest recommendation.
fn metric(facts: &Facts<'_>) -> Option<String> {
    facts.history.iter().rev().find_map(|outcome| match outcome {
        EntryOutcome::Blended(blended) => {
            Some(format!("{} requires {}", facts.cut(&blended.metric), pods(blended.asked)))
        }
        _ => None,
    })
}

fn action(facts: &Facts<'_>) -> Option<Cause> {
    facts.history.iter().rev().find_map(|outcome| match outcome {
        EntryOutcome::Action(action) => Some(action.because),
        _ => None,
    })
}

fn pods(count: i32) -> String {
    format!("{count} pod{}", if count == 1 { "" } else { "s" })
}

/// Formats a number, with one decimal if it is below 10 and not whole.
fn number(value: f64) -> String {
    let value = if value.abs() < 0.05 { 0.0 } else { value }; // No -0.
    let text = if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") };
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Formats a duration in the most readable unit.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

impl Facts<'_> {
    /// Returns a quoted text on one line, cut unless the whole is shown.
    fn cut(&self, text: &str) -> String {
        excerpt(text, if self.is_whole { usize::MAX } else { QUOTED_MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use autoscaler_core::bounds::Bounds;
    use autoscaler_core::decider::Unknown;
    use autoscaler_core::history::{Action, Obstacle};
    use common::scaling::BurstCapacity;

    fn spec(metric: ScalingMetric) -> DeciderSpec {
        DeciderSpec {
            metric,
            target_value: 7.0,
            total_value: 10.0,
            target_burst_capacity: BurstCapacity::Always,
            activation_scale: 1,
            ..DeciderSpec::default()
        }
    }

    fn acted(reason: Reason) -> EntryOutcome {
        EntryOutcome::Action(Action::planned(Some(2), 2, Bounds { min: 0, max: None }, reason))
    }

    /// Each row: facts, and the sentence.
    #[test]
    fn each_state_and_cause_has_its_sentence() {
        let (concurrency, rps) = (spec(ScalingMetric::Concurrency), spec(ScalingMetric::Rps));
        let awake = Facts {
            state: SleepState::Awake,
            ready: 2,
            desired: Some(2),
            spec: Some(&concurrency),
            load: Some([12.44, 80.0]),
            ..Facts::default()
        };
        let (desired, bounds) = ([acted(Reason::Desired)], [acted(Reason::Bounds)]);
        let (idle, refused) =
            ([acted(Reason::ActiveRecently)], [EntryOutcome::Action(Action::refused(Obstacle::Contested))]);
        let unknown = [EntryOutcome::Unknown { unknown: Unknown::NotAttested }, acted(Reason::Desired)];
        let with_history = |history| Facts { history, ..awake.clone() };
        let with_load = |load, desired| Facts { load: Some([load, 0.0]), desired: Some(desired), ..awake.clone() };
        let with_rps = |load, desired| Facts { spec: Some(&rps), ..with_load(load, desired) };
        let at_bound = |load, min, max| Facts { load, min: Some(min), max: Some(max), ..with_history(&bounds) };
        let in_state = |state, desired| Facts { state, desired, ..Facts::default() };
        // {T} stands for the target and the beginning of the window.
        let rows = [
            (with_history(&desired), "2 pods: 12 requests in flight, {T} 60 s"),
            (with_load(1.0, 1), "1 pod: 1 request in flight, {T} 60 s"),
            (with_rps(0.25, 2), "2 pods: 0.2 requests per second, {T} 60 s"),
            (with_rps(LOAD_MIN, 1), "1 pod: 0 requests per second while some are in flight, {T} 60 s"),
            (Facts { is_panicking: true, ..awake.clone() }, "2 pods: panic mode, 80 requests in flight, {T} 6 s"),
            (at_bound(Some([0.0, 0.0]), 2, 20), "2 pods: the minimum; 0 requests in flight, {T} 60 s"),
            (at_bound(awake.load, 0, 2), "2 pods: the maximum; 12 requests in flight, {T} 60 s"),
            (with_history(&idle), "2 pods: idle, but not yet for a whole stable window"),
            (with_history(&refused), "2 pods: not yet: another writer keeps changing the replicas"),
            (with_history(&unknown), "2 pods: there is no decision, because an activator did not report"),
            (Facts { load: None, ..awake.clone() }, "2 pods: the load is unknown"),
            (Facts { is_paused: true, ..awake.clone() }, "paused: scaling and routing do not change"),
            (
                Facts { is_deleted: true, is_paused: true, ..awake.clone() },
                "deleted: its replicas and its Service are being restored",
            ),
            (
                Facts { is_deleted: true, ..Facts::default() },
                "deleted: its replicas and its Service are being restored; this waits for a ready pod, for at most a minute",
            ),
            (
                Facts { refused: Some(("Invalid", "spec.scale.min\n9")), ..awake.clone() },
                "not served: Invalid: spec.scale.min 9",
            ),
            (Facts { refused: Some(("TimedOut", "")), ..Facts::default() }, "not served: TimedOut"),
            (in_state(SleepState::Waking, Some(3)), "waking: 3 pods requested, none is ready yet"),
            (in_state(SleepState::FallingAsleep, None), "falling asleep: no requests, the last pods are terminating"),
            (in_state(SleepState::Asleep, None), "asleep: no requests"),
            (Facts::default(), "not known yet"),
        ];
        for (facts, expected) in rows {
            assert_eq!(why(&facts), expected.replace("{T}", "target 10 per pod (70 %), window"));
        }
    }

    #[test]
    fn durations_use_readable_units() {
        let rows =
            [(59, "59 s"), (119, "119 s"), (120, "2 min"), (7_199, "119 min"), (7_200, "2 h"), (200_000, "2 days")];
        for (seconds, expected) in rows {
            assert_eq!(duration(seconds), expected);
            let asleep = Facts { state: SleepState::Asleep, since: Some(seconds), ..Facts::default() };
            assert_eq!(why(&asleep), format!("asleep for {expected}: no requests"));
        }
    }

    #[test]
    fn quoted_messages_are_cut() {
        let long = "ü".repeat(1_000);
        let facts = Facts { refused: Some(("R", &long)), ..Facts::default() };
        assert!(why(&facts).chars().count() < 700);
    }
}
