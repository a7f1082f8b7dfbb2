//! Parameters of the rules for one workload, apart from its state.

use common::scaling::{Bounds, DeciderSpec};
use std::time::Duration;

/// Everything that the rules need to know of a workload, apart from its state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameters {
    /// Parameters of the decider.
    pub(crate) decider: DeciderSpec,
    /// Limits, a counting initial scale included.
    pub(crate) bounds: Bounds,
    /// Ready pods that make the workload active.
    pub(crate) min_ready: i32,
    /// Whether scale to zero is on.
    pub(crate) scale_to_zero: bool,
    /// Longest time until the workload becomes ready.
    pub(crate) activation_timeout: Duration,
    /// Time for which the last pod stays while the path moves.
    pub(crate) grace_period: Duration,
    /// Time for which the last pod stays on request.
    pub(crate) pod_retention: Duration,
    /// Whether the path is probed before the last pod goes.
    pub(crate) probe_needed: bool,
    /// Whether the private Service is scraped.
    pub(crate) scraped: bool,
}
