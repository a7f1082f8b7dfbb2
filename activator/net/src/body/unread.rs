//! What the bodies of an HTTP/2 connection's requests keep, until they have gone to a pod.
//!
//! Of bytes that nobody has read yet, flow control bounds the number on each stream, and nothing else: h2 keeps each DATA
//! frame as an entry of its own, which refers to the buffer that the frame was read into. A client may put one byte into
//! each frame, and anything else between two of them, and each keeps a buffer of [`BUFFER`] bytes.
//!
//! # The rule
//!
//! A frame costs [`ENTRY`] and what was read since the frame before it, at most a buffer, from when it arrives until
//! its body gives it out or is dropped. Its data costs its length and a quarter, which is how the allocator rounds. Which
//! body a frame belongs to is not known here: a frame that is given out takes the average cost of those that lie here with
//! it.
//!
//! The data of a request that is held is charged to its workload, as much as there may be of it. So a window of data is
//! left out here for each body that nobody has asked for anything yet.
//!
//! Given out, data costs its length for as long as anybody has it ([`Unread::pass`]): flow control lets as much again
//! come, while a pod that takes nothing leaves it with whoever sends.
//!
//! # Odd cases
//!
//! - Frames that come for a body that is dropped already are never given out. They are forgotten as soon as no body is
//!   open. A connection on which many bodies were cut short is replaced ([`Unread::is_worn`]), before what came for them
//!   is too much.

use crate::limits::STREAM_WINDOW;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// h2's entry for a frame: its event and links, with the slack of a vector that doubles.
const ENTRY: u64 = 400;

/// What h2 reads into.
const BUFFER: u64 = 8192;

/// Data of fewer bytes is not counted on its way: it is what a call of gRPC has, and costs less than its stream.
const COUNTED_MIN: usize = 1024;

/// Bodies that may be cut short on one connection. A window of frames may come for each, and h2 ends a connection with the
/// 1024th that it has no stream for any more.
const CUT_MAX: u32 = 64;

/// A connection's frames that nobody has read, and their data on its way.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    frames: Mutex<Frames>,
    /// As of the latest change, for who looks with each read.
    cost: AtomicU64,
    /// Bytes that were given out, and that somebody has still.
    passing: AtomicU64,
    /// Bodies that were dropped before their end.
    cut: AtomicU32,
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
    /// Those of them that were asked for nothing yet.
    held: u32,
    number: u64,
    /// What the frames cost beside their data.
    cost: u64,
    /// What their data costs.
    data: u64,
}

impl Frames {
    fn sum(&self) -> u64 {
        self.cost + self.data.saturating_sub(u64::from(self.held) * u64::from(STREAM_WINDOW))
    }
}

impl Unread {
    /// A frame of this length has come, so many bytes after the one before it.
    pub(crate) fn arrived(&self, since: u64, length: u32) {
        self.change(|all| {
            all.number += 1;
            all.cost += ENTRY + since.min(BUFFER);
            all.data += u64::from(length) * 5 / 4;
        });
    }

    /// A frame was given out.
    pub(crate) fn given_out(&self) {
        self.change(|all| {
            let average = |sum: u64| sum.checked_div(all.number);
            if let (Some(cost), Some(data)) = (average(all.cost), average(all.data)) {
                all.cost -= cost;
                all.data -= data;
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

    /// There is one more body, which is held.
    pub(crate) fn opened(&self) {
        self.change(|all| {
            all.bodies += 1;
            all.held += 1;
        });
    }

    /// A body is held no longer.
    pub(crate) fn released(&self) {
        self.change(|all| all.held = all.held.saturating_sub(1));
    }

    /// A body that is no more was dropped before its end: what comes for it is for nobody.
    pub(crate) fn cut_short(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether so many bodies were cut short that the connection should make way for another one.
    pub(crate) fn is_worn(&self) -> bool {
        self.cut.load(Ordering::Relaxed) >= CUT_MAX
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
        self.cost.store(all.sum(), Ordering::Relaxed);
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
        unread.released();
        for (since, length) in [(0, 4), (100, 4), (1 << 20, 16_000)] {
            unread.arrived(since, length);
        }
        let all = 3 * ENTRY + 100 + BUFFER + 10 + 20_000;
        assert_eq!(unread.cost(), all);
        for left in (0..3).rev() {
            unread.given_out();
            assert!(unread.cost().abs_diff(all * left / 3) <= 2, "the average: {}", unread.cost());
        }
        unread.given_out();
        assert_eq!(unread.cost(), 0, "one that was never seen");
    }

    /// Goal: of requests that are held, which their workload is charged for, a window of data each is left out, and nothing
    /// of what frames cost beside their data.
    #[test]
    fn a_window_of_data_is_left_out_for_each_body_that_is_held() {
        let unread = Unread::default();
        unread.opened();
        unread.opened();
        for _ in 0..8 {
            unread.arrived(0, 16_000);
        }
        assert_eq!(unread.cost(), 8 * (ENTRY + 20_000) - 2 * u64::from(STREAM_WINDOW));
        unread.released();
        assert_eq!(unread.cost(), 8 * (ENTRY + 20_000) - u64::from(STREAM_WINDOW));
        unread.released();
        assert_eq!(unread.cost(), 8 * (ENTRY + 20_000));
    }

    #[test]
    fn what_came_for_nobody_is_forgotten_with_the_last_body() {
        let unread = Unread::default();
        unread.opened();
        unread.opened();
        unread.arrived(0, 1);
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
