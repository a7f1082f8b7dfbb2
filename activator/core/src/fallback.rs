//! When a held request is given to its workload's fallback.
//!
//! # The rule
//!
//! | the request | before its time | from its time on |
//! |---|---|---|
//! | waits, and no pod is ready | it waits | falls back |
//! | waits for its turn at pods that are ready | waits | waits |
//! | finds no room to wait, or pods that are known to fail | falls back | falls back |
//! | has lost its workload | stays | stays |
//!
//! A fallback is for wakes: once a pod is ready the workload answers, however many wait for their turn. If those pods are
//! lost again, whoever still waits and had none is one that waits for a wake: it is looked at again at its time, and every
//! [`AGAIN_AFTER`] from then on. Whoever stays is refused as without a fallback.
//!
//! # Not here
//!
//! Which requests may fall back at all, and where they go.

use std::time::Duration;

/// Whoever waits for its turn is asked again after so long.
pub const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How a request that has no pod yet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is held, and no pod is ready.
    Held,
    /// It is held, and pods are ready.
    Queued,
    /// There is no room to hold it.
    NoRoom,
    /// The pods fail.
    Failing,
    /// The workload is no more.
    Gone,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It waits for a pod, for so long; then it is asked again.
    Wait(Duration),
    /// Its fallback answers.
    FallBack,
    /// What would become of it without a fallback.
    Stay,
}

/// What becomes of a request that has a fallback, which is to come `after` this time of waiting.
pub fn next(standing: Standing, waited: Duration, after: Duration) -> Next {
    match standing {
        Standing::NoRoom | Standing::Failing => Next::FallBack,
        Standing::Gone => Next::Stay,
        Standing::Held | Standing::Queued if waited < after => Next::Wait(after - waited),
        Standing::Held => Next::FallBack,
        Standing::Queued => Next::Wait(AGAIN_AFTER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_falls_back_at_its_time_and_what_cannot_be_held_at_once() {
        let ms = Duration::from_millis;
        let rows = [
            (Standing::Held, 0, 100, Next::Wait(ms(100))),
            (Standing::Held, 99, 100, Next::Wait(ms(1))),
            (Standing::Held, 100, 100, Next::FallBack),
            (Standing::Held, 500, 100, Next::FallBack),
            (Standing::Held, 0, 0, Next::FallBack),
            (Standing::Queued, 0, 0, Next::Wait(AGAIN_AFTER)),
            (Standing::Queued, 40, 100, Next::Wait(ms(60))),
            (Standing::Queued, 500, 100, Next::Wait(AGAIN_AFTER)),
            (Standing::NoRoom, 0, 100, Next::FallBack),
            (Standing::Failing, 0, 100, Next::FallBack),
            (Standing::Gone, 500, 100, Next::Stay),
        ];
        for (standing, waited, after, expected) in rows {
            assert_eq!(next(standing, ms(waited), ms(after)), expected, "{standing:?} after {waited} of {after} ms");
        }
    }
}
