//! The parameters of one decision loop, resolved from annotations and configuration.
//!
//! Resolution itself (which annotation beats which key) is in [`crate::annotations`]; this is only the result, which
//! the autoscaler's rules work from.

use std::time::Duration;

/// What the multiscaler is told about one revision.
#[derive(Clone, Debug, PartialEq)]
pub struct DeciderSpec {
    /// Most growth in one decision, as a multiple of the ready pods; more than 1.
    pub max_scale_up_rate: f64,
    /// Most shrinking in one decision, as a divisor of the ready pods; more than 1.
    pub max_scale_down_rate: f64,
    /// What is measured.
    pub metric: ScalingMetric,
    /// What one pod should see of it; at least 0.01.
    pub target_value: f64,
    /// What one pod can bear of it.
    pub total_value: f64,
    /// Spare capacity to keep before the activators leave the path.
    pub target_burst_capacity: BurstCapacity,
    /// Requests that one activator can carry.
    pub activator_capacity: f64,
    /// Panic begins at this multiple of the ready pods.
    pub panic_threshold: f64,
    /// Length of the stable window.
    pub stable_window: Duration,
    /// Length of the panic window.
    pub panic_window: Duration,
    /// How long a higher decision holds before a lower one counts.
    pub scale_down_delay: Duration,
    /// First scale of a revision.
    pub initial_scale: i32,
    /// Least scale from zero; below 2: off.
    pub activation_scale: i32,
    /// Whether some route can send traffic here.
    pub reachable: bool,
    /// How the windows average.
    pub aggregation: Aggregation,
}

impl Default for DeciderSpec {
    /// Parameters of a revision without annotations beside a configuration without settings. A parameter that only one front
    /// end sets is off here.
    fn default() -> Self {
        Self {
            max_scale_up_rate: 1000.0,
            max_scale_down_rate: 2.0,
            metric: ScalingMetric::Concurrency,
            target_value: 70.0,
            total_value: 100.0,
            target_burst_capacity: BurstCapacity::Limited(211.0),
            activator_capacity: 100.0,
            panic_threshold: 2.0,
            stable_window: Duration::from_secs(60),
            panic_window: Duration::from_secs(6),
            scale_down_delay: Duration::ZERO,
            initial_scale: 1,
            activation_scale: 0,
            reachable: true,
            aggregation: Aggregation::Linear,
        }
    }
}

/// What is measured. Annotations may name others; a reader then treats them as concurrency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScalingMetric {
    /// Requests in flight.
    #[default]
    Concurrency,
    /// Requests a second.
    Rps,
}

/// Target burst capacity, without its sentinels 0 and -1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BurstCapacity {
    /// 0: activators carry traffic only at zero pods.
    AtZeroOnly,
    /// So many spare requests, or the activators stay in the path.
    Limited(f64),
    /// -1: activators always carry the traffic.
    Always,
}

impl BurstCapacity {
    /// From the annotation's or config map's number: any negative value means always.
    pub fn from_number(n: f64) -> Self {
        if n < 0.0 {
            Self::Always
        } else if n == 0.0 {
            Self::AtZeroOnly
        } else {
            Self::Limited(n)
        }
    }

    /// Back to the number: -1, 0 or the limit.
    pub fn to_number(self) -> f64 {
        match self {
            Self::Always => -1.0,
            Self::AtZeroOnly => 0.0,
            Self::Limited(n) => n,
        }
    }
}

/// Least and most scale of a revision. Not part of a [`DeciderSpec`]: deciders do not know them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Least scale. A negative one, which only an unchecked annotation can hold, binds nothing.
    pub min: i32,
    /// Most scale; none: unlimited.
    pub max: Option<i32>,
}

impl Bounds {
    /// `scale` within the bounds. The least is looked at first: where they contradict each other, what is below it
    /// becomes the least, and what is not becomes the most.
    pub fn clamp(self, scale: i32) -> i32 {
        if scale < self.min { self.min } else { self.max.map_or(scale, |max| scale.min(max)) }
    }
}

/// How a window averages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Aggregation {
    /// Every second counts the same.
    #[default]
    Linear,
    /// Recent seconds count more.
    WeightedExponential,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_scale_wins_over_the_most() {
        let bounds = |min, max| Bounds { min, max };
        let rows = [
            (bounds(1, Some(3)), [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3)]),
            (bounds(2, None), [(0, 2), (1, 2), (2, 2), (9, 9), (i32::MAX, i32::MAX)]),
            (bounds(5, Some(3)), [(0, 5), (3, 5), (4, 5), (5, 3), (9, 3)]), // Only below the least, as upstream.
            (bounds(-1, Some(-1)), [(-1, -1), (0, -1), (1, -1), (-2, -1), (9, -1)]),
        ];
        for (bounds, scales) in rows {
            for (scale, clamped) in scales {
                assert_eq!(bounds.clamp(scale), clamped, "{bounds:?} {scale}");
            }
        }
    }

    #[test]
    fn burst_capacities_become_numbers_again() {
        for number in [-1.0, 0.0, 0.5, 211.0] {
            assert_eq!(BurstCapacity::from_number(number).to_number(), number);
        }
        assert_eq!(BurstCapacity::from_number(-2.0), BurstCapacity::Always);
    }
}
