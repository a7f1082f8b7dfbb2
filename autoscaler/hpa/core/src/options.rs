//! Settings for all autoscalers: the controller's options and its feature gates.

use std::time::Duration;

/// Options of the controller, named like its flags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Share of the target by which a metric may differ in either direction.
    pub tolerance: f64,
    /// Scale-down window of objects without a behavior, and of a behavior that does not set one. A behavior uses its
    /// whole seconds.
    pub downscale_stabilization: Duration,
    /// Time after the start of a pod during which its cpu counts only if the pod is ready.
    pub cpu_initialization_period: Duration,
    /// Time after the start of a pod. A pod that became unready within this time counts as never ready.
    pub initial_readiness_delay: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tolerance: 0.1,
            downscale_stabilization: Duration::from_secs(300),
            cpu_initialization_period: Duration::from_secs(300),
            initial_readiness_delay: Duration::from_secs(30),
        }
    }
}

/// Feature gates; the defaults are those of Kubernetes 1.36.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// `HPAScaleToZero`: `minReplicas` may be 0, and the controller may wake targets that it scaled to zero.
    pub scale_to_zero: bool,
    /// `HPAConfigurableTolerance`: tolerances of a behavior take effect.
    pub configurable_tolerance: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self { scale_to_zero: false, configurable_tolerance: true }
    }
}
