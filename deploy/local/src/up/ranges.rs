//! Address ranges of one cluster: a part of loopback that no other cluster on the machine uses.
//!
//! Linux accepts connections on every address of 127.0.0.0/8. Each cluster takes one second octet N: pods get
//! 127.N.0.0/18, the planes 127.N.64.0/18, and ClusterIPs 127.N.128.0/17. A lock on one file per N, held while the
//! cluster lives, separates clusters. The kernel releases it even if the process is killed. All users of the machine
//! share the files: the first one creates their folder with the permissions of the temporary folder, and others only
//! need read permission to lock a file.

use crate::{Range, node};
use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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
    _lock: File,
}

impl Ranges {
    /// Takes the first free octet. The search begins at an octet that depends on `seed`, so that clusters rarely
    /// collide. Given ranges replace the default parts. If a range for pods is given, planes get its last addresses: if
    /// pods cannot use loopback, neither can planes.
    ///
    /// # Errors
    /// Fails if all octets are taken or their lock files cannot be opened.
    pub fn take(seed: u32, pods: Option<Range>, services: Option<Range>) -> anyhow::Result<Self> {
        let free = Self::take_in(&std::env::temp_dir().join("zeroscale-ranges"), seed, anybody_listens)?;
        Ok(Self { pods, services, ..free })
    }

    /// Takes the first octet that is not locked in `folder` and not in use.
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

/// Reports whether a program listens in this range: one left by a killed cluster, or a cluster with lock files in
/// another folder. Its responses would be mistaken for those of the new cluster.
fn anybody_listens(octet: u8) -> bool {
    node::anybody_at(|ip| ip.octets()[..2] == [127, octet])
}

/// Creates the folder of lock files for all users, whatever the umask is. An existing folder is not changed.
fn make_folder(folder: &Path) -> io::Result<()> {
    match std::fs::create_dir(folder) {
        Ok(()) => std::fs::set_permissions(folder, Permissions::from_mode(0o1777)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens a lock file. An existing file may belong to another user, so it is opened read-only, which is enough for a
/// lock. A missing file is created, readable by all.
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

    /// Goal: other users of the machine can take a range too. Method: the test checks modes, since it may run as root,
    /// which can open every file.
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

    /// Goal: a file that cannot be opened excludes only its own range. If all fail, the error names the last one.
    /// Method: dangling symbolic links, which can be neither read nor created, even by root.
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

    /// Goal: programs left by a killed cluster are not mistaken for those of another cluster.
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
