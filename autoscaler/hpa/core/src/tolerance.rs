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
