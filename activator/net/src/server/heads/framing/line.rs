//! A line whose bytes may arrive in parts. Only its first bytes are kept.

use smallvec::SmallVec;

/// Number of bytes that are kept: more than any field or size needs that determines where a message ends.
const START_MAX: usize = 64;

/// A line up to its LF.
#[derive(Debug, Default)]
pub(super) struct Line {
    start: SmallVec<[u8; START_MAX]>,
    last: u8,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.start.is_empty()
    }

    /// Adds a part of the line, without its LF.
    pub(super) fn push(&mut self, part: &[u8]) {
        let stored = part.len().min(START_MAX - self.start.len());
        self.start.extend_from_slice(&part[..stored]);
        self.last = part.last().copied().unwrap_or(self.last);
    }

    /// Ends the line at its LF. Returns its first bytes, which include its CR unless the line is longer. Returns `None`
    /// if it does not end with a CR.
    pub(super) fn end(&mut self) -> Option<SmallVec<[u8; START_MAX]>> {
        let Self { start, last } = std::mem::take(self);
        (last == b'\r').then_some(start)
    }
}
