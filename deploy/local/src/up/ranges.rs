//! Address ranges of one cluster: a part of loopback that no other cluster on the machine uses.
//!
//! Linux accepts connections on every address of 127.0.0.0/8. Each cluster takes one second octet N: pods get
//! 127.N.0.0/18, the planes 127.N.64.0/18, and ClusterIPs 127.N.128.0/17. A Unix socket per N, bound while the cluster
//! lives, separates clusters. Its name is in the abstract namespace, which belongs to the machine's network as the
//! addresses do: no file is left behind, all users share it, and the kernel releases it even if the process is killed.

use crate::{Range, node};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Second octets to choose from. The low ones and the highest ones are left to programs with fixed addresses.
const OCTETS: std::ops::RangeInclusive<u8> = 64..=250;

/// Third octets of the first activators and of the first autoscalers.
const ACTIVATORS: u8 = 64;
const AUTOSCALERS: u8 = 96;

/// Maximum number of planes of one kind.
const PLANES_MAX: usize = 100;

/// Address ranges of one cluster, locked while this value lives.
#[derive(Debug)]
pub struct Ranges {
    octet: u8,
    pods: Option<Range>,
    services: Option<Range>,
    _lock: UnixListener,
}

impl Ranges {
    /// Takes the first free octet. The search begins at an octet that depends on `seed`, so that clusters rarely
    /// collide. Given ranges replace the default parts. If a range for pods is given, planes get its last addresses: if
    /// pods cannot use loopback, neither can planes.
    ///
    /// # Errors
    /// Fails if all octets are taken.
    pub fn take(seed: u32, pods: Option<Range>, services: Option<Range>) -> anyhow::Result<Self> {
        let (first, last) = (*OCTETS.start(), *OCTETS.end());
        let count = u32::from(last - first) + 1;
        for turn in 0..count {
            let octet = first + u8::try_from(seed.wrapping_add(turn) % count).unwrap_or(0);
            if let Ok(lock) = lock(octet)
                && !anybody_listens(octet)
            {
                return Ok(Self { octet, pods, services, _lock: lock });
            }
        }
        anyhow::bail!(
            "all {count} loopback ranges 127.{first}.0.0/16 to 127.{last}.0.0/16 are in use by other clusters"
        )
    }

    /// Returns the range of pod addresses.
    pub fn pods(&self) -> anyhow::Result<Range> {
        self.pods.map_or_else(|| self.range("0.0/18"), Ok)
    }

    /// Returns the range of ClusterIPs.
    pub fn services(&self) -> anyhow::Result<Range> {
        self.services.map_or_else(|| self.range("128.0/17"), Ok)
    }

    /// Returns the address of activator `index`.
    pub fn activator(&self, index: usize) -> IpAddr {
        self.plane(ACTIVATORS, index)
    }

    /// Returns the address of autoscaler `index`.
    pub fn autoscaler(&self, index: usize) -> IpAddr {
        self.plane(AUTOSCALERS, index)
    }

    /// Returns the addresses of the pods' range that belong to planes.
    pub(super) fn reserved(&self) -> Vec<Ipv4Addr> {
        let planes = (0..PLANES_MAX).flat_map(|n| [self.activator(n), self.autoscaler(n)]);
        planes.filter_map(|ip| if let IpAddr::V4(ip) = ip { Some(ip) } else { None }).collect()
    }

    fn plane(&self, third: u8, index: usize) -> IpAddr {
        if let Some(pods) = self.pods {
            let from_the_end = 3 + 2 * u32::try_from(index).unwrap_or(0) + u32::from(third == AUTOSCALERS);
            return pods.nth(pods.size().saturating_sub(from_the_end)).into();
        }
        let index = index + 1;
        let third = third + u8::try_from(index / 250).unwrap_or(31).min(31);
        IpAddr::V4(Ipv4Addr::new(127, self.octet, third, u8::try_from(index % 250).unwrap_or(1)))
    }

    fn range(&self, rest: &str) -> anyhow::Result<Range> {
        Ok(format!("127.{}.{rest}", self.octet).parse()?)
    }
}

/// Takes the lock of an octet. Fails if another cluster has it.
fn lock(octet: u8) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("zeroscale-range-{octet}"))?)
}

/// Reports whether a program listens in this range: one left by a killed cluster. Its responses would be mistaken for
/// those of the new cluster.
fn anybody_listens(octet: u8) -> bool {
    node::anybody_at(|ip| ip.octets()[..2] == [127, octet])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Goal: programs left by a killed cluster are not mistaken for those of another cluster.
    #[test]
    fn a_range_where_somebody_listens_is_passed_over() {
        let first = Ranges::take(60, None, None).expect("one is free").octet;
        let _stray = TcpListener::bind((Ipv4Addr::new(127, first, 0, 9), 0)).expect("a free port");
        let next = Ranges::take(60, None, None).expect("one is free").octet;
        assert_ne!(next, first);
    }

    #[test]
    fn two_clusters_take_disjoint_ranges_and_give_them_back() {
        let first = Ranges::take(7, None, None).expect("free");
        let second = Ranges::take(7, None, None).expect("free");
        assert_ne!(first.octet, second.octet);
        let (pods, services) = (first.pods().expect("a range"), first.services().expect("a range"));
        for plane in [first.activator(0), first.autoscaler(99)] {
            let IpAddr::V4(address) = plane else { panic!("{plane}") };
            assert!(!pods.contains(address) && !services.contains(address), "{plane} lies outside both ranges");
        }
    }
}
