//! Spare places: how cores take and give back without sharing a cache line.
//!
//! A word that two cores change costs each change the way between their caches, three times what the change itself
//! costs, and every further core waits for its turn. So a breaker in which threads meet keeps some of its free places
//! on shelves, one for each thread and each on a cache line of its own. In the breaker's word they count as running; a
//! request takes one from its thread's shelf and puts it back there, and touches nothing that another core changes.
//!
//! # The rule
//!
//! - Between a request and the word, or a request and a shelf, a place moves at any time. Between the word and a shelf
//!   it moves only under the queue's lock.
//! - A shelf is open or closed, which also changes only under that lock. A closed one holds nothing and takes nothing:
//!   whoever comes there goes on to the word.
//! - What is decided by the word is decided with all shelves closed, under the lock, and what they held given back to
//!   the word: that there is no free place, that somebody waits, that there are fewer places from now on, how many run.
//!   The word then tells all, as if there were no shelves. So while somebody waits every shelf is closed.
//!
//! "Closed" is a value of the very atomic that spares are taken from. Hence no order between two atomics matters:
//! who comes to a shelf after it was closed sees that, and what was put there before has been collected.
//!
//! # How many
//!
//! A shelf may hold a place in 8 of its part of the capacity, at most [`MOST`], and is opened and filled up to half of
//! that while a quarter of the capacity is free. That leaves an eighth between the load at which shelves are collected
//! and the one at which they open again, so that a breaker near its capacity does not open and close them all the time.
//! A capacity too small for one spare on each shelf keeps to the word: there every place matters. Shelves are made when
//! two threads first meet at the word, so a sleeping revision has none.

use super::word::Word;
use crate::sync::{AtomicU64, Ordering, lane};

/// The most that one shelf holds. Enough for the requests that one thread starts before any of them ends.
const MOST: u32 = 1024;

/// One shelf for each thread that the machine can run at once; threads beyond that share.
#[derive(Debug)]
pub(super) struct Shelves {
    /// A power of two of them.
    shelves: Box<[Shelf]>,
    /// A shelf holds at most the capacity divided by this.
    part: u32,
}

/// Spares of one thread. Two lines, since processors fetch them in pairs.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct Shelf(AtomicU64);

/// How many spares a shelf has and how many it may have: the low and the high half of its atomic. All zero is closed.
#[derive(Clone, Copy)]
struct Held(u64);

/// What to take from the word for a request whose shelf is empty or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stock {
    /// This many beside the request's own place.
    pub(super) spares: u32,
    /// The shelf may hold so many.
    most: u32,
}

impl Shelves {
    /// Closed shelves for a breaker in which threads have met; none where they would not be opened, or on a machine
    /// that runs one thread at a time.
    pub(super) fn for_this_machine(word: Word) -> Option<Self> {
        /// Asked once: the answer is read from files.
        static THREADS: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        let threads = *THREADS.get_or_init(|| {
            let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
            u32::try_from(threads.next_power_of_two()).unwrap_or(1)
        });
        let part = threads.saturating_mul(8);
        (threads > 1 && Stock::from(word, part).is_some()).then(|| Self::new(threads, part))
    }

    /// `count` closed shelves, a power of two, each for at most the capacity divided by `part`.
    pub(super) fn new(count: u32, part: u32) -> Self {
        debug_assert!(count.is_power_of_two() && part > 0);
        Self { shelves: (0..count).map(|_| Shelf(AtomicU64::new(0))).collect(), part }
    }

    /// The calling thread's.
    pub(super) fn own(&self) -> &Shelf {
        &self.shelves[lane() & (self.shelves.len() - 1)]
    }

    /// What may be moved from a word to a shelf, if anything.
    pub(super) fn stock(&self, word: Word) -> Option<Stock> {
        Stock::from(word, self.part)
    }

    /// Closes all, and says how many spares they held. The caller holds the queue's lock.
    pub(super) fn close(&self) -> u32 {
        self.shelves.iter().map(|shelf| Held(shelf.0.swap(0, Ordering::AcqRel)).spares()).sum()
    }
}

impl Stock {
    fn from(word: Word, part: u32) -> Option<Self> {
        let most = (word.places() / part).min(MOST);
        let free = word.free();
        if word.has_waiters() || most == 0 || free == 0 || free < word.places() / 4 {
            return None;
        }
        Some(Self { spares: most.div_ceil(2).min(free - 1), most })
    }
}

impl Shelf {
    /// Takes a spare, if there is one.
    #[inline]
    pub(super) fn take(&self) -> bool {
        self.change(|held| (held.spares() > 0).then(|| Held(held.0 - 1)))
    }

    /// Puts a place back, if it is open and has room.
    #[inline]
    pub(super) fn put(&self) -> bool {
        self.change(|held| (held.spares() < held.most()).then(|| Held(held.0 + 1)))
    }

    /// Opens it, or goes on, with these spares more. The caller holds the queue's lock, and took them from the word.
    pub(super) fn open(&self, stock: Stock) {
        self.change(|held| Some(Held::new(stock.most, held.spares() + stock.spares)));
    }

    #[inline]
    fn change(&self, change: impl Fn(Held) -> Option<Held>) -> bool {
        let mut seen = self.0.load(Ordering::Acquire);
        while let Some(changed) = change(Held(seen)) {
            match self.0.compare_exchange_weak(seen, changed.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }
}

impl Held {
    fn new(most: u32, spares: u32) -> Self {
        Self(u64::from(most) << 32 | u64::from(spares))
    }

    fn spares(self) -> u32 {
        self.0 as u32
    }

    fn most(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::breaker::Capacity;

    fn running(capacity: Capacity, running: u32) -> Word {
        Word::from_bits(Word::new(capacity).bits() + u64::from(running))
    }

    /// Goal: nothing moves to a shelf that somebody may need soon. Method: one row for each bound, from both sides.
    #[test]
    fn a_shelf_is_stocked_while_a_quarter_is_free() {
        let limited = |places, count| running(Capacity::Limited(places), count);
        let table = [
            // (shelves, word) -> (spares, most)
            (2, limited(1000, 0), Some((31, 62))),
            (2, limited(1000, 750), Some((31, 62))),
            (2, limited(1000, 751), None),
            (2, limited(16, 0), Some((1, 1))), // The smallest capacity with a spare for each shelf.
            (2, limited(15, 0), None),
            (2, limited(0, 0), None),
            (2, limited(10, 12), None), // More run than may.
            (2, limited(1000, 0).with_waiters(), None),
            (64, limited(1000, 0), Some((1, 1))),
            (64, limited(511, 0), None),
            (2, running(Capacity::Unlimited, 1_000_000), Some((512, 1024))),
        ];
        for (count, word, expected) in table {
            let stock = Shelves::new(count, count * 8).stock(word);
            assert_eq!(stock.map(|stock| (stock.spares, stock.most)), expected, "{count} shelves, {word:?}");
        }
        let one_free = Shelves::new(2, 1).stock(limited(2, 1));
        assert_eq!(one_free, Some(Stock { spares: 0, most: 2 }), "the request itself needs one");
    }

    #[test]
    fn a_closed_shelf_holds_nothing_and_takes_nothing() {
        let shelves = Shelves::new(2, 1);
        let shelf = shelves.own();
        assert!(!shelf.take() && !shelf.put());
        shelf.open(Stock { spares: 1, most: 2 });
        assert!(shelf.put() && !shelf.put(), "one, and room for one more");
        assert!(shelf.take() && shelf.take() && !shelf.take());
        assert!(shelf.put(), "an empty shelf is still open");
        shelf.open(Stock { spares: 3, most: 4 });
        assert!(!shelf.put(), "filled up");
        assert_eq!(shelves.close(), 4);
        assert!(!shelf.take() && !shelf.put());
    }
}
