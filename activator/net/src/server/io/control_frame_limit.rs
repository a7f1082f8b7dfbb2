//! Limits a client's frames that carry no request or data: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, RST_STREAM, frames
//! of unknown types, and empty DATA frames.
//!
//! Such a frame is cheap to send and costs some work. Each takes one from the connection's credit, which starts at
//! [`REFILL_MAX`] and is refilled up to that over time. Requests and data in either direction add to the credit, up to
//! [`CREDIT_MAX`], because they make well-behaved clients send such frames. A client without credit gets GOAWAY with
//! ENHANCE_YOUR_CALM, as from Envoy and HAProxy, and its connection ends. The clock is read only when the credit is
//! used up.

use std::time::Duration;
use tokio::time::Instant;

/// Initial credit, and the maximum that time refills.
const REFILL_MAX: u32 = 1000;

/// Maximum credit from requests and data: WINDOW_UPDATE frames for 32 MiB in flight to a client that sends two for each
/// 4 KiB.
const CREDIT_MAX: u32 = 16 * 1024;

/// Credit per second.
const PER_SECOND: u32 = 200;

/// Credit per request. Envoy allows 100 PRIORITY frames, which are obsolete.
const PER_REQUEST: u32 = 20;

/// Credit per frame of data from the client.
const DATA_IN: u32 = 2;

/// Credit per 16 KiB of data to the client, which may send WINDOW_UPDATE frames for its stream and for the connection.
/// Envoy allows as many per frame of data.
pub(crate) const DATA_OUT: u32 = 10;

#[derive(Debug)]
pub(crate) struct ControlFrameCredit {
    credit: u32,
    /// Time of the last refill.
    since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameCounts {
    /// Frames that carry no request or data.
    pub(crate) control: u32,
    pub(crate) requests: u32,
    pub(crate) data: u32,
}

impl Default for ControlFrameCredit {
    fn default() -> Self {
        Self { credit: REFILL_MAX, since: None }
    }
}

impl ControlFrameCredit {
    /// Subtracts the received frames from the credit, and adds `given` for sent data. Returns false if the credit is
    /// used up.
    pub(crate) fn spend(&mut self, received: FrameCounts, given: u32) -> bool {
        let for_requests = received.requests.saturating_mul(PER_REQUEST);
        let back = for_requests.saturating_add(received.data.saturating_mul(DATA_IN));
        self.credit = self.credit.saturating_add(back).saturating_add(given).min(CREDIT_MAX);
        if received.control > self.credit {
            let now = Instant::now();
            let passed = self.since.replace(now).map_or(Duration::from_secs(1), |since| now - since);
            let back = passed.as_millis().saturating_mul(PER_SECOND.into()) / 1000;
            let filled = self.credit.saturating_add(u32::try_from(back).unwrap_or(u32::MAX)).min(REFILL_MAX);
            self.credit = self.credit.max(filled);
        }
        let left = self.credit.checked_sub(received.control);
        self.credit = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(control: u32) -> FrameCounts {
        FrameCounts { control, ..FrameCounts::default() }
    }

    /// Returns how many such steps use up the credit.
    fn steps(step: FrameCounts, given: u32) -> usize {
        let mut credit = ControlFrameCredit::default();
        (0..20_000).take_while(|_| credit.spend(step, given)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn control_frames_use_up_the_credit() {
        // The first refill counts as one second.
        assert_eq!(steps(control(1), 0), (REFILL_MAX + PER_SECOND) as usize);
        assert_eq!(steps(FrameCounts { control: PER_REQUEST, requests: 1, data: 0 }, 0), 20_000, "as requests allow");
        assert_eq!(steps(FrameCounts { control: 2, requests: 0, data: 1 }, 0), 20_000, "as uploads allow");
        assert_eq!(steps(control(2), DATA_OUT), 20_000, "as downloads allow");
        assert!(steps(FrameCounts { control: 2 * PER_REQUEST, requests: 1, data: 0 }, 0) < 500);
    }

    /// Goal: credit for data lasts until the client reads and sends its updates, in bursts.
    #[tokio::test(start_paused = true)]
    async fn credit_for_data_lasts_until_the_window_updates() {
        let mut credit = ControlFrameCredit::default();
        for round in 0..100 {
            let windows = 4096 / 16; // A window of 4 MiB, sent before the client reads.
            assert!((0..windows).all(|_| credit.spend(FrameCounts::default(), DATA_OUT)));
            let updates = 2 * 4096 / 4;
            assert!((0..updates).all(|_| credit.spend(control(1), 0)), "round {round}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_refills_the_credit() {
        let mut credit = ControlFrameCredit::default();
        while credit.spend(control(1), 0) {}
        assert!(!credit.spend(control(1), 0));
        for _ in 0..3600 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(credit.spend(control(PER_SECOND), 0));
        }
        assert!(!credit.spend(control(PER_SECOND), 0));
    }
}
