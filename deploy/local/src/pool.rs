//! Allocates the addresses of a range to pods and Services, each to one owner at a time.
//!
//! A released address is reused as late as possible. A client that still uses the address of a former owner then finds
//! no listener instead of a different program. The first and the last address of a range are never allocated.
//!
//! A [`Range`] has IPv4 addresses for pods or Services.

use anyhow::{Context as _, ensure};
use ipnet::Ipv4Net;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;

/// Allocates the addresses of a range. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    range: Range,
    state: Arc<Mutex<PoolState>>,
}

#[derive(Debug)]
struct PoolState {
    taken: HashSet<Ipv4Addr>,
    /// Index of the address to try next.
    next: u32,
}

/// An allocated address. Dropping it releases the address.
#[derive(Debug)]
pub(crate) struct Allocation {
    pool: Pool,
    address: Ipv4Addr,
    is_permanent: bool,
}

impl Pool {
    /// Creates a pool that never allocates the `reserved` addresses.
    pub(crate) fn new(range: Range, reserved: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        let mut taken: HashSet<Ipv4Addr> = reserved.into_iter().filter(|address| range.contains(*address)).collect();
        taken.extend([range.nth(0), range.nth(range.size() - 1)]);
        Self { range, state: Arc::new(Mutex::new(PoolState { taken, next: 1 })) }
    }

    pub(crate) fn free_count(&self) -> usize {
        usize::try_from(self.range.size()).unwrap_or(usize::MAX).saturating_sub(self.state.lock().taken.len())
    }

    /// Allocates a free address, or returns `None` if all are in use.
    pub(crate) fn allocate(&self) -> Option<Allocation> {
        let mut state = self.state.lock();
        for _ in 0..self.range.size() {
            let address = self.range.nth(state.next);
            state.next = (state.next + 1) % self.range.size();
            if state.taken.insert(address) {
                return Some(Allocation { pool: self.clone(), address, is_permanent: false });
            }
        }
        None
    }

    /// Allocates this address, or returns `None` if it is in use or outside the range.
    pub(crate) fn allocate_exact(&self, address: Ipv4Addr) -> Option<Allocation> {
        let is_free = self.range.contains(address) && self.state.lock().taken.insert(address);
        is_free.then(|| Allocation { pool: self.clone(), address, is_permanent: false })
    }

    /// Releases an address that [`Allocation::keep`] made permanent.
    pub(crate) fn release(&self, address: Ipv4Addr) {
        self.state.lock().taken.remove(&address);
    }
}

impl Allocation {
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Keeps the address allocated until [`Pool::release`].
    pub(crate) fn keep(mut self) {
        self.is_permanent = true;
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if !self.is_permanent {
            self.pool.release(self.address);
        }
    }
}

/// Range of IPv4 addresses, written `127.8.0.0/17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range(Ipv4Net);

impl Range {
    /// Returns the first address.
    pub fn first(self) -> Ipv4Addr {
        self.0.network()
    }

    /// Returns the address with this index, counted from 0. The index wraps around at the end of the range.
    pub(crate) fn nth(self, index: u32) -> Ipv4Addr {
        self.first() | Ipv4Addr::from_bits(index & (self.size() - 1))
    }

    /// Returns the number of addresses.
    pub fn size(self) -> u32 {
        1 << (32 - self.0.prefix_len())
    }

    /// Reports whether the range contains `address`.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        self.0.contains(&address)
    }

    /// Reports whether the range overlaps 127.0.0.0/8. A real API server rejects such pod addresses in an
    /// EndpointSlice.
    pub fn is_loopback(self) -> bool {
        self.first().is_loopback() || self.0.broadcast().is_loopback()
    }
}

impl FromStr for Range {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts = text.split_once('/').and_then(|(address, prefix)| address.parse().ok().zip(prefix.parse().ok()));
        let (address, prefix) = parts.with_context(|| {
            format!(
                "{text:?} is not a range of addresses: write an IPv4 address and a prefix length, like 127.8.0.0/17"
            )
        })?;
        let net = Ipv4Net::new(address, prefix).ok().filter(|net| (1..=28).contains(&net.prefix_len()));
        let net = net.with_context(|| {
            format!("the prefix length of {text:?} must lie between 1 and 28, so that there is room for some pods")
        })?;
        ensure!(
            net.addr() == net.network(),
            "{text:?} has address bits beyond its prefix length; the range begins at {}",
            net.network()
        );
        Ok(Range(net))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unique_and_released_ones_are_reused_last() {
        let range: Range = "127.8.0.0/28".parse().expect("valid");
        let pool = Pool::new(range, [[127, 8, 0, 4].into(), [127, 8, 0, 9].into()]);
        let free = pool.free_count();
        let mut allocated: Vec<_> = std::iter::from_fn(|| pool.allocate()).collect();
        let addresses: HashSet<_> = allocated.iter().map(Allocation::address).collect();
        assert_eq!((addresses.len(), free), (12, 12), "16 without the first, the last and the reserved ones");
        assert!(addresses.iter().all(|a| range.contains(*a)));
        let (first, second) = (allocated.remove(0), allocated.remove(0));
        let (one, two) = (first.address(), second.address());
        drop(first);
        assert_eq!(pool.allocate().map(|a| a.address()), Some(one), "the only free one");
        drop(second);
        assert_eq!(pool.allocate().map(|a| a.address()), Some(two), "not the one just released");
    }

    #[test]
    fn an_invalid_range_is_rejected_with_the_rule() {
        let range: Range = "127.8.0.0/17".parse().expect("valid");
        assert_eq!((range.first(), range.size()), ([127, 8, 0, 0].into(), 32768));
        let rows = [
            (&["127.8.0.0", "x/8", "127.8.0.0/x"][..], "is not a range of addresses"),
            (&["0.0.0.0/0", "127.0.0.0/29", "127.0.0.0/33"], "must lie between 1 and 28"),
            (&["127.8.1.0/17"], "the range begins at 127.8.0.0"),
        ];
        for (texts, rule) in rows {
            for text in texts {
                let error = text.parse::<Range>().expect_err(text).to_string();
                assert!(error.contains(text) && error.contains(rule), "{error}");
            }
        }
    }

    #[test]
    fn ranges_that_overlap_loopback_are_detected() {
        for (text, expected) in [("127.8.0.0/17", true), ("10.0.0.0/8", false), ("64.0.0.0/2", true)] {
            assert_eq!(text.parse::<Range>().expect("valid").is_loopback(), expected, "{text}");
        }
    }
}
