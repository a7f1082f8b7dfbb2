//! Descriptors whose readiness the runtime tells.

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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
