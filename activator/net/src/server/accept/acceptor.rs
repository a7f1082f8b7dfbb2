//! Accepts connections for workers.
//!
//! A tokio listener registers each accepted connection with its own reactor. If a worker serves the connection, that is
//! undone at once, and repeated by the worker's reactor: two system calls and a registration for nothing. Here a
//! connection is registered only by the worker that serves it.

use crate::client::connections::ClientConnections;
use common_runtime::descriptor::registered;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Pause after a failed accept, so that some connections can close if there are no descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of connections in a listener's queue.
const QUEUED_MAX: usize = 4096;

pub(crate) struct Acceptor {
    listener: AsyncFd<OwnedFd>,
}

impl Acceptor {
    /// Wraps a listener in non-blocking mode. An error means that the runtime's reactor rejects the listener.
    pub(crate) fn new(listener: OwnedFd) -> io::Result<Self> {
        Ok(Self { listener: registered(listener, Interest::READABLE)? })
    }

    /// Accepts the next connection, in non-blocking mode, and returns it with the client's address. Yields to other
    /// tasks during bursts. Repeats a failed accept after a pause; if the process or the system has no resources, some
    /// of `connections` give way.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn accept(&self, connections: &ClientConnections) -> (StdStream, SocketAddr) {
        loop {
            match self.listener.async_io(Interest::READABLE, accept).await {
                Ok(accepted) => return accepted,
                Err(error) => connections.accept_failed(&error),
            }
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }

    /// Returns the connections that wait in the kernel's queue.
    pub(crate) fn queued(&self) -> impl Iterator<Item = (StdStream, SocketAddr)> {
        std::iter::from_fn(|| accept(self.listener.get_ref()).ok()).take(QUEUED_MAX)
    }
}

fn accept(listener: &OwnedFd) -> io::Result<(StdStream, SocketAddr)> {
    loop {
        match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((stream, address)) => {
                // Otherwise its address family has no addresses.
                if let Some(address) = address.and_then(|address| SocketAddr::try_from(address).ok()) {
                    return Ok((stream.into(), address));
                }
            }
            Err(Errno::CONNABORTED) => {} // The connection failed before it was accepted.
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Goal: other tasks run long before a burst of connections is accepted. Method: on one thread, a thousand
    /// connections are queued before the first is accepted; a task that is always ready counts its turns meanwhile.
    #[tokio::test]
    async fn other_tasks_run_during_a_burst_of_connections() {
        const BURST: usize = 1000;
        let listener = common_runtime::listen::listen(([127, 0, 0, 1], 0).into()).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let clients: Vec<_> = (0..BURST).map(|_| StdStream::connect(address).expect("queued")).collect();
        let listener = listener.into_std().expect("open");
        let acceptor = Acceptor::new(listener.into()).expect("registered");
        let (turns, connections) =
            (Arc::new(AtomicUsize::new(0)), ClientConnections::without_limits(Memory::new(None)));
        let counting = turns.clone();
        let other = tokio::spawn(async move {
            loop {
                counting.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        for client in &clients {
            let (stream, address) = acceptor.accept(&connections).await;
            assert_eq!(address, client.local_addr().expect("connected"));
            assert_eq!(stream.peer_addr().expect("connected"), address);
        }
        other.abort();
        assert!(turns.load(Ordering::Relaxed) >= 4, "{turns:?} turns while {BURST} were accepted");
    }
}
