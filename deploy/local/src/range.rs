//! A range of IPv4 addresses: where pods or Services get theirs.

use ipnet::Ipv4Net;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// A range of IPv4 addresses, written `127.8.0.0/17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range(Ipv4Net);

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
        self.0.network()
    }

    /// Its address number `index`, counted from 0; beyond the last one it begins again.
    pub(crate) fn nth(self, index: u32) -> Ipv4Addr {
        self.first() | Ipv4Addr::from_bits(index & (self.size() - 1))
    }

    /// How many addresses it has.
    pub fn size(self) -> u32 {
        1 << (32 - self.0.prefix_len())
    }

    /// Whether `address` lies in it.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        self.0.contains(&address)
    }

    /// Whether it touches 127.0.0.0/8, which a real API server refuses as a pod's address in a slice.
    pub fn is_loopback(self) -> bool {
        self.first().is_loopback() || self.0.broadcast().is_loopback()
    }
}

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let malformed = || RangeError::Malformed(text.to_owned());
        let (address, prefix) = text.split_once('/').ok_or_else(malformed)?;
        let (address, prefix) = address.parse().ok().zip(prefix.parse().ok()).ok_or_else(malformed)?;
        let net = Ipv4Net::new(address, prefix).ok().filter(|net| (1..=28).contains(&net.prefix_len()));
        let net = net.ok_or_else(|| RangeError::Prefix(text.to_owned()))?;
        if net.addr() != net.network() {
            return Err(RangeError::HostBits(text.to_owned(), net.network()));
        }
        Ok(Range(net))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
