//! What is done with a TCP socket below HTTP.

pub(crate) mod coalesced_write;
pub(crate) mod connect;
pub(crate) mod rebind;
pub(crate) mod state;
pub(crate) mod user_timeout;

use rustix::io::Errno;

/// Whether it is this process, or this machine, that has no room for one more connection.
pub(crate) fn is_shortage(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL)
}
