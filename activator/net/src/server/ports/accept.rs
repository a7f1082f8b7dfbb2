//! The task that accepts connections on all workloads' ports.

use super::{Closing, PortListeners, Row, Shared, Table};
use crate::client::peer::OwnPort;
use crate::server::ACCEPT_PAUSE;
use crate::server::client_connections::ClientConnections;
use crate::tcp::is_shortage;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use std::future::pending;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum number of listeners per turn.
const LISTENERS_A_TURN: usize = 64;

/// Maximum number of connections that a listener accepts per turn, so that the others have theirs.
const ACCEPTED_A_TURN: usize = 64;

/// Maximum number of connections that are accepted on a closing listener: the size of its queue.
const QUEUED_MAX: usize = 4096;

/// An accepted connection in non-blocking mode.
pub(in crate::server) struct Accepted {
    pub(in crate::server) stream: TcpStream,
    pub(in crate::server) address: SocketAddr,
    /// The port and its identity at the time of the accept.
    pub(in crate::server) port: Arc<OwnPort>,
}

/// Result of a turn.
enum Turn {
    /// Some listeners had connections.
    Some,
    /// No listener had connections.
    None,
    /// Connections wait, but the system has no resources for them.
    Full(Errno),
}

impl PortListeners {
    /// Accepts connections and passes them to `serve` until `closing`, then closes all listeners. If the system has no
    /// resources, some of `connections` give way.
    pub(in crate::server) async fn accept(
        self,
        serve: impl Fn(Accepted) + Send,
        connections: ClientConnections,
        closing: CancellationToken,
    ) {
        let shared = self.shared;
        loop {
            let due = shared.next_due();
            tokio::select! {
                biased; // A closed port accepts no more connections.
                () = closing.cancelled() => return shared.close_all(),
                () = shared.changed.notified() => {
                    shared.close(&serve);
                    // A number that was unbound and bound again at once can be bound only now.
                    shared.retry(Instant::now());
                }
                () = until(due) => shared.retry(Instant::now()),
                ready = shared.epoll.readable() => match ready {
                    Ok(mut ready) => match shared.turn(&serve) {
                        Turn::Some => tokio::task::yield_now().await,
                        Turn::None => ready.clear_ready(),
                        Turn::Full(error) => {
                            connections.short(&error);
                            tokio::time::sleep(ACCEPT_PAUSE).await;
                        }
                    },
                    Err(error) => {
                        tracing::error!(%error, "workloads' ports are not looked after: the runtime ends");
                        return;
                    }
                },
            }
        }
    }
}

impl Shared {
    /// Accepts on the listeners that have connections.
    fn turn(&self, serve: &impl Fn(Accepted)) -> Turn {
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = [const { MaybeUninit::uninit() }; LISTENERS_A_TURN];
        let events = match epoll::wait(self.epoll.get_ref(), &mut events, Some(&AT_ONCE)) {
            Ok((events, _)) if !events.is_empty() => events,
            Ok(_) => return Turn::None,
            Err(Errno::INTR) => return Turn::Some,
            Err(error) => return Turn::Full(error),
        };
        for event in events {
            // The value was a u16.
            let number = event.data.u64() as u16;
            let (accepted, full) = {
                let table = self.table.lock();
                // Without a row, the listener is closed elsewhere.
                let Some(Row { port, listener: Some(listener) }) = table.rows.get(&number) else { continue };
                accept(listener, port, ACCEPTED_A_TURN)
            };
            accepted.into_iter().for_each(serve);
            if let Some(error) = full {
                return Turn::Full(error);
            }
        }
        Turn::Some
    }

    /// Closes the pending listeners after accepting their queued connections.
    fn close(&self, serve: &impl Fn(Accepted)) {
        let closing = std::mem::take(&mut self.table.lock().closing);
        for Closing { listener, port, .. } in closing {
            let (accepted, _) = accept(&listener, &port, QUEUED_MAX);
            drop(listener);
            accepted.into_iter().for_each(serve);
        }
    }

    /// Closes all listeners without accepting, because the server drains and has announced that before.
    fn close_all(&self) {
        let mut table = self.table.lock();
        let version = table.version + 1;
        *table = Table { version, is_closed: true, ..Table::default() };
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => pending().await,
    }
}

/// Accepts at most `most` connections. Also returns the error if the system has no resources.
fn accept(listener: &OwnedFd, port: &Arc<OwnPort>, most: usize) -> (Vec<Accepted>, Option<Errno>) {
    let mut accepted = Vec::new();
    for _ in 0..most {
        match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((stream, address)) => {
                let Some(address) = address.and_then(|address| SocketAddr::try_from(address).ok()) else { continue };
                accepted.push(Accepted { stream: stream.into(), address, port: port.clone() });
            }
            Err(Errno::AGAIN) => break,
            Err(error) if is_shortage(error) => return (accepted, Some(error)),
            Err(_) => {} // The connection failed before it was accepted, and has left the queue.
        }
    }
    (accepted, None)
}
