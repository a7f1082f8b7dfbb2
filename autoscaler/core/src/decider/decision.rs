//! What a decider is told, and what it answers.

use std::time::Duration;

use common::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What one tick has seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The wall clock.
    pub now: Timestamp,
    /// Ready pods; a target that does not exist has none.
    pub ready: Result<u32, Unknown>,
    /// The load.
    pub load: Result<Load, Unknown>,
    /// Whether all who may carry load were heard. If not, `load` is a part of it.
    pub attested: bool,
}

/// Averages over both windows, of the whole revision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Over the stable window.
    pub stable: f64,
    /// Over the panic window.
    pub panic: f64,
}

/// Why nothing can be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Unknown {
    /// The pods could not be counted.
    #[error("pods cannot be counted")]
    Pods,
    /// Nothing collects this revision's metrics.
    #[error("no metrics are being collected for the requested resource")]
    NotCollecting,
    /// The pods are scraped, and nothing came for a stable window.
    #[error("no data available")]
    NoData,
    /// An activator that is ready was not heard, and what the others report asks for no more than there is.
    #[error("an activator was not heard")]
    NotAttested,
}

/// A decider's answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// So many pods.
    Scale(Recommendation),
    /// Keep everything as it is.
    Unknown(Unknown),
}

impl Decision {
    /// The recommendation, if there is one.
    pub fn recommendation(&self) -> Option<&Recommendation> {
        match self {
            Self::Scale(recommendation) => Some(recommendation),
            Self::Unknown(_) => None,
        }
    }

    /// The recommended number of pods.
    pub fn desired(&self) -> Option<i32> {
        self.recommendation().map(|r| r.desired)
    }

    /// The excess burst capacity.
    pub fn excess_burst_capacity(&self) -> Option<i32> {
        self.recommendation().map(|r| r.excess_burst_capacity)
    }
}

/// So many pods, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recommendation {
    /// Pods, 0 or more; bounds are not applied yet.
    pub desired: i32,
    /// Spare requests beyond the target burst capacity.
    pub excess_burst_capacity: i32,
    /// Whether the decider panics after this decision.
    pub panicking: bool,
    /// The rule that had the last word.
    pub rule: Rule,
    /// What it was decided from.
    pub inputs: Inputs,
    /// How long the stable window still needs to fill after a takeover; none: it is full. Until then nothing may
    /// scale down or change the mode.
    pub warm_in: Option<Duration>,
}

/// What a decision was made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inputs {
    /// Ready pods.
    pub ready: u32,
    /// Average over the stable window.
    pub stable: f64,
    /// Average over the panic window.
    pub panic: f64,
    /// What one pod should see.
    pub target: f64,
}

/// The rule that had the last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rule {
    /// The stable window's load.
    StableLoad,
    /// The panic window's load.
    PanicLoad,
    /// More was asked for than one decision may add.
    ScaleUpRate,
    /// Less was asked for than one decision may leave.
    ScaleDownRate,
    /// Fewer, but some, were asked for.
    ActivationScale,
    /// A panic never scales down.
    PanicFloor,
    /// A larger decision is not older than the scale-down delay.
    ScaleDownDelay,
}

impl Rule {
    /// Words for an operator.
    pub fn explain(self) -> &'static str {
        match self {
            Self::StableLoad => "load over the stable window",
            Self::PanicLoad => "load over the panic window",
            Self::ScaleUpRate => "limited by the scale-up rate",
            Self::ScaleDownRate => "limited by the scale-down rate",
            Self::ActivationScale => "raised to the activation scale",
            Self::PanicFloor => "held while panicking",
            Self::ScaleDownDelay => "held by the scale-down delay",
        }
    }
}
