//! Tracks the message boundaries in a client's HTTP/1 bytes, independently of the parser.
//!
//! hyper accepts input that another proxy in front of us may read differently. Then the two disagree on the end of a
//! request, and one client's bytes become the start of another's request (request smuggling). So this module rejects:
//!
//! - A line of a head that ends with LF alone.
//! - `Content-Length` together with `Transfer-Encoding` (RFC 9112, 6.3, allows a server to reject this; it may be an
//!   attempt to smuggle).
//!
//! # The rule
//!
//! Every byte passes [`Framing::follow`] before the parser reads it. It counts the complete and valid heads, and the
//! server serves the n-th request only if n heads were counted. Neither a rejected head nor any head after it is
//! counted. The result does not depend on when or how the parser reads: a head that did not pass here is not served.
//!
//! A head is read line by line. Of a body only the length matters. Lines around chunks are read as hyper's decoder
//! does, except that each must end with CRLF. If a message is malformed in a way that hyper rejects too, counting just
//! stops.
//!
//! # Changes to the bytes
//!
//! The parser gets the same bytes, except for bytes of a target that are not allowed in a URI ([`target`]): hyper
//! rejects them, but Knative's activator forwards them. Each such byte is percent-encoded as three. Line ends, body
//! lengths and message ends stay the same. Nothing is replaced after a request that asks for an upgrade, because the
//! bytes may belong to a tunnel.

mod chunk;
mod escaped_bytes;
mod head;
mod line;
mod target;

use chunk::Chunk;
use escaped_bytes::Escaped;
use head::{AfterLine, Head};
use line::Line;

/// Position in a connection's bytes.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    state: FramingState,
    /// Current line of a head, or around a chunk's data.
    line: Line,
    head: Head,
    /// Number of complete and valid heads.
    pub(crate) heads: u64,
    pub(crate) had_body: bool,
    /// True if the last bytes continue after the end of a request.
    pub(crate) has_pipelined_bytes: bool,
    pub(crate) unfinished: usize,
    /// True if a request asked for an upgrade.
    may_be_tunnel: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FramingState {
    /// In a head, or before one.
    #[default]
    Head,
    /// Number of bytes left of a body.
    Body(u64),
    /// Around the data of a chunk.
    Chunk(Chunk),
    /// Number of bytes left of a chunk's data.
    Data(u64),
    /// Unknown: no later head counts.
    Lost,
}

impl Framing {
    /// Processes received bytes. Returns the bytes for the parser, if they differ.
    pub(crate) fn follow(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut escaped = Escaped::new(bytes);
        let mut at = 0;
        self.has_pipelined_bytes = false;
        while let rest @ [_, ..] = &bytes[at..] {
            let (was_in_head, heads) = (self.is_in_head(), self.heads);
            let (state, taken) = match self.state {
                FramingState::Head | FramingState::Chunk(_) => self.line(rest, |byte| escaped.replace(at + byte)),
                FramingState::Body(left) => skip(left, rest, FramingState::Body, FramingState::Head),
                FramingState::Data(left) => skip(left, rest, FramingState::Data, FramingState::Chunk(Chunk::DataEnd)),
                FramingState::Lost => break,
            };
            self.state = state;
            at += taken;
            let has_ended = self.is_in_head() && (!was_in_head || self.heads > heads);
            self.has_pipelined_bytes |= has_ended && at < bytes.len();
        }
        escaped.end()
    }

    /// Returns true if only complete requests have arrived.
    pub(crate) fn is_between(&self) -> bool {
        self.is_in_head() && !self.head.begun && self.line.is_empty()
    }

    /// Returns true if the next byte belongs to a head.
    pub(crate) fn is_in_head(&self) -> bool {
        self.state == FramingState::Head
    }

    /// Reads at most one line. `replace` is called with the positions of bytes to encode.
    fn line(&mut self, bytes: &[u8], mut replace: impl FnMut(usize)) -> (FramingState, usize) {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        if self.is_in_head() {
            self.unfinished += part.len() + usize::from(end.is_some());
            if !self.may_be_tunnel {
                let more = &mut self.unfinished;
                self.head.target(part, |at| {
                    *more += 2;
                    replace(at);
                });
            }
        }
        self.line.push(part);
        let Some(end) = end else { return (self.state, bytes.len()) };
        let state = match (self.line.end(), self.state) {
            (None, _) => FramingState::Lost,
            (Some(line), FramingState::Chunk(chunk)) => chunk.next(&line),
            (Some(line), _) => self.head_line(&line),
        };
        (state, end + 1)
    }

    fn head_line(&mut self, line: &[u8]) -> FramingState {
        match self.head.line(line) {
            AfterLine::More => FramingState::Head,
            AfterLine::Refused => FramingState::Lost,
            AfterLine::Last => {
                self.heads += 1;
                self.unfinished = 0;
                self.may_be_tunnel |= self.head.has_upgrade;
                let next = std::mem::take(&mut self.head).next();
                self.had_body |= next != FramingState::Head;
                next
            }
        }
    }
}

/// Skips bytes whose content does not matter.
fn skip(left: u64, bytes: &[u8], more: impl Fn(u64) -> FramingState, after: FramingState) -> (FramingState, usize) {
    match usize::try_from(left) {
        Ok(left) if left <= bytes.len() => (after, left),
        _ => (more(left - bytes.len() as u64), bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the framing after bytes that arrive in pieces of `size`.
    fn followed(bytes: &[u8], size: usize) -> Framing {
        let mut framing = Framing::default();
        bytes.chunks(size).for_each(|piece| drop(framing.follow(piece)));
        framing
    }

    fn assert_heads(rows: &[(&[u8], u64)]) {
        for (bytes, expected) in rows {
            for size in 1..=bytes.len() {
                assert_eq!(followed(bytes, size).heads, *expected, "{:?} by {size}", String::from_utf8_lossy(bytes));
            }
        }
    }

    #[test]
    fn ambiguous_heads_are_not_counted() {
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
            // No head counts after a rejected one, not even in the bytes of its body.
            (
                b"GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n\
                0\r\n\r\nGET /admin HTTP/1.1\r\n\r\n",
                1,
            ),
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
            ("transfer-encoding: chunked\r\n\r\n0\r\na: b\n\r\n", 1),
            ("transfer-encoding: chunked\r\n\r\n0\r\na: b\nc: d\r\n\r\n", 1),
            ("content-length: 21\r\n\r\nabc", 1), // The other head is part of the body.
            ("content-length: 4\r\ncontent-length: 5\r\n\r\nabcd", 0),
            ("content-length: 4, 4\r\n\r\nabcd", 0),
            ("content-length: 99999999999999999999\r\n\r\n", 0),
            ("content-length: 0000000000000000000000000000000000000004\r\n\r\nabcd", 0),
            ("content-length: 4                                       5\r\n\r\nabcd", 0),
            ("content-length: \r\n\r\nabcd", 0),
            ("content-length: +4\r\n\r\nabcd", 0),
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

    #[test]
    fn pipelined_bytes_are_detected() {
        let rows: [(&[u8], bool); 8] = [
            (b"GET / HTTP/1.1\r\n\r\n", false),
            (b"\r\nGET / HTTP/1.1\r\n\r\n", false),
            (b"GET / HTTP/1.1\r\n\r\n\r\n", true),
            (b"GET / HTTP/1.1\r\n\r\nG", true),
            (b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nab", false),
            (b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nabG", true),
            (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", false),
            (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nG", true),
        ];
        for (bytes, expected) in rows {
            let mut framing = Framing::default();
            framing.follow(bytes);
            assert_eq!(framing.has_pipelined_bytes, expected, "{}", String::from_utf8_lossy(bytes));
            framing.follow(b"\r\nG");
            assert!(!framing.has_pipelined_bytes, "no end came with them");
        }
    }

    #[test]
    fn incomplete_requests_and_the_length_of_an_unfinished_head_are_detected() {
        let rows: [(&[u8], bool, usize); 14] = [
            (b"", true, 0),
            (b"\r\n", true, 2),
            (b"G", false, 1),
            (b"GET /", false, 5),
            (b"GET / HTTP/1.1\r\n", false, 16),
            (b"GET / HTTP/1.1\r\nHost: a\r\n", false, 25),
            (b"GET / HTTP/1.1\r\n\r\n", true, 0),
            (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true, 0),
            (b"GET / HTTP/1.1\r\n\r\nGET", false, 3),
            (b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\na", false, 0),
            (b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nab", true, 0),
            (b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nabc", false, 0),
            (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", false, 0),
            (b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", false, 36),
        ];
        for (bytes, is_between, unfinished) in rows {
            for size in 1..=bytes.len().max(1) {
                let framing = followed(bytes, size);
                let result = (framing.is_between(), framing.unfinished);
                assert_eq!(result, (is_between, unfinished), "{:?} by {size}", String::from_utf8_lossy(bytes));
            }
        }
    }
}
