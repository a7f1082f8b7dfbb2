//! Opens the listening socket for a number.

use common_runtime::listen;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

/// Listens at `address`, and on both families if it is unspecified and the system has both.
pub(super) fn listen(address: IpAddr, number: u16) -> io::Result<OwnedFd> {
    if number == 0 {
        return Err(io::Error::new(ErrorKind::InvalidInput, "0 is no number: the system would choose one"));
    }
    Ok(listen::open(SocketAddr::new(address, number))?.into())
}
