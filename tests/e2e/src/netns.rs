//! A small private network: one namespace for the activator and its clients, one for each pod, and a cable (a pair of
//! veth devices) to each pod.
//!
//! A namespace belongs to threads and to the sockets created there. It has no name, and disappears with the last of
//! them, cables included: nothing remains, however the process ends. Needs root (or `CAP_SYS_ADMIN` and
//! `CAP_NET_ADMIN`) and the `ip` command.

use anyhow::{Context, bail};
use rustix::thread::{UnshareFlags, gettid, unshare_unsafe};
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::mpsc;

/// A thread with its own network namespace, which runs jobs there.
pub struct Namespace {
    /// Thread ID, by which the kernel identifies the namespace.
    thread: u32,
    commands: mpsc::Sender<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

/// Moves the calling thread into a new namespace, and every thread that it starts from now on.
pub fn enter_new() -> anyhow::Result<()> {
    // SAFETY: only the network namespace changes; memory and descriptors are shared as before.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
        .context("a network namespace cannot be made: this needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN")?;
    ip("link set lo up")
}

/// Runs `job` in a new namespace and on threads of its own. The calling thread stays in its namespace.
pub fn run_in_new<T, F>(job: impl FnOnce() -> F + Send + 'static) -> anyhow::Result<T>
where
    T: Send + 'static,
    F: Future<Output = anyhow::Result<T>>,
{
    let thread = std::thread::spawn(move || {
        enter_new()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(job())
    });
    thread.join().ok().context("the run panicked")?
}

/// Runs `ip` in the calling thread's namespace.
pub fn ip(arguments: &str) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output().context("ip (of iproute2) is needed")?;
    if !output.status.success() {
        bail!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

impl Namespace {
    /// Starts the thread. It ends when the value is dropped.
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

    /// Runs `job` in the namespace.
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

/// Creates a cable from the calling thread's namespace to `namespace`, and returns the address of its end there.
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
