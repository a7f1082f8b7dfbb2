//! Annotations that steer the scaling of one revision, and how they combine with the cluster's configuration.
//!
//! - [`Key`] and the readers: a key may have an alias in camelCase, which is looked at only where the kebab-case key
//!   is absent. A value that is present but malformed counts as not set, and the alias does not rescue it.
//! - [`validate()`]: what upstream's webhook refuses. Readers do not repeat these checks: whatever parses is used.
//! - Resolution: annotation, else configuration, into a [`DeciderSpec`](crate::scaling::DeciderSpec) and its company.
//!
//! One difference from upstream: `NaN` counts as malformed.

mod read;
mod resolve;
mod validate;

pub use crate::names::{CLASS_HPA, CLASS_KPA};
pub use read::{Annotations, Key, class, is_hpa, is_kpa, metric};
pub use resolve::{
    bounds, decider_spec, initial_scale, panic_window, pod_retention, progress_deadline, scale_down_delay,
    stable_window, target_burst_capacity, targets,
};
pub use validate::{validate, validate_progress_deadline};

/// On a Namespace: the patterns of hosts that it may have, separated by commas. Standalone's alone.
pub const HOSTS: Key = Key::new("zeroscale.dev/hosts");

/// Metric: requests in flight.
pub const METRIC_CONCURRENCY: &str = "concurrency";
/// Metric: requests a second.
pub const METRIC_RPS: &str = "rps";
/// Metric of class HPA: processor time.
pub const METRIC_CPU: &str = "cpu";
/// Metric of class HPA: memory.
pub const METRIC_MEMORY: &str = "memory";

/// Which autoscaler is responsible.
pub const CLASS: Key = Key::new("autoscaling.knative.dev/class");
/// What is measured.
pub const METRIC: Key = Key::new("autoscaling.knative.dev/metric");
/// Least scale.
pub const MIN_SCALE: Key = Key::with_alias("autoscaling.knative.dev/min-scale", "autoscaling.knative.dev/minScale");
/// Most scale; 0: unlimited.
pub const MAX_SCALE: Key = Key::with_alias("autoscaling.knative.dev/max-scale", "autoscaling.knative.dev/maxScale");
/// First scale of a revision.
pub const INITIAL_SCALE: Key =
    Key::with_alias("autoscaling.knative.dev/initial-scale", "autoscaling.knative.dev/initialScale");
/// Least scale from zero.
pub const ACTIVATION_SCALE: Key = Key::new("autoscaling.knative.dev/activation-scale");
/// What one pod should see of the metric.
pub const TARGET: Key = Key::new("autoscaling.knative.dev/target");
/// Share of the target that is aimed for, percent.
pub const TARGET_UTILIZATION: Key = Key::with_alias(
    "autoscaling.knative.dev/target-utilization-percentage",
    "autoscaling.knative.dev/targetUtilizationPercentage",
);
/// Spare requests to keep before activators leave the path; -1: they never do.
pub const TARGET_BURST_CAPACITY: Key =
    Key::with_alias("autoscaling.knative.dev/target-burst-capacity", "autoscaling.knative.dev/targetBurstCapacity");
/// Stable window.
pub const WINDOW: Key = Key::new("autoscaling.knative.dev/window");
/// Panic window, percent of the stable one.
pub const PANIC_WINDOW: Key =
    Key::with_alias("autoscaling.knative.dev/panic-window-percentage", "autoscaling.knative.dev/panicWindowPercentage");
/// Panic threshold, percent of what the ready pods can take.
pub const PANIC_THRESHOLD: Key = Key::with_alias(
    "autoscaling.knative.dev/panic-threshold-percentage",
    "autoscaling.knative.dev/panicThresholdPercentage",
);
/// How long a higher decision holds.
pub const SCALE_DOWN_DELAY: Key =
    Key::with_alias("autoscaling.knative.dev/scale-down-delay", "autoscaling.knative.dev/scaleDownDelay");
/// How long the last pod stays.
pub const POD_RETENTION: Key = Key::with_alias(
    "autoscaling.knative.dev/scale-to-zero-pod-retention-period",
    "autoscaling.knative.dev/scaleToZeroPodRetentionPeriod",
);
/// How windows average.
pub const AGGREGATION: Key = Key::with_alias(
    "autoscaling.knative.dev/metric-aggregation-algorithm",
    "autoscaling.knative.dev/metricAggregationAlgorithm",
);
/// How long activation may take. Under this prefix only.
pub const PROGRESS_DEADLINE: Key = Key::new("serving.knative.dev/progress-deadline");
