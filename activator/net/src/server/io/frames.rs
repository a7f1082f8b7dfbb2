//! Tracks the frames in a client's HTTP/2 bytes, independently of the parser: their boundaries, but not their content.
//!
//! The parser holds two things without a limit in bytes: header blocks that continue in CONTINUATION frames, and unread
//! DATA frames. This module reports the length of such a block on the wire, and each DATA frame as it arrives
//! ([`crate::body::unread_frames`]). It also counts the frames of all kinds
//! ([`crate::server::io::control_frame_limit`]). Malformed frames are left to the parser, which closes the connection.

use crate::server::io::control_frame_limit::FrameCounts;

const HEAD: usize = 9;

/// Length of the preface of an HTTP/2 connection.
const PREFACE: u32 = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Position in a connection's bytes.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Received bytes of the next frame's header.
    head: [u8; HEAD],
    begun: usize,
    /// Number of bytes left of the current frame.
    left: u32,
    kind: Kind,
    /// Length of an unfinished header block.
    block: u64,
    /// Number of bytes since the last DATA frame with data.
    since: u64,
    /// Frames that arrived since they were last taken.
    pub(super) received: FrameCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    /// Part of a header block; set if it is the last part.
    Block(bool),
    Other,
}

impl Default for Frames {
    fn default() -> Self {
        let received = FrameCounts::default();
        Self { head: [0; HEAD], begun: 0, left: PREFACE, kind: Kind::Other, block: 0, since: 0, received }
    }
}

impl Frames {
    /// Processes received bytes. Calls `data` for each DATA frame with data that begins in them, with the number of
    /// bytes since the end of the one before, and its own length.
    pub(crate) fn follow(&mut self, mut bytes: &[u8], mut data: impl FnMut(u64, u32)) {
        loop {
            let taken = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            bytes = &bytes[taken..];
            self.left -= taken as u32; // At most `left`.
            if self.kind != Kind::Data {
                self.since += taken as u64;
            }
            if self.left > 0 {
                return;
            }
            if self.kind == Kind::Block(true) {
                self.block = 0;
            }
            self.kind = Kind::Other;
            let taken = (HEAD - self.begun).min(bytes.len());
            self.head[self.begun..self.begun + taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            self.begun += taken;
            self.since += taken as u64;
            if self.begun < HEAD {
                return;
            }
            self.begun = 0;
            self.begin(&mut data);
        }
    }

    fn begin(&mut self, data: &mut impl FnMut(u64, u32)) {
        let [a, b, c, kind, flags, ..] = self.head;
        self.left = u32::from_be_bytes([0, a, b, c]);
        self.kind = match kind {
            DATA => Kind::Data,
            HEADERS | CONTINUATION => {
                self.block += u64::from(self.left);
                Kind::Block(flags & END_HEADERS != 0)
            }
            _ => Kind::Other,
        };
        if self.kind == Kind::Data && self.left > 0 {
            data(std::mem::take(&mut self.since), self.left);
        }
        match kind {
            HEADERS => self.received.requests += 1,
            DATA if self.left > 0 => self.received.data += 1,
            DATA if flags & END_STREAM != 0 => {}
            _ => self.received.control += 1,
        }
    }

    /// Returns the length of a header block that continues in the next frame, or 0.
    pub(crate) fn unfinished_block(&self) -> u64 {
        if self.kind == Kind::Block(true) { 0 } else { self.block }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, flags: u8, length: u32) -> Vec<u8> {
        let mut bytes = length.to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags, 0, 0, 0, 1]);
        bytes.extend(std::iter::repeat_n(b'x', length as usize));
        bytes
    }

    /// Checks the calls for frames that arrive in pieces of several sizes, and the length of the unfinished block.
    fn followed(frames: &[Vec<u8>], expected: (&[(u64, u32)], u64)) {
        let bytes = [&[b'p'; PREFACE as usize][..], &frames.concat()].concat();
        for size in (1..40).chain([bytes.len()]) {
            let (mut follower, mut observed) = (Frames::default(), Vec::new());
            bytes.chunks(size).for_each(|piece| follower.follow(piece, |since, length| observed.push((since, length))));
            assert_eq!((observed.as_slice(), follower.unfinished_block()), expected, "by {size}");
        }
    }

    #[test]
    fn each_data_frame_is_reported_with_the_bytes_before_it() {
        followed(&[frame(DATA, 0, 1), frame(DATA, 1, 5)], (&[(33, 1), (9, 5)], 0));
        followed(&[frame(DATA, 0, 1), frame(PING, 0, 8), frame(DATA, 0, 1)], (&[(33, 1), (26, 1)], 0));
        followed(&[frame(DATA, 0, 0), frame(DATA, 1, 0)], (&[], 0));
        let frames = [frame(HEADERS, END_HEADERS, 300), frame(0xfa, 0, 1000), frame(DATA, 0, 20_000)];
        followed(&frames, (&[(1351, 20_000)], 0));
    }

    #[test]
    fn a_block_grows_until_its_last_frame() {
        followed(&[frame(HEADERS, 1, 100)], (&[], 100));
        followed(&[frame(HEADERS, 0, 100), frame(CONTINUATION, 0, 50)], (&[], 150));
        followed(&[frame(HEADERS, 0, 100), frame(CONTINUATION, END_HEADERS, 50)], (&[], 0));
        followed(&[frame(HEADERS, END_HEADERS, 100), frame(HEADERS, 0, 7)], (&[], 7));
        let mut cut = frame(HEADERS, END_HEADERS, 100);
        cut.truncate(50);
        followed(&[cut], (&[], 0));
    }
}
