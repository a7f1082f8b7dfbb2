//! Listening sockets with room for a burst.
//!
//! The kernel completes a connection by itself and keeps it in the listener's queue until the process accepts it. When
//! that queue is full it drops the next SYN, and the client repeats it only a second later: a burst of connections
//! then takes seconds, whatever the process does. Runtimes ask for a queue of 128 unless told otherwise. Ours is
//! [`BACKLOG`], as far as `net.core.somaxconn` lets it be.

use std::io;
use std::net::SocketAddr;
use std::sync::Once;
use tokio::net::{TcpListener, TcpSocket};

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
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of a former process that linger in the kernel are no listener.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
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

    /// An address that is taken is an error and no second listener.
    #[tokio::test]
    async fn a_port_has_one_listener() {
        let first = listen("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let again = listen(first.local_addr().expect("bound"));
        assert_eq!(again.expect_err("taken").kind(), io::ErrorKind::AddrInUse);
    }
}
