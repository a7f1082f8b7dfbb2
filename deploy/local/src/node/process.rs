//! Starts, watches and ends processes.
//!
//! - Each process is the leader of its own process group. SIGTERM is sent to the leader, as in a container. SIGKILL is
//!   sent to the group, and the rest of the group is killed when the leader ends.
//! - The kernel kills each process when this process ends for any reason (`PR_SET_PDEATHSIG`). That signal comes when
//!   the *thread* that started the child ends, so one thread that lives as long as this process starts all children.
//!   The child requests the signal between `fork` and `execve`, and then checks that its parent is still alive: if the
//!   parent had ended before, no signal would come.
//! - The child gets the original limit of descriptors, not the limit that this process raised for itself.
//! - Dropping a [`Process`] kills its group. At an immediate exit, which drops nothing, [`kill_all`] does that.
//!
//! # Limits
//!
//! Grandchildren may survive if SIGKILL ends this process: the kernel's signal is not inherited, so `sh -c 'a; b'` may
//! leave `b` running. Write `exec b`.

use common_runtime::descriptor;
use parking_lot::Mutex;
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of starts in the queue; further ones wait. A start takes well under a millisecond.
const STARTS_MAX: usize = 64;

/// Living process groups.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// A program with its arguments, environment and working directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Absolute path.
    pub(crate) program: PathBuf,
    /// Arguments, without the program's name.
    pub(crate) args: Vec<String>,
    /// The whole environment; nothing is inherited.
    pub(crate) env: BTreeMap<String, String>,
    /// Working directory; that of this process if absent.
    pub(crate) dir: Option<PathBuf>,
}

/// Returns the exit code as a shell and Kubernetes do: 128 + signal, if a signal ended the process.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Leader of a process group.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    /// The group, until its leader is known to have ended.
    group: Option<Group>,
}

/// A process group. Dropping it kills it.
#[derive(Debug)]
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        kill_group(self.0);
        GROUPS.lock().retain(|group| *group != self.0);
    }
}

/// Starts `launch` and sends its output to `output`, or discards it.
///
/// # Errors
/// Fails if the program does not exist or may not be executed, or if the system is out of processes.
///
/// Cancel safe: if the future is dropped, the process is killed.
pub(crate) async fn spawn(launch: &Launch, output: Option<&File>) -> io::Result<Process> {
    let output = output.map(File::try_clone).transpose()?;
    let (reply, answer) = oneshot::channel();
    let (launch, runtime) = (launch.clone(), Handle::current());
    let job: Start = Box::new(move || {
        let _runtime = runtime.enter(); // This runtime waits for the end of the process.
        drop(reply.send(start(&launch, output))); // Without a receiver, the process is dropped and killed.
    });
    let ended = || io::Error::other("the thread that starts processes has ended");
    starter()?.send(job).await.map_err(|_| ended())?;
    answer.await.map_err(|_| ended())?
}

impl Process {
    /// Returns the process id, which is also the group id.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits until the process has ended, and kills the rest of its group. Cancel safe. Fails if the system call fails,
    /// which does not happen for a child of this process.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.group = None;
        Ok(status)
    }

    /// Sends SIGTERM to the process.
    pub(crate) fn terminate(&self) {
        if self.group.is_some() {
            let _ = kill_process(self.pid, Signal::TERM); // The process may have just ended.
        }
    }

    /// Kills the process group.
    pub(crate) fn kill(&self) {
        if let Some(Group(pid)) = &self.group {
            kill_group(*pid);
        }
    }
}

/// Kills all process groups, as this process is about to exit.
pub(crate) fn kill_all() {
    GROUPS.lock().iter().copied().for_each(kill_group);
}

fn kill_group(group: Pid) {
    let _ = kill_process_group(group, Signal::KILL); // The group may have just ended.
}

/// Job of the thread that starts processes.
type Start = Box<dyn FnOnce() + Send>;

/// Returns the channel to the thread that starts processes. It is never closed, so the thread never ends.
fn starter() -> io::Result<&'static mpsc::Sender<Start>> {
    static STARTER: OnceLock<io::Result<mpsc::Sender<Start>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, mut receiver) = mpsc::channel::<Start>(STARTS_MAX);
        std::thread::Builder::new().name("starter".into()).spawn(move || {
            while let Some(job) = receiver.blocking_recv() {
                job();
            }
        })?;
        Ok(sender)
    });
    starter.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))
}

/// Starts `launch` on the calling thread, whose end also ends the child.
fn start(launch: &Launch, output: Option<File>) -> io::Result<Process> {
    let mut command = Command::new(&launch.program);
    command.args(&launch.args).env_clear().envs(&launch.env);
    if let Some(dir) = &launch.dir {
        command.current_dir(dir);
    }
    let (out, err) = match output {
        Some(file) => (file.try_clone()?.into(), file.into()),
        None => (Stdio::null(), Stdio::null()),
    };
    command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
    let parent = Some(getpid());
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        descriptor::restore_limit()?;
        if getppid() == parent { Ok(()) } else { Err(io::Error::from(rustix::io::Errno::SRCH)) }
    };
    // SAFETY: between `fork` and `execve` only async-signal-safe functions may run, and no memory may be allocated. The
    // closure makes three system calls, and its errors are numbers.
    unsafe { command.pre_exec(prepare) };
    let child = command.spawn()?;
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).ok_or(io::ErrorKind::InvalidData)?;
    GROUPS.lock().push(pid);
    Ok(Process { child, pid, group: Some(Group(pid)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tempfile::NamedTempFile;

    fn shell(script: &str) -> Launch {
        Launch { program: "/bin/sh".into(), args: vec!["-c".into(), script.into()], env: BTreeMap::new(), dir: None }
    }

    #[tokio::test]
    async fn a_process_ends_on_sigterm_or_is_killed_if_it_ignores_the_signal() {
        let mut obedient = spawn(&shell("exec sleep 100"), None).await.expect("started");
        obedient.terminate();
        assert_eq!(exit_code(obedient.wait().await.expect("an end")), 128 + 15);
        let file = NamedTempFile::new().expect("a file");
        let script = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
        let mut process = spawn(&shell(script), Some(file.as_file())).await.expect("started");
        first_output(&file).await; // The trap is set.
        process.terminate();
        assert!(tokio::time::timeout(Duration::from_millis(50), process.wait()).await.is_err());
        process.kill();
        assert_eq!(exit_code(process.wait().await.expect("an end")), 128 + 9);
    }

    /// Goal: no process of the group outlives the leader or a dropped handle. Method: a background child that would
    /// keep running.
    #[tokio::test]
    async fn the_whole_group_ends_with_its_leader() {
        for by_drop in [false, true] {
            let file = NamedTempFile::new().expect("a file");
            let launch = shell(&format!("sleep 100 & echo $!; {}", if by_drop { "sleep 100" } else { "exit 0" }));
            let mut process = spawn(&launch, Some(file.as_file())).await.expect("started");
            let child = first_output(&file).await.trim().parse().expect("a pid");
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
    async fn a_process_whose_start_is_cancelled_is_killed() {
        let file = NamedTempFile::new().expect("a file");
        let launch = shell("echo $$; exec sleep 100");
        let mut start = Box::pin(spawn(&launch, Some(file.as_file())));
        assert!(futures::poll!(&mut start).is_pending());
        spawn(&shell("exit 0"), None).await.expect("started");
        let child = first_output(&file).await.trim().parse().expect("a pid");
        assert!(is_alive(child));
        drop(start);
        until(|| !is_alive(child)).await;
    }

    /// Reports whether the process exists and is not a zombie.
    fn is_alive(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    /// Waits for the first output of a process.
    async fn first_output(file: &NamedTempFile) -> String {
        let read = || std::fs::read_to_string(file.path()).expect("readable");
        until(|| !read().is_empty()).await;
        read()
    }

    async fn until(mut condition: impl FnMut() -> bool) {
        let met = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), met).await.expect("the condition is met in time");
    }
}
