//! Allocates the addresses of a range to pods and Services, each to one owner at a time.
//!
//! A released address is reused as late as possible. A client that still uses the address of a former owner then finds
//! no listener instead of a different program. The first and the last address of a range are never allocated.

use crate::Range;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::net::Ipv4Addr;
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

    /// Returns the number of free addresses.
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
}
