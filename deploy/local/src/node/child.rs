//! A child process from its start until it is reaped.
//!
//! Whoever drops it before kills it, with its group: also a channel in which it lies when the one who asked for it has
//! gone.

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_send_signal, waitid};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Groups of all processes that are not reaped yet, whose ids therefore are nobody else's.
static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// By itself, with that status.
    Code(i32),
    /// By that signal.
    Signal(i32),
}

impl Exit {
    /// As a shell and Kubernetes say it: 128 + signal.
    pub(crate) fn code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

/// The leader of a process group.
#[derive(Debug)]
pub(super) struct Child {
    pid: Pid,
    /// Its pidfd.
    fd: OwnedFd,
    exit: Option<Exit>,
}

impl Child {
    /// A child that is not reaped, and its pidfd.
    pub(super) fn new(pid: Pid, fd: OwnedFd) -> Self {
        let child = Self { pid, fd, exit: None };
        GROUPS.lock().insert(child.pid());
        child
    }

    /// Its process id, which is also its group's.
    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Its pidfd, which becomes readable when it has ended.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// How it ended, if it has been reaped.
    pub(super) fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// Asks it to end.
    pub(super) fn terminate(&self) {
        if self.exit.is_none() {
            let _ = pidfd_send_signal(&self.fd, Signal::TERM); // It may have just ended.
        }
    }

    /// Kills its group at once.
    pub(super) fn kill(&self) {
        if self.exit.is_none() {
            let _ = kill_process_group(self.pid, Signal::KILL); // It may have just ended.
        }
    }

    /// Takes the exit status if it has ended. While it is a zombie its group id is not given to anybody else, so what
    /// is left of the group is killed before.
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
                // The kernel is still taking it down. Whoever reaps needs a moment, which a drop may not take.
                let pid = self.pid;
                let _ = std::thread::Builder::new().name("reaper".into()).spawn(move || {
                    let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
                });
            }
        }
    }
}

/// Kills the groups of all processes, as this one is about to exit.
pub(crate) fn kill_all() {
    for group in GROUPS.lock().iter().filter_map(|group| Pid::from_raw(*group)) {
        let _ = kill_process_group(group, Signal::KILL); // It may have just ended.
    }
}
