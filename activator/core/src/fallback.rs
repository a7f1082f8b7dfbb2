//! Decides when a held request is sent to its workload's fallback.
//!
//! # The rule
//!
//! | the request | before its fallback time | from its fallback time on |
//! |---|---|---|
//! | is held while no pod is ready | waits | falls back |
//! | is queued while pods are ready | waits | waits |
//! | finds no room to wait, or pods that are known to fail | falls back | falls back |
//! | has lost its workload | is refused | is refused |
//!
//! A fallback covers scale from zero. Once a pod is ready, the workload answers, however many requests are queued. If
//! those pods are lost again, a request that still waits is held again: it is checked at its fallback time, and every
//! [`AGAIN_AFTER`] from then on. A request that cannot fall back is refused as if it had no fallback.
//!
//! # Not here
//!
//! The choice of requests that may fall back, and of their destination.

use std::time::Duration;

/// Interval at which a queued request is checked again.
pub const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// State of a request that has no pod yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitState {
    /// The request is held, and no pod is ready.
    Held,
    /// The request is queued, and pods are ready.
    Queued,
    /// There is no room to hold the request.
    NoRoom,
    /// The pods are known to fail.
    Failing,
    /// The workload was deleted.
    Gone,
}

/// Next step for a request that has a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The request waits for a pod for this time, and is then checked again.
    Wait(Duration),
    /// The fallback answers.
    FallBack,
    /// The request is treated as if it had no fallback.
    Stay,
}

/// Returns the next step for a request that has `waited` so long, and that may fall back `after` this time.
pub fn next(standing: WaitState, waited: Duration, after: Duration) -> Next {
    match standing {
        WaitState::NoRoom | WaitState::Failing => Next::FallBack,
        WaitState::Gone => Next::Stay,
        WaitState::Held | WaitState::Queued if waited < after => Next::Wait(after - waited),
        WaitState::Held => Next::FallBack,
        WaitState::Queued => Next::Wait(AGAIN_AFTER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_falls_back_at_its_time_and_what_cannot_be_held_at_once() {
        let ms = Duration::from_millis;
        let rows = [
            (WaitState::Held, 0, 100, Next::Wait(ms(100))),
            (WaitState::Held, 99, 100, Next::Wait(ms(1))),
            (WaitState::Held, 100, 100, Next::FallBack),
            (WaitState::Held, 500, 100, Next::FallBack),
            (WaitState::Held, 0, 0, Next::FallBack),
            (WaitState::Queued, 0, 0, Next::Wait(AGAIN_AFTER)),
            (WaitState::Queued, 40, 100, Next::Wait(ms(60))),
            (WaitState::Queued, 500, 100, Next::Wait(AGAIN_AFTER)),
            (WaitState::NoRoom, 0, 100, Next::FallBack),
            (WaitState::Failing, 0, 100, Next::FallBack),
            (WaitState::Gone, 500, 100, Next::Stay),
        ];
        for (standing, waited, after, expected) in rows {
            assert_eq!(next(standing, ms(waited), ms(after)), expected, "{standing:?} after {waited} of {after} ms");
        }
    }
}
