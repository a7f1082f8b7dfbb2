//! How far a ratio of usage to target may be from 1 without consequences: `1 − down ≤ ratio ≤ 1 + up`, both ends
//! included.
//!
//! One tolerance of the controller governs both directions; a behavior may replace it in either, if the gate
//! [`ConfigurableTolerance`](super::options::Gates::configurable_tolerance) is on. With `down` of 1 or more metrics
//! never shrink anything; with 0 any other ratio than exactly 1 acts. Infinities and what is no number are never
//! within.

use super::options::{Gates, Options};
use super::spec::{Behavior, ScalingRules};

/// Tolerances, as shares of the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerances {
    /// Above it.
    pub up: f64,
    /// Below it.
    pub down: f64,
}

impl Tolerances {
    /// What applies to an autoscaler with that behavior.
    pub fn of(behavior: Option<&Behavior>, options: &Options, gates: Gates) -> Self {
        let own =
            |rules: Option<&ScalingRules>| rules.and_then(|r| r.tolerance).filter(|_| gates.configurable_tolerance);
        let or_global = |own: Option<super::quantity::Quantity>| own.map_or(options.tolerance, |t| t.approximate());
        Self {
            up: or_global(own(behavior.and_then(|b| b.scale_up.as_ref()))),
            down: or_global(own(behavior.and_then(|b| b.scale_down.as_ref()))),
        }
    }

    /// Whether nothing should be done about a ratio.
    pub fn admits(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_within() {
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
        assert!(Tolerances { up: 0.0, down: 1.0 }.admits(0.0), "never down");
    }

    #[test]
    fn a_behavior_replaces_the_global_tolerance_in_its_direction_if_the_gate_is_on() {
        let rules = ScalingRules { tolerance: "50m".parse().ok(), ..ScalingRules::default() };
        let behavior = Behavior { scale_up: Some(rules), scale_down: None };
        let of = |configurable_tolerance| {
            let gates = Gates { configurable_tolerance, ..Gates::default() };
            Tolerances::of(Some(&behavior), &Options::default(), gates)
        };
        assert_eq!(of(true), Tolerances { up: 0.05, down: 0.1 });
        assert_eq!(of(false), Tolerances { up: 0.1, down: 0.1 });
    }
}
