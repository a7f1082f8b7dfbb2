//! What an HTTP/2 connection keeps beside the bytes of bodies that nobody has read yet.
//!
//! Flow control bounds those bytes, and nothing else: h2 keeps each DATA frame as an entry of its own, which refers to the
//! buffer that the frame was read into. A client may put one byte into each frame, and anything else between two of
//! them, and each keeps a buffer of [`BUFFER`] bytes.
//!
//! # The rule
//!
//! A frame costs [`ENTRY`] and what was read since the frame before it, at most a buffer, from when it arrives until
//! its body gives it out or is dropped. Which body a frame belongs to is not known here: a frame that is given out
//! takes the average cost of those that lie here with it.
//!
//! # Odd cases
//!
//! - Frames that come for a body that is dropped already are never given out. They are forgotten as soon as no body is
//!   open.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// h2's entry for a frame: its event and links, with the slack of a vector that doubles.
const ENTRY: u64 = 400;

/// What h2 reads into.
const BUFFER: u64 = 8192;

/// A connection's frames that nobody has read.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    frames: Mutex<Frames>,
    /// As of the latest change, for who looks with each read.
    cost: AtomicU64,
}

#[derive(Debug, Default)]
struct Frames {
    /// Bodies that may give out frames.
    bodies: u32,
    number: u64,
    cost: u64,
}

impl Unread {
    /// A frame with data has come, so many bytes after the one before it.
    pub(crate) fn arrived(&self, since: u64) {
        self.change(|all| {
            all.number += 1;
            all.cost += ENTRY + since.min(BUFFER);
        });
    }

    /// A frame was given out.
    pub(crate) fn given_out(&self) {
        self.change(|all| {
            if let Some(average) = all.cost.checked_div(all.number) {
                all.cost -= average;
                all.number -= 1;
            }
        });
    }

    /// There is one more body.
    pub(crate) fn opened(&self) {
        self.change(|all| all.bodies += 1);
    }

    /// A body is no more.
    pub(crate) fn closed(&self) {
        self.change(|all| {
            all.bodies = all.bodies.saturating_sub(1);
            if all.bodies == 0 {
                *all = Frames::default();
            }
        });
    }

    /// What the frames cost now, in bytes.
    pub(crate) fn cost(&self) -> u64 {
        self.cost.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut Frames)) {
        let mut all = self.frames.lock();
        change(&mut all);
        self.cost.store(all.cost, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_cost_what_they_keep_until_they_are_given_out() {
        let unread = Unread::default();
        unread.opened();
        for since in [0, 100, 1 << 20] {
            unread.arrived(since);
        }
        assert_eq!(unread.cost(), 3 * ENTRY + 100 + BUFFER);
        for left in (0..3).rev() {
            unread.given_out();
            assert_eq!(unread.cost() / (3 * ENTRY + 100 + BUFFER).div_ceil(3), left, "the average");
        }
        unread.given_out();
        assert_eq!(unread.cost(), 0, "one that was never seen");
    }

    #[test]
    fn what_came_for_nobody_is_forgotten_with_the_last_body() {
        let unread = Unread::default();
        unread.opened();
        unread.opened();
        unread.arrived(0);
        unread.closed();
        assert_eq!(unread.cost(), ENTRY);
        unread.closed();
        assert_eq!(unread.cost(), 0);
    }
}
