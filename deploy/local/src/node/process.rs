//! Starting, watching and ending processes.
//!
//! - Each is the leader of a process group of its own. SIGTERM goes to the leader, as in a container; SIGKILL to the
//!   group, and what is left of the group is killed when the leader ends.
//! - Each is killed by the kernel when this process dies, however it dies (`PR_SET_PDEATHSIG`). That signal is tied to
//!   the *thread* that started the child, so all are started on one thread that lives as long as the process. How,
//!   tells [`exec`].
//! - Ends are seen through a pidfd: no SIGCHLD handler, no race over reused process ids.
//! - Dropping a [`Process`] kills it ([`Child`]). Where nothing is dropped, at an exit that waits for nobody,
//!   [`super::kill_all`] does.
//!
//! # Not here
//!
//! Grandchildren when this process is itself killed by SIGKILL: the kernel's signal is not inherited, so `sh -c 'a; b'`
//! may leave `b` behind. Write `exec b`.

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

/// Starts that may wait for the starting thread. One takes well under a millisecond; a longer queue would be a node of
/// thousands of pods started at once, and those come back with an error and are tried again.
const STARTS_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Readable once it has ended.
    end: AsyncFd<OwnedFd>,
}

/// Starts `launch` with its output going to `output` (nowhere if absent).
///
/// # Errors
/// The program does not exist, may not be executed, or the system is out of processes.
///
/// Cancel safe: a process that nobody waits for any more is killed.
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

    /// Its process id, which is also its group's.
    pub(crate) fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// Waits for its end. Cancel safe.
    ///
    /// # Errors
    /// The system refuses to say; this does not happen for a child of ours.
    pub(crate) async fn wait(&mut self) -> io::Result<Exit> {
        loop {
            if let Some(exit) = self.child.exit() {
                return Ok(exit);
            }
            self.end.readable().await?.retain_ready();
            if self.child.reap()?.is_none() {
                // Readable, and yet not ended: not seen on Linux. A short sleep instead of a spin.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// Asks it to end; kills its group after `grace`.
    ///
    /// # Errors
    /// As [`Process::wait`].
    pub(crate) async fn stop(&mut self, grace: Duration) -> io::Result<Exit> {
        self.terminate();
        if let Ok(exit) = tokio::time::timeout(grace, self.wait()).await {
            return exit;
        }
        self.kill();
        self.wait().await
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        self.child.terminate();
    }

    /// Kills its group at once.
    pub(crate) fn kill(&self) {
        self.child.kill();
    }
}

struct Start {
    launch: Launch,
    output: Option<File>,
    reply: oneshot::Sender<io::Result<Child>>,
}

/// The way to the thread that starts processes; it is never closed, so the thread never ends.
fn starter() -> io::Result<&'static SyncSender<Start>> {
    static STARTER: OnceLock<io::Result<SyncSender<Start>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, receiver) = sync_channel::<Start>(STARTS_MAX);
        std::thread::Builder::new().name("starter".into()).spawn(move || {
            for Start { launch, output, reply } in receiver {
                drop(reply.send(exec::start(&launch, output))); // What nobody takes any more is dropped, and killed.
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

    /// Goal: nothing of the group outlives the leader, nor a dropped handle. Method: a background child that would live
    /// on.
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

    /// Goal: a process is killed whose start was asked for by somebody who then went away, also when the answer was there.
    /// Method: starts are answered one after another, so the first has its answer when the second has.
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

    /// Whether that process exists and is no zombie.
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
