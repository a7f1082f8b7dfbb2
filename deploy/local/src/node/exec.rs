//! Starts a program that ends with the thread that started it.
//!
//! The kernel sends a child the signal that it requested (`PR_SET_PDEATHSIG`) when the *thread* that created it ends.
//! The child requests it between `fork` and `execve`, and then checks that its parent is still alive: if the parent had
//! ended before, no signal would come. The child also gets the original limit of descriptors, not the limit that this
//! process raised for itself. The standard library does the rest: default signals, process group, descriptors 0 to 2,
//! working directory.

use super::child::Child;
use common_runtime::descriptor;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, set_parent_process_death_signal};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Absolute path.
    pub(crate) program: PathBuf,
    /// Arguments, without the program's name.
    pub(crate) args: Vec<String>,
    /// The whole environment; nothing is inherited.
    pub(crate) env: Vec<(String, String)>,
    /// Working directory; that of this process if absent.
    pub(crate) dir: Option<PathBuf>,
}

/// Starts `launch` on the calling thread, whose end also ends the child. Without `output`, the child's output is
/// discarded.
///
/// # Errors
/// Fails if a text contains NUL, or with the system's error; no process is left then.
pub(super) fn start(launch: &Launch, output: Option<File>) -> io::Result<Child> {
    let mut command = Command::new(&launch.program);
    command.args(&launch.args).env_clear().envs(launch.env.iter().map(|(name, value)| (name, value)));
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
        descriptor::give_limit_back()?;
        if getppid() == parent { Ok(()) } else { Err(io::Error::from(rustix::io::Errno::SRCH)) }
    };
    // SAFETY: between `fork` and `execve` only async-signal-safe functions may run, and no memory may be allocated. The
    // closure makes three system calls, and its errors are numbers.
    unsafe { command.pre_exec(prepare) };
    let pid = command.spawn()?.id();
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    // Nothing else reaps the child, so its id is valid even if it has ended.
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => Ok(Child::new(pid, fd)),
        Err(error) => {
            // Out of descriptors: a process that cannot be waited for must not stay.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            Err(error.into())
        }
    }
}
