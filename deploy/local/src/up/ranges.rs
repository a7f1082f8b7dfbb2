//! Address ranges of one cluster: a part of loopback that no other cluster on the machine uses.
//!
//! Linux accepts connections on every address of 127.0.0.0/8. Each cluster takes one second octet N. Pods are in
//! 127.N.0.0/17, of which planes have the last addresses, and ClusterIPs are in 127.N.128.0/17. A cluster locks its N
//! by a bound Unix socket. The name of the socket is in the abstract namespace, which belongs to the machine's network
//! as the addresses do: no file is left behind, all users share it, and the kernel releases it if the process is
//! killed.

use crate::{Range, node};
use std::net::{IpAddr, Ipv4Addr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Second octets to choose from. Lower and higher ones are left to programs with fixed addresses.
const OCTETS: std::ops::RangeInclusive<u8> = 64..=250;

/// Maximum number of planes of one kind.
const PLANES_MAX: usize = 100;

/// Address ranges of one cluster, locked while this value lives.
#[derive(Debug)]
pub struct Ranges {
    /// Addresses of pods.
    pub pods: Range,
    /// ClusterIPs.
    pub services: Range,
    _lock: UnixListener,
}

impl Ranges {
    /// Takes the first free octet. The search begins at an octet that depends on `seed`, so that clusters rarely
    /// collide. Given ranges replace the default parts. Fails if all octets are taken.
    pub fn take(seed: u32, pods: Option<Range>, services: Option<Range>) -> anyhow::Result<Self> {
        let (first, last) = (*OCTETS.start(), *OCTETS.end());
        let count = u32::from(last - first) + 1;
        for turn in 0..count {
            let octet = first + u8::try_from(seed.wrapping_add(turn) % count).unwrap_or(0);
            let name = SocketAddr::from_abstract_name(format!("zeroscale-range-{octet}"))?;
            // A program left by a killed cluster would respond in place of one of the new cluster.
            let is_occupied = || node::has_listener(|ip| ip.octets()[..2] == [127, octet]);
            if let Ok(lock) = UnixListener::bind_addr(&name)
                && !is_occupied()
            {
                let range = |rest: &str| format!("127.{octet}.{rest}").parse();
                let pods = pods.map_or_else(|| range("0.0/17"), Ok)?;
                let services = services.map_or_else(|| range("128.0/17"), Ok)?;
                return Ok(Self { pods, services, _lock: lock });
            }
        }
        anyhow::bail!(
            "all {count} loopback ranges 127.{first}.0.0/16 to 127.{last}.0.0/16 are in use by other clusters"
        )
    }

    /// Returns the address of activator `index`.
    pub fn activator(&self, index: usize) -> IpAddr {
        self.plane(2 * index).into()
    }

    /// Returns the address of autoscaler `index`.
    pub fn autoscaler(&self, index: usize) -> IpAddr {
        self.plane(2 * index + 1).into()
    }

    /// Returns the addresses of the pods' range that belong to planes.
    pub(super) fn reserved(&self) -> Vec<Ipv4Addr> {
        (0..2 * PLANES_MAX).map(|position| self.plane(position)).collect()
    }

    /// Returns the address of a plane, counted from the end of the pods' range. The last two addresses are not used.
    fn plane(&self, position: usize) -> Ipv4Addr {
        let from_the_end = u32::try_from(position).unwrap_or(0) + 3;
        self.pods.nth(self.pods.size().saturating_sub(from_the_end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn octet(ranges: &Ranges) -> u8 {
        ranges.pods.nth(0).octets()[1]
    }

    /// Goal: programs left by a killed cluster are not mistaken for those of another cluster.
    #[test]
    fn a_range_with_a_listener_is_skipped() {
        let first = octet(&Ranges::take(60, None, None).expect("one is free"));
        let _stray = TcpListener::bind((Ipv4Addr::new(127, first, 0, 9), 0)).expect("a free port");
        let next = octet(&Ranges::take(60, None, None).expect("one is free"));
        assert_ne!(next, first);
    }

    #[test]
    fn two_clusters_take_disjoint_ranges_with_reserved_planes() {
        let first = Ranges::take(7, None, None).expect("free");
        let second = Ranges::take(7, None, None).expect("free");
        assert_ne!(octet(&first), octet(&second));
        let reserved = first.reserved();
        for plane in [first.activator(0), first.autoscaler(99)] {
            assert!(reserved.iter().any(|address| *address == plane), "{plane} is reserved");
        }
    }
}
