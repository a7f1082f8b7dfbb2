//! Who listens where on this machine, and whether that is why a program failed.
//!
//! Pods share the machine's network; each has an address of its own, so all may use the same port as long as each
//! listens on its own address. A program that listens on every address, or on a port of its own choosing, takes that
//! port from all others, and the next one fails with "address already in use". That is told as what it is,
//! `PortCollision`, with the culprit's name, instead of as a crash.
//!
//! The evidence: the kernel's tables of listening sockets (`/proc/self/net/tcp`, `tcp6`), the sockets that each pod's
//! processes hold (`/proc/PID/fd`), and the end of the failed container's log. Reading it is [`survey`], judging it
//! [`judge`], which is pure.

use procfs::net::{TcpNetEntries, TcpState};
use procfs::process::{FDTarget, all_processes};
use procfs::{FromReadSI, LocalSystemInfo};
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use tokio::time::Instant;

/// A container's process on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Occupant {
    /// `NAMESPACE/POD`.
    pub(crate) pod: String,
    pub(crate) container: String,
    /// Its process group.
    pub(crate) group: i32,
    /// What it runs.
    pub(crate) program: PathBuf,
    /// Where it was told to listen.
    pub(crate) assigned: SocketAddr,
    /// When it was started.
    pub(crate) since: Instant,
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "container {} of pod {} ({})", self.container, self.pod, self.program.display())
    }
}

/// A listening socket, and the process group that holds it if it is one of ours.
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

/// Whether the failure of `me` is a collision; the words for its status. `log_tail` is the end of what it wrote.
pub(crate) fn judge(me: &Occupant, others: &[Occupant], listeners: &[Listener], log_tail: &str) -> Option<String> {
    let foreign = || listeners.iter().filter(|l| l.group != Some(me.group));
    let holder = |listener: &Listener| match others.iter().find(|o| Some(o.group) == listener.group) {
        Some(occupant) => occupant.to_string(),
        None => "a program outside of this node".to_owned(),
    };
    // Where it was told to listen is taken.
    if let Some(taken) = foreign().find(|l| l.is_at(me.assigned)) {
        let how = if taken.is_everywhere() { "listens on every address at" } else { "already listens on" };
        return Some(format!(
            "port {} is taken: {} {how} {}. Pods share this machine's network, so a program must listen on $HOST:$PORT (here \
             {}) and on no other address",
            me.assigned.port(),
            holder(taken),
            taken.address,
            me.assigned
        ));
    }
    // A pod of the same program listens elsewhere than it was told, so this one tried the same.
    let twin = others.iter().filter(|o| o.program == me.program && o.pod != me.pod).find_map(|twin| {
        let astray = listeners.iter().find(|l| l.group == Some(twin.group) && l.address != twin.assigned)?;
        Some((twin, astray))
    });
    let says_in_use = says_address_in_use(log_tail);
    if let Some((twin, astray)) = twin
        && (says_in_use || astray.is_everywhere())
    {
        return Some(format!(
            "{twin} listens on {} instead of {}, and only one process can: the program ignores HOST or PORT. Make it listen on \
             $HOST:$PORT (here {})",
            astray.address, twin.assigned, me.assigned
        ));
    }
    // It tried every address while others have theirs.
    let on_its_port = foreign().find(|l| l.address.port() == me.assigned.port());
    match (says_in_use, on_its_port) {
        (true, Some(other)) => Some(format!(
            "the program says that its address is in use, and {} listens on {}: it seems to listen on every address. Make it \
             listen on $HOST:$PORT (here {})",
            holder(other),
            other.address,
            me.assigned
        )),
        (true, None) => Some(format!(
            "the program says that its address is in use, and nobody listens on port {}: it seems to ignore PORT. Make it \
             listen on $HOST:$PORT (here {})",
            me.assigned.port(),
            me.assigned
        )),
        (false, _) => None,
    }
}

/// What a running container does wrong: listening on every address. The second part says whether another pod does so on
/// the same port, in which case requests reach either.
pub(crate) fn everywhere(me: &Occupant, others: &[Occupant], listeners: &[Listener]) -> Option<(String, bool)> {
    let mine = listeners.iter().find(|l| l.group == Some(me.group) && l.is_everywhere())?;
    let port = mine.address.port();
    let shared = others.iter().find(|o| {
        o.pod != me.pod
            && listeners.iter().any(|l| l.group == Some(o.group) && l.is_everywhere() && l.address.port() == port)
    });
    Some(match shared {
        Some(other) => (
            format!(
                "{me} and {other} both listen on every address at port {port}, so requests for one reach the other. Make the \
                 program listen on $HOST:$PORT (here {})",
                me.assigned
            ),
            true,
        ),
        None => (
            format!(
                "{me} listens on every address at port {port}: no other pod can use that port. Make the program listen on \
                 $HOST:$PORT (here {})",
                me.assigned
            ),
            false,
        ),
    })
}

/// Whether a log says that an address was in use, in the words of common languages and libraries.
fn says_address_in_use(log: &str) -> bool {
    let log = log.to_ascii_lowercase();
    ["address already in use", "address in use", "eaddrinuse", "addrinuse", "already in use", "os error 98", "errno 98"]
        .iter()
        .any(|words| log.contains(words))
}

/// All listening TCP sockets, those of `groups` with their group. Reads much of `/proc`; not for every request.
pub(crate) fn survey(groups: &[i32]) -> Vec<Listener> {
    let owners = sockets_of(groups);
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .into_iter()
        .flat_map(listening)
        .map(|(address, inode)| Listener { address, group: owners.get(&inode).copied() })
        .collect()
}

/// Whether anybody on this machine listens on such an IPv4 address; no where the kernel does not say.
pub(crate) fn anybody_at(is_meant: impl Fn(Ipv4Addr) -> bool) -> bool {
    listening("/proc/thread-self/net/tcp")
        .iter()
        .any(|(address, _)| matches!(address.ip(), IpAddr::V4(ip) if is_meant(ip)))
}

/// The listening sockets of a kernel table, with their inodes.
fn listening(table: &str) -> Vec<(SocketAddr, u64)> {
    let entries = TcpNetEntries::from_file(table, &LocalSystemInfo).map(|entries| entries.0).unwrap_or_default();
    let listening = entries.into_iter().filter(|entry| entry.state == TcpState::Listen);
    let address = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
    listening.map(|entry| (address(entry.local_address), entry.inode)).collect()
}

/// Inodes of all sockets that processes of `groups` hold.
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
        let twin = occupant("twin", 1, "/a", "127.1.0.1:8080");
        let other = occupant("other", 1, "/b", "127.1.0.1:8080");
        let in_use = "thread main panicked: AddrInUse";
        let rows = [
            // Another pod listens everywhere on my port.
            (&other, vec![listener("0.0.0.0:8080", Some(1))], "", Some("ns/other")),
            (&other, vec![listener("[::]:8080", Some(1))], "", Some("every address")),
            // So does something that is no pod.
            (&other, vec![listener("0.0.0.0:8080", None)], "", Some("outside of this node")),
            // My twin listens on a port of its own choosing.
            (&twin, vec![listener("127.0.0.1:3000", Some(1))], in_use, Some("ns/twin")),
            (&twin, vec![listener("0.0.0.0:3000", Some(1))], "", Some("ignores HOST or PORT")),
            // Others do as they should; I wanted every address.
            (&other, vec![listener("127.1.0.1:8080", Some(1))], in_use, Some("seems to listen on every address")),
            (&other, vec![], in_use, Some("seems to ignore PORT")),
            // Plain crashes.
            (&other, vec![listener("127.1.0.1:8080", Some(1))], "segmentation fault", None),
            (&twin, vec![listener("127.1.0.1:8080", Some(1))], "", None),
            (&twin, vec![listener("127.0.0.1:3000", Some(1))], "", None),
            (&other, vec![listener("0.0.0.0:9090", None)], "", None),
        ];
        for (neighbour, listeners, log, expected) in rows {
            let verdict = judge(&me, std::slice::from_ref(neighbour), &listeners, log);
            match expected {
                Some(words) => {
                    let verdict = verdict.unwrap_or_else(|| panic!("a collision: {listeners:?}"));
                    assert!(verdict.contains(words) && verdict.contains("127.1.0.2:8080"), "{verdict}");
                }
                None => assert_eq!(verdict, None, "{listeners:?} {log}"),
            }
        }
    }

    #[test]
    fn listening_everywhere_is_noticed_while_it_still_works() {
        let (me, other) = (occupant("me", 2, "/a", "127.1.0.2:8080"), occupant("other", 1, "/b", "127.1.0.1:8080"));
        let others = std::slice::from_ref(&other);
        assert_eq!(everywhere(&me, others, &[listener("127.1.0.2:8080", Some(2))]), None);
        let alone = everywhere(&me, others, &[listener("0.0.0.0:8080", Some(2))]).expect("noticed");
        assert!(!alone.1);
        let both = [listener("0.0.0.0:8080", Some(2)), listener("0.0.0.0:8080", Some(1))];
        assert!(everywhere(&me, others, &both).expect("noticed").1, "two share one port");
    }

    /// Goal: a real socket of a real process is found and given to its group.
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
