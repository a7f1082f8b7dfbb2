//! How often a peer may have a token reviewed that nobody knows. Pure: time is an argument.
//!
//! Each token that is new costs a request to the API server, and whoever reaches the port can make up new ones for
//! ever. So each address has [`BURST`] reviews at once and one each [`PERIOD`]. A review that turned out good is given
//! back: a hundred activators behind one address are all let in, one after the other.
//!
//! Addresses do not take from each other: one that makes up tokens waits alone. [`PEERS_MAX`] are told apart; what has
//! its burst back is forgotten, and beyond that the rest share one burst.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Reviews at once: a peer that starts again, some times over.
pub(super) const BURST: u32 = 10;
/// Time after which there is one more.
pub(super) const PERIOD: Duration = Duration::from_secs(5);
/// Addresses that are told apart.
pub(super) const PEERS_MAX: usize = 1024;

/// What each address has used.
#[derive(Debug, Default)]
pub(super) struct ReviewLimiter {
    /// When it has its whole burst back.
    peers: HashMap<IpAddr, Instant>,
    /// The same for all that found no place.
    rest: Option<Instant>,
}

impl ReviewLimiter {
    /// Takes a review for an address, if it has one left.
    pub(super) fn take(&mut self, from: IpAddr, now: Instant) -> bool {
        let whole_at = self.slot(from, now);
        let used = (*whole_at).max(now) + PERIOD;
        let admitted = used.duration_since(now) <= PERIOD * BURST;
        if admitted {
            *whole_at = used;
        }
        admitted
    }

    /// A review that was taken turned out good.
    pub(super) fn give_back(&mut self, from: IpAddr, now: Instant) {
        let whole_at = self.slot(from, now);
        *whole_at = whole_at.checked_sub(PERIOD).unwrap_or(now);
    }

    fn slot(&mut self, from: IpAddr, now: Instant) -> &mut Instant {
        if !self.peers.contains_key(&from) {
            if self.peers.len() >= PEERS_MAX {
                self.peers.retain(|_, whole_at| now < *whole_at);
            }
            if self.peers.len() >= PEERS_MAX {
                return self.rest.get_or_insert(now);
            }
        }
        self.peers.entry(from).or_insert(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + n).into()
    }

    fn taken(limiter: &mut ReviewLimiter, from: IpAddr, now: Instant) -> usize {
        (0..100).filter(|_| limiter.take(from, now)).count()
    }

    /// Goal: a burst, then one each period, and no more after a long silence than a burst again.
    #[tokio::test(start_paused = true)]
    async fn a_peer_has_a_burst_and_then_a_rate() {
        let (mut limiter, now, peer) = (ReviewLimiter::default(), Instant::now(), address(1));
        assert_eq!(taken(&mut limiter, peer, now), BURST as usize);
        assert_eq!(taken(&mut limiter, peer, now + PERIOD - Duration::from_millis(1)), 0);
        assert_eq!(taken(&mut limiter, peer, now + PERIOD), 1);
        assert_eq!(taken(&mut limiter, peer, now + PERIOD * 4), 3);
        assert_eq!(taken(&mut limiter, peer, now + PERIOD * 1000), BURST as usize);
    }

    /// Goal: whoever is let in has used nothing up, and does not gain by it either.
    #[tokio::test(start_paused = true)]
    async fn what_turned_out_good_is_given_back() {
        let (mut limiter, now, peer) = (ReviewLimiter::default(), Instant::now(), address(1));
        for _ in 0..1000 {
            assert!(limiter.take(peer, now));
            limiter.give_back(peer, now);
        }
        assert_eq!(taken(&mut limiter, peer, now), BURST as usize);
    }

    /// Goal: one address does not use up another's, and however many there are, what is kept is bounded; strangers
    /// beyond it share one burst, those that are known have their own.
    #[tokio::test(start_paused = true)]
    async fn peers_do_not_take_from_each_other() {
        let (mut limiter, now) = (ReviewLimiter::default(), Instant::now());
        assert_eq!(taken(&mut limiter, address(0), now), BURST as usize);
        assert_eq!(taken(&mut limiter, address(1), now), BURST as usize);
        let more: usize = (2..10_000).map(|n| usize::from(limiter.take(address(n), now))).sum();
        assert_eq!(more, PEERS_MAX - 2 + BURST as usize);
        assert_eq!(limiter.peers.len(), PEERS_MAX);
        assert_eq!(taken(&mut limiter, address(5), now), BURST as usize - 1, "it is told apart");
        assert!(limiter.take(address(99_999), now + PERIOD * BURST), "the silent are forgotten");
        assert!(limiter.peers.len() < PEERS_MAX);
    }
}
