//! The addresses that pods get: a pool that hands out those of a range.
//!
//! An address is handed out again as late as possible, so that whoever still remembers a pod that is gone meets nobody
//! there rather than a stranger. The first two addresses of a range and its last are never handed out.

use crate::Range;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Hands out the addresses of a range.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    range: Range,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    taken: HashSet<Ipv4Addr>,
    /// Where to look next, from the start of the range.
    next: u32,
}

/// An address in use; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Leased {
    pool: Pool,
    address: Ipv4Addr,
}

impl Pool {
    /// A pool without the `reserved` addresses.
    pub(crate) fn new(range: Range, reserved: &[Ipv4Addr]) -> Self {
        let mut taken: HashSet<Ipv4Addr> = reserved.iter().copied().collect();
        taken.extend([range.nth(0), range.nth(1), range.nth(range.size() - 1)]);
        Self { range, state: Arc::new(Mutex::new(State { taken, next: 2 })) }
    }

    /// An address that nobody has; none if all are in use.
    pub(crate) fn lease(&self) -> Option<Leased> {
        let mut state = self.state.lock();
        for _ in 0..self.range.size() {
            let address = self.range.nth(state.next);
            state.next = (state.next + 1) % self.range.size();
            if state.taken.insert(address) {
                return Some(Leased { pool: self.clone(), address });
            }
        }
        None
    }
}

impl Leased {
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.pool.state.lock().taken.remove(&self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unique_come_back_and_are_reused_late() {
        let range: Range = "127.8.0.0/28".parse().expect("valid");
        let pool = Pool::new(range, &[[127, 8, 0, 4].into()]);
        let mut leased: Vec<_> = std::iter::from_fn(|| pool.lease()).collect();
        let addresses: HashSet<_> = leased.iter().map(Leased::address).collect();
        assert_eq!(addresses.len(), 12, "16 without the first two, the last and the reserved one");
        assert!(addresses.iter().all(|a| range.contains(*a)));
        let (first, second) = (leased.remove(0), leased.remove(0));
        let (one, two) = (first.address(), second.address());
        drop(first);
        assert_eq!(pool.lease().map(|l| l.address()), Some(one), "the only free one");
        drop(second);
        assert_eq!(pool.lease().map(|l| l.address()), Some(two), "not the one just given back");
    }
}
