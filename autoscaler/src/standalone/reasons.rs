//! Reasons of conditions: one word each, for programs.

/// Nothing waits and nothing runs.
pub(crate) const NO_TRAFFIC: &str = "NoTraffic";
/// Requests wait for pods.
pub(crate) const QUEUED: &str = "Queued";
/// Everything stays as it is.
pub(crate) const PAUSED: &str = "Paused";
/// A wake took too long.
pub(crate) const TIMED_OUT: &str = "TimedOut";
/// The object breaks a rule; the message names field, value and rule.
pub(crate) const INVALID: &str = "Invalid";
/// The Service that clients call belongs to somebody else; replicas stay as they are.
pub(crate) const SERVICE_NOT_OWNED: &str = "ServiceNotOwned";
/// Another ZeroScaler had a host first.
pub(crate) const HOST_CONFLICT: &str = "HostConflict";
/// The namespace may not have a host.
pub(crate) const HOST_REFUSED: &str = "HostRefused";
/// What should be scaled does not exist.
pub(crate) const TARGET_NOT_FOUND: &str = "TargetNotFound";
/// What should be scaled cannot be listed or watched, so nobody knows of it.
pub(crate) const TARGET_UNREADABLE: &str = "TargetUnreadable";
/// The Service that clients call does not exist, and is not to be made.
pub(crate) const SERVICE_NOT_FOUND: &str = "ServiceNotFound";
/// A HorizontalPodAutoscaler scales the same target.
pub(crate) const HORIZONTAL_CONFLICT: &str = "HorizontalPodAutoscaler";

/// Another ZeroScaler scales the same target.
pub(crate) const TARGET_TAKEN: &str = "TargetTaken";

/// Another target is asked for: the one before is given back first.
pub(crate) const TARGET_CHANGES: &str = "TargetChanges";

/// Why target or Service cannot be taken over.
pub(crate) const NOT_ADOPTED: [&str; 7] = [
    SERVICE_NOT_OWNED,
    TARGET_NOT_FOUND,
    TARGET_UNREADABLE,
    SERVICE_NOT_FOUND,
    HORIZONTAL_CONFLICT,
    TARGET_TAKEN,
    TARGET_CHANGES,
];
