//! Starts, watches and ends processes.
//!
//! - Each process is the leader of its own process group. SIGTERM is sent to the leader, as in a container. SIGKILL is
//!   sent to the group, and the rest of the group is killed when the leader ends.
//! - The kernel kills each process when this process ends for any reason (`PR_SET_PDEATHSIG`). That signal depends on
//!   the *thread* that started the child, so one thread that lives as long as the process starts all children. [`exec`]
//!   explains the mechanism.
//! - A pidfd reports the end: no SIGCHLD handler, and no race over reused process ids.
//! - Dropping a [`Process`] kills it ([`Child`]). At an immediate exit, which drops nothing, [`super::kill_all`] does
//!   that.
//!
//! # Limits
//!
//! Grandchildren may survive if SIGKILL ends this process: the kernel's signal is not inherited, so `sh -c 'a; b'` may
//! leave `b` running. Write `exec b`.

use super::child::{Child, Exit};
use super::exec::{self, Launch};
use common_runtime::descriptor::registered;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

/// Maximum number of starts in the queue. A start takes well under a millisecond, so a longer queue would mean
/// thousands of simultaneous pod starts. These fail with an error and are retried.
const STARTS_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Readable once the process has ended.
    end: AsyncFd<OwnedFd>,
}

/// Starts `launch` and sends its output to `output`, or discards it.
///
/// # Errors
/// Fails if the program does not exist or may not be executed, or if the system is out of processes.
///
/// Cancel safe: if the future is dropped, the process is killed.
pub(crate) async fn spawn(launch: &Launch, output: Option<&File>) -> io::Result<Process> {
    let output = output.map(File::try_clone).transpose()?;
    let launch = launch.clone();
    let (reply, answer) = oneshot::channel();
    starter()?.try_send(Start { launch, output, reply }).map_err(|error| match error {
        TrySendError::Full(_) => io::Error::new(io::ErrorKind::WouldBlock, "too many processes are being started"),
        TrySendError::Disconnected(_) => io::Error::other("the thread that starts processes has ended"),
    })?;
    let started = answer.await.map_err(|_| io::Error::other("the thread that starts processes has ended"))??;
    Process::adopt(started)
}

impl Process {
    fn adopt(child: Child) -> io::Result<Self> {
        let end = registered(child.fd().try_clone()?, Interest::READABLE)?;
        Ok(Self { child, end })
    }

    /// Returns the process id, which is also the group id.
    pub(crate) fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// Waits until the process has ended. Cancel safe.
    ///
    /// # Errors
    /// Fails if the system call fails, which does not happen for a child of this process.
    pub(crate) async fn wait(&mut self) -> io::Result<Exit> {
        loop {
            if let Some(exit) = self.child.exit() {
                return Ok(exit);
            }
            self.end.readable().await?.retain_ready();
            if self.child.reap()?.is_none() {
                // Readable but not ended, which was never observed on Linux. Sleep instead of spinning.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// Sends SIGTERM, and kills the group after `grace`.
    ///
    /// # Errors
    /// Fails as [`Process::wait`] does.
    pub(crate) async fn stop(&mut self, grace: Duration) -> io::Result<Exit> {
        self.terminate();
        if let Ok(exit) = tokio::time::timeout(grace, self.wait()).await {
            return exit;
        }
        self.kill();
        self.wait().await
    }

    /// Sends SIGTERM to the process.
    pub(crate) fn terminate(&self) {
        self.child.terminate();
    }

    /// Kills the process group.
    pub(crate) fn kill(&self) {
        self.child.kill();
    }
}

struct Start {
    launch: Launch,
    output: Option<File>,
    reply: oneshot::Sender<io::Result<Child>>,
}

/// Returns the channel to the thread that starts processes. It is never closed, so the thread never ends.
fn starter() -> io::Result<&'static SyncSender<Start>> {
    static STARTER: OnceLock<io::Result<SyncSender<Start>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, receiver) = sync_channel::<Start>(STARTS_MAX);
        std::thread::Builder::new().name("starter".into()).spawn(move || {
            for Start { launch, output, reply } in receiver {
                drop(reply.send(exec::start(&launch, output))); // Without a receiver, the child is dropped and killed.
            }
        })?;
        Ok(sender)
    });
    starter.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn shell(script: &str) -> Launch {
        Launch {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("GREETING".into(), "hello".into())],
            dir: None,
        }
    }

    #[tokio::test]
    async fn a_process_gets_its_environment_and_its_exit_is_seen() {
        let mut file = tempfile::tempfile().expect("a file");
        let mut process = spawn(&shell("echo $GREETING; exit 3"), Some(&file)).await.expect("started");
        assert_eq!(process.wait().await.expect("an end"), Exit::Code(3));
        let mut text = String::new();
        io::Seek::rewind(&mut file).expect("rewound");
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "hello\n");
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_an_error() {
        let launch = Launch { program: "/nonexistent/x".into(), args: vec![], env: vec![], dir: None };
        assert_eq!(spawn(&launch, None).await.map(|_| ()).map_err(|e| e.kind()), Err(io::ErrorKind::NotFound));
    }

    #[tokio::test]
    async fn a_process_that_ignores_sigterm_is_killed_after_its_grace() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let output = file.reopen().expect("open");
        let script = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
        let mut process = spawn(&shell(script), Some(&output)).await.expect("started");
        until(|| file.as_file().metadata().is_ok_and(|m| m.len() > 0)).await; // The trap is set.
        assert_eq!(process.stop(Duration::from_millis(50)).await.expect("an end"), Exit::Signal(9));
    }

    #[tokio::test]
    async fn a_process_that_heeds_sigterm_is_not_killed() {
        let mut process = spawn(&shell("exec sleep 100"), None).await.expect("started");
        assert_eq!(process.stop(Duration::from_secs(10)).await.expect("an end"), Exit::Signal(15));
    }

    /// Goal: no process of the group outlives the leader or a dropped handle. Method: a background child that would
    /// keep running.
    #[tokio::test]
    async fn the_whole_group_ends_with_its_leader() {
        for by_drop in [false, true] {
            let file = tempfile::NamedTempFile::new().expect("a file");
            let output = file.reopen().expect("open");
            let tail = if by_drop { "sleep 100" } else { "exit 0" };
            let mut process =
                spawn(&shell(&format!("sleep 100 & echo $!; {tail}")), Some(&output)).await.expect("started");
            until(|| file.as_file().metadata().is_ok_and(|m| m.len() > 0)).await;
            let child: i32 = std::fs::read_to_string(file.path()).expect("read").trim().parse().expect("a pid");
            if by_drop {
                drop(process);
            } else {
                process.wait().await.expect("an end");
            }
            until(|| !is_alive(child)).await;
        }
    }

    /// Goal: a process is killed if the caller that requested its start is gone, even if the reply had already been
    /// sent. Method: starts are handled in sequence, so the first has its reply once the second has.
    #[tokio::test]
    async fn a_process_that_nobody_waits_for_is_killed() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let output = file.reopen().expect("open");
        let launch = shell("echo $$; exec sleep 100");
        let mut start = Box::pin(spawn(&launch, Some(&output)));
        assert!(futures::poll!(&mut start).is_pending());
        spawn(&shell("exit 0"), None).await.expect("started");
        until(|| file.as_file().metadata().is_ok_and(|m| m.len() > 0)).await;
        let child: i32 = std::fs::read_to_string(file.path()).expect("read").trim().parse().expect("a pid");
        assert!(is_alive(child));
        drop(start);
        until(|| !is_alive(child)).await;
    }

    /// Reports whether the process exists and is not a zombie.
    fn is_alive(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    async fn until(mut condition: impl FnMut() -> bool) {
        let met = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), met).await.expect("it never came to pass");
    }
}
