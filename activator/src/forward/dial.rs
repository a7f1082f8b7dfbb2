//! Connecting to a pod.

use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;

/// Longest wait for a connect. A pod's kernel answers within a round trip; after the first retransmission (1 s) the
/// address counts as dead and the request, of which nothing was sent, goes elsewhere.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_millis(1500);

/// Longest time that sent bytes may stay unacknowledged before the kernel gives the connection up. It is the pod's
/// kernel that acknowledges, so a slow program never runs into it.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);

/// First keep-alive probe on an idle connection, and the time between probes: upstream's 5 s.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Connects.
///
/// # Errors
/// Refused, unreachable, or not answered within [`CONNECT_TIMEOUT`].
pub(crate) async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await.map_err(|_| {
        io::Error::new(io::ErrorKind::TimedOut, format!("connect not answered within {CONNECT_TIMEOUT:?}"))
    })??;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    Ok(stream)
}
