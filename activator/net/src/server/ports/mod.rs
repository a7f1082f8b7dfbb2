//! Ports of workloads: listeners that are bound and closed while the server runs, one for each number.
//!
//! # What one costs
//!
//! A descriptor, a row of the table, and what the kernel keeps. All listeners stand in one epoll instance of their own,
//! which one task waits for ([`accept`]); a task for each would cost a kilobyte or two, ten thousand times. To bind one
//! takes some microseconds and waits for nothing, so it is done where it is asked for.
//!
//! One listener for a number, not one for each worker (`SO_REUSEPORT`): that would take their number times as many
//! descriptors, and would let another process bind the same number beside ours unnoticed. What is accepted is given to
//! the workers in turn, as with the shared ports.
//!
//! # A number in use
//!
//! By another process, or for want of a descriptor: it stands in the table with its error, and is tried again, first
//! after [`RETRY_FIRST`], then ever more slowly up to [`RETRY_MAX`], for as long as it is wanted.
//!
//! # Closing one
//!
//! It is out of the table at once. The task then accepts what the kernel has queued there already, which is served as
//! ever, and closes it; connections under way go on, with what the number meant when they came
//! ([`Peer::port`](crate::Peer::port)).
//!
//! # Clients that are led elsewhere
//!
//! Who keeps a connection does not learn where the next one would lead. [`PortListeners::leave`] has those of a port
//! end, each with its next answer; where nothing is asked for, as idle ones end ([`super::client_connections`]).

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

/// After the first failure to bind a number.
const RETRY_FIRST: Duration = Duration::from_millis(100);

/// Longest pause between two attempts to bind it.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// The listeners of all workloads' ports. Cheap to clone.
#[derive(Clone)]
pub struct PortListeners {
    shared: Arc<Shared>,
}

struct Shared {
    address: IpAddr,
    keepalive: Option<KeepAlive>,
    epoll: AsyncFd<OwnedFd>,
    table: Mutex<Table>,
    /// There is something to close, or to be tried again.
    changed: Notify,
    /// Their connections, once somebody serves these.
    connections: OnceLock<ClientConnections>,
}

#[derive(Default)]
struct Table {
    rows: BTreeMap<u16, Row>,
    /// Why the rows without a listener have none.
    unbound: BTreeMap<u16, Unbound>,
    closing: Vec<Closing>,
    version: u64,
    /// Nobody accepts any more.
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

/// A listener whose queue is still to be served.
struct Closing {
    number: u16,
    listener: OwnedFd,
    port: Arc<OwnPort>,
}

impl PortListeners {
    /// None yet. They are bound to `address`; to all addresses of both families, if that is all addresses of either.
    /// `keepalive` holds for their connections.
    ///
    /// # Errors
    /// The system gives no means to wait for them.
    ///
    /// # Panics
    /// Outside of a runtime with I/O.
    pub fn new(address: IpAddr, keepalive: Option<KeepAlive>) -> io::Result<Self> {
        let epoll = descriptor::registered(epoll::create(epoll::CreateFlags::CLOEXEC)?, Interest::READABLE)?;
        let (table, changed, connections) = (Mutex::default(), Notify::new(), OnceLock::new());
        Ok(Self { shared: Arc::new(Shared { address, keepalive, epoll, table, changed, connections }) })
    }

    /// Theirs are among these connections, whose limit they lower.
    pub(super) fn told_by(&self, connections: ClientConnections) {
        self.shared.connections.get_or_init(|| connections).set_listeners(self.shared.table.lock().rows.len());
    }

    /// Binds `number` for `identity`. If it is bound already, connections mean `identity` from now on. After a drain nothing
    /// is bound any more.
    pub fn bind(&self, number: u16, identity: PortIdentity) {
        let mut table = self.shared.table.lock();
        if table.is_closed {
            return; // Whoever came would wait for nobody.
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

    /// Closes `number`. See the module's text.
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

    /// Has the clients of those ports come anew of which `is_left` says so. Over HTTP each answer is its connection's
    /// last from now on, also of who comes later, and connections on which nothing runs end soon. What is passed on as
    /// bytes goes on.
    pub fn leave(&self, is_left: impl Fn(&PortIdentity) -> bool) {
        let table = self.shared.table.lock();
        table.rows.values().filter(|row| is_left(row.port.identity())).for_each(|row| row.port.leave());
        drop(table);
        self.shared.connections.get().into_iter().for_each(ClientConnections::look);
    }

    /// Changes whenever an answer of [`PortListeners::each`] may.
    pub fn version(&self) -> u64 {
        self.shared.table.lock().version
    }

    /// Tells `look` of `number`, if it is wanted: what it stands for, and why it is not bound, if it is not.
    pub fn one<T>(&self, number: u16, look: impl FnOnce(&PortIdentity, Option<&io::Error>) -> T) -> Option<T> {
        let table = self.shared.table.lock();
        table.rows.get(&number).map(|row| look(row.port.identity(), table.error(number)))
    }

    /// The same of all of them in order, at one moment; it must be short. Returns that moment's version.
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

    /// A listener among those that are waited for.
    fn listen(&self, number: u16) -> io::Result<OwnedFd> {
        let listener = socket::listen(self.address, number)?;
        if let Some(keepalive) = self.keepalive {
            keepalive.set(&listener)?;
        }
        let data = epoll::EventData::new_u64(number.into());
        epoll::add(self.epoll.get_ref(), &listener, data, epoll::EventFlags::IN)?;
        Ok(listener)
    }

    /// When the next one is to be tried again.
    fn next_due(&self) -> Option<Instant> {
        self.table.lock().unbound.values().map(|unbound| unbound.due).min()
    }

    /// Tries those again that are due.
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
