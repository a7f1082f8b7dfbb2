//! Which siblings are in touch, and since when one that is not must have stopped.
//!
//! On each session both sides send a beat every [`BEAT`]. A beat names the instant at which it was sent and repeats the
//! other side's latest one, so a sender knows of an instant up to which the other has certainly heard it. That is the
//! difference between two questions:
//!
//! - [`Peers::heard`]: until when have I heard it? Who *takes over* counts from here.
//! - [`Peers::acknowledged`]: until when has it certainly heard me? Who *must stop* counts from here.
//!
//! The second instant is never later than the other side's first one, whatever the delays, and on whatever clocks. So
//! one that stops [`STOP_AFTER`] after the second has stopped before somebody takes over [`DEAD_AFTER`] after the first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Peer;

/// Time between two beats of a session.
pub const BEAT: Duration = Duration::from_millis(100);
/// Time between two looks at what time decides, while there is something to look at.
pub const TICK: Duration = Duration::from_millis(50);
/// A sibling that has left and was not heard for so long has stopped, and what it ran has ended. A session on which
/// nothing was heard for so long is to be closed.
pub const DEAD_AFTER: Duration = Duration::from_secs(1);
/// An activator that has left and was not acknowledged by whoever may take over for so long stops. The rest up to
/// [`DEAD_AFTER`] is for lists that two activators see at different times.
pub const STOP_AFTER: Duration = Duration::from_millis(500);

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// When it was sent, by the sender's clock.
    pub sent: Duration,
    /// The latest beat of the receiver that the sender had heard, by the receiver's clock.
    pub echo: Option<Duration>,
}

/// All siblings of one activator, whatever the revision.
#[derive(Clone, Debug)]
pub struct Peers {
    epoch: Instant,
    dead_after: Duration,
    peers: BTreeMap<Peer, Contact>,
}

#[derive(Clone, Debug, Default)]
struct Contact {
    connected: bool,
    heard: Option<Instant>,
    /// Its latest beat, for the echo.
    latest: Option<Duration>,
    acknowledged: Option<Instant>,
}

impl Peers {
    /// Knows nobody. `epoch`: beats count from here; no later than now.
    pub fn new(epoch: Instant) -> Self {
        Self { epoch, dead_after: DEAD_AFTER, peers: BTreeMap::new() }
    }

    /// With another bound than [`DEAD_AFTER`]: for those who want to see what it is for.
    #[must_use]
    pub fn with_dead_after(self, dead_after: Duration) -> Self {
        Self { dead_after, ..self }
    }

    /// [`DEAD_AFTER`].
    pub fn dead_after(&self) -> Duration {
        self.dead_after
    }

    /// A session was opened. What former ones proved stays true; its beats are on a clock that may be a new one.
    pub fn connected(&mut self, peer: &Peer, now: Instant) {
        let contact = self.peers.entry(peer.clone()).or_default();
        let acknowledged = contact.acknowledged;
        *contact = Contact { connected: true, heard: Some(now), acknowledged, ..Contact::default() };
    }

    /// The session has ended.
    pub fn disconnected(&mut self, peer: &Peer) {
        if let Some(contact) = self.peers.get_mut(peer) {
            contact.connected = false;
        }
    }

    /// Anything was received on its session.
    pub fn heard_of(&mut self, peer: &Peer, now: Instant) {
        if let Some(contact) = self.peers.get_mut(peer).filter(|contact| contact.connected) {
            contact.heard = Some(now);
        }
    }

    /// A beat was received.
    pub fn received(&mut self, peer: &Peer, beat: Beat, now: Instant) {
        self.heard_of(peer, now);
        let epoch = self.epoch;
        if let Some(contact) = self.peers.get_mut(peer).filter(|contact| contact.connected) {
            contact.latest = contact.latest.max(Some(beat.sent));
            // A number from outside: an echo of a beat that was never sent is worth nothing.
            let echo = beat.echo.and_then(|echo| epoch.checked_add(echo)).filter(|at| *at <= now);
            contact.acknowledged = contact.acknowledged.max(echo);
        }
    }

    /// What to send next on its session.
    pub fn beat(&self, peer: &Peer, now: Instant) -> Beat {
        let echo = self.peers.get(peer).and_then(|contact| contact.latest);
        Beat { sent: now.saturating_duration_since(self.epoch), echo }
    }

    /// Whether there is a session.
    pub fn is_connected(&self, peer: &Peer) -> bool {
        self.peers.get(peer).is_some_and(|contact| contact.connected)
    }

    /// Until when it was heard.
    pub fn heard(&self, peer: &Peer) -> Option<Instant> {
        self.peers.get(peer)?.heard
    }

    /// Until when it has certainly heard this one.
    pub fn acknowledged(&self, peer: &Peer) -> Option<Instant> {
        self.peers.get(peer)?.acknowledged
    }

    /// Whether its session must be closed, since nothing was heard.
    pub fn is_silent(&self, peer: &Peer, now: Instant) -> bool {
        self.heard(peer).is_none_or(|heard| now.saturating_duration_since(heard) >= DEAD_AFTER)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods, reason = "an origin for made-up instants; nothing here waits")]
    fn origin() -> Instant {
        Instant::now()
    }

    /// Goal: the sender of a beat counts as acknowledged from when it sent it, not from when the echo came.
    #[test]
    fn an_echo_proves_the_instant_of_sending() {
        let start = origin();
        let at = |ms| start + Duration::from_millis(ms);
        let (a, b) = (Peer::from("a"), Peer::from("b"));
        let (mut at_a, mut at_b) = (Peers::new(start), Peers::new(at(5)));
        at_a.connected(&b, at(10));
        at_b.connected(&a, at(20));
        assert_eq!(at_a.acknowledged(&b), None);
        let beat = at_a.beat(&b, at(100));
        assert_eq!(beat, Beat { sent: Duration::from_millis(100), echo: None });
        at_b.received(&a, beat, at(300));
        at_a.received(&b, at_b.beat(&a, at(310)), at(700));
        assert_eq!(at_a.acknowledged(&b), Some(at(100)));
        assert_eq!((at_a.heard(&b), at_b.heard(&a)), (Some(at(700)), Some(at(300))));
        assert!(!at_b.is_silent(&a, at(1299)) && at_b.is_silent(&a, at(1300)));
    }

    /// Goal: an echo of what was never sent proves nothing; a new session's beats are on a clock of their own.
    #[test]
    fn echoes_are_checked_and_clocks_may_be_new() {
        let start = origin();
        let b = Peer::from("b");
        let mut peers = Peers::new(start);
        peers.connected(&b, start);
        peers.received(&b, Beat { sent: Duration::ZERO, echo: Some(Duration::from_secs(9)) }, start);
        assert_eq!(peers.acknowledged(&b), None);
        peers.received(&b, Beat { sent: Duration::ZERO, echo: Some(Duration::ZERO) }, start);
        assert_eq!(peers.acknowledged(&b), Some(start));
        peers.received(&b, Beat { sent: Duration::from_secs(70), echo: None }, start);
        assert_eq!(peers.beat(&b, start).echo, Some(Duration::from_secs(70)));
        peers.disconnected(&b);
        assert!(!peers.is_connected(&b));
        peers.connected(&b, start);
        assert!(peers.is_connected(&b));
        assert_eq!((peers.beat(&b, start).echo, peers.acknowledged(&b)), (None, Some(start)));
    }
}
