//! Identifies clients by address, for shares of limited resources.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the address that identifies a client: IPv4 also if it is mapped into IPv6, and the /64 network of an IPv6
/// address, because one host owns all of it.
pub(crate) fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}
