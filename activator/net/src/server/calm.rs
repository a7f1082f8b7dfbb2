//! How many frames a client may send that carry nothing: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, RST_STREAM, frames of
//! unknown kinds, and DATA without data.
//!
//! Each is cheap to send and costs some work. So each takes one from a credit of [`MOST`]; what a well-behaved client sends
//! them for gives some back: a request, data in either direction, and time. Whoever has used up the credit is told to calm
//! down, and its connection ends (as Envoy and HAProxy do it). Within the credit nobody looks at the clock.

use std::time::Duration;
use tokio::time::Instant;

/// The whole credit.
const MOST: u32 = 1000;

/// What comes back with a second.
const A_SECOND: u32 = 200;

/// With a request: Envoy allows 100 PRIORITY frames, of which none is in use any more.
const A_REQUEST: u32 = 20;

/// With a frame of data from the client.
const DATA_IN: u32 = 2;

/// With a frame of data to the client, each of which it may answer for its stream and for the connection: five times that,
/// as Envoy's.
pub(super) const DATA_OUT: u32 = 10;

/// A connection's credit.
#[derive(Debug)]
pub(super) struct Calm {
    credit: u32,
    /// When time gave something back last.
    since: Option<Instant>,
}

/// Frames that have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Came {
    /// Those that carry nothing.
    pub(super) control: u32,
    pub(super) requests: u32,
    pub(super) data: u32,
}

impl Default for Calm {
    fn default() -> Self {
        Self { credit: MOST, since: None }
    }
}

impl Calm {
    /// These came, and `given` is given back for what went out. False: it is too much.
    pub(super) fn takes(&mut self, came: Came, given: u32) -> bool {
        if came == Came::default() {
            return true;
        }
        let back = (came.requests.saturating_mul(A_REQUEST)).saturating_add(came.data.saturating_mul(DATA_IN));
        self.give(back.saturating_add(given));
        if came.control > self.credit {
            let now = Instant::now();
            let passed = self.since.replace(now).map_or(Duration::from_secs(1), |since| now - since);
            let back = passed.as_millis().saturating_mul(A_SECOND.into()) / 1000;
            self.give(u32::try_from(back).unwrap_or(u32::MAX));
        }
        let left = self.credit.checked_sub(came.control);
        self.credit = left.unwrap_or(0);
        left.is_some()
    }

    fn give(&mut self, back: u32) {
        self.credit = self.credit.saturating_add(back).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(control: u32) -> Came {
        Came { control, ..Came::default() }
    }

    /// How many of these steps are taken before it is too much.
    fn taken(step: Came, given: u32) -> usize {
        let mut calm = Calm::default();
        (0..20_000).take_while(|_| calm.takes(step, given)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn frames_that_carry_nothing_use_up_the_credit() {
        // At the first look some time has passed in any case.
        assert_eq!(taken(control(1), 0), (MOST + A_SECOND) as usize);
        assert_eq!(taken(Came { control: A_REQUEST, requests: 1, data: 0 }, 0), 20_000, "as requests allow");
        assert_eq!(taken(Came { control: 2, requests: 0, data: 1 }, 0), 20_000, "as uploads allow");
        assert_eq!(taken(control(2), DATA_OUT), 20_000, "as downloads allow");
        assert!(taken(Came { control: 2 * A_REQUEST, requests: 1, data: 0 }, 0) < 500);
    }

    #[tokio::test(start_paused = true)]
    async fn time_gives_some_back() {
        let mut calm = Calm::default();
        while calm.takes(control(1), 0) {}
        assert!(!calm.takes(control(1), 0));
        for _ in 0..3600 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(calm.takes(control(A_SECOND), 0));
        }
        assert!(!calm.takes(control(A_SECOND), 0));
    }
}
