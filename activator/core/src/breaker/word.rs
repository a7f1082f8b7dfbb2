//! Capacity, running count and the waiters' flag in one 64-bit word, so that one compare-and-swap covers all three.
//!
//! ```text
//! 63         62 ........ 32   31        30 ......... 0
//! unlimited  capacity         waiters   running
//! ```
//!
//! Knative's layout too has the capacity in the high half and the running count in the low half. Its maximum of 2^31 -
//! 1 leaves the top bit of each half free; they hold the two flags. An unlimited word keeps the largest capacity in its
//! capacity bits, so that the comparison on the hot path is the same for both.

use super::Capacity;

/// Snapshot of the packed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    /// Flag that is set while requests wait: newcomers queue, and a released permit is passed on.
    pub(crate) const WAITERS: u64 = 1 << 31;
    const UNLIMITED: u64 = 1 << 63;
    const RUNNING: u64 = Self::WAITERS - 1;
    const LOW_HALF: u64 = u32::MAX as u64;

    /// Creates a word with nothing running and no waiters.
    pub(crate) fn new(capacity: Capacity) -> Self {
        Self(0).with_capacity(capacity)
    }

    pub(crate) fn running(self) -> u32 {
        (self.0 & Self::RUNNING) as u32
    }

    pub(crate) fn capacity(self) -> Capacity {
        if self.0 & Self::UNLIMITED != 0 { Capacity::Unlimited } else { Capacity::Limited(self.permits()) }
    }

    pub(crate) fn has_room(self) -> bool {
        self.running() < self.permits()
    }

    pub(crate) fn has_waiters(self) -> bool {
        self.0 & Self::WAITERS != 0
    }

    pub(crate) fn with_capacity(self, capacity: Capacity) -> Self {
        let unlimited = if capacity == Capacity::Unlimited { Self::UNLIMITED } else { 0 };
        Self(self.0 & Self::LOW_HALF | u64::from(capacity.permits()) << 32 | unlimited)
    }

    pub(crate) fn with_waiters(self) -> Self {
        Self(self.0 | Self::WAITERS)
    }

    /// Returns the word with one more running. Valid only after [`Word::has_room`], so the count cannot reach the flag.
    pub(crate) fn taken(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the word with one fewer running. Valid only for a permit that was taken.
    pub(crate) fn released(self) -> Self {
        Self(self.0 - 1)
    }

    fn permits(self) -> u32 {
        (self.0 >> 32) as u32 & Capacity::MAX
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_word_are_independent_and_bounded() {
        let full = Word(u64::from(Capacity::MAX) << 32 | u64::from(Capacity::MAX));
        assert_eq!((full.capacity(), full.running()), (Capacity::Limited(Capacity::MAX), Capacity::MAX));
        assert!(!full.has_room() && !full.has_waiters());
        let marked = full.with_waiters();
        assert_eq!((marked.capacity(), marked.running()), (full.capacity(), full.running()));
        let unlimited = marked.with_capacity(Capacity::Unlimited);
        assert_eq!((unlimited.capacity(), unlimited.running()), (Capacity::Unlimited, Capacity::MAX));
        assert!(unlimited.has_waiters() && !unlimited.has_room(), "even without a limit the count must not overflow");
        let word = Word::new(Capacity::Limited(256)).with_waiters().taken().taken();
        assert_eq!((word.capacity(), word.running()), (Capacity::Limited(256), 2));
        assert_eq!(word.with_capacity(Capacity::CLOSED).released().running(), 1);
        assert_eq!(Word::new(Capacity::Limited(u32::MAX)).capacity(), Capacity::Limited(Capacity::MAX));
    }
}
