//! Limits a demand to what one decision may change.

use common::scaling::DeciderSpec;

use super::Rule;

/// Number of pods, with the rule that determined it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RuledScale {
    pub(super) pods: i32,
    pub(super) rule: Rule,
}

/// Rate limits relative to the ready pods, and the activation scale.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Number of ready pods, at least 1.
    pub(super) ready: f64,
    up: f64,
    down: f64,
    activation_scale: i32,
}

impl Limits {
    pub(super) fn new(spec: &DeciderSpec, ready: u32) -> Self {
        let ready = f64::from(ready.max(1));
        Self {
            ready,
            up: (spec.max_scale_up_rate * ready).ceil(),
            down: if spec.reachable { (ready / spec.max_scale_down_rate).floor() } else { 0.0 },
            activation_scale: spec.activation_scale,
        }
    }

    /// Returns the result for a demand (a whole number, possibly negative or huge). The upper limit overrides the lower
    /// one, and the activation scale overrides both.
    pub(super) fn apply(&self, demand: f64, rule: Rule) -> RuledScale {
        let raised = demand.max(self.down);
        let pods = raised.min(self.up) as i32; // Saturates.
        if demand > 0.0 && self.activation_scale > pods {
            RuledScale { pods: self.activation_scale, rule: Rule::ActivationScale }
        } else if raised > self.up {
            RuledScale { pods, rule: Rule::ScaleUpRate }
        } else if self.down > demand && self.down > 0.0 {
            RuledScale { pods, rule: Rule::ScaleDownRate }
        } else {
            RuledScale { pods, rule }
        }
    }
}
