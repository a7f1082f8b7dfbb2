//! Memory held by the unread bodies of an HTTP/2 connection's requests, until the bytes are sent to a pod.
//!
//! Flow control bounds the unread bytes of each stream, but not their cost: h2 keeps each DATA frame as an entry that
//! refers to the buffer into which the frame was read. A client may send one byte per frame and other frames between
//! them, so that each frame pins a buffer of [`BUFFER`] bytes.
//!
//! # The rule
//!
//! A frame costs [`ENTRY`] plus the bytes read since the frame before it, at most one buffer, from its arrival until
//! its body yields it or is dropped. Its data costs its length plus a quarter, which is the allocator's rounding. The
//! owner of a frame is unknown here, so a yielded frame is subtracted at the average cost of all unread frames.
//!
//! The data of a held request is charged to its workload, up to a full window. Therefore one window of data is
//! subtracted for each body that has not been polled.
//!
//! Data that was yielded costs its length until it is dropped ([`UnreadFrames::track_yielded`]). Flow control has
//! opened the window again by then, while a pod that does not read leaves the data with the sender.
//!
//! # Edge cases
//!
//! - Frames that arrive for a dropped body are never yielded. They are forgotten as soon as no body is open. A
//!   connection with many bodies cut short is replaced ([`UnreadFrames::must_be_replaced`]) before its forgotten frames
//!   cost too much.

use crate::limits::STREAM_WINDOW;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Cost of h2's entry for a frame: event and links, with the slack of a vector that doubles.
const ENTRY: u64 = 400;

/// Size of h2's read buffer.
const BUFFER: u64 = 8192;

/// Data shorter than this is not counted after it was yielded. A typical gRPC call sends less, which costs less than
/// its stream.
const COUNTED_MIN: usize = 1024;

/// Number of bodies cut short after which a connection is replaced. A window of frames may arrive for each, and h2
/// closes a connection at the 1024th frame without a stream.
const CUT_SHORT_MAX: u32 = 64;

/// Frames of a connection that are unread, and yielded data that is still held.
#[derive(Debug, Default)]
pub(crate) struct UnreadFrames {
    frames: Mutex<Frames>,
    /// Cost at the latest change, so that reads need no lock.
    cost: AtomicU64,
    /// Bytes that were yielded and are still held.
    yielded_bytes: AtomicU64,
    /// Number of bodies that were dropped before their end.
    cut_short: AtomicU32,
}

/// Data that was yielded, and counts until it is dropped.
struct YieldedData {
    data: Bytes,
    counters: Arc<UnreadFrames>,
}

#[derive(Debug, Default)]
struct Frames {
    /// Number of bodies that may yield frames.
    bodies: u32,
    /// Number of bodies that have not been polled.
    held: u32,
    number: u64,
    /// Cost of the frames without their data.
    cost: u64,
    /// Cost of their data.
    data: u64,
}

impl Frames {
    fn sum(&self) -> u64 {
        self.cost + self.data.saturating_sub(u64::from(self.held) * u64::from(STREAM_WINDOW))
    }
}

impl UnreadFrames {
    /// Counts a received frame of `length` bytes. `since` is the number of bytes read since the frame before it.
    pub(crate) fn count_received(&self, since: u64, length: u32) {
        self.change(|all| {
            all.number += 1;
            all.cost += ENTRY + since.min(BUFFER);
            all.data += u64::from(length) * 5 / 4;
        });
    }

    pub(crate) fn count_yielded(&self) {
        self.change(|all| {
            let average = |sum: u64| sum.checked_div(all.number);
            if let (Some(cost), Some(data)) = (average(all.cost), average(all.data)) {
                all.cost -= cost;
                all.data -= data;
                all.number -= 1;
            }
        });
    }

    /// Returns yielded data, which is counted until its last part is dropped.
    pub(crate) fn track_yielded(self: &Arc<Self>, data: Bytes) -> Bytes {
        if data.len() < COUNTED_MIN {
            return data;
        }
        self.yielded_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        Bytes::from_owner(YieldedData { data, counters: self.clone() })
    }

    /// Counts a new body, which is held.
    pub(crate) fn count_opened(&self) {
        self.change(|all| {
            all.bodies += 1;
            all.held += 1;
        });
    }

    /// Counts a body that is no longer held.
    pub(crate) fn count_polled(&self) {
        self.change(|all| all.held = all.held.saturating_sub(1));
    }

    /// Counts a body that was dropped before its end. The rest of its frames is never yielded.
    pub(crate) fn count_cut_short(&self) {
        self.cut_short.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports whether so many bodies were cut short that the connection must be replaced.
    pub(crate) fn must_be_replaced(&self) -> bool {
        self.cut_short.load(Ordering::Relaxed) >= CUT_SHORT_MAX
    }

    /// Counts a body that ended or was dropped.
    pub(crate) fn count_closed(&self) {
        self.change(|all| {
            all.bodies = all.bodies.saturating_sub(1);
            if all.bodies == 0 {
                *all = Frames::default();
            }
        });
    }

    /// Returns the current cost of the unread frames and the yielded data, in bytes.
    pub(crate) fn cost(&self) -> u64 {
        self.cost.load(Ordering::Relaxed) + self.yielded_bytes.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut Frames)) {
        let mut all = self.frames.lock();
        change(&mut all);
        self.cost.store(all.sum(), Ordering::Relaxed);
    }
}

impl AsRef<[u8]> for YieldedData {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for YieldedData {
    fn drop(&mut self) {
        self.counters.yielded_bytes.fetch_sub(self.data.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_frames_are_counted_until_they_are_yielded() {
        let unread = UnreadFrames::default();
        unread.count_opened();
        unread.count_polled();
        for (since, length) in [(0, 4), (100, 4), (1 << 20, 16_000)] {
            unread.count_received(since, length);
        }
        let all = 3 * ENTRY + 100 + BUFFER + 10 + 20_000;
        assert_eq!(unread.cost(), all);
        for left in (0..3).rev() {
            unread.count_yielded();
            assert!(unread.cost().abs_diff(all * left / 3) <= 2, "the average: {}", unread.cost());
        }
        unread.count_yielded();
        assert_eq!(unread.cost(), 0, "one that was never seen");
    }

    /// Goal: a window of data is subtracted for each held request, which is charged to its workload. The cost of frames
    /// beside their data is not reduced.
    #[test]
    fn one_window_of_data_is_subtracted_for_each_held_body() {
        let unread = UnreadFrames::default();
        unread.count_opened();
        unread.count_opened();
        for _ in 0..8 {
            unread.count_received(0, 16_000);
        }
        assert_eq!(unread.cost(), 8 * (ENTRY + 20_000) - 2 * u64::from(STREAM_WINDOW));
        unread.count_polled();
        assert_eq!(unread.cost(), 8 * (ENTRY + 20_000) - u64::from(STREAM_WINDOW));
        unread.count_polled();
        assert_eq!(unread.cost(), 8 * (ENTRY + 20_000));
    }

    #[test]
    fn frames_of_dropped_bodies_are_forgotten_with_the_last_body() {
        let unread = UnreadFrames::default();
        unread.count_opened();
        unread.count_opened();
        unread.count_received(0, 1);
        unread.count_closed();
        assert_eq!(unread.cost(), ENTRY);
        unread.count_closed();
        assert_eq!(unread.cost(), 0);
    }

    #[test]
    fn yielded_data_is_counted_until_it_is_dropped() {
        let unread = Arc::new(UnreadFrames::default());
        unread.count_opened();
        let mut data = unread.track_yielded(vec![7; 5000].into());
        assert_eq!(unread.track_yielded(vec![7; COUNTED_MIN - 1].into()).len(), COUNTED_MIN - 1);
        let part = data.split_to(10);
        unread.count_closed();
        assert_eq!((unread.cost(), data.len(), part.as_ref()), (5000, 4990, &[7; 10][..]));
        drop(data);
        assert_eq!(unread.cost(), 5000);
        drop(part);
        assert_eq!(unread.cost(), 0);
    }
}
