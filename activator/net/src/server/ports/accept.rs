//! The one task that accepts on all workloads' ports.

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

/// Listeners that are looked at in one turn.
const LISTENERS_A_TURN: usize = 64;

/// Connections that one listener's turn accepts: the others wait for theirs.
const ACCEPTED_A_TURN: usize = 64;

/// Connections that are accepted on a listener that closes: as many as its queue can hold.
const QUEUED_MAX: usize = 4096;

/// A connection as it was accepted; it does not block.
pub(in crate::server) struct Accepted {
    pub(in crate::server) stream: TcpStream,
    pub(in crate::server) address: SocketAddr,
    /// What it came to, as that was when it was accepted.
    pub(in crate::server) port: Arc<OwnPort>,
}

/// What a turn has come to.
enum Turn {
    /// Some listeners had connections.
    Some,
    /// None had.
    None,
    /// Connections wait, and the system has no room for them.
    Full(Errno),
}

impl PortListeners {
    /// Accepts, and hands to `serve`, until `closing`; then closes them all. Where the system has no room, some of
    /// `connections` give way.
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
                biased; // A closed port takes no one more.
                () = closing.cancelled() => return shared.close_all(),
                () = shared.changed.notified() => {
                    shared.close(&serve);
                    // A number that was given away and taken again at once could not be bound before that.
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
    /// Accepts on those that have connections.
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
            // A u16 was put in.
            let number = event.data.u64() as u16;
            let (accepted, full) = {
                let table = self.table.lock();
                // Without a row it is to be closed, which is somebody else's turn.
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

    /// Closes what is to be closed, once what is queued there has been accepted.
    fn close(&self, serve: &impl Fn(Accepted)) {
        let closing = std::mem::take(&mut self.table.lock().closing);
        for Closing { listener, port, .. } in closing {
            let (accepted, _) = accept(&listener, &port, QUEUED_MAX);
            drop(listener);
            accepted.into_iter().for_each(serve);
        }
    }

    /// Closes all at once: the server drains, and has told everybody so before.
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

/// Accepts at most so many. Says also what the system has no room for, if it has none.
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
            Err(_) => {} // Of a connection that has failed already, which is no more in the queue.
        }
    }
    (accepted, None)
}
