//! Descriptors: how many there may be, and those whose readiness the runtime tells.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The limit before it was raised.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit on open descriptors to what the process may have, as Go's programs do. Many systems start processes
/// with 1024, for the sake of programs that wait with `select`.
pub fn raise_limit() {
    let given = *GIVEN.get_or_init(|| getrlimit(Resource::Nofile));
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: given.maximum, ..given }) {
        tracing::debug!(%error, "the limit on open descriptors stays as it is");
    }
}

/// Sets the limit that this process was given, if it has raised it, as programs that it starts are to have that one: for
/// `pre_exec`. It makes one system call, allocates nothing, and its error is a number.
///
/// # Errors
/// What the system says.
pub fn give_limit_back() -> io::Result<()> {
    GIVEN.get().map_or(Ok(()), |given| Ok(setrlimit(Resource::Nofile, *given)?))
}

/// Registers `fd` with the runtime of the caller; it is taken off and closed when the result is dropped.
///
/// # Errors
/// The system does not watch descriptors of that kind, or has no room for another one.
///
/// # Panics
/// Outside of a runtime with I/O.
pub fn registered(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor must stay open and the same for as long as it is registered. An OwnedFd always gives the
    // same number and closes it only when dropped, which AsyncFd, its owner from here on, does after taking it off.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
