//! Input and output of a decider.

use std::time::Duration;

use common::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Observation of one tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Wall-clock time.
    pub now: Timestamp,
    /// Ready pods. A target that does not exist has none.
    pub ready: Result<u32, Unknown>,
    /// Load of the revision.
    pub load: Result<Load, Unknown>,
    /// True if every activator that may carry load has reported. If not, `load` is only a part of the load.
    pub attested: bool,
}

/// Averages of the whole revision over both windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Over the stable window.
    pub stable: f64,
    /// Over the panic window.
    pub panic: f64,
}

/// Reason why nothing can be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Unknown {
    /// The pods could not be counted.
    #[error("pods cannot be counted")]
    Pods,
    /// Nothing collects this revision's metrics.
    #[error("no metrics are being collected for the requested resource")]
    NotCollecting,
    /// The pods are scraped, and there was no stat for a stable window.
    #[error("no data available")]
    NoData,
    /// A ready activator did not report, and the reported part of the load requires no more pods than there are.
    #[error("an activator did not report")]
    NotAttested,
}

/// Output of a decider. An error means: keep the current scale.
pub type Decision = Result<Recommendation, Unknown>;

/// Recommended number of pods, with its reasons.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recommendation {
    /// Number of pods, 0 or more. Bounds are not applied yet.
    pub desired: i32,
    /// Spare requests beyond the target burst capacity.
    pub excess_burst_capacity: i32,
    /// True if the decider is in panic mode after this decision.
    pub panicking: bool,
    /// Rule that determined the result.
    pub rule: Rule,
    /// Values that the decision is based on.
    pub inputs: Inputs,
    /// Time that the stable window still needs to fill after a takeover; `None` if it is full. Until then nothing may
    /// scale down or change the path mode.
    pub warm_up_left: Option<Duration>,
}

/// Values that a decision is based on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Inputs {
    /// Ready pods.
    pub ready: u32,
    /// Average over the stable window.
    pub stable: f64,
    /// Average over the panic window.
    pub panic: f64,
    /// Target value of the metric per pod.
    pub target: f64,
}

/// Rule that determines a recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rule {
    /// Load over the stable window.
    StableLoad,
    /// Load over the panic window.
    PanicLoad,
    /// The load requires more pods than one decision may add.
    ScaleUpRate,
    /// The load requires fewer pods than one decision may leave.
    ScaleDownRate,
    /// The load requires some pods, but fewer than the activation scale.
    ActivationScale,
    /// Panic mode never scales down.
    PanicFloor,
    /// A larger decision is within the scale-down delay.
    ScaleDownDelay,
}

impl Rule {
    /// Returns a text for an operator.
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
