//! `config-ports`: TCP port numbers that workloads may have on the activators.
//!
//! The single key `range`, as in `20000-29999`, gives the first and last number. If it changes, workloads whose numbers
//! are outside the new range move to new numbers, and no port is closed on the way.
//!
//! Not rejected, but best avoided: the machine's ephemeral ports (`ip_local_port_range`, 32768 and above on Linux).
//! Some of them are in use at any moment, and a number in use is skipped.

use super::{ConfigError, Reader, ensure};
use crate::names;
use std::collections::BTreeMap;
use std::fmt;

/// Key of the range.
const RANGE: &str = "range";
/// First number that needs no privileges.
const FIRST_MIN: u16 = 1024;
/// Numbers on which activators listen themselves: profiles, HTTP/1.1, h2c, TLS, metrics.
const RESERVED: [u16; 5] = [8008, names::ACTIVATOR_HTTP1_PORT, names::ACTIVATOR_H2C_PORT, names::HTTPS_PORT, 9090];

/// Content of `config-ports`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortsConfig {
    /// `range`, default 20000-29999.
    pub range: PortRange,
}

/// Range of port numbers, including both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// First number, at least 1024.
    pub first: u16,
    /// Last number, not below the first.
    pub last: u16,
}

impl PortRange {
    /// Reports whether the range contains a number.
    pub fn contains(self, number: u16) -> bool {
        (self.first..=self.last).contains(&number)
    }

    /// Returns the number of ports.
    pub fn len(self) -> usize {
        usize::from(self.last.saturating_sub(self.first)) + 1
    }

    /// Returns false: a range has at least one number.
    pub fn is_empty(self) -> bool {
        false
    }
}

impl Default for PortRange {
    fn default() -> Self {
        Self { first: 20_000, last: 29_999 }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl PortsConfig {
    /// Reads and checks the map's data.
    ///
    /// # Errors
    /// Fails if the range is not FIRST-LAST, begins below 1024, ends before it begins, or contains a port on which
    /// activators listen themselves.
    pub fn from_map(data: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let range = match Reader(data).first(&[RANGE]) {
            None => PortRange::default(),
            Some((key, text)) => parse(text).ok_or_else(|| ConfigError {
                key: key.to_owned(),
                value: text.to_owned(),
                rule: "must be two port numbers with a dash between them, as in 20000-29999".to_owned(),
            })?,
        };
        let rule = format!("must begin at {FIRST_MIN} or above");
        ensure(range.first >= FIRST_MIN, RANGE, range, rule)?;
        ensure(range.first <= range.last, RANGE, range, "must not end before it begins")?;
        for own in RESERVED {
            let rule = format!("must not hold {own}, which activators listen on themselves");
            ensure(!range.contains(own), RANGE, range, rule)?;
        }
        Ok(Self { range })
    }
}

fn parse(text: &str) -> Option<PortRange> {
    let (first, last) = text.split_once('-')?;
    Some(PortRange { first: first.trim().parse().ok()?, last: last.trim().parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::map;

    #[test]
    fn a_range_is_read_or_refused_with_its_rule() {
        let rows = [
            ("20000-29999", Ok((20_000, 29_999))),
            (" 1024 - 1024 ", Ok((1024, 1024))),
            ("9091-65535", Ok((9091, 65_535))),
            ("20000", Err("two port numbers")),
            ("20000-70000", Err("two port numbers")),
            ("a-b", Err("two port numbers")),
            ("1000-2000", Err("1024 or above")),
            ("3000-2000", Err("must not end before")),
            ("8000-8010", Err("must not hold 8008")),
            ("8012-8012", Err("must not hold 8012")),
            ("9000-30000", Err("must not hold 9090")),
        ];
        for (text, expected) in rows {
            match (PortsConfig::from_map(&map(&[("range", text)])), expected) {
                (Ok(PortsConfig { range }), Ok(bounds)) => assert_eq!((range.first, range.last), bounds),
                (Err(error), Err(rule)) => {
                    assert!(error.to_string().starts_with("range = ") && error.to_string().contains(rule), "{error}");
                }
                (read, _) => panic!("{text:?}: {read:?}"),
            }
        }
        let default = PortsConfig::from_map(&map(&[])).expect("the default").range;
        assert_eq!((default.to_string().as_str(), default.len(), default.is_empty()), ("20000-29999", 10_000, false));
    }
}
