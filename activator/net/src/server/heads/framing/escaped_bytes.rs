//! Bytes of which some are percent-encoded.

/// Input and the output so far.
pub(super) struct Escaped<'a> {
    input: &'a [u8],
    /// Number of bytes of `input` that are in `output`.
    done: usize,
    output: Vec<u8>,
}

impl<'a> Escaped<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self { input, done: 0, output: Vec::new() }
    }

    /// Encodes the byte at `at`, which follows all bytes encoded before.
    pub(super) fn replace(&mut self, at: usize) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let byte = usize::from(self.input[at]);
        self.output.extend_from_slice(&self.input[self.done..at]);
        self.output.extend_from_slice(&[b'%', DIGITS[byte >> 4], DIGITS[byte & 15]]);
        self.done = at + 1;
    }

    /// Returns the output, if any byte was encoded.
    pub(super) fn end(mut self) -> Option<Vec<u8>> {
        if self.done == 0 {
            return None;
        }
        self.output.extend_from_slice(&self.input[self.done..]);
        Some(self.output)
    }
}
