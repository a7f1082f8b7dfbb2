//! Stabilization and limits, with `spec.behavior` ([`Rules`]) and without ([`decide_without`]).
//!
//! # Without a behavior
//!
//! The largest recommendation of the last window counts (age up to and including its length), the new one among them. One
//! reconciliation may grow to twice the current replicas, or to [`FREE_REPLICAS`] if that is more, and may shrink to
//! `minReplicas` at once. Unlike a behavior, this may grow the target on old demand: a recommendation that was limited
//! when it was made goes on counting for the whole window. Event texts then say "All metrics below target" while the
//! target grows, as upstream's do.
//!
//! # Stabilization
//!
//! Two windows look back, one for each direction; only what is younger than a window counts, so one of 0 sees nothing.
//! With `up` the lowest recommendation of the up window and `down` the highest of the down window, the new one in both,
//! the current replicas are raised to `up` if below it, and then lowered to `down` if above it. So nothing moves while
//! the recent past disagrees with the present, and old demand never grows what is there.
//!
//! # Limits
//!
//! Each policy starts from the replicas at the start of its period (those there are, without what was added and with
//! what was removed since) and goes `value` pods or percent from there; up rounds up, down drops the fraction.
//! `selectPolicy` picks the largest change (`Max`, and any word that is not known), the smallest (`Min`), or none
//! (`Disabled`). `minReplicas` is only looked at on the way down and `maxReplicas` on the way up.
//!
//! # Odd cases, kept
//!
//! Percentages are floating-point: 10 % up from 100 is 111. Upwards from 0 a percentage leads nowhere. A limit that
//! lies behind the current replicas stops, it does not turn back. A policy of unknown type repeats the one before it,
//! or allows 0; validation admits none.

use std::time::Duration;

use common::time::Timestamp;

use super::decision::{Decision, Demand, Limit, Stabilization};
use super::memory::{Memory, Recommendation};
use super::spec::{Behavior, ScalingRules};

/// Replicas that may be reached at once without a behavior, however few there are.
const FREE_REPLICAS: i32 = 4;

/// Decides without a behavior, and remembers the proposal.
pub fn decide_without(memory: &mut Memory, demand: &Demand, window: Duration, now: Timestamp) -> Decision {
    let is_old = |recommendation: &Recommendation| recommendation.at < now - window;
    let recent = memory.recommendations.iter().filter(|recommendation| !is_old(recommendation));
    let stabilized = recent.map(|recommendation| recommendation.replicas).fold(demand.proposed, i32::max);
    memory.recommend(Recommendation { replicas: demand.proposed, at: now }, is_old);
    let stabilization = if stabilized == demand.proposed { Stabilization::Ready } else { Stabilization::Down };
    let rate = scale_up_limit_without(demand.current);
    let (replicas, limit) = if stabilized < demand.min {
        (demand.min, Limit::TooFew)
    } else if stabilized > demand.max.min(rate) {
        if demand.max > rate { (rate, Limit::ScaleUp) } else { (demand.max, Limit::TooMany) }
    } else {
        (stabilized, Limit::WithinRange)
    };
    Decision { replicas, stabilized, stabilization, limit }
}

/// Returns how far one reconciliation may grow without a behavior.
pub fn scale_up_limit_without(current: i32) -> i32 {
    current.saturating_mul(2).max(FREE_REPLICAS)
}

/// A behavior as the rules read it: all defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Upwards.
    pub up: Direction,
    /// Downwards.
    pub down: Direction,
}

/// One direction of a behavior.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Direction {
    /// How far back recommendations count.
    pub window: Duration,
    select: Select,
    policies: Vec<Policy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Select {
    Largest,
    Smallest,
    Disabled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Policy {
    change: Change,
    period: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Pods(i32),
    Percent(i32),
    /// Of a type that does not exist.
    Unknown,
}

impl Rules {
    /// Of a behavior, defaulted or not. A scale-down window that is not set is `downscale_stabilization`, in whole
    /// seconds.
    pub fn of(behavior: &Behavior, downscale_stabilization: Duration) -> Self {
        let mut behavior = behavior.clone();
        super::defaults::fill_behavior(&mut behavior);
        let direction = |rules: Option<ScalingRules>, window| Direction::of(&rules.unwrap_or_default(), window);
        Self {
            up: direction(behavior.scale_up, Duration::ZERO),
            down: direction(behavior.scale_down, Duration::from_secs(downscale_stabilization.as_secs())),
        }
    }

    /// Decides, and remembers the proposal.
    pub fn decide(&self, memory: &mut Memory, demand: &Demand, now: Timestamp) -> Decision {
        let stabilized = self.stabilize(memory, demand, now);
        let stabilization = if stabilized == demand.proposed {
            Stabilization::Ready
        } else if demand.proposed >= demand.current {
            Stabilization::Up
        } else {
            Stabilization::Down
        };
        let (replicas, limit) = self.bound(memory, &Demand { proposed: stabilized, ..*demand }, now);
        Decision { replicas, stabilized, stabilization, limit }
    }

    fn stabilize(&self, memory: &mut Memory, demand: &Demand, now: Timestamp) -> i32 {
        let (up_cutoff, down_cutoff) = (now - self.up.window, now - self.down.window);
        let (mut up, mut down) = (demand.proposed, demand.proposed);
        for recommendation in &memory.recommendations {
            if recommendation.at > up_cutoff {
                up = up.min(recommendation.replicas);
            }
            if recommendation.at > down_cutoff {
                down = down.max(recommendation.replicas);
            }
        }
        let new = Recommendation { replicas: demand.proposed, at: now };
        memory.recommend(new, |old| old.at < up_cutoff && old.at < down_cutoff);
        demand.current.max(up).min(down)
    }

    fn bound(&self, memory: &Memory, demand: &Demand, now: Timestamp) -> (i32, Limit) {
        let Demand { current, proposed, min, max } = *demand;
        if proposed > current {
            let rate = self.scale_up_limit(memory, current, now).max(current);
            let (most, limit) = if max > rate { (rate, Limit::ScaleUp) } else { (max, Limit::TooMany) };
            if proposed > most {
                return (most, limit);
            }
        } else if proposed < current {
            let rate = self.scale_down_limit(memory, current, now).min(current);
            let (least, limit) = if min < rate { (rate, Limit::ScaleDown) } else { (min, Limit::TooFew) };
            if proposed < least {
                return (least, limit);
            }
        }
        (proposed, Limit::WithinRange)
    }

    /// How far up the policies allow to go now, which may be less than the current replicas.
    pub fn scale_up_limit(&self, memory: &Memory, current: i32, now: Timestamp) -> i32 {
        let grown = |start: i32, change| match change {
            Change::Pods(pods) => Some(start.wrapping_add(pods)),
            Change::Percent(percent) => Some((f64::from(start) * (1.0 + f64::from(percent) / 100.0)).ceil() as i32),
            Change::Unknown => None,
        };
        let allowed = self.up.allowed(memory, current, now, grown);
        match self.up.select {
            Select::Disabled => current,
            Select::Smallest => allowed.fold(i32::MAX, i32::min),
            Select::Largest => allowed.fold(i32::MIN, i32::max),
        }
    }

    /// How far down the policies allow to go now, which may be more than the current replicas, or less than none.
    pub fn scale_down_limit(&self, memory: &Memory, current: i32, now: Timestamp) -> i32 {
        let shrunk = |start: i32, change| match change {
            Change::Pods(pods) => Some(start.wrapping_sub(pods)),
            Change::Percent(percent) => Some((f64::from(start) * (1.0 - f64::from(percent) / 100.0)) as i32),
            Change::Unknown => None,
        };
        let allowed = self.down.allowed(memory, current, now, shrunk);
        match self.down.select {
            Select::Disabled => current,
            Select::Smallest => allowed.fold(i32::MIN, i32::max),
            Select::Largest => allowed.fold(i32::MAX, i32::min),
        }
    }
}

impl Direction {
    fn of(rules: &ScalingRules, window: Duration) -> Self {
        let seconds = |seconds: i32| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let policies = rules.policies.iter().flatten().map(|policy| Policy {
            change: match policy.kind.as_str() {
                "Pods" => Change::Pods(policy.value),
                "Percent" => Change::Percent(policy.value),
                _ => Change::Unknown,
            },
            period: seconds(policy.period_seconds),
        });
        Self {
            window: rules.stabilization_window_seconds.map_or(window, seconds),
            select: match rules.select_policy.as_deref() {
                Some("Disabled") => Select::Disabled,
                Some("Min") => Select::Smallest,
                _ => Select::Largest,
            },
            policies: policies.collect(),
        }
    }

    /// The longest period of a policy: older changes cannot matter any more.
    pub fn longest_period(&self) -> Duration {
        self.policies.iter().map(|policy| policy.period).max().unwrap_or_default()
    }

    /// Where each policy allows to go.
    fn allowed<'a>(
        &'a self,
        memory: &'a Memory,
        current: i32,
        now: Timestamp,
        changed: impl Fn(i32, Change) -> Option<i32> + 'a,
    ) -> impl Iterator<Item = i32> + 'a {
        self.policies.iter().scan(0, move |previous, policy| {
            let (added, removed) = memory.changes(now, policy.period);
            let start = current.wrapping_sub(added).wrapping_add(removed);
            *previous = changed(start, policy.change).unwrap_or(*previous);
            Some(*previous)
        })
    }
}

/// Remembers a change of the scale, if there is a behavior to use it.
pub fn remember(memory: &mut Memory, rules: Option<&Rules>, from: i32, to: i32, at: Timestamp) {
    if let Some(rules) = rules {
        let direction = if to > from { &rules.up } else { &rules.down };
        memory.scaled(from, to, at, direction.longest_period());
    }
}

#[cfg(test)]
mod tests;
