//! File descriptors: their limit, and readiness notifications for them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The limit before it was raised.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit on open descriptors to the maximum that the process may have, as Go programs do. Many systems start
/// processes with 1024, for the sake of programs that use `select`.
pub fn raise_limit() {
    let given = *GIVEN.get_or_init(|| getrlimit(Resource::Nofile));
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: given.maximum, ..given }) {
        tracing::debug!(%error, "the limit on open file descriptors could not be raised");
    }
}

/// Restores the original limit if this process has raised it, so that child processes get that one. Suitable for
/// `pre_exec`: it makes one system call and allocates nothing, and its error is only a number. Fails with the system's
/// error.
pub fn restore_limit() -> io::Result<()> {
    GIVEN.get().map_or(Ok(()), |given| Ok(setrlimit(Resource::Nofile, *given)?))
}

/// Registers `fd` with the current runtime. Dropping the result deregisters and closes it. Fails if the system cannot
/// poll descriptors of that kind, or has no capacity for another one. Panics outside of a runtime with I/O.
pub fn registered(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor must stay open and unchanged while it is registered. An OwnedFd always returns the same
    // number and closes it only when dropped. AsyncFd owns it from here on and deregisters it before dropping it.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
