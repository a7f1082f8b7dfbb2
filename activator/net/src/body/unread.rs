//! What the bodies of an HTTP/2 connection's requests keep, until they have gone to a pod.
//!
//! Of bytes that nobody has read yet, flow control bounds the number, and nothing else: h2 keeps each DATA frame as an entry of its own, which refers to the
//! buffer that the frame was read into. A client may put one byte into each frame, and anything else between two of
//! them, and each keeps a buffer of [`BUFFER`] bytes.
//!
//! # The rule
//!
//! A frame costs [`ENTRY`] and what was read since the frame before it, at most a buffer, from when it arrives until
//! its body gives it out or is dropped. Which body a frame belongs to is not known here: a frame that is given out
//! takes the average cost of those that lie here with it.
//!
//! Its data then costs its length for as long as anybody has it ([`Unread::pass`]): flow control lets as much again come,
//! while a pod that takes nothing leaves it with whoever sends.
//!
//! # Odd cases
//!
//! - Frames that come for a body that is dropped already are never given out. They are forgotten as soon as no body is
//!   open.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// h2's entry for a frame: its event and links, with the slack of a vector that doubles.
const ENTRY: u64 = 400;

/// What h2 reads into.
const BUFFER: u64 = 8192;

/// Data of fewer bytes is not counted on its way: it is what a call of gRPC has, and costs less than its stream.
const COUNTED_MIN: usize = 1024;

/// A connection's frames that nobody has read, and their data on its way.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    frames: Mutex<Frames>,
    /// As of the latest change, for who looks with each read.
    cost: AtomicU64,
    /// Bytes that were given out, and that somebody has still.
    passing: AtomicU64,
}

/// Data on its way to a pod.
struct Passing {
    data: Bytes,
    from: Arc<Unread>,
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

    /// Data that was given out: it is counted until the last of it is dropped.
    pub(crate) fn pass(self: &Arc<Self>, data: Bytes) -> Bytes {
        if data.len() < COUNTED_MIN {
            return data;
        }
        self.passing.fetch_add(data.len() as u64, Ordering::Relaxed);
        Bytes::from_owner(Passing { data, from: self.clone() })
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

    /// What the frames, and the data behind them, cost now, in bytes.
    pub(crate) fn cost(&self) -> u64 {
        self.cost.load(Ordering::Relaxed) + self.passing.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut Frames)) {
        let mut all = self.frames.lock();
        change(&mut all);
        self.cost.store(all.cost, Ordering::Relaxed);
    }
}

impl AsRef<[u8]> for Passing {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.from.passing.fetch_sub(self.data.len() as u64, Ordering::Relaxed);
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

    /// Goal: data costs its length until the last part of it is dropped, also when its body is no more.
    #[test]
    fn data_on_its_way_costs_its_length() {
        let unread = Arc::new(Unread::default());
        unread.opened();
        let mut data = unread.pass(vec![7; 5000].into());
        assert_eq!(unread.pass(vec![7; COUNTED_MIN - 1].into()).len(), COUNTED_MIN - 1);
        let part = data.split_to(10);
        unread.closed();
        assert_eq!((unread.cost(), data.len(), part.as_ref()), (5000, 4990, &[7; 10][..]));
        drop(data);
        assert_eq!(unread.cost(), 5000);
        drop(part);
        assert_eq!(unread.cost(), 0);
    }
}
