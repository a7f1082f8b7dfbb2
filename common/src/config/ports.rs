//! `config-ports`: TCP port numbers that workloads may have on the activators.
//!
//! - `range`, as in `20000-29999`, gives the first and last number. If it changes, workloads whose numbers are outside
//!   the new range move to new numbers, and no port is closed on the way.
//! - `guarded`, as in `10000-19999`, gives the numbers of workloads whose pods are selected by NetworkPolicies. The
//!   activators' general NetworkPolicy does not open them. Default: 10000-19999. If `range` contains some of these, the
//!   default is up to 10000 numbers directly below or above `range`, whichever side has more. `off`: NetworkPolicies of
//!   workloads are not followed.
//!
//! Not rejected, but best avoided: the machine's ephemeral ports (`ip_local_port_range`, 32768 and above on Linux).
//! Some of them are in use at any moment, and a number in use is skipped.

use super::{ConfigError, Reader, ensure};
use crate::names;
use std::collections::BTreeMap;
use std::fmt;

const RANGE: &str = "range";
const GUARDED_KEY: &str = "guarded";
/// Value of `guarded` for an install that does not follow NetworkPolicies.
const OFF: &str = "off";
const GUARDED: PortRange = PortRange { first: 10_000, last: 19_999 };
/// First number that needs no privileges.
const FIRST_MIN: u16 = 1024;
/// Numbers on which activators listen themselves: HTTP/1.1, h2c, TLS, metrics; and 8008, on which those of earlier
/// versions listen.
const RESERVED: [u16; 5] = [8008, names::ACTIVATOR_HTTP1_PORT, names::ACTIVATOR_H2C_PORT, names::HTTPS_PORT, 9090];

/// Content of `config-ports`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortsConfig {
    /// `range`, default 20000-29999.
    pub range: PortRange,
    /// `guarded`, default 10000-19999; `None` if there is no room for it below or above the range.
    pub guarded: Option<PortRange>,
    /// Set unless `guarded` is `off`.
    pub follows_policies: bool,
}

impl Default for PortsConfig {
    fn default() -> Self {
        let range = PortRange::default();
        Self { range, guarded: default_guarded(range), follows_policies: true }
    }
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

    fn is_disjoint(self, other: Self) -> bool {
        self.last < other.first || other.last < self.first
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
    /// Reads and checks the map's data. Fails if a range is not FIRST-LAST, begins below 1024, ends before it begins,
    /// or contains a port on which activators listen themselves; or if the two ranges share numbers.
    pub fn from_map(data: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let text_of = |key| Reader(data).first(&[key]).map(|(_, text)| text);
        let range = text_of(RANGE).map_or(Ok(PortRange::default()), |text| read(RANGE, text))?;
        let guarded = match text_of(GUARDED_KEY) {
            None => default_guarded(range),
            Some(OFF) => return Ok(Self { range, guarded: None, follows_policies: false }),
            Some(text) => Some(read(GUARDED_KEY, text)?),
        };
        if let Some(guarded) = guarded {
            let rule = format!("must not overlap with {RANGE}, which is {range}");
            ensure(guarded.is_disjoint(range), GUARDED_KEY, guarded, rule)?;
        }
        Ok(Self { range, guarded, follows_policies: true })
    }

    /// Reports whether a number is guarded.
    pub fn is_guarded(&self, number: u16) -> bool {
        self.guarded.is_some_and(|guarded| guarded.contains(number))
    }
}

/// Returns the default of `guarded` for a range, or `None` if there is no room.
fn default_guarded(range: PortRange) -> Option<PortRange> {
    if GUARDED.is_disjoint(range) {
        return Some(GUARDED);
    }
    let count = GUARDED.last - GUARDED.first;
    let lowest = RESERVED.into_iter().max().unwrap_or_default() + 1;
    let (last, first) = (range.first - 1, range.last.checked_add(1));
    let below = (lowest <= last).then(|| PortRange { first: lowest.max(last.saturating_sub(count)), last });
    let above = first.map(|first| PortRange { first, last: first.saturating_add(count) });
    let (below_len, above_len) = (below.map_or(0, PortRange::len), above.map_or(0, PortRange::len));
    if below_len >= above_len { below } else { above }
}

fn read(key: &str, text: &str) -> Result<PortRange, ConfigError> {
    let rule = || match key {
        GUARDED_KEY => "must be two port numbers with a hyphen between them, as in 10000-19999, or off".to_owned(),
        _ => "must be two port numbers with a hyphen between them, as in 20000-29999".to_owned(),
    };
    let unread = || ConfigError::new(key, text, rule());
    let range = parse(text).ok_or_else(unread)?;
    check(key, range).map(|()| range)
}

fn check(key: &str, range: PortRange) -> Result<(), ConfigError> {
    ensure(range.first >= FIRST_MIN, key, range, format!("must begin at {FIRST_MIN} or above"))?;
    ensure(range.first <= range.last, key, range, "must not end before it begins")?;
    for own in RESERVED {
        let rule = format!("must not contain {own}, a port of the activators themselves");
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

    /// Goal: each map is read or refused with its rule, and the guarded numbers never overlap the range.
    #[test]
    fn a_map_is_read_or_refused_and_guarded_numbers_are_next_to_the_range() {
        let two_numbers = Err(("range", "two port numbers"));
        let overlap = Err(("guarded", "must not overlap with range"));
        let rows = [
            ("20000-29999", None, Ok(Some("10000-19999"))),
            (" 1024 - 1024 ", None, Ok(Some("10000-19999"))),
            ("21000-21010", None, Ok(Some("10000-19999"))),
            ("19999-30000", None, Ok(Some("9999-19998"))),
            ("19091-60000", None, Ok(Some("9091-19090"))), // Smaller numbers are the activators' own.
            ("19090-30000", None, Ok(Some("30001-40000"))),
            ("10000-19999", None, Ok(Some("20000-29999"))),
            ("15000-65000", None, Ok(Some("9091-14999"))),
            ("9091-65534", None, Ok(Some("65535-65535"))),
            ("9091-65535", None, Ok(None)),
            ("20000-29999", Some("30000-30009"), Ok(Some("30000-30009"))),
            ("20000-29999", Some("off"), Ok(None)),
            ("20000-29999", Some("19000-20000"), overlap),
            ("20000-29999", Some("29999-30000"), overlap),
            ("20000-29999", Some("9000-9100"), Err(("guarded", "must not contain 9090"))),
            ("20000-29999", Some("none"), Err(("guarded", "or off"))),
            ("20000", None, two_numbers),
            ("20000-70000", None, two_numbers),
            ("a-b", None, two_numbers),
            ("1000-2000", None, Err(("range", "1024 or above"))),
            ("3000-2000", None, Err(("range", "must not end before"))),
            ("8000-8010", None, Err(("range", "must not contain 8008"))),
            ("8012-8012", None, Err(("range", "must not contain 8012"))),
            ("9000-30000", None, Err(("range", "must not contain 9090"))),
        ];
        for (range, guarded, expected) in rows {
            let entries: Vec<_> = [("range", range)].into_iter().chain(guarded.map(|text| ("guarded", text))).collect();
            match (PortsConfig::from_map(&map(&entries)), expected) {
                (Ok(read), Ok(expected)) => {
                    assert_eq!(read.range.to_string(), range.replace(' ', ""));
                    assert_eq!(read.guarded.map(|guarded| guarded.to_string()).as_deref(), expected, "{range}");
                    assert_eq!(read.follows_policies, guarded != Some("off"), "{range} {guarded:?}");
                }
                (Err(error), Err((key, rule))) => {
                    assert!(error.key == key && error.to_string().contains(rule), "{error}");
                }
                (read, _) => panic!("{range:?} {guarded:?}: {read:?}"),
            }
        }
        let default = PortsConfig::from_map(&map(&[])).expect("the default");
        assert_eq!(default, PortsConfig::default());
        let range = default.range;
        assert_eq!((range.to_string().as_str(), range.len(), range.is_empty()), ("20000-29999", 10_000, false));
    }
}
