//! Ports of workloads: one listener per number, bound and closed while the server runs.
//!
//! # Cost
//!
//! A port costs a descriptor, a row in the table, and the kernel's state. All listeners are in one epoll instance, on
//! which one task waits ([`accept`]); a task for each would cost a kilobyte or two, ten thousand times. Binding takes
//! some microseconds and does not block, so the caller does it.
//!
//! There is one listener per number, not one per worker (`SO_REUSEPORT`). The latter would multiply the descriptors,
//! and another process could bind the same number unnoticed. Accepted connections go to the workers in turn, as on the
//! shared ports.
//!
//! # A number in use
//!
//! If another process uses the number, or there is no descriptor, the table stores the error. Binding is retried first
//! after [`RETRY_FIRST`], then at growing intervals up to [`RETRY_MAX`], as long as the number is wanted.
//!
//! # Closing
//!
//! A closed port leaves the table at once. The task then accepts the connections that the kernel has queued, which are
//! served as usual, and closes the listener. Existing connections continue, with the identity that the port had when
//! they arrived ([`Peer::port`](crate::Peer::port)).
//!
//! # Clients that are routed elsewhere
//!
//! A client that keeps its connection does not notice that new connections are routed elsewhere.
//! [`PortListeners::leave`] ends the connections to a port with their next response, or if there are no requests, as
//! idle connections end ([`super::client_connections`]).

mod accept;
mod socket;

pub(super) use accept::Accepted;

use super::KeepAlive;
use super::client_connections::ClientConnections;
use crate::client::peer::{OwnPort, PortIdentity};
use common_runtime::descriptor;
use parking_lot::Mutex;
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Pause after the first failure to bind a number.
const RETRY_FIRST: Duration = Duration::from_millis(100);

/// Maximum pause between two attempts to bind it.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Listeners of all workloads' ports. Cheap to clone.
#[derive(Clone)]
pub struct PortListeners {
    shared: Arc<Shared>,
}

struct Shared {
    address: IpAddr,
    keepalive: Option<KeepAlive>,
    epoll: AsyncFd<OwnedFd>,
    table: Mutex<Table>,
    /// Signal that a listener must be closed, or a bind retried.
    changed: Notify,
    /// The connections to these ports, once they are served.
    connections: OnceLock<ClientConnections>,
}

#[derive(Default)]
struct Table {
    rows: BTreeMap<u16, Row>,
    /// Bind errors of the rows without a listener.
    unbound: BTreeMap<u16, Unbound>,
    closing: Vec<Closing>,
    version: u64,
    /// The server has drained, and accepts no more.
    is_closed: bool,
}

struct Row {
    port: Arc<OwnPort>,
    listener: Option<OwnedFd>,
}

/// A number that could not be bound.
struct Unbound {
    error: io::Error,
    pause: Duration,
    due: Instant,
}

/// A listener whose queued connections must still be served.
struct Closing {
    number: u16,
    listener: OwnedFd,
    port: Arc<OwnPort>,
}

impl PortListeners {
    /// Creates an empty set. Ports are bound to `address`, or to all addresses of both families if that is the
    /// unspecified address of either. `keepalive` applies to their connections.
    ///
    /// # Errors
    /// The system cannot create an epoll instance.
    ///
    /// # Panics
    /// Outside of a runtime with I/O.
    pub fn new(address: IpAddr, keepalive: Option<KeepAlive>) -> io::Result<Self> {
        let epoll = descriptor::registered(epoll::create(epoll::CreateFlags::CLOEXEC)?, Interest::READABLE)?;
        let (table, changed, connections) = (Mutex::default(), Notify::new(), OnceLock::new());
        Ok(Self { shared: Arc::new(Shared { address, keepalive, epoll, table, changed, connections }) })
    }

    /// Sets the client connections that the listeners belong to, and whose limit they reduce.
    pub(super) fn told_by(&self, connections: ClientConnections) {
        self.shared.connections.get_or_init(|| connections).set_listeners(self.shared.table.lock().rows.len());
    }

    /// Binds `number` for `identity`. If it is already bound, new connections get `identity`. After a drain, nothing is
    /// bound any more.
    pub fn bind(&self, number: u16, identity: PortIdentity) {
        let mut table = self.shared.table.lock();
        if table.is_closed {
            return; // A client would wait for an accept that never comes.
        }
        table.version += 1;
        if let Some(row) = table.rows.get_mut(&number) {
            row.port = OwnPort::new(identity);
            return;
        }
        let listener = if table.closing.iter().any(|closing| closing.number == number) {
            let error = io::Error::new(io::ErrorKind::AddrInUse, "its former listener is being closed");
            table.unbound.insert(number, Unbound { error, pause: RETRY_FIRST, due: Instant::now() });
            None
        } else {
            match self.shared.listen(number) {
                Ok(listener) => Some(listener),
                Err(error) => {
                    tracing::warn!(number, %error, "a workload's port cannot be bound, and is tried again");
                    let unbound = Unbound { error, pause: RETRY_FIRST, due: Instant::now() + RETRY_FIRST };
                    table.unbound.insert(number, unbound);
                    self.shared.changed.notify_one();
                    None
                }
            }
        };
        table.rows.insert(number, Row { port: OwnPort::new(identity), listener });
        self.shared.count(&table);
    }

    /// Closes `number`; see the module documentation.
    pub fn unbind(&self, number: u16) {
        let mut table = self.shared.table.lock();
        let Some(Row { port, listener }) = table.rows.remove(&number) else { return };
        self.shared.count(&table);
        table.version += 1;
        table.unbound.remove(&number);
        if let Some(listener) = listener {
            table.closing.push(Closing { number, listener, port });
            self.shared.changed.notify_one();
        }
    }

    /// Makes the clients of all ports reconnect for which `is_left` returns true. Over HTTP, each response is the last
    /// of its connection from now on, also for new connections, and idle connections end soon. Relayed connections
    /// continue.
    pub fn leave(&self, is_left: impl Fn(&PortIdentity) -> bool) {
        let table = self.shared.table.lock();
        table.rows.values().filter(|row| is_left(row.port.identity())).for_each(|row| row.port.leave());
        drop(table);
        self.shared.connections.get().into_iter().for_each(ClientConnections::look);
    }

    /// Returns a version that changes whenever the output of [`PortListeners::each`] may change.
    pub fn version(&self) -> u64 {
        self.shared.table.lock().version
    }

    /// Calls `look` with the identity and the bind error, if any, of `number`, if it is in the table.
    pub fn one<T>(&self, number: u16, look: impl FnOnce(&PortIdentity, Option<&io::Error>) -> T) -> Option<T> {
        let table = self.shared.table.lock();
        table.rows.get(&number).map(|row| look(row.port.identity(), table.error(number)))
    }

    /// Calls `look` for all numbers in order, under one lock, so `look` must be short. Returns the version at that
    /// moment.
    pub fn each(&self, mut look: impl FnMut(u16, &PortIdentity, Option<&io::Error>)) -> u64 {
        let table = self.shared.table.lock();
        table.rows.iter().for_each(|(number, row)| look(*number, row.port.identity(), table.error(*number)));
        table.version
    }
}

impl Table {
    fn error(&self, number: u16) -> Option<&io::Error> {
        self.unbound.get(&number).map(|unbound| &unbound.error)
    }
}

impl Shared {
    fn count(&self, table: &Table) {
        self.connections.get().into_iter().for_each(|connections| connections.set_listeners(table.rows.len()));
    }

    /// Opens a listener and adds it to the epoll instance.
    fn listen(&self, number: u16) -> io::Result<OwnedFd> {
        let listener = socket::listen(self.address, number)?;
        if let Some(keepalive) = self.keepalive {
            keepalive.set(&listener)?;
        }
        let data = epoll::EventData::new_u64(number.into());
        epoll::add(self.epoll.get_ref(), &listener, data, epoll::EventFlags::IN)?;
        Ok(listener)
    }

    /// Returns the time of the next retry.
    fn next_due(&self) -> Option<Instant> {
        self.table.lock().unbound.values().map(|unbound| unbound.due).min()
    }

    /// Retries the binds that are due.
    fn retry(&self, now: Instant) {
        let mut table = self.table.lock();
        let Table { rows, unbound, version, .. } = &mut *table;
        unbound.retain(|&number, unbound| {
            if unbound.due > now {
                return true;
            }
            *version += 1;
            match (self.listen(number), rows.get_mut(&number)) {
                (Ok(listener), Some(row)) => {
                    tracing::info!(number, "a workload's port is bound");
                    row.listener = Some(listener);
                    false
                }
                (_, None) => false,
                (Err(error), Some(_)) => {
                    let pause = (unbound.pause * 2).min(RETRY_MAX);
                    *unbound = Unbound { error, pause, due: now + pause };
                    true
                }
            }
        });
    }
}
