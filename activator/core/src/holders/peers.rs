//! Tracks contact with the siblings, and the times that prove when a sibling without contact has stopped.
//!
//! On each session both sides send a beat every [`BEAT`]. A beat contains the time at which it was sent and repeats the
//! other side's latest beat. So a sender knows a time up to which the other side has certainly received its beats.
//! There are two times:
//!
//! - [`Peers::last_received`]: the last time at which this activator received anything from the sibling. A *takeover*
//!   counts from here.
//! - [`Peers::acknowledged`]: the last time at which this activator sent something that the sibling certainly received.
//!   The duty to *stop* counts from here.
//!
//! The second time is never later than the first time at the other side, whatever the delays and clocks. So an
//! activator that stops [`STOP_AFTER`] after the second time has stopped before another takes over [`DEAD_AFTER`] after
//! the first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Peer;

/// Time between two beats of a session.
pub const BEAT: Duration = Duration::from_millis(100);
/// Time between two ticks, while a decision depends on the passing of time.
pub const TICK: Duration = Duration::from_millis(50);
/// Time of silence after which a sibling that has left the list has stopped, and its requests have ended. A session on
/// which nothing was received for this time must be closed.
pub const DEAD_AFTER: Duration = Duration::from_secs(1);
/// Time without acknowledgment by a possible successor after which an activator that has left the list stops. The rest
/// up to [`DEAD_AFTER`] allows for lists that two activators observe at different times.
pub const STOP_AFTER: Duration = Duration::from_millis(500);

/// Sign of life.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Beat {
    /// Time of sending in microseconds, by the sender's clock.
    #[prost(uint64, tag = "1")]
    pub sent_us: u64,
    /// Latest beat of the receiver that had reached the sender, by the receiver's clock.
    #[prost(uint64, optional, tag = "2")]
    pub echo_us: Option<u64>,
}

/// Contact with all siblings of one activator, for all revisions.
#[derive(Clone, Debug)]
pub struct Peers {
    epoch: Instant,
    /// Bound of silence, by default [`DEAD_AFTER`].
    pub(super) dead_after: Duration,
    peers: BTreeMap<Peer, Contact>,
}

#[derive(Clone, Debug, Default)]
struct Contact {
    connected: bool,
    last_received: Option<Instant>,
    /// Latest beat of the sibling, for the echo.
    latest: Option<u64>,
    acknowledged: Option<Instant>,
}

impl Peers {
    /// Creates an empty set. Beats are timed from `epoch`, which must not be later than now.
    pub fn new(epoch: Instant) -> Self {
        Self { epoch, dead_after: DEAD_AFTER, peers: BTreeMap::new() }
    }

    /// Replaces the bound [`DEAD_AFTER`], for tests that show its purpose.
    #[must_use]
    pub fn with_dead_after(self, dead_after: Duration) -> Self {
        Self { dead_after, ..self }
    }

    /// Records that a session was opened. Facts proven by former sessions stay true; the beats of this session may use
    /// a new clock.
    pub fn connected(&mut self, peer: &Peer, now: Instant) {
        let contact = self.peers.entry(*peer).or_default();
        let acknowledged = contact.acknowledged;
        *contact = Contact { connected: true, last_received: Some(now), acknowledged, ..Contact::default() };
    }

    /// Records that the session has ended.
    pub fn disconnected(&mut self, peer: &Peer) {
        if let Some(contact) = self.peers.get_mut(peer) {
            contact.connected = false;
        }
    }

    /// Records that anything was received on the session.
    pub fn record_received(&mut self, peer: &Peer, now: Instant) {
        if let Some(contact) = self.peers.get_mut(peer).filter(|contact| contact.connected) {
            contact.last_received = Some(now);
        }
    }

    /// Records a received beat.
    pub fn record_beat(&mut self, peer: &Peer, beat: Beat, now: Instant) {
        self.record_received(peer, now);
        let epoch = self.epoch;
        if let Some(contact) = self.peers.get_mut(peer).filter(|contact| contact.connected) {
            contact.latest = contact.latest.max(Some(beat.sent_us));
            // Untrusted number: ignore an echo of a beat that was never sent.
            let echo =
                beat.echo_us.and_then(|echo| epoch.checked_add(Duration::from_micros(echo))).filter(|at| *at <= now);
            contact.acknowledged = contact.acknowledged.max(echo);
        }
    }

    /// Returns the next beat to send on the session.
    pub fn beat(&self, peer: &Peer, now: Instant) -> Beat {
        let echo_us = self.peers.get(peer).and_then(|contact| contact.latest);
        let sent = now.saturating_duration_since(self.epoch).as_micros();
        Beat { sent_us: u64::try_from(sent).unwrap_or(u64::MAX), echo_us }
    }

    /// Returns the last time at which anything was received from the sibling.
    pub fn last_received(&self, peer: &Peer) -> Option<Instant> {
        self.peers.get(peer)?.last_received
    }

    /// Returns the last time of sending that the sibling has acknowledged.
    pub fn acknowledged(&self, peer: &Peer) -> Option<Instant> {
        self.peers.get(peer)?.acknowledged
    }

    /// Returns true if the session must be closed because nothing was received.
    pub fn is_silent(&self, peer: &Peer, now: Instant) -> bool {
        self.last_received(peer).is_none_or(|last_received| now.saturating_duration_since(last_received) >= DEAD_AFTER)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::origin;

    /// Goal: the sender of a beat counts as acknowledged at the time of sending, not when the echo arrives.
    #[test]
    fn an_echo_proves_the_time_of_sending() {
        let start = origin();
        let at = |ms| start + Duration::from_millis(ms);
        let (a, b) = (Peer::from([10, 1, 0, 1]), Peer::from([10, 1, 0, 2]));
        let (mut at_a, mut at_b) = (Peers::new(start), Peers::new(at(5)));
        at_a.connected(&b, at(10));
        at_b.connected(&a, at(20));
        assert_eq!(at_a.acknowledged(&b), None);
        let beat = at_a.beat(&b, at(100));
        assert_eq!(beat, Beat { sent_us: 100_000, echo_us: None });
        at_b.record_beat(&a, beat, at(300));
        at_a.record_beat(&b, at_b.beat(&a, at(310)), at(700));
        assert_eq!(at_a.acknowledged(&b), Some(at(100)));
        assert_eq!((at_a.last_received(&b), at_b.last_received(&a)), (Some(at(700)), Some(at(300))));
        assert!(!at_b.is_silent(&a, at(1299)) && at_b.is_silent(&a, at(1300)));
    }

    /// Goal: an echo of a beat that was never sent proves nothing, and a new session's beats use their own clock.
    #[test]
    fn echoes_are_checked_and_clocks_may_be_new() {
        let start = origin();
        let b = Peer::from([10, 1, 0, 2]);
        let mut peers = Peers::new(start);
        peers.connected(&b, start);
        peers.record_beat(&b, Beat { sent_us: 0, echo_us: Some(9_000_000) }, start);
        assert_eq!(peers.acknowledged(&b), None);
        peers.record_beat(&b, Beat { sent_us: 0, echo_us: Some(0) }, start);
        assert_eq!(peers.acknowledged(&b), Some(start));
        peers.record_beat(&b, Beat { sent_us: 70_000_000, echo_us: None }, start);
        assert_eq!(peers.beat(&b, start).echo_us, Some(70_000_000));
        peers.disconnected(&b);
        assert!(!peers.peers[&b].connected);
        peers.connected(&b, start);
        assert!(peers.peers[&b].connected);
        assert_eq!((peers.beat(&b, start).echo_us, peers.acknowledged(&b)), (None, Some(start)));
    }
}
