//! Listening sockets with room for a burst.
//!
//! The kernel completes a connection by itself and keeps it in the listener's queue until the process accepts it. When
//! that queue is full it drops the next SYN, and the client repeats it only a second later: a burst of connections
//! then takes seconds, whatever the process does. Runtimes ask for a queue of 128 unless told otherwise. Ours is
//! [`BACKLOG`], as far as `net.core.somaxconn` lets it be.
//!
//! All addresses (0.0.0.0 or ::) are those of both families, as far as the system has both: a cluster may have either. An
//! IPv4 client has an IPv4-mapped address then.

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Once;
use tokio::net::TcpListener;

/// Connections that may wait to be accepted; the kernel takes `net.core.somaxconn` if that is less.
pub const BACKLOG: u32 = 4096;

/// What the kernel allows a listener's queue to be.
const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";

/// Listens on `address`, with a queue of [`BACKLOG`]. If the kernel makes it shorter, the log says so, once for each
/// process.
///
/// # Errors
/// The address cannot be bound, or no socket be made.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    static TOLD: Once = Once::new();
    let listener = TcpListener::from_std(open(address)?.into())?;
    if let Some(most) = most().filter(|most| *most < BACKLOG) {
        TOLD.call_once(|| {
            tracing::warn!(
                somaxconn = most,
                wanted = BACKLOG,
                "net.core.somaxconn is low: when more connections than that come at once, some wait for a second"
            );
        });
    }
    Ok(listener)
}

/// A listening socket that does not block, as [`listen`] has it, outside of any runtime.
///
/// # Errors
/// As [`listen`].
pub fn open(address: SocketAddr) -> io::Result<Socket> {
    if !address.ip().is_unspecified() {
        return open_at(address);
    }
    let all = |ip: IpAddr| open_at(SocketAddr::new(ip, address.port()));
    match all(Ipv6Addr::UNSPECIFIED.into()) {
        Err(error) if is_without_ipv6(&error) => all(Ipv4Addr::UNSPECIFIED.into()),
        listening => listening,
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    let no_ipv6 = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL];
    no_ipv6.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn open_at(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // What the system's default is depends on `net.ipv6.bindv6only`.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Connections of a former process that linger in the kernel are no listener.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG.cast_signed())?;
    Ok(socket)
}

/// The longest queue that the kernel allows; none if it does not say.
fn most() -> Option<u32> {
    std::fs::read_to_string(SOMAXCONN).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::time::Duration;
    use tokio::net::TcpStream;

    /// More connections than a runtime's own queue takes, at once, and nobody accepts: each is there nevertheless. With
    /// a queue of 128 the others would wait for ever.
    #[tokio::test]
    async fn a_burst_of_connections_does_not_wait_for_accept() {
        let listener = listen("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let burst = most().map_or(BACKLOG, |most| most.min(BACKLOG)).min(1000);
        let connecting = join_all((0..burst).map(|_| TcpStream::connect(address)));
        let connected = tokio::time::timeout(Duration::from_secs(60), connecting).await.expect("no SYN is dropped");
        assert!(connected.iter().all(Result::is_ok));
    }

    /// Goal: all addresses are both families', however they are written, where the system has both.
    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        let has_ipv6 = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        for all in ["0.0.0.0:0", "[::]:0"] {
            let listener = listen(all.parse().expect("an address")).expect("a free port");
            let port = listener.local_addr().expect("bound").port();
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("IPv4");
            let ipv6 = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await;
            assert_eq!(ipv6.is_ok(), has_ipv6, "{all}: {ipv6:?}");
        }
    }

    /// An address that is taken is an error and no second listener.
    #[tokio::test]
    async fn a_port_has_one_listener() {
        let first = listen("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let again = listen(first.local_addr().expect("bound"));
        assert_eq!(again.expect_err("taken").kind(), io::ErrorKind::AddrInUse);
    }
}
