//! Parser for the lines of a head, as far as they determine the end of its body and the position of its target.

use super::target::Target;
use smallvec::SmallVec;

/// Field names in lower case, with their colons.
const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";
const UPGRADE: &[u8] = b"upgrade:";

/// Number of bytes of a line that suffices to recognize the names.
const PREFIX: usize = CODING.len();

/// Number of bytes that no `Content-Length` has, with the blanks around it and its CR. A longer one is refused.
const VALUE_MAX: usize = 32;

/// State of a head between two reads.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// First bytes of the line in lower case, and their number.
    prefix: [u8; PREFIX],
    seen: usize,
    /// Length of the line so far.
    line_length: usize,
    before: u8,
    /// A line that is not empty has been read.
    begun: bool,
    /// Value of `Content-Length`, and the first bytes of the value in this line.
    length: Option<u64>,
    value: SmallVec<[u8; VALUE_MAX]>,
    has_length: bool,
    has_coding: bool,
    /// The head asks for an upgrade.
    pub(super) has_upgrade: bool,
    /// Target in the first line that is not empty.
    target: Target,
}

/// State after a line.
pub(super) enum AfterLine {
    More,
    /// The head is complete.
    Last,
    Refused,
}

/// Body after a head.
pub(super) enum Body {
    None,
    Length(u64),
    Chunked,
}

impl Head {
    /// Reports whether nothing of the head was read.
    pub(super) fn is_empty(&self) -> bool {
        !self.begun && self.line_length == 0
    }

    /// Calls `replace` with the position of each byte in a part of a line that belongs to the target but not to a URI.
    /// Must be called before [`Head::line`].
    pub(super) fn target(&mut self, part: &[u8], mut replace: impl FnMut(usize)) {
        if self.begun {
            return;
        }
        for (at, byte) in part.iter().enumerate() {
            let (next, is_replaced) = self.target.next(*byte);
            self.target = next;
            if is_replaced {
                replace(at);
            }
        }
    }

    /// Reads a line or a part of one, without its LF.
    pub(super) fn line(&mut self, part: &[u8]) {
        for byte in part.iter().take(PREFIX - self.seen) {
            self.prefix[self.seen] = byte.to_ascii_lowercase();
            self.seen += 1;
        }
        if self.prefix[..self.seen].starts_with(LENGTH) {
            let value = LENGTH.len().saturating_sub(self.line_length);
            let room = VALUE_MAX - self.value.len();
            self.value.extend(part.get(value..).unwrap_or_default().iter().copied().take(room));
        }
        self.line_length = self.line_length.saturating_add(part.len());
        self.before = part.last().copied().unwrap_or(self.before);
    }

    /// Ends a line at its LF.
    pub(super) fn line_end(&mut self) -> AfterLine {
        let prefix = &self.prefix[..self.seen];
        let (is_empty, ends_well) = (prefix == b"\r", self.before == b'\r');
        if prefix.starts_with(LENGTH) {
            let value = length(&std::mem::take(&mut self.value));
            let differs = self.has_length && self.length != value;
            (self.has_length, self.length) = (true, value);
            if value.is_none() || differs {
                return AfterLine::Refused; // hyper rejects this too.
            }
        }
        self.has_coding |= prefix.starts_with(CODING);
        self.has_upgrade |= prefix.starts_with(UPGRADE);
        (self.seen, self.line_length, self.before) = (0, 0, 0);
        match (ends_well, is_empty) {
            (false, _) => AfterLine::Refused,
            _ if self.has_length && self.has_coding => AfterLine::Refused,
            (true, true) if self.begun => AfterLine::Last,
            (true, true) => AfterLine::More, // Before a head.
            (true, false) => {
                self.begun = true;
                AfterLine::More
            }
        }
    }
}

impl Head {
    /// Returns the body that follows the complete head.
    pub(super) fn body(self) -> Body {
        match self {
            Self { has_coding: true, .. } => Body::Chunked,
            Self { length: Some(length @ 1..), .. } => Body::Length(length),
            _ => Body::None,
        }
    }
}

/// Returns the length that `value` consists of, besides blanks around it. A value that may be cut off has none.
fn length(value: &[u8]) -> Option<u64> {
    if value.len() == VALUE_MAX {
        return None;
    }
    let value = str::from_utf8(value).ok()?.trim_start_matches([' ', '\t']).trim_end_matches([' ', '\t', '\r']);
    value.parse().ok().filter(|_| value.bytes().all(|byte| byte.is_ascii_digit()))
}
