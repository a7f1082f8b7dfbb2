//! Parameters of one decision loop, resolved from annotations and configuration.
//!
//! [`crate::annotations`] does the resolution: which annotation overrides which key, and the defaults. This module
//! holds the result, which the autoscaler's rules use.

use std::time::Duration;

/// Parameters that the multiscaler gets for one revision.
#[derive(Clone, Debug, PartialEq)]
pub struct DeciderSpec {
    /// Largest growth in one decision, as a multiple of the ready pods; more than 1.
    pub max_scale_up_rate: f64,
    /// Largest reduction in one decision, as a divisor of the ready pods; more than 1.
    pub max_scale_down_rate: f64,
    /// Measured quantity.
    pub metric: ScalingMetric,
    /// Desired value of the metric per pod; at least 0.01.
    pub target_value: f64,
    /// Maximum value of the metric that one pod can sustain.
    pub total_value: f64,
    /// Spare capacity that is required before activators leave the request path.
    pub target_burst_capacity: BurstCapacity,
    /// Concurrent requests that one activator can carry.
    pub activator_capacity: f64,
    /// Panic mode begins at this multiple of the ready pods.
    pub panic_threshold: f64,
    /// Length of the stable window.
    pub stable_window: Duration,
    /// Length of the panic window.
    pub panic_window: Duration,
    /// Time for which a higher decision holds before a lower one takes effect.
    pub scale_down_delay: Duration,
    /// Initial scale of a revision.
    pub initial_scale: i32,
    /// Minimum scale when scaling from zero; below 2: off.
    pub activation_scale: i32,
    /// Set if a route can send traffic to the revision.
    pub reachable: bool,
    /// Averaging method of the windows.
    pub aggregation: Aggregation,
}

/// Measured quantity. Annotations may name other metrics; readers then treat them as concurrency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScalingMetric {
    /// Requests in flight.
    #[default]
    Concurrency,
    /// Requests per second.
    Rps,
}

/// Target burst capacity, with the sentinels 0 and -1 as variants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BurstCapacity {
    /// 0: activators carry traffic only at zero pods.
    AtZeroOnly,
    /// Activators stay in the path unless this many requests of spare capacity exist.
    Limited(f64),
    /// -1: activators always carry the traffic.
    Always,
}

impl BurstCapacity {
    /// Converts the number of an annotation or ConfigMap: any negative value means always.
    pub fn from_number(n: f64) -> Self {
        if n < 0.0 {
            Self::Always
        } else if n == 0.0 {
            Self::AtZeroOnly
        } else {
            Self::Limited(n)
        }
    }

    /// Converts back to the number: -1, 0 or the limit.
    pub fn to_number(self) -> f64 {
        match self {
            Self::Always => -1.0,
            Self::AtZeroOnly => 0.0,
            Self::Limited(n) => n,
        }
    }
}

/// Minimum and maximum scale of a revision. Not part of [`DeciderSpec`], because deciders do not know the bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Minimum scale. A negative value, possible only in an unchecked annotation, has no effect.
    pub min: i32,
    /// Maximum scale; `None`: unlimited.
    pub max: Option<i32>,
}

impl Bounds {
    /// Clamps `scale` to the bounds. If the bounds contradict each other, a scale below the minimum becomes the
    /// minimum, and any other becomes at most the maximum.
    pub fn clamp(self, scale: i32) -> i32 {
        if scale < self.min { self.min } else { self.max.map_or(scale, |max| scale.min(max)) }
    }
}

/// Averaging method of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Aggregation {
    /// Every second has the same weight.
    #[default]
    Linear,
    /// Recent seconds weigh more.
    WeightedExponential,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_scale_wins_over_the_maximum_and_burst_capacities_survive_a_round_trip() {
        for number in [-1.0, 0.0, 0.5, 211.0] {
            assert_eq!(BurstCapacity::from_number(number).to_number(), number);
        }
        assert_eq!(BurstCapacity::from_number(-2.0), BurstCapacity::Always);
        let bounds = |min, max| Bounds { min, max };
        let rows = [
            (bounds(1, Some(3)), [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3)]),
            (bounds(2, None), [(0, 2), (1, 2), (2, 2), (9, 9), (i32::MAX, i32::MAX)]),
            // The minimum wins only below itself, as upstream.
            (bounds(5, Some(3)), [(0, 5), (3, 5), (4, 5), (5, 3), (9, 3)]),
            (bounds(-1, Some(-1)), [(-1, -1), (0, -1), (1, -1), (-2, -1), (9, -1)]),
        ];
        for (bounds, scales) in rows {
            for (scale, clamped) in scales {
                assert_eq!(bounds.clamp(scale), clamped, "{bounds:?} {scale}");
            }
        }
    }
}
