//! The limits a user sets to a revision's scale.
//!
//! `x < min` is tested first, then `x > max`: a minimum that is larger than the maximum wins. An unreachable revision has
//! no minimum. Until the target has been initialized, an initial scale above 1 raises the minimum (1 needs no help: a
//! Deployment is created with it), again only if the revision is reachable.

/// Limits of a revision's scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Fewest pods.
    pub min: i32,
    /// Most pods; none: no limit.
    pub max: Option<i32>,
}

impl Bounds {
    /// From what annotations and configuration say: `max` 0 means no limit, and an unreachable revision has no minimum.
    pub fn resolve(min: i32, max: i32, reachable: bool) -> Self {
        Self { min: if reachable { min } else { 0 }, max: (max != 0).then_some(max) }
    }

    /// Raises the minimum to the initial scale, while that counts.
    #[must_use]
    pub fn with_initial_scale(self, initial_scale: i32, initialized: bool, reachable: bool) -> Self {
        if !initialized && reachable && initial_scale > 1 {
            Self { min: self.min.max(initial_scale), ..self }
        } else {
            self
        }
    }

    /// `desired`, within the limits.
    pub fn clamp(self, desired: i32) -> i32 {
        if desired < self.min {
            return self.min;
        }
        self.max.map_or(desired, |max| desired.min(max))
    }

    /// Ready pods that make a revision active: its minimum; the initial scale too until it is initialized (even if
    /// unreachable); then at least 1.
    pub fn min_ready(self, initial_scale: i32, initialized: bool) -> i32 {
        self.min.max(if initialized { 1 } else { initial_scale })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_is_tested_before_max() {
        for (min, max, desired, expected) in [
            (0, None, 7, 7),
            (2, None, 1, 2),
            (0, Some(3), 7, 3),
            (5, Some(3), 4, 5), // Below the minimum, which wins.
            (5, Some(3), 7, 3), // Not below the minimum, so the maximum is tested.
            (0, Some(3), -1, 0),
        ] {
            assert_eq!(Bounds { min, max }.clamp(desired), expected, "{desired} within {min} and {max:?}");
        }
    }

    #[test]
    fn the_initial_scale_is_a_minimum_until_initialized() {
        for (min, initial, initialized, reachable, expected) in [
            (0, 2, false, true, 2),
            (3, 2, false, true, 3),
            (0, 1, false, true, 0),
            (0, 2, true, true, 0),
            (0, 2, false, false, 0),
        ] {
            let bounds = Bounds::resolve(min, 0, reachable).with_initial_scale(initial, initialized, reachable);
            assert_eq!(bounds.min, expected, "min {min}, initial {initial}, {initialized}, {reachable}");
        }
    }

    #[test]
    fn an_unreachable_revision_has_no_minimum() {
        assert_eq!(Bounds::resolve(1, 100, true), Bounds { min: 1, max: Some(100) });
        assert_eq!(Bounds::resolve(1, 100, false), Bounds { min: 0, max: Some(100) });
    }

    #[test]
    fn ready_pods_that_make_a_revision_active() {
        for (min, initial, initialized, expected) in
            [(0, 1, false, 1), (0, 0, false, 0), (0, 0, true, 1), (3, 5, false, 5), (3, 5, true, 3)]
        {
            let bounds = Bounds { min, max: None };
            assert_eq!(bounds.min_ready(initial, initialized), expected, "{min}, {initial}, {initialized}");
        }
    }
}
