//! Two writers of one number of replicas: how often a scale that somebody undoes is asked for again.
//!
//! Replicas that others change are put right at once: a manifest that is applied again must not keep a service small.
//! Somebody who goes on doing so (another autoscaler, a controller that keeps to its manifest) would make it a fight in
//! which each writes as fast as the other. So a scale that was undone [`FREE`] times is asked for again only after a
//! pause, which doubles up to [`PAUSE_MAX`]. It ends when another scale is asked for, or when nobody has undone it for
//! [`PEACE`].

use std::time::{Duration, Instant};

/// How often a scale is asked for again at once.
pub const FREE: u32 = 3;
/// The first pause.
pub const PAUSE: Duration = Duration::from_secs(5);
/// The longest pause.
pub const PAUSE_MAX: Duration = Duration::from_secs(300);
/// A scale that has stood for so long is not contested any more.
pub const PEACE: Duration = Duration::from_secs(600);

/// What to do about a scale that is to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Ask for it.
    Ask,
    /// Ask for it, and say that somebody else keeps changing it: this is the last time without a pause.
    AskAndTell,
    /// Ask for it after so long.
    Wait(Duration),
}

/// One target's replicas.
#[derive(Clone, Copy, Debug, Default)]
pub struct Contest {
    /// What was asked for last, and when.
    asked: Option<(i32, Instant)>,
    /// How often it was undone.
    undone: u32,
}

impl Contest {
    /// Whether to ask for `replicas`, which the target does not have.
    pub fn judge(&self, replicas: i32, now: Instant) -> Verdict {
        let Some((_, at)) = self.asked.filter(|(last, at)| *last == replicas && now < *at + PEACE) else {
            return Verdict::Ask;
        };
        // This time included.
        match self.undone + 1 {
            undone if undone < FREE => Verdict::Ask,
            FREE => Verdict::AskAndTell,
            undone => {
                let pause = PAUSE.saturating_mul(1 << (undone - FREE - 1).min(16)).min(PAUSE_MAX);
                let left = (at + pause).saturating_duration_since(now);
                if left.is_zero() { Verdict::Ask } else { Verdict::Wait(left) }
            }
        }
    }

    /// `replicas` were asked for, and granted.
    pub fn asked(&mut self, replicas: i32, now: Instant) {
        let again = self.asked.is_some_and(|(last, at)| last == replicas && now < at + PEACE);
        self.undone = if again { self.undone.saturating_add(1) } else { 0 };
        self.asked = Some((replicas, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods, reason = "an origin for made-up instants; nothing here waits")]
    fn origin() -> Instant {
        Instant::now()
    }

    /// Goal: the first times cost nothing, it is told once, and then each pause is twice as long as the one before, up
    /// to the longest.
    #[test]
    fn whoever_undoes_a_scale_again_and_again_slows_it_down() {
        let (mut contest, mut now) = (Contest::default(), origin());
        let mut verdicts = Vec::new();
        for _ in 0..13 {
            let verdict = contest.judge(3, now);
            if let Verdict::Wait(left) = verdict {
                assert_ne!(contest.judge(3, now + left - Duration::from_millis(1)), Verdict::Ask);
                now += left;
                assert_eq!(contest.judge(3, now), Verdict::Ask);
            }
            contest.asked(3, now);
            verdicts.push(verdict);
        }
        assert_eq!(verdicts[..4], [Verdict::Ask, Verdict::Ask, Verdict::Ask, Verdict::AskAndTell]);
        let pauses = [5, 10, 20, 40, 80, 160, 300, 300, 300].map(|secs| Verdict::Wait(Duration::from_secs(secs)));
        assert_eq!(verdicts[4..], pauses);
    }

    /// Goal: another decision, and one that has stood for long, are asked for at once and begin anew.
    #[test]
    fn another_scale_and_peace_end_it() {
        let (mut contest, now) = (Contest::default(), origin());
        for _ in 0..6 {
            contest.asked(3, now);
        }
        assert!(matches!(contest.judge(3, now), Verdict::Wait(_)));
        assert_eq!(contest.judge(4, now), Verdict::Ask);
        assert_eq!(contest.judge(3, now + PEACE), Verdict::Ask);
        contest.asked(3, now + PEACE);
        assert_eq!(contest.judge(3, now + PEACE), Verdict::Ask, "it was forgotten");
        contest.asked(4, now);
        contest.asked(3, now);
        assert_eq!(contest.judge(3, now), Verdict::Ask, "so it was when something else was asked for between");
    }

    /// Goal: exactly [`PEACE`] is enough, a nanosecond less is not.
    #[test]
    fn peace_begins_when_it_is_due() {
        let (mut contest, now) = (Contest::default(), origin());
        (0..FREE).for_each(|_| contest.asked(3, now));
        assert_eq!(contest.judge(3, now + PEACE - Duration::from_nanos(1)), Verdict::AskAndTell);
        assert_eq!(contest.judge(3, now + PEACE), Verdict::Ask);
    }
}
