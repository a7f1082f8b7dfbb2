//! Limits reviews of unknown tokens per peer. Pure: time is an argument.
//!
//! Each new token costs a request to the API server, and any client that reaches the port can make up new tokens
//! forever. So each address has [`BURST`] reviews at once and one more each [`PERIOD`]. A successful review is given
//! back, so a hundred activators behind one address are all admitted, one after the other.
//!
//! Addresses do not affect each other: only the address that makes up tokens has to wait. At most [`PEERS_MAX`]
//! addresses are tracked. An address is forgotten once it has its full burst again. Addresses beyond the maximum share
//! one burst.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Reviews at once, enough for some restarts of a peer.
pub(super) const BURST: u32 = 10;
/// Time after which one more review is allowed.
pub(super) const PERIOD: Duration = Duration::from_secs(5);
/// Maximum number of tracked addresses.
pub(super) const PEERS_MAX: usize = 1024;

/// Reviews that each address has used.
#[derive(Debug, Default)]
pub(super) struct ReviewLimiter {
    /// Time at which each address has its full burst again.
    peers: HashMap<IpAddr, Instant>,
    /// Time at which all untracked addresses together have their full burst again.
    rest: Option<Instant>,
}

impl ReviewLimiter {
    /// Takes a review for an address, if it has one left.
    pub(super) fn take(&mut self, from: IpAddr, now: Instant) -> bool {
        let full_at = self.slot(from, now);
        let used = (*full_at).max(now) + PERIOD;
        let admitted = used.duration_since(now) <= PERIOD * BURST;
        if admitted {
            *full_at = used;
        }
        admitted
    }

    /// Gives a review back after it succeeded.
    pub(super) fn give_back(&mut self, from: IpAddr, now: Instant) {
        let full_at = self.slot(from, now);
        *full_at = full_at.checked_sub(PERIOD).unwrap_or(now);
    }

    fn slot(&mut self, from: IpAddr, now: Instant) -> &mut Instant {
        if !self.peers.contains_key(&from) {
            if self.peers.len() >= PEERS_MAX {
                self.peers.retain(|_, full_at| now < *full_at);
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

    /// Takes all reviews that the address has left, and returns their number.
    fn taken(limiter: &mut ReviewLimiter, from: IpAddr, now: Instant) -> usize {
        (0..100).filter(|_| limiter.take(from, now)).count()
    }

    /// Goal: an address gets a burst, then one review each period, and after a long pause no more than a burst again.
    /// Reviews that are given back use up nothing and gain nothing.
    #[tokio::test(start_paused = true)]
    async fn an_address_has_a_burst_and_a_rate_which_successes_do_not_use_up() {
        let (mut limiter, now) = (ReviewLimiter::default(), Instant::now());
        let (peer, successful) = (address(1), address(2));
        assert_eq!(taken(&mut limiter, peer, now), BURST as usize);
        assert_eq!(taken(&mut limiter, peer, now + PERIOD - Duration::from_millis(1)), 0);
        assert_eq!(taken(&mut limiter, peer, now + PERIOD), 1);
        assert_eq!(taken(&mut limiter, peer, now + PERIOD * 4), 3);
        assert_eq!(taken(&mut limiter, peer, now + PERIOD * 1000), BURST as usize);
        for _ in 0..1000 {
            assert!(limiter.take(successful, now));
            limiter.give_back(successful, now);
        }
        assert_eq!(taken(&mut limiter, successful, now), BURST as usize);
    }

    /// Goal: one address does not use up another's reviews, and memory is bounded for any number of addresses.
    /// Addresses beyond the bound share one burst; tracked addresses have their own.
    #[tokio::test(start_paused = true)]
    async fn addresses_do_not_use_up_each_others_reviews() {
        let (mut limiter, now) = (ReviewLimiter::default(), Instant::now());
        assert_eq!(taken(&mut limiter, address(0), now), BURST as usize);
        assert_eq!(taken(&mut limiter, address(1), now), BURST as usize);
        let more: usize = (2..10_000).map(|n| usize::from(limiter.take(address(n), now))).sum();
        assert_eq!(more, PEERS_MAX - 2 + BURST as usize);
        assert_eq!(limiter.peers.len(), PEERS_MAX);
        assert_eq!(taken(&mut limiter, address(5), now), BURST as usize - 1, "a tracked address has its own burst");
        assert!(limiter.take(address(99_999), now + PERIOD * BURST), "idle addresses are forgotten");
        assert!(limiter.peers.len() < PEERS_MAX);
    }
}
