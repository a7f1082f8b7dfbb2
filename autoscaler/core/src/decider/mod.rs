//! Decides how many pods one revision should have.
//!
//! A [`Decider`] is fed one [`Observation`] per tick and answers with a [`Decision`]. It performs no I/O and reads no
//! clock: the same observations always give the same decisions.
//!
//! # The rule
//!
//! With `r = max(1, ready)`:
//!
//! 1. `desired = ceil(observed / target)`, for the stable and for the panic window, each raised to
//!    `floor(r / max_scale_down_rate)` (reachable revisions only) and then cut to `ceil(r · max_scale_up_rate)`.
//! 2. A non-zero demand is raised to the activation scale, beyond the upper limit if need be.
//! 3. Panic begins, or goes on, when the panic window's demand is at least `panic_threshold · r`. It ends once more
//!    than a stable window has passed since it last was.
//! 4. Stable: the stable window's answer. Panicking: the larger of both, never less than any answer since the panic
//!    began.
//! 5. Reachable revisions with a scale-down delay get the largest answer of the delay.
//!
//! Excess burst capacity is `floor(ready · total_value − TBC − observed in the panic window)`, with the real ready
//! count; below zero, the activators stay in the path.
//!
//! # Edge cases
//!
//! - Something is not known: [`Decision::Unknown`], and nothing changes. It is not a request for zero.
//! - Not everybody was heard ([`Observation::attested`]): what is known is the least that the load can be. It can begin a
//!   panic and raise the scale, and do nothing else. What was missed then, at more than one evaluation in a row, is missing
//!   in the windows until they have filled anew, as after a takeover. (Once, it is somebody who has just begun.)
//! - A restart loses history, so a decider born above one pod starts panicking and holds that scale.
//! - The limits of step 1 are relative to *ready* pods, not to the previous decision.
//! - Both window's demands are rounded up before the threshold is applied: one pod at 101 % of its target panics.
//! - A decider that took over from another instance ([`Decider::taken_over`]) says in each answer how long its stable
//!   window still needs to fill; until then [`crate::scale_to_zero`] does not scale down and [`crate::path_mode`] does
//!   not change the mode.
//! - Upstream fixes the scale-down delay when the decider is born. [`Decider::with_live_delay`] follows edits.
//!
//! # Not here
//!
//! Min and max scale ([`crate::bounds`]), the path to zero ([`crate::scale_to_zero`]), averaging ([`crate::window`]),
//! and what makes an input unknown ([`crate::metrics`]).

mod decision;
mod limits;
#[cfg(test)]
mod tests;

use common::scaling::{BurstCapacity, DeciderSpec};
use common::time::Timestamp;

pub use decision::{Decision, Inputs, Load, Observation, Recommendation, Rule, Unknown};
use limits::{Answer, Limits};

use crate::max_window::MaxWindow;

/// One revision's decision loop: what it remembers between ticks.
#[derive(Clone, Debug)]
pub struct Decider {
    mode: Mode,
    /// Panic holds at least this scale. Outlives no panic, but is there before the first one: the ready pods at birth.
    panic_floor: i32,
    /// What the scale-down delay holds.
    delay: Option<MaxWindow>,
    delay_is_live: bool,
    warmth: Warmth,
    /// The last answer; none before the first one.
    desired: Option<i32>,
    /// Evaluations in a row at which not everybody was heard.
    missed: u32,
}

/// Which window leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The stable window's answer counts.
    Stable,
    /// The larger answer counts, and the scale never falls.
    Panicking {
        /// The last tick at which the panic window's demand reached the threshold.
        last_over: Timestamp,
    },
}

/// Whether the stable window has seen its full length since a takeover, or since somebody was not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Warmth {
    Warm,
    /// No valid evaluation yet.
    Cold,
    /// Since the first valid evaluation.
    Filling(Timestamp),
}

impl Decider {
    /// A decider for a revision that has `ready` ready pods; 0 if that is not known.
    pub fn new(spec: &DeciderSpec, ready: u32, now: Timestamp) -> Self {
        Self {
            mode: if ready > 1 { Mode::Panicking { last_over: now } } else { Mode::Stable },
            panic_floor: i32::try_from(ready).unwrap_or(i32::MAX),
            delay: (!spec.scale_down_delay.is_zero()).then(|| MaxWindow::new(spec.scale_down_delay)),
            delay_is_live: false,
            warmth: Warmth::Warm,
            desired: None,
            missed: 0,
        }
    }

    /// The revision was another instance's, or ours before a restart: its windows have to fill first.
    #[must_use]
    pub fn taken_over(mut self) -> Self {
        self.warmth = Warmth::Cold;
        self
    }

    /// Edits of the scale-down delay take effect.
    #[must_use]
    pub fn with_live_delay(mut self) -> Self {
        self.delay_is_live = true;
        self
    }

    /// Which window leads.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether the decider panics.
    pub fn is_panicking(&self) -> bool {
        matches!(self.mode, Mode::Panicking { .. })
    }

    /// One evaluation. `spec` may differ from the last one's.
    pub fn decide(&mut self, spec: &DeciderSpec, observation: &Observation) -> Decision {
        let Observation { now, ready, load, attested } = *observation;
        self.missed = if attested { 0 } else { self.missed.saturating_add(1) };
        if self.missed > 1 {
            self.warmth = Warmth::Cold;
        }
        let (ready, load) = match (ready, load) {
            (Ok(_), Err(_)) if !attested => return Decision::Unknown(Unknown::NotAttested),
            (Err(unknown), _) | (_, Err(unknown)) => return Decision::Unknown(unknown),
            (Ok(ready), Ok(load)) => (ready, load),
        };
        let limits = Limits::new(spec, ready);
        let stable_demand = (load.stable / spec.target_value).ceil();
        let panic_demand = (load.panic / spec.target_value).ceil();
        let stable = limits.answer(stable_demand, Rule::StableLoad);
        let panic = limits.answer(panic_demand, Rule::PanicLoad);

        let over = panic_demand / limits.ready >= spec.panic_threshold;
        if attested || over {
            self.switch_mode(spec, over, now);
        }
        let answer = match self.mode {
            Mode::Stable => stable,
            Mode::Panicking { .. } => {
                let larger = if panic.pods > stable.pods { panic } else { stable };
                if larger.pods >= self.panic_floor {
                    self.panic_floor = larger.pods;
                    larger
                } else {
                    Answer { pods: self.panic_floor, rule: Rule::PanicFloor }
                }
            }
        };
        let present = match self.desired {
            Some(desired) => desired,
            // More may have been asked for than are ready, and nobody takes care yet.
            None if self.warmth == Warmth::Warm => i32::MAX,
            None => i32::try_from(ready).unwrap_or(i32::MAX),
        };
        if !attested && answer.pods <= present {
            return Decision::Unknown(Unknown::NotAttested);
        }
        let answer = self.delayed(spec, answer, now);
        self.desired = Some(answer.pods);
        Decision::Scale(Recommendation {
            desired: answer.pods,
            excess_burst_capacity: excess_burst_capacity(spec, ready, load.panic),
            panicking: self.is_panicking(),
            rule: answer.rule,
            inputs: Inputs { ready, stable: load.stable, panic: load.panic, target: spec.target_value },
            warm_in: self.warm_up(spec, now),
        })
    }

    /// Step 3.
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

    /// Step 5.
    fn delayed(&mut self, spec: &DeciderSpec, answer: Answer, now: Timestamp) -> Answer {
        if self.delay_is_live {
            match &mut self.delay {
                _ if spec.scale_down_delay.is_zero() => self.delay = None,
                Some(window) => window.resize(spec.scale_down_delay),
                None => self.delay = Some(MaxWindow::new(spec.scale_down_delay)),
            }
        }
        match &mut self.delay {
            Some(window) if spec.reachable => {
                let held = window.record(now, answer.pods);
                if held > answer.pods { Answer { pods: held, rule: Rule::ScaleDownDelay } } else { answer }
            }
            _ => answer,
        }
    }

    /// How long the stable window still needs to fill; none: it is full.
    fn warm_up(&mut self, spec: &DeciderSpec, now: Timestamp) -> Option<std::time::Duration> {
        let since = match self.warmth {
            Warmth::Warm => return None,
            Warmth::Cold => now,
            Warmth::Filling(since) => since,
        };
        let left = spec.stable_window.saturating_sub(now.saturating_since(since));
        self.warmth = if left.is_zero() { Warmth::Warm } else { Warmth::Filling(since) };
        (!left.is_zero()).then_some(left)
    }
}

/// Spare capacity beyond the target burst capacity; below zero the activators stay in the path.
fn excess_burst_capacity(spec: &DeciderSpec, ready: u32, panic: f64) -> i32 {
    match spec.target_burst_capacity {
        BurstCapacity::AtZeroOnly => 0,
        BurstCapacity::Always => -1,
        // Saturates. Left to right, as upstream does, for the last digit's sake.
        BurstCapacity::Limited(burst) => (f64::from(ready) * spec.total_value - burst - panic).floor() as i32,
    }
}
