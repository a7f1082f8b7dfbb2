//! Parser for the lines of a head, as far as they determine the end of its body and the position of its target.

use super::FramingState;
use super::chunk::Chunk;
use super::target::Target;

/// Field names in lower case, with their colons.
const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";
const UPGRADE: &[u8] = b"upgrade:";

/// Length at which a value of `Content-Length`, including blanks and CR, is rejected, because it may be cut off.
const VALUE_MAX: usize = 32;

/// State of a head between two reads.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// A line that is not empty has been read.
    pub(super) begun: bool,
    length: Option<u64>,
    has_coding: bool,
    pub(super) has_upgrade: bool,
    /// Target in the first line that is not empty.
    target: Target,
}

pub(super) enum AfterLine {
    More,
    /// The head is complete.
    Last,
    Refused,
}

impl Head {
    /// Calls `replace` with the position of each byte in a part of a line that belongs to the target but not to a URI.
    /// The line must not have ended yet.
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

    /// Reads a line, which ends with CR.
    pub(super) fn line(&mut self, line: &[u8]) -> AfterLine {
        if has_name(line, LENGTH) {
            // hyper rejects an invalid length too.
            let value = &line[LENGTH.len()..];
            let length = length(value).filter(|_| value.len() < VALUE_MAX);
            if length.is_none() || self.length.is_some() && self.length != length {
                return AfterLine::Refused;
            }
            self.length = length;
        }
        self.has_coding |= has_name(line, CODING);
        self.has_upgrade |= has_name(line, UPGRADE);
        let is_empty = line == b"\r";
        if self.length.is_some() && self.has_coding {
            return AfterLine::Refused;
        }
        if is_empty && self.begun {
            return AfterLine::Last;
        }
        self.begun |= !is_empty; // Empty lines may precede a head.
        AfterLine::More
    }

    /// Returns the state after the complete head.
    pub(super) fn next(self) -> FramingState {
        match self {
            Self { has_coding: true, .. } => FramingState::Chunk(Chunk::Size),
            Self { length: Some(length @ 1..), .. } => FramingState::Body(length),
            _ => FramingState::Head,
        }
    }
}

fn has_name(line: &[u8], name: &[u8]) -> bool {
    line.get(..name.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(name))
}

/// Returns the length that `value` consists of, besides blanks around it.
fn length(value: &[u8]) -> Option<u64> {
    let value = str::from_utf8(value).ok()?.trim_start_matches([' ', '\t']).trim_end_matches([' ', '\t', '\r']);
    value.parse().ok().filter(|_| value.bytes().all(|byte| byte.is_ascii_digit()))
}
