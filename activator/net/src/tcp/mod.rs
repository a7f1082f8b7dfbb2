//! Operations on TCP sockets, below HTTP.

pub(crate) mod coalesced_write;
pub(crate) mod connect;
pub(crate) mod state;
pub(crate) mod user_timeout;

use rustix::io::Errno;

/// Reports whether the error means that this process or machine has no resources for another connection.
pub(crate) fn is_shortage(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL)
}
