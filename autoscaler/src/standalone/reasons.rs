//! Reasons of conditions that are our own: one word each, for programs.

use common_api::podautoscaler_status::SERVICE_NOT_OWNED;

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
