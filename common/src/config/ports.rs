//! `config-ports`: which TCP port numbers workloads may have on the activators.
//!
//! - `range`, as in `20000-29999`, has their first and last number. An edit moves workloads whose numbers are no longer in
//!   it, without a closed port on the way.
//! - `guarded`, as in `18000-19999`, has the numbers of workloads whose pods are selected by NetworkPolicies. The activators'
//!   general NetworkPolicy does not open them. Default: 18000-19999, or if `range` has some of these, as many before `range`, or
//!   after it. `off`: NetworkPolicies of workloads are not followed.
//!
//! Not refused, and to be minded: numbers of the machine's own for outgoing connections (`ip_local_port_range`, 32768 and
//! above on Linux), some of which are in use at any moment; a number in use is skipped.

use super::{ConfigError, Reader, ensure};
use crate::names;
use std::collections::BTreeMap;
use std::fmt;

/// The key.
const RANGE: &str = "range";
const GUARDED_KEY: &str = "guarded";
/// Value of it for an install that does not follow NetworkPolicies.
const OFF: &str = "off";
/// Its default.
const GUARDED: PortRange = PortRange { first: 18_000, last: 19_999 };
/// Numbers below need privileges.
const FIRST_MIN: u16 = 1024;
/// What activators listen on besides: profiles, HTTP/1.1, h2c, TLS, metrics.
const RESERVED: [u16; 5] = [8008, names::ACTIVATOR_HTTP1_PORT, names::ACTIVATOR_H2C_PORT, names::HTTPS_PORT, 9090];

/// What `config-ports` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortsConfig {
    /// `range`, default 20000-29999.
    pub range: PortRange,
    /// `guarded`, default 18000-19999; none: there is no room for it beside the range.
    pub guarded: Option<PortRange>,
    /// Set unless `guarded` is `off`.
    pub follows_policies: bool,
}

impl Default for PortsConfig {
    fn default() -> Self {
        let range = PortRange::default();
        Self { range, guarded: beside(range), follows_policies: true }
    }
}

/// Numbers from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// At least 1024.
    pub first: u16,
    /// No less than the first.
    pub last: u16,
}

impl PortRange {
    /// Whether a number is one of them.
    pub fn contains(self, number: u16) -> bool {
        (self.first..=self.last).contains(&number)
    }

    /// Whether the two share no number.
    fn is_apart(self, other: Self) -> bool {
        self.last < other.first || other.last < self.first
    }

    /// How many there are.
    pub fn len(self) -> usize {
        usize::from(self.last.saturating_sub(self.first)) + 1
    }

    /// Never: there is a first number.
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
    /// A range is not FIRST-LAST, begins below 1024, ends before it begins, or holds a port of the activator's own; or the
    /// two share numbers.
    pub fn from_map(data: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let said = |key| Reader(data).first(&[key]).map(|(_, text)| text);
        let range = said(RANGE).map_or(Ok(PortRange::default()), |text| read(RANGE, text))?;
        let guarded = match said(GUARDED_KEY) {
            None => beside(range),
            Some(OFF) => return Ok(Self { range, guarded: None, follows_policies: false }),
            Some(text) => Some(read(GUARDED_KEY, text)?),
        };
        if let Some(guarded) = guarded {
            let rule = format!("must share no number with {RANGE}, which is {range}");
            ensure(guarded.is_apart(range), GUARDED_KEY, guarded, rule)?;
        }
        Ok(Self { range, guarded, follows_policies: true })
    }

    /// Whether a number is a guarded one.
    pub fn is_guarded(&self, number: u16) -> bool {
        self.guarded.is_some_and(|guarded| guarded.contains(number))
    }
}

/// The default of `guarded` beside a range; none: there is no room.
fn beside(range: PortRange) -> Option<PortRange> {
    let count = GUARDED.last - GUARDED.first + 1;
    let before = range.first.checked_sub(count).map(|first| PortRange { first, last: range.first - 1 });
    let after = range.last.checked_add(count).map(|last| PortRange { first: range.last + 1, last });
    let is_default = GUARDED.is_apart(range).then_some(GUARDED);
    [is_default, before, after].into_iter().flatten().find(|range| check(GUARDED_KEY, *range).is_ok())
}

fn read(key: &str, text: &str) -> Result<PortRange, ConfigError> {
    let rule = || match key {
        GUARDED_KEY => "must be two port numbers with a dash between them, as in 18000-19999, or off".to_owned(),
        _ => "must be two port numbers with a dash between them, as in 20000-29999".to_owned(),
    };
    let unread = || ConfigError { key: key.to_owned(), value: text.to_owned(), rule: rule() };
    let range = parse(text).ok_or_else(unread)?;
    check(key, range).map(|()| range)
}

fn check(key: &str, range: PortRange) -> Result<(), ConfigError> {
    ensure(range.first >= FIRST_MIN, key, range, format!("must begin at {FIRST_MIN} or above"))?;
    ensure(range.first <= range.last, key, range, "must not end before it begins")?;
    for own in RESERVED {
        let rule = format!("must not hold {own}, which activators listen on themselves");
        ensure(!range.contains(own), key, range, rule)?;
    }
    Ok(())
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
                (Ok(PortsConfig { range, .. }), Ok(bounds)) => assert_eq!((range.first, range.last), bounds),
                (Err(error), Err(rule)) => {
                    assert!(error.to_string().starts_with("range = ") && error.to_string().contains(rule), "{error}");
                }
                (read, _) => panic!("{text:?}: {read:?}"),
            }
        }
        let default = PortsConfig::from_map(&map(&[])).expect("the default").range;
        assert_eq!((default.to_string().as_str(), default.len(), default.is_empty()), ("20000-29999", 10_000, false));
    }

    /// Goal: guarded numbers are beside the range, wherever that is, and never among the others.
    #[test]
    fn guarded_numbers_are_beside_the_range() {
        let rows = [
            ("20000-29999", None, Ok(Some("18000-19999"))),
            ("21000-21010", None, Ok(Some("18000-19999"))),
            ("19999-30000", None, Ok(Some("17999-19998"))),
            ("10000-19999", None, Ok(Some("20000-21999"))), // Numbers of the activators' own are before it.
            ("9091-65535", None, Ok(None)),
            ("20000-29999", Some("30000-30009"), Ok(Some("30000-30009"))),
            ("20000-29999", Some("off"), Ok(None)),
            ("20000-29999", Some("19000-20000"), Err("must share no number with range")),
            ("20000-29999", Some("29999-30000"), Err("must share no number with range")),
            ("20000-29999", Some("9000-9100"), Err("must not hold 9090")),
            ("20000-29999", Some("none"), Err("or off")),
        ];
        for (range, guarded, expected) in rows {
            let entries: Vec<_> = [("range", range)].into_iter().chain(guarded.map(|text| ("guarded", text))).collect();
            match (PortsConfig::from_map(&map(&entries)), expected) {
                (Ok(read), Ok(expected)) => {
                    assert_eq!(read.guarded.map(|guarded| guarded.to_string()).as_deref(), expected, "{range}");
                    assert_eq!(read.follows_policies, guarded != Some("off"), "{range} {guarded:?}");
                }
                (Err(error), Err(rule)) => {
                    assert!(error.to_string().starts_with("guarded = ") && error.to_string().contains(rule), "{error}");
                }
                (read, _) => panic!("{range} {guarded:?}: {read:?}"),
            }
        }
        assert_eq!(PortsConfig::from_map(&map(&[])).expect("the default"), PortsConfig::default());
    }
}
