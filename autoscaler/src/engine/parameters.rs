//! Parameters of the rules for one workload, apart from its state.

use common::scaling::{Bounds, DeciderSpec};
use std::time::Duration;

/// All inputs of the rules for a workload, apart from its state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameters {
    pub(crate) decider: DeciderSpec,
    /// Minimum and maximum scale, including a pending initial scale.
    pub(crate) bounds: Bounds,
    /// Number of ready pods that make the workload active.
    pub(crate) min_ready: i32,
    /// Set if scale to zero is enabled.
    pub(crate) scale_to_zero: bool,
    /// Longest time until the workload becomes ready.
    pub(crate) activation_timeout: Duration,
    /// Time for which the last pod stays while the path moves.
    pub(crate) grace_period: Duration,
    /// Time for which the last pod stays by request of the user.
    pub(crate) pod_retention: Duration,
    /// Set if the path is probed before the last pod is removed.
    pub(crate) probe_needed: bool,
    /// Set if the private Service is scraped.
    pub(crate) scraped: bool,
}
