//! Bytes some of which are sent on as `%` and two digits.

/// What was read, and what is made of it so far.
pub(super) struct Escaped<'a> {
    read: &'a [u8],
    /// How much of `read` is in `made`.
    done: usize,
    made: Vec<u8>,
}

impl<'a> Escaped<'a> {
    /// Nothing of `read` is replaced yet.
    pub(super) fn of(read: &'a [u8]) -> Self {
        Self { read, done: 0, made: Vec::new() }
    }

    /// Replaces the byte at `at`, which stands behind those that were replaced before.
    pub(super) fn replace(&mut self, at: usize) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let byte = usize::from(self.read[at]);
        self.made.extend_from_slice(&self.read[self.done..at]);
        self.made.extend_from_slice(&[b'%', DIGITS[byte >> 4], DIGITS[byte & 15]]);
        self.done = at + 1;
    }

    /// All that was made, if anything was replaced.
    pub(super) fn end(mut self) -> Option<Vec<u8>> {
        if self.done == 0 {
            return None;
        }
        self.made.extend_from_slice(&self.read[self.done..]);
        Some(self.made)
    }
}
