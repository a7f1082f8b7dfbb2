//! Addresses of one cluster: a slice of loopback that no other cluster on the machine uses.
//!
//! Linux answers on every address of 127.0.0.0/8, so each cluster takes one second octet N: pods get
//! 127.N.0.0/18, the planes 127.N.64.0/18, ClusterIPs 127.N.128.0/17. A lock file for each N, held open as long as
//! the cluster lives, keeps two clusters apart; the kernel lets go of it even when the process is killed. The files are
//! all users' of the machine: whoever comes first makes their folder as open as the temporary one, and who comes later
//! needs only the right to read a file to lock it.

use crate::{Range, node};
use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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
    /// All are taken, or their lock files cannot be opened.
    pub fn take(seed: u32, pods: Option<Range>, services: Option<Range>) -> anyhow::Result<Self> {
        let free = Self::take_in(&std::env::temp_dir().join("zeroscale-ranges"), seed, anybody_listens)?;
        Ok(Self { pods, services, ..free })
    }

    /// The first octet that is neither locked in `folder` nor in use.
    fn take_in(folder: &Path, seed: u32, is_used: impl Fn(u8) -> bool) -> anyhow::Result<Self> {
        make_folder(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut unopened = None;
        let count = u32::from(OCTETS.end() - OCTETS.start()) + 1;
        for turn in 0..count {
            let offset = u8::try_from((seed.wrapping_add(turn)) % count).unwrap_or(0);
            let octet = OCTETS.start() + offset;
            let path = folder.join(octet.to_string());
            match open(&path).with_context(|| format!("cannot open {}", path.display())) {
                Ok(lock) if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() && !is_used(octet) => {
                    return Ok(Self { octet, pods: None, services: None, _lock: lock });
                }
                Ok(_) => {}
                Err(error) => unopened = Some(error),
            }
        }
        let (first, last) = (OCTETS.start(), OCTETS.end());
        let all = format!("all {count} loopback ranges 127.{first}.0.0/16 to 127.{last}.0.0/16");
        Err(match unopened {
            Some(error) => error.context(format!("{all} are in use by other clusters or cannot be taken")),
            None => anyhow::anyhow!("{all} are in use by other clusters"),
        })
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

/// Whether anybody listens in that range: a program that a killed cluster has left, or a cluster whose lock files lie
/// elsewhere. What it answers would be taken for the new cluster's.
fn anybody_listens(octet: u8) -> bool {
    node::anybody_at(|ip| ip.octets()[..2] == [127, octet])
}

/// Makes the folder of lock files, for all users, whatever the umask. One that is there is left as it is.
fn make_folder(folder: &Path) -> io::Result<()> {
    match std::fs::create_dir(folder) {
        Ok(()) => std::fs::set_permissions(folder, Permissions::from_mode(0o1777)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens a lock file. One that is there is opened to be read alone, which does for a lock, since it may be another
/// user's; one that is not is made, readable by all.
fn open(path: &Path) -> io::Result<File> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = File::options().write(true).create_new(true).open(path)?;
            file.set_permissions(Permissions::from_mode(0o644))?;
            Ok(file)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{OFlags, fcntl_getfl};
    use std::net::TcpListener;

    /// Goal: another user of the machine can take a range, too. Method: modes, since tests may run as root, which every
    /// file is open to.
    #[test]
    fn the_folder_is_for_all_users_and_a_file_that_is_there_need_not_be_writable() {
        let base = tempfile::tempdir().expect("a folder");
        let folder = base.path().join("ranges");
        let mode = |path: &Path| path.metadata().expect("made").permissions().mode() & 0o7777;
        let first = Ranges::take_in(&folder, 7, |_| false).expect("free");
        let file = folder.join(first.octet.to_string());
        assert_eq!((mode(&folder), mode(&file)), (0o1777, 0o644));
        drop(first);
        let again = Ranges::take_in(&folder, 7, |_| false).expect("free");
        let flags = fcntl_getfl(&again._lock).expect("open");
        assert_eq!(flags & OFlags::RWMODE, OFlags::RDONLY);
    }

    /// Goal: a file that cannot be opened costs its range alone; the error names the last if all are so. Method: links
    /// that lead nowhere, which are neither there to be read nor free to be made, also for root.
    #[test]
    fn a_lock_file_that_cannot_be_opened_is_passed_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut octets = OCTETS.map(|octet| folder.path().join(octet.to_string()));
        for path in octets.clone().skip(1) {
            std::os::unix::fs::symlink("/nonexistent/x", path).expect("a link");
        }
        let taken = Ranges::take_in(folder.path(), 1, |_| false).expect("one is free");
        assert_eq!(taken.octet, *OCTETS.start());
        let error = format!("{:#}", Ranges::take_in(folder.path(), 1, |_| false).expect_err("none is left"));
        let last = octets.next_back().expect("many");
        assert!(error.contains(&format!("cannot open {}", last.display())), "{error}");
    }

    /// Goal: what a killed cluster has left running answers for no other.
    #[test]
    fn a_range_where_somebody_listens_is_passed_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Ranges::take_in(folder.path(), 60, anybody_listens).expect("one is free").octet;
        let _stray = TcpListener::bind((Ipv4Addr::new(127, first, 0, 9), 0)).expect("a free port");
        let next = Ranges::take_in(folder.path(), 60, anybody_listens).expect("one is free").octet;
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
