//! A listening socket for one number.

use common_runtime::listen::BACKLOG;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// Listens at `address`, on both families if that is all addresses and the system has both.
pub(super) fn listen(address: IpAddr, number: u16) -> io::Result<OwnedFd> {
    if number == 0 {
        return Err(io::Error::new(ErrorKind::InvalidInput, "0 is no number: the system would choose one"));
    }
    if !address.is_unspecified() {
        return open(SocketAddr::new(address, number));
    }
    match open(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), number)) {
        Err(error) if is_without_ipv6(&error) => open(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), number)),
        listening => listening,
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    let no_ipv6 = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL];
    no_ipv6.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn open(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // What the system's default is depends on `net.ipv6.bindv6only`.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Connections of a former process that linger in the kernel are no listener.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG.cast_signed())?;
    Ok(socket.into())
}
