//! Decides how soon a scale is rewritten after another writer has reverted it.
//!
//! A change of replicas by another writer is reverted at once, because a manifest that is applied again must not keep a
//! service small. Another autoscaler, or a controller that enforces its manifest, would respond to each write with a
//! write of its own, equally fast. So after [`FREE_ATTEMPTS`] rewrites of the same scale the next one waits for a
//! pause.
//!
//! While requests wait for pods, the pause is [`REASSERT_EVERY`], however long the conflict has lasted, since pods may
//! start between two reverts. Otherwise it doubles from [`PAUSE`] up to [`PAUSE_MAX`]. The count restarts if another
//! scale is wanted, or if no other writer has changed the scale for [`CALM_AFTER`].

use std::time::{Duration, Instant};

/// Number of rewrites without a pause.
pub const FREE_ATTEMPTS: u32 = 3;
/// Pause while requests wait for pods.
pub const REASSERT_EVERY: Duration = Duration::from_secs(1);
/// First pause.
pub const PAUSE: Duration = Duration::from_secs(5);
/// Longest pause.
pub const PAUSE_MAX: Duration = Duration::from_secs(300);
/// Time without a change after which a scale is no longer in conflict.
pub const CALM_AFTER: Duration = Duration::from_secs(600);

/// Last writes of one target's replicas.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScaleConflict {
    /// Last written scale and its time.
    written: Option<(i32, Instant)>,
    /// Number of times that the scale was reverted.
    reverts: u32,
}

impl ScaleConflict {
    /// Returns the time after which to write `replicas`, which the target does not have; `None` means at once.
    /// `is_awaited` is true if requests wait for them.
    pub fn pause(&self, replicas: i32, is_awaited: bool, now: Instant) -> Option<Duration> {
        let (_, at) = self.written.filter(|(last, at)| *last == replicas && now < *at + CALM_AFTER)?;
        let paused = self.reverts.checked_sub(FREE_ATTEMPTS)?;
        let doubled = PAUSE.saturating_mul(1 << paused.min(16)).min(PAUSE_MAX);
        let pause = if is_awaited { REASSERT_EVERY } else { doubled };
        Some((at + pause).saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Returns the scale that was written last.
    pub fn wanted(&self) -> Option<i32> {
        self.written.map(|(replicas, _)| replicas)
    }

    /// Returns true if another writer keeps changing the scale: the rewrites without a pause are used up.
    pub fn is_contested(&self, now: Instant) -> bool {
        self.reverts >= FREE_ATTEMPTS && self.written.is_some_and(|(_, at)| now < at + CALM_AFTER)
    }

    /// Records that `replicas` were written and accepted. Returns true if the conflict must be reported: this was the
    /// last rewrite without a pause.
    pub fn written(&mut self, replicas: i32, now: Instant) -> bool {
        let again = self.written.is_some_and(|(last, at)| last == replicas && now < at + CALM_AFTER);
        self.reverts = if again { self.reverts.saturating_add(1) } else { 0 };
        self.written = Some((replicas, now));
        self.reverts == FREE_ATTEMPTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::tests::epoch;

    /// Goal: the first rewrites are immediate, the conflict is reported once, and then each pause is twice as long as
    /// the last, up to the longest.
    #[test]
    fn repeated_reverts_slow_down_the_rewrites() {
        let (mut conflict, mut now) = (ScaleConflict::default(), epoch());
        let (mut verdicts, mut reported) = (Vec::new(), Vec::new());
        for _ in 0..13 {
            let verdict = conflict.pause(3, false, now);
            if let Some(left) = verdict {
                assert_ne!(conflict.pause(3, false, now + left - Duration::from_millis(1)), None);
                now += left;
                assert_eq!(conflict.pause(3, false, now), None);
            }
            reported.push(conflict.written(3, now));
            verdicts.push(verdict);
        }
        assert_eq!(verdicts[..4], [None; 4]);
        assert_eq!(reported.iter().position(|reported| *reported), Some(3), "with the last one without a pause");
        assert_eq!(reported.iter().filter(|reported| **reported).count(), 1);
        let pauses = [5, 10, 20, 40, 80, 160, 300, 300, 300].map(|secs| Some(Duration::from_secs(secs)));
        assert_eq!(verdicts[4..], pauses);
    }

    /// Goal: while requests wait, the scale is rewritten every second however often it was reverted, and the conflict
    /// stays known until it is over.
    #[test]
    fn awaited_pods_are_requested_every_second() {
        let (mut conflict, mut now) = (ScaleConflict::default(), epoch());
        for turn in 0..100 {
            assert_eq!(conflict.is_contested(now), turn > FREE_ATTEMPTS, "turn {turn}");
            if let Some(left) = conflict.pause(1, true, now) {
                assert!(left <= REASSERT_EVERY);
                now += left;
            }
            conflict.written(1, now);
            now += Duration::from_millis(200);
        }
        assert!(conflict.pause(1, false, now).is_some_and(|left| left > REASSERT_EVERY));
        assert!(!conflict.is_contested(now + CALM_AFTER));
        conflict.written(0, now);
        assert!(!conflict.is_contested(now), "another scale is wanted");
    }

    /// Goal: another scale, and a scale that was not reverted for exactly [`CALM_AFTER`], are written at once and
    /// restart the count.
    #[test]
    fn another_scale_or_a_calm_time_ends_the_conflict() {
        let (mut conflict, now) = (ScaleConflict::default(), epoch());
        for _ in 0..6 {
            conflict.written(3, now);
        }
        assert!(conflict.pause(3, false, now).is_some());
        assert_eq!(conflict.pause(4, false, now), None);
        assert_eq!(conflict.pause(3, false, now + CALM_AFTER), None);
        conflict.written(3, now + CALM_AFTER);
        assert_eq!(conflict.pause(3, false, now + CALM_AFTER), None, "it was forgotten");
        conflict.written(4, now);
        conflict.written(3, now);
        assert_eq!(conflict.pause(3, false, now), None, "another scale was written in between");
        let mut conflict = ScaleConflict::default();
        assert!((0..FREE_ATTEMPTS).all(|_| !conflict.written(3, now)));
        let mut calm = conflict;
        assert!(conflict.written(3, now + CALM_AFTER - Duration::from_nanos(1)), "a nanosecond too early");
        assert!(!calm.written(3, now + CALM_AFTER));
    }
}
