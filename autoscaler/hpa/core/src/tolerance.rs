//! Tolerance of the ratio of usage to target: the scale holds if `1 − down ≤ ratio ≤ 1 + up`, both ends included.
//!
//! The controller has one tolerance for both directions. A behavior may replace it in each direction if the gate
//! [`ConfigurableTolerance`](super::options::Gates::configurable_tolerance) is on. With `down` of 1 or more, metrics
//! never scale down. With a tolerance of 0, any deviation in its direction has an effect. Infinities and NaN are never
//! within the tolerance.

use super::options::{Gates, Options};
use super::quantity::Quantity;
use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};

/// Tolerances as shares of the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerances {
    /// Tolerance above the target.
    pub up: f64,
    /// Tolerance below the target.
    pub down: f64,
}

impl Tolerances {
    /// Returns the tolerances of an autoscaler with this behavior.
    pub fn from_behavior(behavior: Option<&HorizontalPodAutoscalerBehavior>, options: &Options, gates: Gates) -> Self {
        let behavior = behavior.filter(|_| gates.configurable_tolerance);
        let own = |rules: Option<&HPAScalingRules>| {
            let own = rules.and_then(|rules| rules.tolerance.as_ref());
            let own = own.and_then(|tolerance| tolerance.0.parse().ok()).map(Quantity::approximate);
            own.unwrap_or(options.tolerance)
        };
        Self {
            up: own(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
            down: own(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
        }
    }

    /// Reports whether a ratio is within the tolerance.
    pub fn admits(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_within_the_tolerance() {
        let tolerances = Tolerances { up: 0.1, down: 0.1 };
        for (ratio, within) in [
            (1.1, true),
            (0.9, true),
            (1.100_000_1, false),
            (0.899_999_9, false),
            (f64::INFINITY, false),
            (f64::NAN, false),
        ] {
            assert_eq!(tolerances.admits(ratio), within, "{ratio}");
        }
        assert!(Tolerances { up: 0.0, down: 0.0 }.admits(1.0));
        assert!(!Tolerances { up: 0.0, down: 0.0 }.admits(1.0 + f64::EPSILON));
        assert!(Tolerances { up: 0.0, down: 1.0 }.admits(0.0), "metrics never scale down");
    }

    #[test]
    fn a_behavior_replaces_the_global_tolerance_in_its_direction_if_the_gate_is_on() {
        let tolerance = Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity("50m".into()));
        let rules = HPAScalingRules { tolerance, ..HPAScalingRules::default() };
        let behavior = HorizontalPodAutoscalerBehavior { scale_up: Some(rules), scale_down: None };
        let of = |configurable_tolerance| {
            let gates = Gates { configurable_tolerance, ..Gates::default() };
            Tolerances::from_behavior(Some(&behavior), &Options::default(), gates)
        };
        assert_eq!(of(true), Tolerances { up: 0.05, down: 0.1 });
        assert_eq!(of(false), Tolerances { up: 0.1, down: 0.1 });
    }
}
