//! When an address is probed next, and how long a probe may take.
//!
//! # The rule
//!
//! The next probe comes after a hundredth of the time waited, no sooner than 1 ms, no later than 50 ms. So a pod that
//! took T to start is found at most 1 % of T late, or 1 ms, and one that never starts costs 20 probes a second. The
//! time waited counts from when the address became known, or was last believed. What a held request takes once its pod
//! is found ([`FORWARDING`]) is part of the pause: it is taken off beforehand, down to the least pause.
//!
//! All addresses together share a probe budget of 10 000 a second, for as long as a longer pause can be felt: where
//! many are waited for at once, each one's pause is [`SHARE`] for each of them. Those that are asked every 50 ms do not
//! count, so that pods that never start delay nobody.
//!
//! A probe's connection is given up after sixteen round trips, since dialling again is faster: a segment that was lost
//! (an address whose network is not up yet swallows the first) is repeated by the kernel only after a second. And where
//! a program starts again at its old address, a first segment from a port that its former self remembers (`TIME_WAIT`)
//! is answered with what means nothing here, and repeated after some 10 ms. Whoever refuses a connection has measured
//! the round trip; before that, 100 ms. The answer has four round trips in any case. An address that has waited long
//! gets longer, in case the network is slow. The shell lets one connect that was given up go on beside the next.

use std::time::Duration;

/// Shortest and longest pause between two probes of one address.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// The part of the time waited that is the pause.
const PAUSE_DIVISOR: u32 = 100;
/// The probe budget: the pause for each address that is waited for. A refused probe costs some 50 µs of one core.
const SHARE: Duration = Duration::from_micros(100);
/// From a probe that will pass to the first byte of the answer: its exchange, a grant, the request's own.
const FORWARDING: Duration = Duration::from_millis(1);
/// Round trips that a connection may take, and the bounds of what comes out.
const CONNECT_ROUND_TRIPS: u32 = 16;
const CONNECT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));
const CONNECT_UNMEASURED: Duration = Duration::from_millis(100);
/// Round trips that an answer is granted whatever the configuration says (Knative's 300 ms never wake a pod that is
/// further away than that), and the bound of what comes out.
const ANSWER_ROUND_TRIPS: u32 = 4;
const ANSWER_FAR_MAX: Duration = Duration::from_secs(2);
/// The part of the time waited that a connection may take in any case, if a round trip was measured and if not.
const CONNECT_DIVISOR: u32 = 100;
const CONNECT_DIVISOR_UNMEASURED: u32 = 10;

/// How long one probe may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands.
    pub connect: Duration,
    /// From then until the answer is complete.
    pub answer: Duration,
}

/// The pause before the next probe of an address that has waited so long, one of so many that are [eager](is_eager).
pub(super) fn pause(waited: Duration, sharers: usize) -> Duration {
    let share = SHARE.saturating_mul(u32::try_from(sharers).unwrap_or(u32::MAX));
    alone(waited).max(share).min(PAUSE.1)
}

/// Whether an address that has waited so long has any pause but the longest.
pub(super) fn is_eager(waited: Duration) -> bool {
    alone(waited) < PAUSE.1
}

/// The pause if no other address is waited for.
fn alone(waited: Duration) -> Duration {
    (waited / PAUSE_DIVISOR).saturating_sub(FORWARDING).clamp(PAUSE.0, PAUSE.1)
}

/// Shortest time in which a pod so far away can be expected to answer.
pub fn answer_min(round_trip: Duration) -> Duration {
    round_trip.saturating_mul(ANSWER_ROUND_TRIPS).min(ANSWER_FAR_MAX)
}

/// The smoothed time that a connection takes, measured on probes that got one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip(Option<Duration>);

impl RoundTrip {
    /// One more measurement: of a connection or its refusal. Weighs an eighth, as TCP's own.
    pub(super) fn measure(&mut self, sample: Duration) {
        self.0 = Some(match self.0 {
            None => sample,
            Some(smooth) => (smooth * 7 + sample) / 8,
        });
    }

    /// For a probe of an address that has waited so long.
    pub(super) fn timeouts(self, waited: Duration, answer: Duration) -> Timeouts {
        let connect = match self.0 {
            None => CONNECT_UNMEASURED.max(waited / CONNECT_DIVISOR_UNMEASURED),
            Some(smooth) => smooth.saturating_mul(CONNECT_ROUND_TRIPS).max(waited / CONNECT_DIVISOR),
        };
        let far = self.0.map_or(Duration::ZERO, answer_min);
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
    fn a_held_request_is_answered_a_hundredth_of_the_time_waited_late_at_most() {
        let rows = [(0, 1), (50, 1), (200, 1), (300, 2), (1_000, 9), (5_000, 49), (5_100, 50), (3_600_000, 50)];
        for (waited, expected) in rows {
            assert_eq!(pause(ms(waited), 1), ms(expected), "{waited} ms");
            assert_eq!(is_eager(ms(waited)), expected < 50, "{waited} ms");
        }
        assert_eq!(pause(ms(250), 1), Duration::from_micros(1500), "not in whole milliseconds");
    }

    #[test]
    fn all_together_are_asked_ten_thousand_times_a_second() {
        let rows = [(0, 10, 1), (0, 50, 5), (1_000, 50, 9), (1_000, 100, 10), (0, 1_000, 50), (0, usize::MAX, 50)];
        for (waited, sharers, expected) in rows {
            assert_eq!(pause(ms(waited), sharers), ms(expected), "{waited} ms, one of {sharers}");
        }
    }

    #[test]
    fn a_far_pods_answer_is_given_some_round_trips_too() {
        for (round_trip, expected) in [(1, 300), (75, 300), (200, 800), (2_000, 2_000)] {
            let mut measured = RoundTrip::default();
            measured.measure(ms(round_trip));
            assert_eq!(measured.timeouts(ms(0), ms(300)).answer, ms(expected), "{round_trip} ms");
        }
        assert_eq!(RoundTrip::default().timeouts(ms(0), ms(300)).answer, ms(300), "nothing measured yet");
    }

    #[test]
    fn a_connection_is_given_some_round_trips() {
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
        assert_eq!(connect(far, 3_600_000), ms(1_000), "by then the kernel has repeated itself");
    }
}
