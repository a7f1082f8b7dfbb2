//! Reasons of conditions: one machine-readable word each.

/// No requests wait and no pods run.
pub(crate) const NO_TRAFFIC: &str = "NoTraffic";
/// Requests wait for pods.
pub(crate) const QUEUED: &str = "Queued";
/// Scaling and routing changes are suspended.
pub(crate) const PAUSED: &str = "Paused";
/// A scale from zero took too long.
pub(crate) const TIMED_OUT: &str = "TimedOut";
/// The object violates a rule; the message names field, value and rule.
pub(crate) const INVALID: &str = "Invalid";
/// The Service that clients call belongs to another owner; the replicas stay unchanged.
pub(crate) const SERVICE_NOT_OWNED: &str = "ServiceNotOwned";
/// Another ZeroScaler claimed a host first.
pub(crate) const HOST_CONFLICT: &str = "HostConflict";
/// The namespace is not allowed to have a host.
pub(crate) const HOST_REFUSED: &str = "HostRefused";
/// The target does not exist.
pub(crate) const TARGET_NOT_FOUND: &str = "TargetNotFound";
/// The target cannot be listed or watched, so its state is unknown.
pub(crate) const TARGET_UNREADABLE: &str = "TargetUnreadable";
/// The Service that clients call does not exist, and must not be created.
pub(crate) const SERVICE_NOT_FOUND: &str = "ServiceNotFound";
/// A HorizontalPodAutoscaler scales the same target.
pub(crate) const HORIZONTAL_CONFLICT: &str = "HorizontalPodAutoscaler";

/// Another ZeroScaler scales the same target.
pub(crate) const TARGET_TAKEN: &str = "TargetTaken";

/// The spec names another target: the previous target is given back first.
pub(crate) const TARGET_CHANGES: &str = "TargetChanges";

/// Reasons why a target or Service cannot be adopted.
pub(crate) const NOT_ADOPTED: [&str; 7] = [
    SERVICE_NOT_OWNED,
    TARGET_NOT_FOUND,
    TARGET_UNREADABLE,
    SERVICE_NOT_FOUND,
    HORIZONTAL_CONFLICT,
    TARGET_TAKEN,
    TARGET_CHANGES,
];
