//! Listening sockets with room for a burst.
//!
//! The kernel completes a connection itself and keeps it in the listener's queue until the process accepts it. If that
//! queue is full, the kernel drops the next SYN, and the client repeats it only a second later. A burst of connections
//! then takes seconds, whatever the process does. Runtimes request a queue of 128 by default. Ours is [`BACKLOG`], if
//! `net.core.somaxconn` permits.
//!
//! All addresses (0.0.0.0 or ::) means those of both families, if the system has both: a cluster may have either. An
//! IPv4 client then has an IPv4-mapped address.

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Once;
use tokio::net::TcpListener;

/// Connections that may wait to be accepted; the kernel uses `net.core.somaxconn` if that is less.
pub const BACKLOG: u32 = 4096;

/// File with the kernel's limit of a listener's queue.
const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";

/// Listens on `address`, with a queue of [`BACKLOG`]. If the kernel shortens it, this is logged once for each process.
/// Fails if the address cannot be bound or no socket can be created.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    static LOGGED: Once = Once::new();
    let listener = TcpListener::from_std(open(address)?.into())?;
    if let Some(limit) = queue_limit().filter(|limit| *limit < BACKLOG) {
        LOGGED.call_once(|| {
            tracing::warn!(
                somaxconn = limit,
                wanted = BACKLOG,
                "net.core.somaxconn is low: if more connections than that arrive at once, some wait for a second"
            );
        });
    }
    Ok(listener)
}

/// Opens a non-blocking listening socket like [`listen`], outside of any runtime. Fails as [`listen`] does.
pub fn open(address: SocketAddr) -> io::Result<Socket> {
    if !address.ip().is_unspecified() {
        return open_at(address);
    }
    let all = |ip: IpAddr| open_at(SocketAddr::new(ip, address.port()));
    match all(Ipv6Addr::UNSPECIFIED.into()) {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)) => {
            all(Ipv4Addr::UNSPECIFIED.into()) // The system has no IPv6.
        }
        listening => listening,
    }
}

fn open_at(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // The system's default depends on `net.ipv6.bindv6only`.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Connections of a former process that linger in the kernel do not count as a listener.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG.cast_signed())?;
    Ok(socket)
}

/// Returns the longest queue that the kernel permits, or `None` if unknown.
fn queue_limit() -> Option<u32> {
    std::fs::read_to_string(SOMAXCONN).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::time::Duration;
    use tokio::net::TcpStream;

    /// Goal: all connections of a burst that exceeds a runtime's default queue complete, although none is accepted.
    /// With a queue of 128 the others would wait forever.
    #[tokio::test]
    async fn a_burst_of_connections_does_not_wait_for_accept_and_a_port_has_one_listener() {
        let listener = listen("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let burst = queue_limit().map_or(BACKLOG, |limit| limit.min(BACKLOG)).min(1000);
        let connecting = join_all((0..burst).map(|_| TcpStream::connect(address)));
        let connected = tokio::time::timeout(Duration::from_secs(60), connecting).await.expect("no SYN is dropped");
        assert!(connected.iter().all(Result::is_ok));
        assert_eq!(listen(address).expect_err("taken").kind(), io::ErrorKind::AddrInUse);
    }

    /// Goal: all addresses means both families, in either notation, if the system has both.
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
}
