//! A child process from its start until it is reaped.
//!
//! Dropping it before that kills it and its process group. This also covers a child in a channel whose receiver is
//! gone.

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_send_signal, waitid};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Process groups that are not reaped yet, so that their ids cannot be reused.
static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The process exited with this status.
    Code(i32),
    /// This signal ended the process.
    Signal(i32),
}

impl Exit {
    /// Returns the exit code as a shell and Kubernetes do: 128 + signal.
    pub(crate) fn code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

/// Leader of a process group.
#[derive(Debug)]
pub(super) struct Child {
    pid: Pid,
    /// Its pidfd.
    fd: OwnedFd,
    exit: Option<Exit>,
}

impl Child {
    /// Wraps a child that is not reaped yet, and its pidfd.
    pub(super) fn new(pid: Pid, fd: OwnedFd) -> Self {
        let child = Self { pid, fd, exit: None };
        GROUPS.lock().insert(child.pid());
        child
    }

    /// Returns the process id, which is also the group id.
    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Returns the pidfd, which becomes readable when the process ends.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Returns the exit status, if the process has been reaped.
    pub(super) fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// Sends SIGTERM to the process.
    pub(super) fn terminate(&self) {
        if self.exit.is_none() {
            let _ = pidfd_send_signal(&self.fd, Signal::TERM); // The process may have just ended.
        }
    }

    /// Kills the process group.
    pub(super) fn kill(&self) {
        if self.exit.is_none() {
            let _ = kill_process_group(self.pid, Signal::KILL); // The group may have just ended.
        }
    }

    /// Reaps the process if it has ended. Kills the rest of its group before that: the group id cannot be reused while
    /// the leader is a zombie.
    pub(super) fn reap(&mut self) -> io::Result<Option<Exit>> {
        let id = || WaitId::PidFd(self.fd.as_fd());
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(id(), peek)?.is_none() {
            return Ok(None);
        }
        let _ = kill_process_group(self.pid, Signal::KILL);
        GROUPS.lock().remove(&self.pid());
        let status = waitid(id(), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)?;
        let exit = status.map(|status| match status.terminating_signal() {
            Some(signal) => Exit::Signal(signal),
            None => Exit::Code(status.exit_status().unwrap_or(0)),
        });
        self.exit = exit;
        Ok(exit)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.kill();
            GROUPS.lock().remove(&self.pid());
            if let Ok(None) = self.reap() {
                // The kernel is still ending the process. Reaping needs a moment, for which a drop must not wait.
                let pid = self.pid;
                let _ = std::thread::Builder::new().name("reaper".into()).spawn(move || {
                    let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
                });
            }
        }
    }
}

/// Kills all process groups, as this process is about to exit.
pub(crate) fn kill_all() {
    for group in GROUPS.lock().iter().filter_map(|group| Pid::from_raw(*group)) {
        let _ = kill_process_group(group, Signal::KILL); // The group may have just ended.
    }
}
