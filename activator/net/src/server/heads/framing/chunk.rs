//! Parser for the lines around the data of a chunked body. It accepts what hyper's decoder accepts, except a trailer
//! with an LF alone. hyper also rejects an extension or a trailer with a CR alone.

use super::FramingState;

/// The next line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// Size of a chunk, and its extensions.
    Size,
    /// Line end after a chunk's data.
    DataEnd,
    /// A trailer, or the empty line that ends the body.
    Trailer,
}

impl Chunk {
    /// Returns the state after `line`, which ends with CR.
    pub(super) fn next(self, line: &[u8]) -> FramingState {
        match (self, line) {
            (Self::Size, line) => match size(line) {
                Some(0) => FramingState::Chunk(Self::Trailer),
                Some(size) => FramingState::Data(size),
                None => FramingState::Lost,
            },
            (Self::DataEnd, b"\r") => FramingState::Chunk(Self::Size),
            (Self::DataEnd, _) => FramingState::Lost,
            (Self::Trailer, b"\r") => FramingState::Head,
            (Self::Trailer, _) => FramingState::Chunk(Self::Trailer),
        }
    }
}

/// Returns the size at the start of a line. Blanks and an extension may follow it.
fn size(line: &[u8]) -> Option<u64> {
    let (digits, rest) = line.split_at(line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count());
    let behind = rest.iter().find(|byte| !matches!(byte, b' ' | b'\t'))?;
    let size = u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
    size.filter(|_| matches!(behind, b';' | b'\r'))
}
