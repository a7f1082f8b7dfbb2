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

/// Connections over the loopback interface, for tests.
#[cfg(test)]
pub(crate) mod loopback {
    use std::net::SocketAddr;
    use tokio::net::{TcpListener, TcpStream};

    pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        (listener, address)
    }

    /// Returns both ends of a new connection: the client's and the server's.
    pub(crate) async fn connected() -> (TcpStream, TcpStream) {
        let (listener, address) = listen().await;
        let client = TcpStream::connect(address).await.expect("connected");
        (client, listener.accept().await.expect("accepted").0)
    }
}
