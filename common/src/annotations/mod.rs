//! Annotations that control the scaling of one revision, and their combination with the cluster's configuration.
//!
//! - [`Key`] and the readers: a key may have an alias in camelCase, which counts only if the kebab-case key is absent.
//!   A malformed value counts as not set, even if the alias has a valid value.
//! - [`is_valid`]: values that upstream's webhook accepts. Readers do not repeat these checks: they use any value that
//!   parses.
//! - Resolution: annotation, else configuration, into a [`DeciderSpec`](crate::scaling::DeciderSpec) and related
//!   values.
//!
//! One difference from upstream: `NaN` counts as malformed.

mod read;
mod resolve;
mod validate;

pub use crate::names::{CLASS_HPA, CLASS_KPA};
pub use read::{Annotations, Key, class, is_kpa, metric};
pub use resolve::{
    aggregation, bounds, decider_spec, initial_scale, panic_window, pod_retention, progress_deadline, scale_down_delay,
    stable_window, target_burst_capacity, targets,
};
pub use validate::is_valid;

/// On a Namespace: patterns of the hosts that it may have, separated by commas. Used by standalone only.
pub const HOSTS: Key = Key::new("zeroscale.dev/hosts");

/// Metric: concurrent requests.
pub const METRIC_CONCURRENCY: &str = "concurrency";
/// Metric: requests per second.
pub const METRIC_RPS: &str = "rps";
/// Metric of class HPA: CPU time.
pub const METRIC_CPU: &str = "cpu";
/// Metric of class HPA: memory.
pub const METRIC_MEMORY: &str = "memory";

/// Class: the responsible autoscaler.
pub const CLASS: Key = Key::new("autoscaling.knative.dev/class");
/// Measured quantity.
pub const METRIC: Key = Key::new("autoscaling.knative.dev/metric");
/// Minimum scale.
pub const MIN_SCALE: Key = Key::with_alias("autoscaling.knative.dev/min-scale", "autoscaling.knative.dev/minScale");
/// Maximum scale; 0: unlimited.
pub const MAX_SCALE: Key = Key::with_alias("autoscaling.knative.dev/max-scale", "autoscaling.knative.dev/maxScale");
/// Initial scale of a revision.
pub const INITIAL_SCALE: Key =
    Key::with_alias("autoscaling.knative.dev/initial-scale", "autoscaling.knative.dev/initialScale");
/// Minimum scale when scaling from zero.
pub const ACTIVATION_SCALE: Key = Key::new("autoscaling.knative.dev/activation-scale");
/// Desired value of the metric per pod.
pub const TARGET: Key = Key::new("autoscaling.knative.dev/target");
/// Percentage of the target to aim for.
pub const TARGET_UTILIZATION: Key = Key::with_alias(
    "autoscaling.knative.dev/target-utilization-percentage",
    "autoscaling.knative.dev/targetUtilizationPercentage",
);
/// Spare capacity in requests that is required before activators leave the path; -1: they stay.
pub const TARGET_BURST_CAPACITY: Key =
    Key::with_alias("autoscaling.knative.dev/target-burst-capacity", "autoscaling.knative.dev/targetBurstCapacity");
/// Stable window.
pub const WINDOW: Key = Key::new("autoscaling.knative.dev/window");
/// Panic window, as a percentage of the stable window.
pub const PANIC_WINDOW: Key =
    Key::with_alias("autoscaling.knative.dev/panic-window-percentage", "autoscaling.knative.dev/panicWindowPercentage");
/// Panic threshold, as a percentage of the ready pods' capacity.
pub const PANIC_THRESHOLD: Key = Key::with_alias(
    "autoscaling.knative.dev/panic-threshold-percentage",
    "autoscaling.knative.dev/panicThresholdPercentage",
);
/// Time for which a higher decision holds.
pub const SCALE_DOWN_DELAY: Key =
    Key::with_alias("autoscaling.knative.dev/scale-down-delay", "autoscaling.knative.dev/scaleDownDelay");
/// Time for which the last pod is retained.
pub const POD_RETENTION: Key = Key::with_alias(
    "autoscaling.knative.dev/scale-to-zero-pod-retention-period",
    "autoscaling.knative.dev/scaleToZeroPodRetentionPeriod",
);
/// Averaging method of the windows.
pub const AGGREGATION: Key = Key::with_alias(
    "autoscaling.knative.dev/metric-aggregation-algorithm",
    "autoscaling.knative.dev/metricAggregationAlgorithm",
);
/// Time in which activation must succeed. Read under this prefix only.
pub const PROGRESS_DEADLINE: Key = Key::new("serving.knative.dev/progress-deadline");
