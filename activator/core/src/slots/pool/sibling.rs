//! What one revision's pool knows of another activator.

use std::collections::VecDeque;
use std::time::Instant;

use crate::slots::{Peer, Peers};

#[derive(Debug)]
pub(super) struct Sibling {
    pub(super) connected: bool,
    pub(super) known_since: Instant,
    /// Since when it is not in the list.
    pub(super) gone_since: Option<Instant>,
    /// Idle slots that it has advertised.
    pub(super) free: u32,
    /// Idle slots that were advertised to it, and when.
    pub(super) told: (u32, Instant),
    /// Idle slots that it may be lent.
    pub(super) lendable: u32,
    /// Own requests' questions to it.
    pub(super) asked: VecDeque<u64>,
    /// It may not have heard those, and when all of them were asked again last.
    pub(super) unheard: (bool, Instant),
    /// Its requests' questions: since when each waits, and its number.
    pub(super) asks: VecDeque<(Instant, u64)>,
}

impl Sibling {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            connected: false,
            known_since: now,
            gone_since: None,
            free: 0,
            told: (0, now),
            lendable: 0,
            asked: VecDeque::new(),
            unheard: (false, now),
            asks: VecDeque::new(),
        }
    }

    /// Whether it has left and was not heard for so long that it has stopped wherever it had to.
    pub(super) fn is_dead(&self, peer: &Peer, peers: &Peers, now: Instant) -> bool {
        let since = |gone: Instant| gone.max(self.known_since).max(peers.heard(peer).unwrap_or(gone));
        let silent = |gone| now.saturating_duration_since(since(gone)) >= peers.dead_after();
        !self.connected && self.gone_since.is_some_and(silent)
    }
}
