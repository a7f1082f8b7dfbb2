//! Follows where messages begin and end in a client's HTTP/1 bytes, apart from the parser that reads them.
//!
//! hyper forgives what a peer in front of us may read otherwise. Then the two disagree about where a request ends, and
//! one client's bytes become the beginning of another's request (request smuggling). Refused are:
//!
//! - A line of a head that ends with LF alone.
//! - `Content-Length` beside `Transfer-Encoding` (RFC 9112, 6.3: may be refused; whoever wrote both may mean to
//!   smuggle).
//!
//! # The rule
//!
//! Every byte goes through [`Framing::follow`] before the parser has it. It counts the heads that are complete and in
//! order. The server asks for that count before it serves a request: the n-th is served if n heads have been counted.
//! What is refused here is never counted, nor is anything after it. Nothing depends on when or how the parser reads: a
//! head that did not pass here is not served.
//!
//! A head is looked at line by line. Of a body only its length matters; chunks are followed as hyper's decoder follows
//! them. Where a message is malformed in a way that hyper refuses as well, the count merely stops.

/// Names, in lower case, with their colons.
const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";

/// As many bytes of a line as tell one of the names.
const PREFIX: usize = CODING.len();

/// Where a connection's bytes have come to.
#[derive(Debug, Default)]
pub(super) struct Framing {
    state: State,
    head: Head,
    /// Heads that are complete and in order.
    heads: u64,
    /// One of them had a body.
    had_body: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// A head, or more of one.
    #[default]
    Head,
    /// So many bytes of a body.
    Body(u64),
    /// A chunk's size or what stands around its data.
    Chunk(Chunk),
    /// So many bytes of a chunk's data.
    Data(u64),
    /// Nobody knows: no later head counts.
    Lost,
}

/// The next byte around chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    /// The first digit of a size.
    Start,
    /// Another digit, or what follows the last.
    Size(u64),
    /// Blanks behind a size.
    Blank(u64),
    /// An extension, up to its CR.
    Extension(u64),
    /// The LF behind a size.
    SizeLf(u64),
    /// The CR and the LF behind a chunk's data.
    DataCr,
    DataLf,
    /// The start of a trailer, or of the empty line that ends the body.
    Line,
    /// A trailer, up to its CR.
    Trailer,
    TrailerLf,
    /// The LF of the empty line.
    LastLf,
}

impl Framing {
    /// Takes note of bytes that were read.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (state, taken) = match self.state {
                State::Head => self.head(bytes),
                State::Body(left) => skip(left, bytes, State::Body, State::Head),
                State::Data(left) => skip(left, bytes, State::Data, State::Chunk(Chunk::DataCr)),
                State::Chunk(chunk) => (chunk.next(bytes[0]), 1),
                State::Lost => return,
            };
            self.state = state;
            bytes = &bytes[taken..];
        }
    }

    /// Heads that were complete and in order so far.
    pub(super) fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether a request with a body has come.
    pub(super) fn had_body(&self) -> bool {
        self.had_body
    }

    /// At most one line of a head.
    fn head(&mut self, bytes: &[u8]) -> (State, usize) {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.head.line(bytes);
            return (State::Head, bytes.len());
        };
        self.head.line(&bytes[..end]);
        let state = match self.head.line_end() {
            Line::More => State::Head,
            Line::Refused => State::Lost,
            Line::Last => {
                self.heads += 1;
                let next = match std::mem::take(&mut self.head) {
                    Head { has_coding: true, .. } => State::Chunk(Chunk::Start),
                    Head { length: Some(length @ 1..), .. } => State::Body(length),
                    _ => State::Head,
                };
                self.had_body |= next != State::Head;
                next
            }
        };
        (state, end + 1)
    }
}

/// Passes over bytes whose content does not matter.
fn skip(left: u64, bytes: &[u8], more: impl Fn(u64) -> State, after: State) -> (State, usize) {
    match usize::try_from(left) {
        Ok(left) if left <= bytes.len() => (after, left),
        _ => (more(left - bytes.len() as u64), bytes.len()),
    }
}

/// A head, between two reads.
#[derive(Debug, Default)]
struct Head {
    /// The line's first bytes, in lower case, and how many there are.
    prefix: [u8; PREFIX],
    seen: usize,
    /// How long the line is so far.
    line_length: usize,
    before: u8,
    /// Not only empty lines so far.
    begun: bool,
    /// What `Content-Length` says, and what it says in this line.
    length: Option<u64>,
    value: Length,
    has_length: bool,
    has_coding: bool,
}

/// What follows a line.
enum Line {
    More,
    Last,
    Refused,
}

impl Head {
    /// A line or a part of one, without its LF.
    fn line(&mut self, part: &[u8]) {
        for byte in part.iter().take(PREFIX - self.seen) {
            self.prefix[self.seen] = byte.to_ascii_lowercase();
            self.seen += 1;
        }
        if self.prefix[..self.seen].starts_with(LENGTH) {
            let value = LENGTH.len().saturating_sub(self.line_length);
            part.get(value..).unwrap_or_default().iter().for_each(|byte| self.value.push(*byte));
        }
        self.line_length = self.line_length.saturating_add(part.len());
        self.before = part.last().copied().unwrap_or(self.before);
    }

    /// At the LF of a line.
    fn line_end(&mut self) -> Line {
        let prefix = &self.prefix[..self.seen];
        let (is_empty, ends_well) = (prefix == b"\r", self.before == b'\r');
        if prefix.starts_with(LENGTH) {
            let value = std::mem::take(&mut self.value).value();
            let differs = self.has_length && self.length != value;
            (self.has_length, self.length) = (true, value);
            if value.is_none() || differs {
                return Line::Refused; // As hyper does.
            }
        }
        self.has_coding |= prefix.starts_with(CODING);
        (self.seen, self.line_length, self.before) = (0, 0, 0);
        match (ends_well, is_empty) {
            (false, _) => Line::Refused,
            _ if self.has_length && self.has_coding => Line::Refused,
            (true, true) if self.begun => Line::Last,
            (true, true) => Line::More, // Before a head.
            (true, false) => {
                self.begun = true;
                Line::More
            }
        }
    }
}

/// A length in digits.
#[derive(Debug, Default)]
enum Length {
    #[default]
    None,
    Digits(u64),
    /// Blanks behind the digits.
    Over(u64),
    Invalid,
}

impl Length {
    fn push(&mut self, byte: u8) {
        *self = match (&self, byte) {
            (Self::None, b' ' | b'\t') => Self::None,
            (Self::None, b'0'..=b'9') => Self::Digits(u64::from(byte - b'0')),
            (Self::Digits(length), b'0'..=b'9') => {
                let more = length.checked_mul(10).and_then(|length| length.checked_add(u64::from(byte - b'0')));
                more.map_or(Self::Invalid, Self::Digits)
            }
            (Self::Digits(length) | Self::Over(length), b' ' | b'\t' | b'\r') => Self::Over(*length),
            _ => Self::Invalid,
        }
    }

    fn value(self) -> Option<u64> {
        match self {
            Self::Digits(length) | Self::Over(length) => Some(length),
            Self::None | Self::Invalid => None,
        }
    }
}

impl Chunk {
    /// What comes after `byte`, as hyper's decoder has it.
    fn next(self, byte: u8) -> State {
        let size = |size: u64, byte: u8| {
            let digit = u64::from(char::from(byte).to_digit(16)?);
            size.checked_mul(16)?.checked_add(digit)
        };
        State::Chunk(match (self, byte) {
            (Self::Start, byte) => match size(0, byte) {
                Some(size) => Self::Size(size),
                None => return State::Lost,
            },
            (Self::Size(length) | Self::Blank(length), b' ' | b'\t') => Self::Blank(length),
            (Self::Size(length) | Self::Blank(length), b';') => Self::Extension(length),
            (Self::Size(length) | Self::Blank(length) | Self::Extension(length), b'\r') => Self::SizeLf(length),
            (Self::Size(length), byte) => match size(length, byte) {
                Some(size) => Self::Size(size),
                None => return State::Lost,
            },
            (Self::Extension(length), byte) if byte != b'\n' => Self::Extension(length),
            (Self::SizeLf(0), b'\n') => Self::Line,
            (Self::SizeLf(length), b'\n') => return State::Data(length),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Start,
            (Self::Line, b'\r') => Self::LastLf,
            (Self::LastLf, b'\n') => return State::Head,
            (Self::Trailer, b'\r') => Self::TrailerLf,
            (Self::TrailerLf, b'\n') => Self::Line,
            (Self::Line | Self::Trailer, _) => Self::Trailer,
            _ => return State::Lost,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Heads that count in what comes in pieces of `size` bytes.
    fn heads(bytes: &[u8], size: usize) -> u64 {
        let mut framing = Framing::default();
        bytes.chunks(size).for_each(|piece| framing.follow(piece));
        framing.heads()
    }

    fn assert_heads(rows: &[(&[u8], u64)]) {
        for (bytes, expected) in rows {
            for size in 1..=bytes.len() {
                assert_eq!(heads(bytes, size), *expected, "{:?} by {size}", String::from_utf8_lossy(bytes));
            }
        }
    }

    #[test]
    fn what_others_may_read_otherwise_does_not_count() {
        assert_heads(&[
            (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1),
            (b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 1),
            (b"GET / HTTP/1.1\r\nHost: a\r\n", 0),
            (b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 0),
            (b"GET / HTTP/1.1\nHost: a\r\n\r\n", 0),
            (b"GET / HTTP/1.1\r\nHost: a\n\r\n", 0),
            (b"GET / HTTP/1.1\r\nHost: a\r\n\n", 0),
            (b"POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", 0),
            (b"POST / HTTP/1.1\r\nTRANSFER-ENCODING: x\r\nX: y\r\ncontent-length: 4\r\n\r\n", 0),
            (b"\r\nPOST / HTTP/1.1\r\nTransfer-Encoding: x\r\ncontent-length: 4\r\n\r\n", 0),
        ]);
    }

    #[test]
    fn the_next_head_begins_where_the_body_ends() {
        const GET: &str = "GET / HTTP/1.1\r\n\r\n";
        let rows = [
            ("", 2),
            ("content-length: 0\r\n\r\n", 2),
            ("Content-Length:4\r\n\r\na\nb\n", 2),
            ("content-length: 5 \r\n\r\nGET /", 2),
            ("content-length: 4\r\ncontent-length: 4\r\n\r\nabcd", 2),
            ("transfer-encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\n", 2),
            ("Transfer-Encoding: chunked\r\n\r\n0A ;x=\"y\"\r\n0123456789\r\n00\r\nx-sum: 1\r\ny: 2\r\n\r\n", 2),
            ("content-length: 21\r\n\r\nabc", 1), // The other head is the body's.
            ("content-length: 4\r\ncontent-length: 5\r\n\r\nabcd", 0),
            ("content-length: 4, 4\r\n\r\nabcd", 0),
            ("content-length: 99999999999999999999\r\n\r\n", 0),
            ("transfer-encoding: chunked\r\n\r\nx\r\n\r\n", 1),
            ("transfer-encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", 1),
            ("transfer-encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n", 1),
            ("transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 1),
        ];
        for (first, expected) in rows {
            let end = if first.is_empty() { "\r\n" } else { "" };
            let bytes = format!("POST / HTTP/1.1\r\n{first}{end}{GET}");
            assert_heads(&[(bytes.as_bytes(), expected)]);
        }
    }

    /// Goal: a second request that hides behind a first one is seen, however they arrive.
    #[test]
    fn nothing_counts_after_what_was_refused() {
        let smuggled =
            b"GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n\
            0\r\n\r\nGET /admin HTTP/1.1\r\n\r\n";
        assert_heads(&[(smuggled, 1)]);
    }
}
