//! Decides how many pods one revision should have.
//!
//! A [`Decider`] takes one [`Observation`] per tick and returns a [`Decision`]. It performs no I/O and reads no clock:
//! the same observations always give the same decisions.
//!
//! # The rule
//!
//! With `r = max(1, ready)`:
//!
//! 1. `desired = ceil(observed / target)`, for the stable and for the panic window, each raised to `floor(r /
//!    max_scale_down_rate)` (reachable revisions only) and then cut to `ceil(r · max_scale_up_rate)`.
//! 2. A non-zero demand is raised to the activation scale, even beyond the upper limit.
//! 3. Panic mode begins, or continues, when the demand of the panic window is at least `panic_threshold · r`. It ends
//!    once more than a stable window has passed since that was last true.
//! 4. In stable mode the result of the stable window counts. In panic mode the larger result counts, and never less
//!    than any result since panic mode began.
//! 5. Reachable revisions with a scale-down delay get the largest result within the delay.
//!
//! Excess burst capacity is `floor(ready · total_value − TBC − observed in the panic window)`, with the real ready
//! count. If it is below zero, the activators stay in the path.
//!
//! # Edge cases
//!
//! - If an input is unknown, the result is an error, and the last desired scale stays. It does not mean zero.
//! - Not every activator has reported ([`Observation::attested`]): the known load is a lower bound. It can start panic
//!   mode and raise the scale, and do nothing else. If that happens at more than one evaluation in a row, the windows
//!   lack load until they have filled again, as after a takeover. (A single miss is normal: an activator has just
//!   started.)
//! - A restart loses history. A decider created with more than one ready pod therefore starts in panic mode and holds
//!   that scale.
//! - The limits of step 1 are relative to *ready* pods, not to the previous decision.
//! - The demands of both windows are rounded up before the threshold is applied: with a panic threshold of at most 2,
//!   one pod at 101 % of its target panics.
//! - A decider that took over from another instance ([`Decider::taken_over`]) returns the time that its stable window
//!   still needs to fill. Until then [`crate::scale_to_zero`] does not scale down and [`crate::path_mode`] does not
//!   change the mode.
//! - Knative fixes the scale-down delay when the decider is created. [`Decider::with_live_delay`] follows edits.
//!
//! # Not here
//!
//! Min and max scale ([`crate::bounds`]), the path to zero ([`crate::scale_to_zero`]), averaging ([`crate::window`]),
//! and the reasons for unknown inputs ([`crate::metrics`]).

mod decision;
mod limits;
#[cfg(test)]
pub(crate) mod tests;

use common::scaling::{BurstCapacity, DeciderSpec};
use common::time::Timestamp;

pub use decision::{Decision, Inputs, Load, Observation, Recommendation, Rule, Unknown};
use limits::{Limits, RuledScale};

use crate::max_window::MaxWindow;

/// Scaling rule of one revision, with its state between ticks.
#[derive(Clone, Debug)]
pub struct Decider {
    mode: Mode,
    /// Scale that panic mode holds at least. Reset when panic mode ends; initially the number of ready pods.
    panic_floor: i32,
    /// Decisions that the scale-down delay holds.
    delay: Option<MaxWindow>,
    delay_is_live: bool,
    warm_up: WarmUp,
    /// Last result; `None` before the first one.
    desired: Option<i32>,
    /// Number of evaluations in a row at which not every activator had reported.
    missed: u32,
}

/// Mode that selects the leading window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The result of the stable window counts.
    Stable,
    /// The larger result counts, and the scale never falls.
    Panicking {
        /// Last tick at which the demand of the panic window reached the threshold.
        last_over: Timestamp,
    },
}

/// Progress of filling the stable window after a takeover, or after an activator did not report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WarmUp {
    Done,
    /// No valid evaluation yet.
    NotBegun,
    /// Since this first valid evaluation.
    Filling(Timestamp),
}

impl Decider {
    /// Creates a decider for a revision with `ready` ready pods; pass 0 if unknown.
    pub fn new(spec: &DeciderSpec, ready: u32, now: Timestamp) -> Self {
        Self {
            mode: if ready > 1 { Mode::Panicking { last_over: now } } else { Mode::Stable },
            panic_floor: i32::try_from(ready).unwrap_or(i32::MAX),
            delay: (!spec.scale_down_delay.is_zero()).then(|| MaxWindow::new(spec.scale_down_delay)),
            delay_is_live: false,
            warm_up: WarmUp::Done,
            desired: None,
            missed: 0,
        }
    }

    /// Marks the revision as taken over from another instance, or from before a restart: its windows must fill first.
    #[must_use]
    pub fn taken_over(mut self) -> Self {
        self.warm_up = WarmUp::NotBegun;
        self
    }

    /// Makes edits of the scale-down delay effective.
    #[must_use]
    pub fn with_live_delay(mut self) -> Self {
        self.delay_is_live = true;
        self
    }

    /// Returns true if the decider is in panic mode.
    pub fn is_panicking(&self) -> bool {
        matches!(self.mode, Mode::Panicking { .. })
    }

    /// Evaluates one tick. `spec` may differ from the previous one.
    pub fn decide(&mut self, spec: &DeciderSpec, observation: &Observation) -> Decision {
        let Observation { now, ready, load, attested } = *observation;
        self.missed = if attested { 0 } else { self.missed.saturating_add(1) };
        if self.missed > 1 {
            self.warm_up = WarmUp::NotBegun;
        }
        let ready = ready?;
        let load = load.map_err(|unknown| if attested { unknown } else { Unknown::NotAttested })?;
        let limits = Limits::new(spec, ready);
        let stable_demand = (load.stable / spec.target_value).ceil();
        let panic_demand = (load.panic / spec.target_value).ceil();
        let stable = limits.apply(stable_demand, Rule::StableLoad);
        let panic = limits.apply(panic_demand, Rule::PanicLoad);

        let over = panic_demand / limits.ready >= spec.panic_threshold;
        if attested || over {
            self.switch_mode(spec, over, now);
        }
        let result = match self.mode {
            Mode::Stable => stable,
            Mode::Panicking { .. } => {
                let larger = if panic.pods > stable.pods { panic } else { stable };
                if larger.pods >= self.panic_floor {
                    self.panic_floor = larger.pods;
                    larger
                } else {
                    RuledScale { pods: self.panic_floor, rule: Rule::PanicFloor }
                }
            }
        };
        let present = match self.desired {
            Some(desired) => desired,
            // Initially assume that more pods were desired than are ready, since no warm-up protects the scale.
            None if self.warm_up == WarmUp::Done => i32::MAX,
            None => i32::try_from(ready).unwrap_or(i32::MAX),
        };
        if !attested && result.pods <= present {
            return Err(Unknown::NotAttested);
        }
        let result = self.delayed(spec, result, now);
        self.desired = Some(result.pods);
        Ok(Recommendation {
            desired: result.pods,
            excess_burst_capacity: excess_burst_capacity(spec, ready, load.panic),
            panicking: self.is_panicking(),
            rule: result.rule,
            inputs: Inputs { ready, stable: load.stable, panic: load.panic, target: spec.target_value },
            warm_up_left: self.warm_up_left(spec, now),
        })
    }

    /// Applies step 3.
    ///
    /// ## `Stable => (Stable | Panicking)`, `Panicking => (Panicking | Stable)`
    fn switch_mode(&mut self, spec: &DeciderSpec, over: bool, now: Timestamp) {
        match self.mode {
            _ if over => self.mode = Mode::Panicking { last_over: now },
            Mode::Panicking { last_over } if last_over + spec.stable_window < now => {
                self.mode = Mode::Stable;
                self.panic_floor = 0;
            }
            Mode::Stable | Mode::Panicking { .. } => {}
        }
    }

    /// Applies step 5.
    fn delayed(&mut self, spec: &DeciderSpec, result: RuledScale, now: Timestamp) -> RuledScale {
        if self.delay_is_live {
            match &mut self.delay {
                _ if spec.scale_down_delay.is_zero() => self.delay = None,
                Some(window) => window.resize(spec.scale_down_delay),
                None => self.delay = Some(MaxWindow::new(spec.scale_down_delay)),
            }
        }
        match &mut self.delay {
            Some(window) if spec.reachable => {
                let held = window.record(now, result.pods);
                if held > result.pods { RuledScale { pods: held, rule: Rule::ScaleDownDelay } } else { result }
            }
            _ => result,
        }
    }

    /// Returns the time that the stable window still needs to fill, or `None` if it is full.
    fn warm_up_left(&mut self, spec: &DeciderSpec, now: Timestamp) -> Option<std::time::Duration> {
        let since = match self.warm_up {
            WarmUp::Done => return None,
            WarmUp::NotBegun => now,
            WarmUp::Filling(since) => since,
        };
        let left = spec.stable_window.saturating_sub(now.saturating_since(since));
        self.warm_up = if left.is_zero() { WarmUp::Done } else { WarmUp::Filling(since) };
        (!left.is_zero()).then_some(left)
    }
}

/// Returns the spare capacity beyond the target burst capacity. Below zero, the activators stay in the path.
fn excess_burst_capacity(spec: &DeciderSpec, ready: u32, panic: f64) -> i32 {
    match spec.target_burst_capacity {
        BurstCapacity::AtZeroOnly => 0,
        BurstCapacity::Always => -1,
        // Saturates. Evaluated left to right, as in Knative, so that even the last digit is equal.
        BurstCapacity::Limited(burst) => (f64::from(ready) * spec.total_value - burst - panic).floor() as i32,
    }
}
