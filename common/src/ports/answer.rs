//! What an activator answers on a workload's number to who asks with `K-Network-Probe: activator`.
//!
//! Beside status and body of every such answer (200, `activator`), the header [`HEADER`]:
//! `INSTANCE UID held` or `INSTANCE UID closing`: which process answers, which workload has the number there, and whether
//! the number may be written into slices (it may not once it was released). The instance is chosen at each start, so that a process that comes back at the same address
//! is told from the one before.

use std::fmt;

const HELD: &str = "held";
const CLOSING: &str = "closing";

/// Name of the header, in lower case.
pub const HEADER: &str = "zeroscale-port";

/// What the header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The process that answers, until it ends.
    pub instance: String,
    /// uid of the ZeroScaler whose number this is.
    pub uid: String,
    /// Whether the workload still has it, to the process that answers.
    pub is_held: bool,
}

impl Listening {
    /// Reads the header's value.
    pub fn parse(value: &str) -> Option<Self> {
        let mut words = value.split_ascii_whitespace().map(str::to_owned);
        let (instance, uid) = (words.next()?, words.next()?);
        let state = words.next().filter(|state| state == HELD || state == CLOSING)?;
        words.next().is_none().then_some(Self { instance, uid, is_held: state == HELD })
    }
}

/// The header's value.
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
