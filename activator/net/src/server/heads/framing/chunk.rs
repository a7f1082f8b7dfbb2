//! Parser for the bytes around the data of a chunked body, one at a time.

/// State: the next expected byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// First digit of a size.
    Start,
    /// Another digit, or a byte after the last.
    Size(u64),
    /// Blanks after a size.
    Blank(u64),
    /// An extension, up to its CR.
    Extension(u64),
    /// LF after a size.
    SizeLf(u64),
    /// CR and LF after a chunk's data.
    DataCr,
    DataLf,
    /// Start of a trailer, or of the empty line that ends the body.
    Line,
    /// A trailer, up to its CR.
    Trailer,
    TrailerLf,
    /// LF of the empty line.
    LastLf,
}

/// State after a byte.
pub(super) enum After {
    /// More bytes around data.
    Chunk(Chunk),
    /// Number of bytes of data.
    Data(u64),
    /// The next message.
    Message,
    /// Unknown: hyper rejects the byte too.
    Lost,
}

impl Chunk {
    /// Returns the state after `byte`, following hyper's decoder.
    pub(super) fn next(self, byte: u8) -> After {
        let size = |size: u64, byte: u8| {
            let digit = u64::from(char::from(byte).to_digit(16)?);
            size.checked_mul(16)?.checked_add(digit)
        };
        After::Chunk(match (self, byte) {
            (Self::Start, byte) => match size(0, byte) {
                Some(size) => Self::Size(size),
                None => return After::Lost,
            },
            (Self::Size(length) | Self::Blank(length), b' ' | b'\t') => Self::Blank(length),
            (Self::Size(length) | Self::Blank(length), b';') => Self::Extension(length),
            (Self::Size(length) | Self::Blank(length) | Self::Extension(length), b'\r') => Self::SizeLf(length),
            (Self::Size(length), byte) => match size(length, byte) {
                Some(size) => Self::Size(size),
                None => return After::Lost,
            },
            (Self::Extension(length), byte) if byte != b'\n' => Self::Extension(length),
            (Self::SizeLf(0), b'\n') => Self::Line,
            (Self::SizeLf(length), b'\n') => return After::Data(length),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Start,
            (Self::Line, b'\r') => Self::LastLf,
            (Self::LastLf, b'\n') => return After::Message,
            (Self::Trailer, b'\r') => Self::TrailerLf,
            (Self::TrailerLf, b'\n') => Self::Line,
            (Self::Line | Self::Trailer, _) => Self::Trailer,
            _ => return After::Lost,
        })
    }
}
