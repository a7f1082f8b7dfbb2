//! Computes the time of the next probe of an address, and the timeouts of a probe.
//!
//! # The rule
//!
//! The next probe follows after a hundredth of the time waited, at least 1 ms and at most 50 ms. So a pod that took T
//! to start is found at most 1 % of T late, or 1 ms, and a pod that never starts costs 20 probes a second. The time
//! waited counts from the moment at which the address became known, failed a request, or had its readiness withdrawn.
//! After its pod is found, a held request needs [`FORWARDING`] to get its response. This time is subtracted from the
//! pause, down to the least pause.
//!
//! All addresses together share a probe budget of 10 000 a second, while a longer pause would be noticeable. If many
//! addresses are waited for, the pause of each is [`SHARE`] times their number. Addresses that are probed every 50 ms
//! do not count, so pods that never start delay no other.
//!
//! The connect timeout of a probe is sixteen round trips, since a new attempt is faster than waiting. The kernel
//! retransmits a lost segment only after a second, and an address whose network is not up yet loses the first segment.
//! If a program restarts at its old address, the first segment from a port in `TIME_WAIT` gets a meaningless reply, and
//! is retransmitted after some 10 ms. A refused connection measures the round trip, too; before the first measurement
//! the timeout is 100 ms. The response timeout is at least four round trips. In case the network is slow, the connect
//! timeout is also at least a tenth of the time waited, or a hundredth after a measurement.

use std::time::Duration;

/// Shortest and longest pause between two probes of one address.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// Divisor of the time waited that yields the pause.
const PAUSE_DIVISOR: u32 = 100;
/// Pause for each address that is waited for; defines the probe budget. A refused probe costs about 50 µs of one core.
const SHARE: Duration = Duration::from_micros(100);
/// Time from the start of a probe that passes to the first byte of the response: the probe's exchange, the grant, and
/// the request's own exchange.
const FORWARDING: Duration = Duration::from_millis(1);
/// Connect timeout in round trips, and the bounds of the result.
const CONNECT_ROUND_TRIPS: u32 = 16;
const CONNECT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(3));
const CONNECT_UNMEASURED: Duration = Duration::from_millis(100);
/// Least response timeout in round trips, whatever the configuration says, and the bound of the result. (Knative's 300
/// ms never wake a pod that is further away than that.)
const ANSWER_ROUND_TRIPS: u32 = 4;
const ANSWER_FAR_MAX: Duration = Duration::from_secs(2);
/// Divisors of the time waited that yield the least connect timeout, with a measured round trip and without.
const CONNECT_DIVISOR: u32 = 100;
const CONNECT_DIVISOR_UNMEASURED: u32 = 10;

/// Timeouts of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Maximum time until the connection is established.
    pub connect: Duration,
    /// Maximum time from then until the response is complete.
    pub answer: Duration,
}

/// Returns the pause before the next probe of an address that has waited this long, if `sharers` addresses are
/// [eager](is_eager).
pub(super) fn pause(waited: Duration, sharers: usize) -> Duration {
    let share = SHARE.saturating_mul(u32::try_from(sharers).unwrap_or(u32::MAX));
    pause_alone(waited).max(share).min(PAUSE.1)
}

/// Returns true if the pause of an address that has waited this long is below the longest pause.
pub(super) fn is_eager(waited: Duration) -> bool {
    pause_alone(waited) < PAUSE.1
}

/// Returns the pause if no other address is waited for.
fn pause_alone(waited: Duration) -> Duration {
    (waited / PAUSE_DIVISOR).saturating_sub(FORWARDING).clamp(PAUSE.0, PAUSE.1)
}

/// Returns the shortest time in which a pod at this distance can be expected to respond.
pub fn min_response_time(round_trip: Duration) -> Duration {
    round_trip.saturating_mul(ANSWER_ROUND_TRIPS).min(ANSWER_FAR_MAX)
}

/// Smoothed connect time, measured on probes that established a connection or were refused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip(Option<Duration>);

impl RoundTrip {
    /// Adds a measurement of a connection or its refusal. It weighs an eighth, as in TCP.
    pub(super) fn measure(&mut self, sample: Duration) {
        self.0 = Some(match self.0 {
            None => sample,
            Some(smooth) => (smooth * 7 + sample) / 8,
        });
    }

    /// Returns the timeouts for a probe of an address that has waited this long.
    pub(super) fn timeouts(self, waited: Duration, answer: Duration) -> Timeouts {
        let connect = match self.0 {
            None => CONNECT_UNMEASURED.max(waited / CONNECT_DIVISOR_UNMEASURED),
            Some(smooth) => smooth.saturating_mul(CONNECT_ROUND_TRIPS).max(waited / CONNECT_DIVISOR),
        };
        let far = self.0.map_or(Duration::ZERO, min_response_time);
        Timeouts { connect: connect.clamp(CONNECT.0, CONNECT.1), answer: answer.max(far) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_pause_is_a_hundredth_of_the_time_waited_less_the_forwarding_time() {
        let rows = [(0, 1), (50, 1), (200, 1), (300, 2), (1_000, 9), (5_000, 49), (5_100, 50), (3_600_000, 50)];
        for (waited, expected) in rows {
            assert_eq!(pause(ms(waited), 1), ms(expected), "{waited} ms");
            assert_eq!(is_eager(ms(waited)), expected < 50, "{waited} ms");
        }
        assert_eq!(pause(ms(250), 1), Duration::from_micros(1500), "not in whole milliseconds");
    }

    #[test]
    fn all_addresses_share_a_budget_of_ten_thousand_probes_a_second() {
        let rows = [(0, 10, 1), (0, 50, 5), (1_000, 50, 9), (1_000, 100, 10), (0, 1_000, 50), (0, usize::MAX, 50)];
        for (waited, sharers, expected) in rows {
            assert_eq!(pause(ms(waited), sharers), ms(expected), "{waited} ms, one of {sharers}");
        }
    }

    #[test]
    fn the_response_timeout_is_at_least_four_round_trips() {
        for (round_trip, expected) in [(1, 300), (75, 300), (200, 800), (2_000, 2_000)] {
            let mut measured = RoundTrip::default();
            measured.measure(ms(round_trip));
            assert_eq!(measured.timeouts(ms(0), ms(300)).answer, ms(expected), "{round_trip} ms");
        }
        assert_eq!(RoundTrip::default().timeouts(ms(0), ms(300)).answer, ms(300), "nothing measured yet");
    }

    #[test]
    fn the_connect_timeout_is_sixteen_round_trips_within_bounds() {
        let mut measured = RoundTrip::default();
        let connect = |round_trip: RoundTrip, waited| round_trip.timeouts(ms(waited), ms(300)).connect;
        assert_eq!(connect(measured, 0), ms(100), "nothing measured yet");
        assert_eq!(connect(measured, 5_000), ms(500), "a long wait allows a slow network");
        measured.measure(Duration::from_micros(50));
        assert_eq!(connect(measured, 0), ms(1), "never shorter than a pause");
        let mut far = RoundTrip::default();
        far.measure(ms(10));
        assert_eq!(connect(far, 0), ms(160));
        let mut smooth = RoundTrip::default();
        [ms(8), ms(16)].into_iter().for_each(|sample| smooth.measure(sample));
        assert_eq!(connect(smooth, 0), ms(144), "16 times (7 × 8 + 16) / 8 ms");
        assert_eq!(connect(measured, 5_000), ms(50), "as the pause");
        assert_eq!(connect(far, 3_600_000), ms(3_000), "by then the kernel has retransmitted twice");
    }
}
