//! Follows the frames of a client's HTTP/2 bytes, apart from the parser that reads them: where they begin and end, and
//! nothing of what is in them.
//!
//! Two things that the parser keeps have no bound in bytes of its own: header blocks that go on in CONTINUATION frames,
//! and DATA frames that nobody has read. What is said here of the former is a block's length on the wire; of the latter,
//! each frame as it comes ([`crate::body::unread`]). What is malformed is the parser's to refuse, and ends the connection
//! there. Of all kinds it is counted how many came ([`super::calm`]).

use super::calm::Came;

/// The length of a frame's head.
const HEAD: usize = 9;

/// The length of what an HTTP/2 connection begins with.
const PREFACE: u32 = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Where a connection's bytes have come to.
#[derive(Debug)]
pub(super) struct Frames {
    /// What has come of the next frame's head.
    head: [u8; HEAD],
    begun: usize,
    /// What is to come of the present frame.
    left: u32,
    kind: Kind,
    /// Bytes of a header block that goes on.
    block: u64,
    /// Bytes since the latest DATA frame with data.
    since: u64,
    /// Frames since it was asked last.
    came: Came,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    /// Part of a header block; whether it is the last one.
    Block(bool),
    Other,
}

impl Default for Frames {
    fn default() -> Self {
        Self { head: [0; HEAD], begun: 0, left: PREFACE, kind: Kind::Other, block: 0, since: 0, came: Came::default() }
    }
}

impl Frames {
    /// Takes note of bytes that were read, and calls `data` for each DATA frame with data that begins in them, with the
    /// number of bytes since the end of the one before, and its own length.
    pub(super) fn follow(&mut self, mut bytes: &[u8], mut data: impl FnMut(u64, u32)) {
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
            HEADERS => self.came.requests += 1,
            DATA if self.left > 0 => self.came.data += 1,
            DATA if flags & END_STREAM != 0 => {}
            _ => self.came.control += 1,
        }
    }

    /// Frames that have come since it was asked last.
    pub(super) fn came(&mut self) -> Came {
        std::mem::take(&mut self.came)
    }

    /// The length of a header block that goes on in the next frame, or 0.
    pub(super) fn unfinished_block(&self) -> u64 {
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

    /// What is called for frames that come in pieces of every size up to a few, and the block that is left.
    fn followed(frames: &[Vec<u8>], expected: (&[(u64, u32)], u64)) {
        let bytes = [&[b'p'; PREFACE as usize][..], &frames.concat()].concat();
        for size in (1..40).chain([bytes.len()]) {
            let (mut follower, mut seen) = (Frames::default(), Vec::new());
            bytes.chunks(size).for_each(|piece| follower.follow(piece, |since, length| seen.push((since, length))));
            assert_eq!((seen.as_slice(), follower.unfinished_block()), expected, "by {size}");
        }
    }

    #[test]
    fn each_frame_with_data_is_told_with_what_lies_before_it() {
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
