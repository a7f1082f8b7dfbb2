//! A range of IPv4 addresses: where pods or Services get theirs.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// A range of IPv4 addresses, written `127.8.0.0/17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    network: u32,
    prefix: u8,
}

/// Why a text is not a usable range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Not `ADDRESS/PREFIX`.
    #[error("{0:?} is not a range of addresses: write an IPv4 address and a prefix length, like 127.8.0.0/17")]
    Malformed(String),
    /// Too small or larger than IPv4.
    #[error("the prefix length of {0:?} must lie between 1 and 28, so that there is room for some pods")]
    Prefix(String),
    /// Address bits beyond the prefix.
    #[error("{0:?} has address bits beyond its prefix length; the range begins at {1}")]
    HostBits(String, Ipv4Addr),
}

impl Range {
    /// Its first address.
    pub fn first(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network)
    }

    /// Its address number `index`, counted from 0; beyond the last one it begins again.
    pub(crate) fn nth(self, index: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network | (index & (self.size() - 1)))
    }

    /// How many addresses it has.
    pub fn size(self) -> u32 {
        1 << (32 - self.prefix)
    }

    /// Whether `address` lies in it.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() >> (32 - self.prefix) == self.network >> (32 - self.prefix)
    }

    /// Whether it touches 127.0.0.0/8, which a real API server refuses as a pod's address in a slice.
    pub fn is_loopback(self) -> bool {
        let last = Ipv4Addr::from_bits(self.network | (self.size() - 1));
        self.first().is_loopback() || last.is_loopback()
    }
}

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let malformed = || RangeError::Malformed(text.to_owned());
        let (address, prefix) = text.split_once('/').ok_or_else(malformed)?;
        let network = address.parse::<Ipv4Addr>().map_err(|_| malformed())?.to_bits();
        let prefix: u8 = prefix.parse().map_err(|_| malformed())?;
        if !(1..=28).contains(&prefix) {
            return Err(RangeError::Prefix(text.to_owned()));
        }
        let masked = network >> (32 - prefix) << (32 - prefix);
        if masked != network {
            return Err(RangeError::HostBits(text.to_owned(), Ipv4Addr::from_bits(masked)));
        }
        Ok(Range { network, prefix })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first(), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_names_what_is_wrong_with_it() {
        assert_eq!("127.8.0.0/17".parse::<Range>().map(|r| (r.first(), r.size())), Ok(([127, 8, 0, 0].into(), 32768)));
        for text in ["127.8.0.0", "x/8", "127.8.0.0/x"] {
            assert_eq!(text.parse::<Range>(), Err(RangeError::Malformed(text.into())));
        }
        for text in ["0.0.0.0/0", "127.0.0.0/29", "127.0.0.0/33"] {
            assert_eq!(text.parse::<Range>(), Err(RangeError::Prefix(text.into())));
        }
        let odd = "127.8.1.0/17";
        assert_eq!(odd.parse::<Range>(), Err(RangeError::HostBits(odd.into(), [127, 8, 0, 0].into())));
    }

    #[test]
    fn loopback_ranges_are_known_as_such() {
        for (text, expected) in [("127.8.0.0/17", true), ("10.0.0.0/8", false), ("64.0.0.0/2", true)] {
            assert_eq!(text.parse::<Range>().expect("valid").is_loopback(), expected, "{text}");
        }
    }
}
