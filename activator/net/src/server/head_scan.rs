//! Looks at an HTTP/1 head's raw bytes for what hyper's parser forgives and a peer in front of us may read otherwise.
//!
//! - A line that ends with LF alone.
//! - `Content-Length` beside `Transfer-Encoding` (RFC 9112, 6.3: may be refused; whoever wrote both may mean to
//!   smuggle).
//!
//! Where one is found, its last byte is spoiled, so that the parser answers 400 and closes the connection.
//!
//! # Not here
//!
//! A head that came in one piece with the end of the body before it: those bytes are hyper's already when it begins
//! to read the head. hyper reads such a head in the one way that RFC 9112 has for it (chunked wins, closed afterwards),
//! and what goes to the pod is written anew.

/// One name, lower case, with its colon.
const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";

/// As many bytes of a line as tell one of the names.
const PREFIX: usize = CODING.len();

/// One head's state between two reads.
#[derive(Debug)]
pub(super) struct HeadScan {
    /// Whether an empty line may come before the head. Only before a connection's first.
    may_start_empty: bool,
    prefix: [u8; PREFIX],
    /// Bytes of this line so far, at most [`PREFIX`].
    seen: usize,
    /// The last byte before this read.
    before: u8,
    has_length: bool,
    has_coding: bool,
    over: bool,
}

impl HeadScan {
    /// At the start of a head; `first` on this connection.
    pub(super) fn new(first: bool) -> Self {
        Self {
            may_start_empty: first,
            prefix: [0; PREFIX],
            seen: 0,
            before: 0,
            has_length: false,
            has_coding: false,
            over: false,
        }
    }

    /// Looks at what was read, and spoils it where it must be refused.
    pub(super) fn scan(&mut self, bytes: &mut [u8]) {
        let mut start = 0;
        while !self.over && start < bytes.len() {
            let rest = &bytes[start..];
            let end = rest.iter().position(|b| *b == b'\n');
            let line = &rest[..end.unwrap_or(rest.len())];
            for byte in line.iter().take(PREFIX - self.seen) {
                self.prefix[self.seen] = byte.to_ascii_lowercase();
                self.seen += 1;
            }
            let last = line.last().copied().unwrap_or(self.before);
            let Some(end) = end else {
                self.before = last;
                return;
            };
            if self.ends_badly(last) {
                bytes[start + end] = 0;
                self.over = true;
            }
            (self.seen, self.before) = (0, b'\n');
            start += end + 1;
        }
    }

    /// At the LF of a line.
    fn ends_badly(&mut self, last: u8) -> bool {
        if last != b'\r' {
            return true;
        }
        let prefix = &self.prefix[..self.seen];
        self.has_length |= prefix.starts_with(LENGTH);
        self.has_coding |= prefix.starts_with(CODING);
        match prefix {
            b"\r" => self.over = !self.may_start_empty,
            _ => self.may_start_empty = false,
        }
        self.has_length && self.has_coding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the head is spoiled, given in pieces of `size` bytes.
    fn is_spoiled(head: &[u8], size: usize) -> bool {
        let mut scan = HeadScan::new(true);
        head.chunks(size).any(|piece| {
            let mut piece = piece.to_vec();
            scan.scan(&mut piece);
            piece.contains(&0)
        })
    }

    #[test]
    fn what_others_may_read_otherwise_is_spoiled_in_pieces_of_any_size() {
        let rows: [(&[u8], bool); 10] = [
            (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", false),
            (b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", false),
            (b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\na\nb\n", false), // A body may hold anything.
            (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n", false),
            (b"GET / HTTP/1.1\nHost: a\r\n\r\n", true),
            (b"GET / HTTP/1.1\r\nHost: a\n\r\n", true),
            (b"GET / HTTP/1.1\r\nHost: a\r\n\n", true),
            (b"POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", true),
            (b"POST / HTTP/1.1\r\nTRANSFER-ENCODING: x\r\nX: y\r\ncontent-length: 4\r\n\r\n", true),
            (b"\r\nPOST / HTTP/1.1\r\nTransfer-Encoding: x\r\ncontent-length: 4\r\n\r\n", true),
        ];
        for (head, expected) in rows {
            for size in 1..=head.len() {
                let text = String::from_utf8_lossy(head);
                assert_eq!(is_spoiled(head, size), expected, "{text:?} in pieces of {size}");
            }
        }
    }

    /// Goal: a later head that was split before its empty line does not have its body taken for lines.
    #[test]
    fn an_empty_line_ends_a_later_head() {
        let mut scan = HeadScan::new(false);
        let mut rest = b"\r\na\nb".to_vec();
        scan.scan(&mut rest);
        assert_eq!(rest, b"\r\na\nb");
    }
}
