//! What governs all autoscalers: the controller's options and its feature gates.

use std::time::Duration;

/// Options of the controller, named like its flags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Share of the target that a metric may be off, either way.
    pub tolerance: f64,
    /// Window of objects without a behavior, and of a behavior whose scale-down window is not set. Whole seconds count there.
    pub downscale_stabilization: Duration,
    /// How long after its start a pod's cpu is judged by its readiness.
    pub cpu_initialization_period: Duration,
    /// How long after its start a pod that turned unready counts as never having been ready.
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
    /// `HPAScaleToZero`: `minReplicas` may be 0, and what this controller put to zero it may wake.
    pub scale_to_zero: bool,
    /// `HPAConfigurableTolerance`: a behavior's tolerances are honoured.
    pub configurable_tolerance: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self { scale_to_zero: false, configurable_tolerance: true }
    }
}
