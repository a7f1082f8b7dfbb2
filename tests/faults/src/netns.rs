//! A small network of its own: one namespace for the activator and its clients, one for each pod, a cable to each.
//!
//! Namespaces belong to threads and to the sockets made there, have no names, and are gone with the last of them,
//! cables included: nothing is left behind however the process ends. It takes root (or `CAP_SYS_ADMIN` and
//! `CAP_NET_ADMIN`) and the `ip` command.

use anyhow::{Context, bail};
use rustix::thread::{UnshareFlags, gettid, unshare_unsafe};
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::mpsc;

/// What becomes of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// The activator's end is no more, and with it the route: connects fail at once.
    LinkGone,
    /// The pod's end is down: packets go out and reach nobody.
    Unreachable,
    /// The pod's machine takes packets and drops them.
    BlackHole,
    /// The program is killed, its connections are reset, its port is closed.
    Reset,
}

/// A thread with a network namespace of its own, which carries out commands there.
pub struct Namespace {
    /// The thread, which names the namespace to the kernel.
    thread: u32,
    commands: mpsc::Sender<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

/// Gives the calling thread a namespace, and every thread that it starts from now on.
///
/// # Errors
/// It is not permitted.
pub fn enter_new() -> anyhow::Result<()> {
    // SAFETY: only the network namespace is left; memory and descriptors are shared as before.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
        .context("a network namespace cannot be made: this needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN")?;
    ip("link set lo up")
}

/// Runs `ip` in the calling thread's namespace.
///
/// # Errors
/// It is not installed, or refuses.
pub fn ip(arguments: &str) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output().context("ip (of iproute2) is needed")?;
    if !output.status.success() {
        bail!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

impl Namespace {
    /// Starts the thread. It ends with the value.
    ///
    /// # Errors
    /// See [`enter_new`].
    pub fn start() -> anyhow::Result<Self> {
        let (commands, jobs) = mpsc::channel::<Job>();
        let (ready, started) = mpsc::channel();
        std::thread::Builder::new().name("namespace".into()).spawn(move || {
            let entered = enter_new();
            let failed = entered.is_err();
            let _ = ready.send(entered.map(|()| gettid().as_raw_nonzero().get().unsigned_abs()));
            if failed {
                return;
            }
            for job in jobs {
                job();
            }
        })?;
        let thread = started.recv().context("the thread ended")??;
        Ok(Self { thread, commands })
    }

    /// Does something in it.
    ///
    /// # Errors
    /// What `job` says, or its thread has ended.
    pub fn within<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let (done, result) = mpsc::channel();
        let job = Box::new(move || {
            let _ = done.send(job());
        });
        self.commands.send(job).ok().context("the namespace's thread has ended")?;
        result.recv().context("the namespace's thread has ended")?
    }
}

/// A cable from the calling thread's namespace to `namespace`, whose end is the returned address.
///
/// # Errors
/// It cannot be laid.
pub fn cable(number: u8, namespace: &Namespace) -> anyhow::Result<IpAddr> {
    let thread = namespace.thread;
    ip(&format!("link add pod{number} type veth peer name eth0 netns {thread}"))?;
    ip(&format!("addr add 10.77.{number}.1/30 dev pod{number}"))?;
    ip(&format!("link set pod{number} up"))?;
    namespace.within(move || {
        ip(&format!("addr add 10.77.{number}.2/30 dev eth0"))?;
        ip("link set eth0 up")
    })?;
    Ok(Ipv4Addr::new(10, 77, number, 2).into())
}

/// Breaks a cable. [`Fault::Reset`] leaves it alone.
///
/// # Errors
/// It cannot be broken.
pub fn fail(fault: Fault, number: u8, namespace: &Namespace) -> anyhow::Result<()> {
    match fault {
        Fault::LinkGone => ip(&format!("link del pod{number}")),
        Fault::Unreachable => namespace.within(|| ip("link set eth0 down")),
        // No way back: what comes in is from a source that cannot be, and is dropped before TCP sees it.
        Fault::BlackHole => namespace.within(move || ip(&format!("route add blackhole 10.77.{number}.1/32"))),
        Fault::Reset => Ok(()),
    }
}
