//! Judges the silence of a connection, as evidence about its pod.
//!
//! A pod's kernel reacts to packets within a round trip, however slow the pod's program is. It does so even if the
//! program reads nothing: then it reports that it has no room. So the duration of a response and the time that bytes
//! wait to be read do not matter. Only the time without any reaction to sent bytes counts.
//!
//! | no reaction for | consequence |
//! |---|---|
//! | 200 ms, or two round trips | [`Judgement::Doubtful`]: the pod gets no new requests while its kernel is checked |
//! | 500 ms, or four round trips ([`silence_max`]) | [`Judgement::Silent`]: the connection is given up |
//!
//! # Cost
//!
//! The kernel is queried only for waiting connections: those with writes that are not known to be acknowledged, and
//! without reads since the last look. An idle connection, or one that receives, costs two loads.
//!
//! # Edge cases
//!
//! - While a pod has no room, our kernel sends window probes at growing intervals (up to two minutes). If the pod
//!   vanishes then, it is noticed when two probes are unanswered. A single one may be unanswered, because Linux answers
//!   at most every 500 ms (`tcp_invalid_ratelimit`).
//! - Bytes that were dropped for lack of room are retransmitted at growing intervals too, each with a reaction.
//! - Our FIN is sent and acknowledged like bytes, but the kernel does not report when. Its silence begins with the
//!   first look at which it alone is unacknowledged. A pod without room may drop it and say so: then its silence begins
//!   with the next retransmission.

use crate::tcp::state::TcpState;
use std::time::Duration;
use tokio::time::Instant;

/// Minimum silence that makes a pod doubtful: the kernel's minimum retransmission timeout.
const DOUBT_MIN: Duration = Duration::from_millis(200);

/// Minimum silence after a keep-alive probe that makes a pod doubtful, if a connect was unanswered too.
const DOUBT_CLOSELY: Duration = Duration::from_millis(80);

/// Tolerance for the kernel's clock, and for the time from the start of a look to its system call.
const CLOCK: Duration = Duration::from_millis(10);

/// Number of round trips without an acknowledgement before the pod is doubtful.
const DOUBT_ROUND_TRIPS: u32 = 2;

/// Bounds of [`silence_max`]. The upper one is for round trips that were measured incorrectly.
const SILENCE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// Number of round trips for which a pod's kernel may be silent.
const SILENCE_ROUND_TRIPS: u32 = 4;

/// Returns the maximum silence of a pod's kernel for this round trip.
pub(crate) fn silence_max(round_trip: Duration) -> Duration {
    round_trip.saturating_mul(SILENCE_ROUND_TRIPS).clamp(SILENCE.0, SILENCE.1)
}

/// Returns the silence after which a pod is doubtful.
pub(crate) fn doubt_after(round_trip: Duration) -> Duration {
    DOUBT_MIN.max(round_trip.saturating_mul(DOUBT_ROUND_TRIPS))
}

/// Result of a look at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Fine,
    /// The pod may be gone.
    Doubtful,
    /// The connection will not recover.
    Silent,
}

/// State of a connection between two looks.
#[derive(Debug, Default)]
pub(crate) struct SilenceDetector {
    /// Number of writes when all of them were last known to be acknowledged.
    settled: u32,
    /// Number of reads at the last look.
    reads: u32,
    /// Start of the current silence.
    silent_since: Option<Instant>,
    /// Time of the last look without new reads, or of the first look.
    last_look: Option<Instant>,
    /// Number of retransmissions when the pod last reacted while only our FIN was unacknowledged.
    fin_reaction_retransmits: Option<u32>,
}

impl SilenceDetector {
    /// Judges a connection with these counts of writes and reads. `state` queries the kernel. `closely` is set if a
    /// connect to the same pod has just been unanswered, so that the first keep-alive probe counts.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        (writes, reads): (u32, u32),
        closely: bool,
        state: impl FnOnce() -> Option<TcpState>,
    ) -> Judgement {
        if std::mem::replace(&mut self.reads, reads) != reads {
            self.silent_since = None;
            self.last_look.get_or_insert(now);
            return Judgement::Fine; // The next look records the reaction.
        }
        let last_look = self.last_look.replace(now);
        if self.is_settled(writes) && !closely {
            self.silent_since = None;
            return Judgement::Fine;
        }
        let Some(state) = state() else { return Judgement::Fine };
        if !state.unacknowledged && !state.unsent {
            self.settled = writes;
        }
        let ago = |length: Duration| now.checked_sub(length).unwrap_or(now);
        let (last_ack_at, is_unanswered) = (ago(state.last_ack_ago), lacks_reaction(&state));
        let keepalive = closely && state.probes > 0 && !state.unsent;
        if !keepalive && !is_unanswered && !self.fin_lacks_reaction(last_look, last_ack_at, &state) {
            self.silent_since = None;
            return Judgement::Fine;
        }
        let since = match self.silent_since {
            Some(since) if since >= last_ack_at => since,
            _ if state.probes > 0 || state.stuck || !is_unanswered => now, // The start is unknown.
            _ => ago(state.sent_ago),
        };
        self.silent_since = Some(since);
        let silent = now.saturating_duration_since(since);
        let doubt = if keepalive { DOUBT_CLOSELY } else { DOUBT_MIN };
        if silent >= silence_max(state.round_trip) {
            Judgement::Silent
        } else if silent >= doubt.max(state.round_trip.saturating_mul(DOUBT_ROUND_TRIPS)) {
            Judgement::Doubtful
        } else {
            Judgement::Fine
        }
    }

    /// Reports whether all of `writes` writes are known to be acknowledged.
    pub(crate) fn is_settled(&self, writes: u32) -> bool {
        writes == self.settled
    }

    /// Reports whether only our FIN is unacknowledged, and the pod has not reacted since that was noticed, or since the
    /// FIN was retransmitted. `last_ack_at` is the time of the last reaction.
    fn fin_lacks_reaction(&mut self, last_look: Option<Instant>, last_ack_at: Instant, state: &TcpState) -> bool {
        if !state.only_fin_unacked {
            self.fin_reaction_retransmits = None;
            return false;
        }
        if last_look.is_some_and(|last| last_ack_at + CLOCK > last) {
            self.fin_reaction_retransmits = Some(state.retransmits); // It is unknown which of the two came first.
            return false;
        }
        let is_older = self.silent_since.is_some_and(|since| since >= last_ack_at);
        is_older || self.fin_reaction_retransmits.is_none_or(|retransmits| state.retransmits > retransmits)
    }
}

/// Reports whether the pod has not reacted since the latest bytes or probe.
///
/// A kernel without room drops bytes and reports that. They are retransmitted at growing intervals, each with a
/// reaction. The clock is too coarse to order two events at the same time. Then a first transmission counts as later
/// than the reaction, because an acknowledgement of it ends the silence anyway. A retransmission counts as earlier.
fn lacks_reaction(state: &TcpState) -> bool {
    let after = if state.repeated { state.last_ack_ago > state.sent_ago } else { state.last_ack_ago >= state.sent_ago };
    // The kernel does not report when a FIN was sent, so `fin_lacks_reaction` handles a FIN alone.
    state.probes > 1 || state.stuck || (state.unacknowledged && !state.only_fin_unacked && after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Judgement::{Doubtful, Fine, Silent};

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Returns a state with bytes sent once, `sent_ago` ms ago, without a reaction.
    fn silent(sent_ago: u64, round_trip: u64) -> TcpState {
        TcpState {
            unacknowledged: true,
            sent_ago: ms(sent_ago),
            last_ack_ago: ms(5_000),
            round_trip: ms(round_trip),
            ..TcpState::default()
        }
    }

    /// Makes a series of looks: time in milliseconds, counts of writes and reads, kernel state, and expected judgement.
    fn looks(rows: &[(u64, (u32, u32), TcpState, Judgement)]) {
        let (start, mut detector) = (Instant::now(), SilenceDetector::default());
        for (at, counts, state, expected) in rows {
            assert_eq!(detector.judge(start + ms(*at), *counts, false, || Some(*state)), *expected, "at {at} ms");
        }
    }

    #[test]
    fn silence_begins_with_the_first_unacknowledged_bytes() {
        looks(&[
            (1000, (1, 0), silent(70, 1), Fine),
            (1100, (1, 0), silent(170, 1), Fine),
            (1200, (2, 0), silent(10, 1), Doubtful), // More was sent, but the silence began with the first bytes.
            (1400, (2, 0), TcpState { repeated: true, ..silent(20, 1) }, Doubtful),
            (1430, (2, 0), silent(50, 1), Silent),
        ]);
    }

    #[test]
    fn any_reaction_ends_a_silence() {
        let acked = |ago| TcpState { last_ack_ago: ms(ago), ..silent(290, 1) };
        looks(&[
            (1000, (1, 0), silent(190, 1), Fine),
            (1100, (1, 0), acked(20), Fine),           // Another acknowledgement arrived.
            (1300, (1, 1), silent(480, 1), Fine),      // A response arrived.
            (1500, (1, 1), TcpState::default(), Fine), // Everything is acknowledged.
            (1900, (2, 1), silent(100, 1), Fine),
            (2100, (2, 1), silent(300, 1), Doubtful),
        ]);
    }

    #[test]
    fn a_pod_without_room_is_not_silent() {
        // Bytes are dropped and retransmitted at growing intervals, each with an immediate reaction.
        let dropped = |ago| TcpState { repeated: true, last_ack_ago: ms(ago), ..silent(ago, 1) };
        let probed = TcpState { probes: 2, unsent: true, last_ack_ago: ms(5_000), ..TcpState::default() };
        let full = TcpState { probes: 1, ..probed };
        let no_way = TcpState { stuck: true, ..full };
        looks(&[
            (1000, (9, 0), dropped(0), Fine),
            (1300, (9, 0), dropped(300), Fine),
            (1900, (9, 0), dropped(900), Fine),
            (2000, (9, 0), full, Fine),
            (4000, (9, 0), full, Fine),
            (4100, (9, 0), probed, Fine), // The second unanswered window probe counts.
            (4300, (9, 0), probed, Doubtful),
            (4600, (9, 0), probed, Silent),
            (5000, (9, 0), full, Fine),
            (5100, (9, 0), no_way, Fine), // The pod has room, but nothing leaves.
            (5300, (9, 0), no_way, Doubtful),
        ]);
    }

    /// Goal: an unacknowledged FIN is a silence, although the last bytes were acknowledged long ago. Bytes before it
    /// that are dropped for lack of room, each with a reaction, are not.
    #[test]
    fn an_unacknowledged_fin_is_a_silence() {
        let end = TcpState { unacknowledged: true, only_fin_unacked: true, sent_ago: ms(5_010), ..TcpState::default() };
        let silent = TcpState { last_ack_ago: ms(5_000), ..end };
        let again = TcpState { repeated: true, ..silent };
        let acked = |ago, retransmits| TcpState { last_ack_ago: ms(ago), retransmits, ..again };
        // The last bytes were acknowledged at once, long ago.
        let just = TcpState { sent_ago: ms(2_000), last_ack_ago: ms(2_000), ..end };
        looks(&[(1000, (2, 0), just, Fine), (1190, (2, 0), just, Fine), (1200, (2, 0), TcpState::default(), Fine)]);
        looks(&[
            (1000, (2, 0), again, Fine), // Noticed late.
            (1200, (2, 0), again, Doubtful),
            (1300, (2, 0), acked(20, 1), Fine), // The peer has no room for it.
            (1400, (2, 0), acked(120, 1), Fine),
            (1900, (2, 0), acked(620, 1), Fine),
            (2000, (2, 0), acked(20, 2), Fine), // It was retransmitted, with a reaction.
            (2100, (2, 0), acked(120, 2), Fine),
            (3500, (2, 0), acked(1520, 3), Fine), // This time there is no reaction.
            (3700, (2, 0), acked(1720, 3), Doubtful),
            (4000, (2, 0), acked(2020, 3), Silent),
        ]);
        looks(&[
            (1000, (2, 1), again, Fine), // The peer sends, and has no room.
            (1100, (2, 2), again, Fine),
            (1200, (2, 2), acked(110, 2), Fine),
            (1700, (2, 2), acked(610, 2), Fine),
            (1800, (2, 2), acked(105, 3), Fine), // The reaction came as the last look began.
            (2400, (2, 2), acked(705, 3), Fine),
        ]);
        let dropped = |ago| TcpState { only_fin_unacked: false, sent_ago: ms(ago), ..acked(ago, 1) };
        looks(&[
            (1000, (2, 0), TcpState { repeated: false, last_ack_ago: ms(45), ..dropped(50) }, Fine),
            (1300, (2, 0), dropped(90), Fine), // Retransmitted, with a reaction.
            (1700, (2, 0), dropped(490), Fine),
            (2400, (2, 0), dropped(1190), Fine),
        ]);
    }

    #[test]
    fn the_first_keep_alive_probe_counts_after_an_unanswered_connect() {
        let (start, mut detector) = (Instant::now(), SilenceDetector::default());
        let idle = TcpState { last_ack_ago: ms(1_000), ..TcpState::default() };
        let probed = TcpState { probes: 1, ..idle };
        let mut look = |at, closely, state| detector.judge(start + ms(at), (1, 0), closely, || Some(state));
        assert_eq!(look(0, false, idle), Fine);
        assert_eq!(look(1_000, true, idle), Fine, "nothing waits for an answer");
        assert_eq!(look(1_100, true, probed), Fine);
        assert_eq!(look(1_200, true, probed), Doubtful);
        assert_eq!(look(1_300, false, probed), Fine, "keep-alive has its own bound");
    }

    #[test]
    fn the_limits_grow_with_the_round_trip() {
        looks(&[
            (1000, (1, 0), silent(0, 300), Fine),
            (1500, (1, 0), silent(500, 300), Fine),
            (1600, (1, 0), silent(600, 300), Doubtful),
            (2200, (1, 0), silent(1200, 300), Silent),
        ]);
        for (round_trip, expected) in [(0, 500), (125, 500), (200, 800), (3_000, 5_000)] {
            assert_eq!(silence_max(ms(round_trip)), ms(expected), "{round_trip} ms");
        }
    }

    #[test]
    fn the_kernel_is_queried_only_for_waiting_connections() {
        let (start, mut detector) = (Instant::now(), SilenceDetector::default());
        let never = || panic!("asked");
        assert_eq!(detector.judge(start, (0, 0), false, never), Fine, "nothing was written");
        assert_eq!(detector.judge(start, (1, 1), false, never), Fine, "it answers");
        assert_eq!(detector.judge(start, (1, 1), false, || Some(TcpState::default())), Fine);
        assert_eq!(detector.judge(start, (1, 1), false, never), Fine, "only the response is pending");
        let unsent = TcpState { unsent: true, ..TcpState::default() };
        assert_eq!(detector.judge(start, (2, 1), false, || Some(unsent)), Fine, "the peer has no room, and says so");
        let mut is_queried = false;
        detector.judge(start, (2, 1), false, || Some(unsent).inspect(|_| is_queried = true));
        assert!(is_queried, "unsent bytes are looked at again");
    }
}
