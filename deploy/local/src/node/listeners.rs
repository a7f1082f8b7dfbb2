//! Finds programs that listen on the same port, to explain failures.
//!
//! Pods share the machine's network. Each pod has its own address, so all may use the same port if each listens on its
//! own address. A program that listens on every address takes its port from all other pods, and the next one fails with
//! "address already in use". The node reports such a failure as `PortCollision`, with the name of the other program,
//! instead of as a crash.
//!
//! The data are the kernel's tables of listening sockets (`/proc/self/net/tcp`, `tcp6`), and the sockets of each pod's
//! processes (`/proc/PID/fd`). [`survey`] reads them. [`explain_collision`] and [`listens_everywhere`] are pure.

use procfs::net::{TcpNetEntries, TcpState};
use procfs::process::{FDTarget, all_processes};
use procfs::{FromReadSI, LocalSystemInfo};
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::time::Instant;

/// A running container of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunningContainer {
    /// `NAMESPACE/POD`.
    pub(crate) pod: String,
    pub(crate) container: String,
    /// Process group.
    pub(crate) group: i32,
    pub(crate) program: PathBuf,
    /// Address on which it should listen.
    pub(crate) assigned: SocketAddr,
    /// Start time.
    pub(crate) since: Instant,
}

impl fmt::Display for RunningContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "container {} of pod {} ({})", self.container, self.pod, self.program.display())
    }
}

/// A listening socket, and the process group that owns it, if it is one of the requested groups.
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

/// Returns a message for the status of `me` if another program listens on its assigned address.
pub(crate) fn explain_collision(
    me: &RunningContainer,
    others: &[Arc<RunningContainer>],
    listeners: &[Listener],
) -> Option<String> {
    let taken = listeners.iter().find(|l| l.group != Some(me.group) && l.is_at(me.assigned))?;
    let holder = match others.iter().find(|other| Some(other.group) == taken.group) {
        Some(other) => other.to_string(),
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

/// Returns a message if a running container listens on every address, and true if another pod does so on the same port,
/// so that requests for one may reach the other.
pub(crate) fn listens_everywhere(
    me: &RunningContainer,
    others: &[Arc<RunningContainer>],
    listeners: &[Listener],
) -> Option<(String, bool)> {
    let mine = listeners.iter().find(|l| l.group == Some(me.group) && l.is_everywhere())?;
    let port = mine.address.port();
    let remedy = format!("Make the program listen on $HOST:$PORT (here {})", me.assigned);
    let is_shared = |other: &&Arc<RunningContainer>| {
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

/// Reports whether any program on this machine listens on an IPv4 address that `selects` accepts. False if the kernel's
/// table cannot be read.
pub(crate) fn has_listener(selects: impl Fn(Ipv4Addr) -> bool) -> bool {
    listening("/proc/thread-self/net/tcp")
        .iter()
        .any(|(address, _)| matches!(address.ip(), IpAddr::V4(ip) if selects(ip)))
}

/// Returns the listening sockets in a kernel table, with their inodes.
fn listening(table: &str) -> Vec<(SocketAddr, u64)> {
    let entries = TcpNetEntries::from_file(table, &LocalSystemInfo).map(|entries| entries.0).unwrap_or_default();
    let listening = entries.into_iter().filter(|entry| entry.state == TcpState::Listen);
    let address = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
    listening.map(|entry| (address(entry.local_address), entry.inode)).collect()
}

/// Returns the group of each socket of the processes in `groups`, by inode.
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

    fn container(pod: &str, group: i32, assigned: &str) -> RunningContainer {
        RunningContainer {
            pod: format!("ns/{pod}"),
            container: "main".into(),
            group,
            program: "/a".into(),
            assigned: assigned.parse().expect("an address"),
            since: Instant::now(),
        }
    }

    fn listener(address: &str, group: Option<i32>) -> Listener {
        Listener { address: address.parse().expect("an address"), group }
    }

    #[test]
    fn port_collisions_are_distinguished_from_crashes() {
        let me = container("me", 2, "127.1.0.2:8080");
        let other = Arc::new(container("other", 1, "127.1.0.1:8080"));
        let rows = [
            ("0.0.0.0:8080", Some(1), Some("ns/other")),
            ("[::]:8080", Some(1), Some("every address")),
            ("0.0.0.0:8080", None, Some("outside of this node")),
            ("127.1.0.1:8080", Some(1), None),
            ("0.0.0.0:8080", Some(2), None),
            ("0.0.0.0:9090", None, None),
        ];
        for (address, group, expected) in rows {
            let message = explain_collision(&me, std::slice::from_ref(&other), &[listener(address, group)]);
            match expected {
                Some(words) => {
                    let message = message.expect(address);
                    assert!(message.contains(words) && message.contains("127.1.0.2:8080"), "{message}");
                }
                None => assert_eq!(message, None, "{address}"),
            }
        }
    }

    #[test]
    fn a_running_program_that_listens_on_every_address_is_reported() {
        let me = container("me", 2, "127.1.0.2:8080");
        let others = &[Arc::new(container("other", 1, "127.1.0.1:8080"))];
        assert_eq!(listens_everywhere(&me, others, &[listener("127.1.0.2:8080", Some(2))]), None);
        let alone = listens_everywhere(&me, others, &[listener("0.0.0.0:8080", Some(2))]).expect("a message");
        assert!(!alone.1);
        let both = [listener("0.0.0.0:8080", Some(2)), listener("0.0.0.0:8080", Some(1))];
        assert!(listens_everywhere(&me, others, &both).expect("a message").1, "two share one port");
    }

    /// Goal: a real socket of a real process is found and assigned to its group.
    #[test]
    fn a_listener_of_this_process_is_found() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address");
        let group = procfs::process::Process::myself().and_then(|own| own.stat()).expect("readable").pgrp;
        let found = survey(&[group]).into_iter().find(|l| l.address == address).expect("it is listed");
        assert_eq!(found.group, Some(group));
        let is_unowned = survey(&[]).iter().any(|l| l.address == address && l.group.is_none());
        assert!(is_unowned, "only requested groups are reported");
    }
}
