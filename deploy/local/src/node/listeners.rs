//! Finds programs that listen on the same port, to explain failures.
//!
//! Pods share the machine's network. Each pod has its own address, so all may use the same port if each listens on its
//! own address. A program that listens on every address takes its port from all other pods, and the next one fails with
//! "address already in use". The node reports such a failure as `PortCollision`, with the name of the other program,
//! instead of as a crash.
//!
//! The data are the kernel's tables of listening sockets (`/proc/self/net/tcp`, `tcp6`), and the sockets of each pod's
//! processes (`/proc/PID/fd`). [`survey`] reads them. [`judge`] evaluates them and is pure.

use procfs::net::{TcpNetEntries, TcpState};
use procfs::process::{FDTarget, all_processes};
use procfs::{FromReadSI, LocalSystemInfo};
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::time::Instant;

/// A container's process on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Occupant {
    /// `NAMESPACE/POD`.
    pub(crate) pod: String,
    pub(crate) container: String,
    /// Process group.
    pub(crate) group: i32,
    /// Program.
    pub(crate) program: PathBuf,
    /// Address on which it should listen.
    pub(crate) assigned: SocketAddr,
    /// Start time.
    pub(crate) since: Instant,
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "container {} of pod {} ({})", self.container, self.pod, self.program.display())
    }
}

/// A listening socket, and the process group that owns it, if that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    pub(crate) group: Option<i32>,
}

impl Listener {
    fn is_everywhere(&self) -> bool {
        self.address.ip().is_unspecified()
    }

    fn is_at(&self, assigned: SocketAddr) -> bool {
        self.address.port() == assigned.port() && (self.is_everywhere() || self.address.ip() == assigned.ip())
    }
}

/// Checks whether `me` failed since another program listens on its assigned address. Returns the message for its
/// status.
pub(crate) fn judge(me: &Occupant, others: &[Arc<Occupant>], listeners: &[Listener]) -> Option<String> {
    let taken = listeners.iter().find(|l| l.group != Some(me.group) && l.is_at(me.assigned))?;
    let holder = match others.iter().find(|other| Some(other.group) == taken.group) {
        Some(occupant) => occupant.to_string(),
        None => "a program outside of this node".to_owned(),
    };
    let how = if taken.is_everywhere() { "listens on every address at" } else { "already listens on" };
    Some(format!(
        "port {} is taken: {holder} {how} {}. Pods share this machine's network, so a program must listen on $HOST:$PORT \
         (here {}) and on no other address",
        me.assigned.port(),
        taken.address,
        me.assigned
    ))
}

/// Checks whether a running container listens on every address. Returns the message, and whether another pod does so on
/// the same port, so that requests reach either.
pub(crate) fn everywhere(me: &Occupant, others: &[Arc<Occupant>], listeners: &[Listener]) -> Option<(String, bool)> {
    let mine = listeners.iter().find(|l| l.group == Some(me.group) && l.is_everywhere())?;
    let port = mine.address.port();
    let remedy = format!("Make the program listen on $HOST:$PORT (here {})", me.assigned);
    let is_shared = |other: &&Arc<Occupant>| {
        let shares = |l: &Listener| l.group == Some(other.group) && l.is_everywhere() && l.address.port() == port;
        other.pod != me.pod && listeners.iter().any(shares)
    };
    let Some(other) = others.iter().find(is_shared) else {
        let effect = format!("listens on every address at port {port}: no other pod can use that port");
        return Some((format!("{me} {effect}. {remedy}"), false));
    };
    let effect = format!("both listen on every address at port {port}, so requests for one reach the other");
    Some((format!("{me} and {other} {effect}. {remedy}"), true))
}

/// Returns all listening TCP sockets, with the group for those of `groups`. It reads much of `/proc`, so it must not
/// run per request.
pub(crate) fn survey(groups: &[i32]) -> Vec<Listener> {
    let owners = sockets_of(groups);
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .into_iter()
        .flat_map(listening)
        .map(|(address, inode)| Listener { address, group: owners.get(&inode).copied() })
        .collect()
}

/// Reports whether any program on this machine listens on an IPv4 address selected by `is_meant`. False if the kernel's
/// table cannot be read.
pub(crate) fn anybody_at(is_meant: impl Fn(Ipv4Addr) -> bool) -> bool {
    listening("/proc/thread-self/net/tcp")
        .iter()
        .any(|(address, _)| matches!(address.ip(), IpAddr::V4(ip) if is_meant(ip)))
}

/// Returns the listening sockets in a kernel table, with their inodes.
fn listening(table: &str) -> Vec<(SocketAddr, u64)> {
    let entries = TcpNetEntries::from_file(table, &LocalSystemInfo).map(|entries| entries.0).unwrap_or_default();
    let listening = entries.into_iter().filter(|entry| entry.state == TcpState::Listen);
    let address = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
    listening.map(|entry| (address(entry.local_address), entry.inode)).collect()
}

/// Returns the inodes of all sockets of processes in `groups`.
fn sockets_of(groups: &[i32]) -> HashMap<u64, i32> {
    let mut owners = HashMap::new();
    for process in all_processes().into_iter().flatten().filter_map(Result::ok) {
        let Some(group) = process.stat().ok().map(|stat| stat.pgrp).filter(|group| groups.contains(group)) else {
            continue;
        };
        for file in process.fd().into_iter().flatten().filter_map(Result::ok) {
            if let FDTarget::Socket(inode) = file.target {
                owners.insert(inode, group);
            }
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occupant(pod: &str, group: i32, program: &str, assigned: &str) -> Occupant {
        Occupant {
            pod: format!("ns/{pod}"),
            container: "main".into(),
            group,
            program: program.into(),
            assigned: assigned.parse().expect("an address"),
            since: Instant::now(),
        }
    }

    fn listener(address: &str, group: Option<i32>) -> Listener {
        Listener { address: address.parse().expect("an address"), group }
    }

    #[test]
    fn collisions_are_told_from_crashes() {
        let me = occupant("me", 2, "/a", "127.1.0.2:8080");
        let other = Arc::new(occupant("other", 1, "/b", "127.1.0.1:8080"));
        let rows = [
            ("0.0.0.0:8080", Some(1), Some("ns/other")),
            ("[::]:8080", Some(1), Some("every address")),
            ("0.0.0.0:8080", None, Some("outside of this node")),
            ("127.1.0.1:8080", Some(1), None),
            ("0.0.0.0:8080", Some(2), None),
            ("0.0.0.0:9090", None, None),
        ];
        for (address, group, expected) in rows {
            let verdict = judge(&me, std::slice::from_ref(&other), &[listener(address, group)]);
            match expected {
                Some(words) => {
                    let verdict = verdict.expect(address);
                    assert!(verdict.contains(words) && verdict.contains("127.1.0.2:8080"), "{verdict}");
                }
                None => assert_eq!(verdict, None, "{address}"),
            }
        }
    }

    #[test]
    fn listening_everywhere_is_noticed_while_it_still_works() {
        let me = occupant("me", 2, "/a", "127.1.0.2:8080");
        let others = &[Arc::new(occupant("other", 1, "/b", "127.1.0.1:8080"))];
        assert_eq!(everywhere(&me, others, &[listener("127.1.0.2:8080", Some(2))]), None);
        let alone = everywhere(&me, others, &[listener("0.0.0.0:8080", Some(2))]).expect("noticed");
        assert!(!alone.1);
        let both = [listener("0.0.0.0:8080", Some(2)), listener("0.0.0.0:8080", Some(1))];
        assert!(everywhere(&me, others, &both).expect("noticed").1, "two share one port");
    }

    /// Goal: a real socket of a real process is found and assigned to its group.
    #[test]
    fn a_listener_of_this_process_is_found() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address");
        let group = procfs::process::Process::myself().and_then(|own| own.stat()).expect("readable").pgrp;
        let found = survey(&[group]).into_iter().find(|l| l.address == address).expect("it is listed");
        assert_eq!(found.group, Some(group));
        assert!(
            survey(&[]).iter().any(|l| l.address == address && l.group.is_none()),
            "nobody's, if nobody is asked for"
        );
    }
}
