//! Applies stabilization and limits, with `spec.behavior` ([`Rules`]) and without ([`decide_without_behavior`]).
//!
//! # Without a behavior
//!
//! The largest recommendation of the last window counts, the new one included. A recommendation exactly as old as the
//! window still counts. One reconciliation may double the current replicas, or reach [`FREE_REPLICAS`] if that is more.
//! It may scale down to `minReplicas` at once. Unlike a behavior, this may scale up for old demand: a recommendation
//! that was limited when it was made still counts for the whole window. As upstream, events then say "All metrics below
//! target" while the target grows.
//!
//! # Stabilization
//!
//! There is one window for each direction. Only recommendations younger than a window count, so a window of 0 has no
//! effect. Let `up` be the lowest recommendation of the up window and `down` the highest of the down window, both
//! including the new one. The current replicas are raised to `up` if they are below it, and then lowered to `down` if
//! they are above it. The scale therefore holds while recent recommendations disagree with the present one, and old
//! demand never causes a scale-up.
//!
//! # Limits
//!
//! Each policy starts from the replicas at the start of its period: the current ones, minus those added and plus those
//! removed since. It allows a change of `value` pods or percent from there; scale-ups round up, scale-downs drop the
//! fraction. `selectPolicy` picks the largest change (`Max`, and any unknown value), the smallest (`Min`), or none
//! (`Disabled`). `minReplicas` limits only scale-downs and `maxReplicas` only scale-ups.
//!
//! # Edge cases kept from upstream
//!
//! - Percentages are floating-point: 10 % up from 100 is 111.
//! - A percentage of 0 replicas allows no scale-up.
//! - A limit on the wrong side of the current replicas stops the change but does not reverse it.
//! - A policy of unknown type repeats the previous policy, or allows 0. Validation rejects such policies.

use std::time::Duration;

use common::time::Timestamp;
use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};

use super::decision::{Decision, Demand, Limit, Stabilization};
use super::memory::{Memory, Recommendation, push_or_replace};

/// Replicas that a reconciliation without a behavior may always reach.
const FREE_REPLICAS: i32 = 4;

/// Decides without a behavior, and records the proposal.
pub fn decide_without_behavior(memory: &mut Memory, demand: &Demand, window: Duration, now: Timestamp) -> Decision {
    let is_old = |recommendation: &Recommendation| recommendation.at < now - window;
    let recent = memory.recommendations.iter().filter(|recommendation| !is_old(recommendation));
    let stabilized = recent.map(|recommendation| recommendation.replicas).fold(demand.proposed, i32::max);
    push_or_replace(&mut memory.recommendations, Recommendation { replicas: demand.proposed, at: now }, is_old);
    let stabilization = if stabilized == demand.proposed { Stabilization::Ready } else { Stabilization::Down };
    let rate = scale_up_limit_without_behavior(demand.current);
    let (replicas, limit) = if stabilized < demand.min {
        (demand.min, Limit::TooFew)
    } else if stabilized > demand.max.min(rate) {
        if demand.max > rate { (rate, Limit::ScaleUp) } else { (demand.max, Limit::TooMany) }
    } else {
        (stabilized, Limit::WithinRange)
    };
    Decision { replicas, stabilized, stabilization, limit }
}

/// Returns the maximum number of replicas after one reconciliation without a behavior.
pub fn scale_up_limit_without_behavior(current: i32) -> i32 {
    current.saturating_mul(2).max(FREE_REPLICAS)
}

/// Behavior with all defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Rules of scale-ups.
    up: HPAScalingRules,
    /// Rules of scale-downs.
    down: HPAScalingRules,
}

impl Rules {
    /// Fills in the defaults of a behavior. An unset scale-down window becomes `downscale_stabilization` in whole
    /// seconds.
    pub fn from_behavior(behavior: &HorizontalPodAutoscalerBehavior, downscale_stabilization: Duration) -> Self {
        let mut behavior = behavior.clone();
        super::defaults::fill_behavior(&mut behavior);
        let mut down = behavior.scale_down.unwrap_or_default();
        let window = i32::try_from(downscale_stabilization.as_secs()).unwrap_or(i32::MAX);
        down.stabilization_window_seconds.get_or_insert(window);
        Self { up: behavior.scale_up.unwrap_or_default(), down }
    }

    /// Decides, and records the proposal.
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
        let cutoff = |rules: &HPAScalingRules| now - seconds(rules.stabilization_window_seconds.unwrap_or(0));
        let (up_cutoff, down_cutoff) = (cutoff(&self.up), cutoff(&self.down));
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
        push_or_replace(&mut memory.recommendations, new, |old| old.at < up_cutoff && old.at < down_cutoff);
        demand.current.max(up).min(down)
    }

    fn bound(&self, memory: &Memory, demand: &Demand, now: Timestamp) -> (i32, Limit) {
        let Demand { current, proposed, min, max } = *demand;
        if proposed > current {
            let rate = self.scale_up_limit(memory, current, now).max(current);
            let (upper, limit) = if max > rate { (rate, Limit::ScaleUp) } else { (max, Limit::TooMany) };
            if proposed > upper {
                return (upper, limit);
            }
        } else if proposed < current {
            let rate = self.scale_down_limit(memory, current, now).min(current);
            let (lower, limit) = if min < rate { (rate, Limit::ScaleDown) } else { (min, Limit::TooFew) };
            if proposed < lower {
                return (lower, limit);
            }
        }
        (proposed, Limit::WithinRange)
    }

    /// Returns the maximum number of replicas that the policies allow now. It may be below the current replicas.
    pub fn scale_up_limit(&self, memory: &Memory, current: i32, now: Timestamp) -> i32 {
        limit(&self.up, 1, memory, current, now)
    }

    /// Returns the minimum number of replicas that the policies allow now. It may be above the current replicas, or
    /// negative.
    pub fn scale_down_limit(&self, memory: &Memory, current: i32, now: Timestamp) -> i32 {
        limit(&self.down, -1, memory, current, now)
    }
}

/// Returns the replicas that the policies of one direction allow. `sign` is 1 for scale-ups and -1 for scale-downs.
fn limit(rules: &HPAScalingRules, sign: i32, memory: &Memory, current: i32, now: Timestamp) -> i32 {
    let mut previous = 0;
    let allowed = rules.policies.iter().flatten().map(|policy| {
        let (added, removed) = memory.changes(now, seconds(policy.period_seconds));
        let start = current.wrapping_sub(added).wrapping_add(removed);
        let share = f64::from(start) * (1.0 + f64::from(sign) * f64::from(policy.value) / 100.0);
        previous = match policy.type_.as_str() {
            "Pods" => start.wrapping_add(policy.value.wrapping_mul(sign)),
            "Percent" if sign > 0 => share.ceil() as i32,
            "Percent" => share as i32,
            _ => previous,
        };
        previous
    });
    match (rules.select_policy.as_deref(), sign > 0) {
        (Some("Disabled"), _) => current,
        (Some("Min"), true) => allowed.fold(i32::MAX, i32::min),
        (Some("Min"), false) | (_, true) => allowed.fold(i32::MIN, i32::max),
        (_, false) => allowed.fold(i32::MAX, i32::min),
    }
}

/// Returns the length of a window or a period; negative lengths count as 0.
fn seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// Records a change of the scale if there is a behavior to use it.
pub fn record_change(memory: &mut Memory, rules: Option<&Rules>, from: i32, to: i32, at: Timestamp) {
    if let Some(rules) = rules {
        let direction = if to > from { &rules.up } else { &rules.down };
        let periods = direction.policies.iter().flatten().map(|policy| seconds(policy.period_seconds));
        memory.record_change(from, to, at, periods.max().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests;
