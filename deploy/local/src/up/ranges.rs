//! Addresses of one cluster: a slice of loopback that no other cluster on the machine uses.
//!
//! Linux answers on every address of 127.0.0.0/8, so each cluster takes one second octet N: pods get
//! 127.N.0.0/18, the planes 127.N.64.0/18, ClusterIPs 127.N.128.0/17. A lock file for each N, held open as long as
//! the cluster lives, keeps two clusters apart; the kernel lets go of it even when the process is killed.

use crate::Range;
use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};

/// Second octets to choose from; the low ones and the highest are left to programs that chose by hand.
const OCTETS: std::ops::RangeInclusive<u8> = 64..=250;

/// Third octet of the first activators, and of the first autoscalers.
const ACTIVATORS: u8 = 64;
const AUTOSCALERS: u8 = 96;

/// Most planes of one kind.
const PLANES_MAX: usize = 100;

/// The addresses of one cluster, locked as long as this lives.
#[derive(Debug)]
pub struct Ranges {
    octet: u8,
    pods: Option<Range>,
    services: Option<Range>,
    _lock: File,
}

impl Ranges {
    /// Takes the first free octet, beginning at one that depends on `seed` so that clusters rarely meet.
    /// A range given by hand is used instead of a part of it; planes then get the last addresses of the pods' range,
    /// since where loopback will not do for pods it will not do for planes.
    ///
    /// # Errors
    /// All are taken, or a lock file cannot be made.
    pub fn take(seed: u32, pods: Option<Range>, services: Option<Range>) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join("zeroscale-ranges");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let count = u32::from(OCTETS.end() - OCTETS.start()) + 1;
        for turn in 0..count {
            let offset = u8::try_from((seed.wrapping_add(turn)) % count).unwrap_or(0);
            let octet = OCTETS.start() + offset;
            let path = folder.join(octet.to_string());
            let lock = File::options().create(true).truncate(false).write(true).open(&path);
            let lock = lock.with_context(|| format!("cannot open {}", path.display()))?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(Self { octet, pods, services, _lock: lock });
            }
        }
        anyhow::bail!(
            "all {count} loopback ranges 127.{}.0.0/16 to 127.{}.0.0/16 are in use by other clusters",
            OCTETS.start(),
            OCTETS.end()
        )
    }

    /// Where pods get their addresses.
    pub fn pods(&self) -> anyhow::Result<Range> {
        self.pods.map_or_else(|| self.range("0.0/18"), Ok)
    }

    /// Where Services get their ClusterIPs.
    pub fn services(&self) -> anyhow::Result<Range> {
        self.services.map_or_else(|| self.range("128.0/17"), Ok)
    }

    /// The address of activator `index`.
    pub fn activator(&self, index: usize) -> IpAddr {
        self.plane(ACTIVATORS, index)
    }

    /// The address of autoscaler `index`.
    pub fn autoscaler(&self, index: usize) -> IpAddr {
        self.plane(AUTOSCALERS, index)
    }

    /// Addresses of the pods' range that are the planes'.
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

#[cfg(test)]
mod tests {
    use super::*;

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
