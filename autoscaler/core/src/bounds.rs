//! Combines the initial scale with the limits that a user sets for a revision's scale.
//!
//! Until the target has been initialized, an initial scale above 1 raises the minimum, but only if the revision is
//! reachable. (An initial scale of 1 needs no raise, because a Deployment is created with one replica.) Afterwards the
//! initial scale is ignored permanently.
//!
//! Limits clamp in this order: a value below the minimum becomes the minimum; any other value is cut to the maximum. If
//! the minimum (or initial scale) exceeds the maximum, a value below the minimum therefore becomes the minimum.

pub use common::scaling::Bounds;

/// Returns `bounds` with the minimum raised to the initial scale while that applies.
#[must_use]
pub fn with_initial_scale(bounds: Bounds, initial_scale: i32, initialized: bool, reachable: bool) -> Bounds {
    if !initialized && reachable && initial_scale > 1 {
        Bounds { min: bounds.min.max(initial_scale), ..bounds }
    } else {
        bounds
    }
}

/// Returns the number of ready pods that makes a revision active: its minimum, and at least 1. Until the target is
/// initialized, the initial scale replaces the 1, even if the revision is unreachable. `bounds` must not include the
/// initial scale.
pub fn min_ready(bounds: Bounds, initial_scale: i32, initialized: bool) -> i32 {
    bounds.min.max(if initialized { 1 } else { initial_scale })
}
