//! Range of IPv4 addresses for pods or Services.

use ipnet::Ipv4Net;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Range of IPv4 addresses, written `127.8.0.0/17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range(Ipv4Net);

/// Error of a text that is not a usable range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The text is not `ADDRESS/PREFIX`.
    #[error("{0:?} is not a range of addresses: write an IPv4 address and a prefix length, like 127.8.0.0/17")]
    Malformed(String),
    /// The prefix length is not between 1 and 28.
    #[error("the prefix length of {0:?} must lie between 1 and 28, so that there is room for some pods")]
    Prefix(String),
    /// The address has bits beyond the prefix.
    #[error("{0:?} has address bits beyond its prefix length; the range begins at {1}")]
    HostBits(String, Ipv4Addr),
}

impl Range {
    /// Returns the first address.
    pub fn first(self) -> Ipv4Addr {
        self.0.network()
    }

    /// Returns the address with this index, counted from 0. The index wraps around at the end of the range.
    pub(crate) fn nth(self, index: u32) -> Ipv4Addr {
        self.first() | Ipv4Addr::from_bits(index & (self.size() - 1))
    }

    /// Returns the number of addresses.
    pub fn size(self) -> u32 {
        1 << (32 - self.0.prefix_len())
    }

    /// Reports whether the range contains `address`.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        self.0.contains(&address)
    }

    /// Reports whether the range overlaps 127.0.0.0/8. A real API server rejects such pod addresses in an
    /// EndpointSlice.
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
