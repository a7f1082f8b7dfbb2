//! Range of IPv4 addresses for pods or Services.

use anyhow::{Context as _, ensure};
use ipnet::Ipv4Net;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Range of IPv4 addresses, written `127.8.0.0/17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range(Ipv4Net);

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
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts = text.split_once('/').and_then(|(address, prefix)| address.parse().ok().zip(prefix.parse().ok()));
        let (address, prefix) = parts.with_context(|| {
            format!(
                "{text:?} is not a range of addresses: write an IPv4 address and a prefix length, like 127.8.0.0/17"
            )
        })?;
        let net = Ipv4Net::new(address, prefix).ok().filter(|net| (1..=28).contains(&net.prefix_len()));
        let net = net.with_context(|| {
            format!("the prefix length of {text:?} must lie between 1 and 28, so that there is room for some pods")
        })?;
        ensure!(
            net.addr() == net.network(),
            "{text:?} has address bits beyond its prefix length; the range begins at {}",
            net.network()
        );
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
    fn an_invalid_range_is_rejected_with_the_rule() {
        let range: Range = "127.8.0.0/17".parse().expect("valid");
        assert_eq!((range.first(), range.size()), ([127, 8, 0, 0].into(), 32768));
        let rows = [
            (&["127.8.0.0", "x/8", "127.8.0.0/x"][..], "is not a range of addresses"),
            (&["0.0.0.0/0", "127.0.0.0/29", "127.0.0.0/33"], "must lie between 1 and 28"),
            (&["127.8.1.0/17"], "the range begins at 127.8.0.0"),
        ];
        for (texts, rule) in rows {
            for text in texts {
                let error = text.parse::<Range>().expect_err(text).to_string();
                assert!(error.contains(text) && error.contains(rule), "{error}");
            }
        }
    }

    #[test]
    fn ranges_that_overlap_loopback_are_detected() {
        for (text, expected) in [("127.8.0.0/17", true), ("10.0.0.0/8", false), ("64.0.0.0/2", true)] {
            assert_eq!(text.parse::<Range>().expect("valid").is_loopback(), expected, "{text}");
        }
    }
}
