//! The response header of an activator that is probed with `K-Network-Probe: activator` on a workload's port number.
//!
//! Every such response has status 200, the body `activator` and the header [`HEADER`]: `INSTANCE UID held` or `INSTANCE
//! UID closing`. The header names the process, the workload that has the number there, and whether the number may be
//! written into slices. A released number is `closing` and may not. The instance is random for each start. It
//! distinguishes a restarted process at the same address from the former one.

use std::fmt;

const HELD: &str = "held";
const CLOSING: &str = "closing";

/// Name of the header, in lower case.
pub const HEADER: &str = "zeroscale-port";

/// Content of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Identifier of the responding process, valid until it ends.
    pub instance: String,
    /// Uid of the ZeroScaler that owns this number.
    pub uid: String,
    /// Set if the responding process regards the number as held by the workload.
    pub is_held: bool,
}

impl Listening {
    /// Parses the header's value.
    pub fn parse(value: &str) -> Option<Self> {
        let mut words = value.split_ascii_whitespace().map(str::to_owned);
        let (instance, uid) = (words.next()?, words.next()?);
        let state = words.next().filter(|state| state == HELD || state == CLOSING)?;
        words.next().is_none().then_some(Self { instance, uid, is_held: state == HELD })
    }
}

/// Formats the header's value.
impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.instance, self.uid, if self.is_held { HELD } else { CLOSING })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_is_written() {
        for (value, is_held) in [("i7 0b7d held", true), ("i7 0b7d closing", false)] {
            let read = Listening::parse(value);
            assert_eq!(read.as_ref().map(|read| read.is_held), Some(is_held));
            assert_eq!(read.map(|read| read.to_string()).as_deref(), Some(value));
        }
        for value in ["", "i7", "i7 0b7d", "i7 0b7d closed", "i7 0b7d held x"] {
            assert_eq!(Listening::parse(value), None, "{value:?}");
        }
    }
}
