//! Tells clients apart by address, for shares of what is bounded.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the address that counts for a client: IPv4 also where it is mapped into IPv6, and of IPv6 the network of 64 bits
/// that one host has for itself.
pub(crate) fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}
