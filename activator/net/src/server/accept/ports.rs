//! Ports of workloads: one listener per number, bound and closed while the server runs.
//!
//! A port costs a descriptor, the kernel's state, and a task of a kilobyte or two, which accepts its connections.
//! Binding takes some microseconds and does not block, so the caller does it.
//!
//! There is one listener per number, not one per worker (`SO_REUSEPORT`). The latter would multiply the descriptors,
//! and another process could bind the same number unnoticed. Accepted connections go to the workers in turn, as on the
//! shared ports.
//!
//! # A number in use
//!
//! If another process uses the number, or there is no descriptor, the table stores the error. Binding is retried first
//! after [`RETRY_FIRST`], because a closed port may still serve its queue, then at growing intervals up to
//! [`RETRY_MAX`], as long as the number is wanted.
//!
//! # Closing
//!
//! A closed port leaves the table at once. Its task then accepts the connections that the kernel has queued, which are
//! served as usual, and closes the listener. Existing connections continue, with the identity that the port had when
//! they arrived ([`Peer::port`](crate::Peer::port)).
//!
//! # Clients that are routed elsewhere
//!
//! A client that keeps its connection does not notice that new connections are routed elsewhere.
//! [`PortListeners::make_clients_reconnect`] ends the connections to a port with their next response, or if there are
//! no requests, as idle connections end ([`crate::client::connections`]).

use crate::client::connections::ClientConnections;
use crate::client::peer::{OwnPort, PortIdentity};
use crate::server::accept::acceptor::Acceptor;
use crate::server::io::bounded_writes::KeepAlive;
use common_runtime::listen;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{SetOnce, watch};
use tokio_util::task::TaskTracker;

/// Pause after the first failure to bind a number.
const RETRY_FIRST: Duration = Duration::from_millis(5);

/// Maximum pause between two attempts to bind it.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Listeners of all workloads' ports. Cheap to clone.
#[derive(Clone)]
pub struct PortListeners(Arc<ListenersShared>);

struct ListenersShared {
    address: IpAddr,
    keepalive: Option<KeepAlive>,
    table: Mutex<Table>,
    /// Server of the connections. Until it is set, they wait in the kernel's queues.
    served: SetOnce<Served>,
    runtime: Handle,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Table {
    rows: BTreeMap<u16, Row>,
    version: u64,
    /// The server has drained, and accepts no more.
    is_closed: bool,
}

struct Row {
    /// The port as new connections get it. Dropping it ends the port's task.
    port: watch::Sender<Arc<OwnPort>>,
    /// Error of the last bind, if there is no listener.
    error: Option<io::Error>,
}

struct Served {
    serve: Box<dyn Fn(Accepted) + Send + Sync>,
    /// The connections to these ports, whose limit the listeners reduce.
    connections: ClientConnections,
}

/// An accepted connection in non-blocking mode.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    /// The port and its identity at the time of the accept.
    pub(crate) port: Arc<OwnPort>,
}

impl PortListeners {
    /// Creates an empty set. Ports are bound to `address`, or to all addresses of both families if that is the
    /// unspecified address of either. `keepalive` applies to their connections.
    ///
    /// # Panics
    /// Outside of a runtime, which then runs the ports' tasks.
    pub fn new(address: IpAddr, keepalive: Option<KeepAlive>) -> Self {
        let (table, served, runtime, tasks) = (Mutex::default(), SetOnce::new(), Handle::current(), TaskTracker::new());
        Self(Arc::new(ListenersShared { address, keepalive, table, served, runtime, tasks }))
    }

    /// Passes all connections to `serve`. If the system has no resources, some of `connections` give way.
    pub(crate) fn serve(&self, serve: impl Fn(Accepted) + Send + Sync + 'static, connections: ClientConnections) {
        let table = self.0.table.lock();
        let _ = self.0.served.set(Served { serve: Box::new(serve), connections }); // There is only one server.
        self.0.update_limit(&table);
    }

    /// Closes all listeners without accepting, because the server drains and has announced that before.
    pub(crate) async fn close(&self) {
        {
            let mut table = self.0.table.lock();
            *table = Table { version: table.version + 1, is_closed: true, ..Table::default() };
        }
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Binds `number` for `identity`. If it is already bound, new connections get `identity`. After a drain, nothing is
    /// bound any more.
    pub fn bind(&self, number: u16, identity: PortIdentity) {
        let shared = &self.0;
        let mut table = shared.table.lock();
        if table.is_closed {
            return; // A client would wait for an accept that never comes.
        }
        table.version += 1;
        let port = OwnPort::new(identity);
        if let Some(row) = table.rows.get(&number) {
            row.port.send_replace(port);
            return;
        }
        let (port, receiver) = watch::channel(port);
        let (acceptor, error) = match shared.listen(number) {
            Ok(acceptor) => (Some(acceptor), None),
            Err(error) => {
                tracing::warn!(number, %error, "cannot bind the port of a workload; retrying");
                (None, Some(error))
            }
        };
        table.rows.insert(number, Row { port, error });
        shared.update_limit(&table);
        shared.tasks.spawn_on(shared.clone().run(number, acceptor, receiver), &shared.runtime);
    }

    /// Closes `number`; see the module documentation.
    pub fn unbind(&self, number: u16) {
        let mut table = self.0.table.lock();
        if table.rows.remove(&number).is_some() {
            table.version += 1;
            self.0.update_limit(&table);
        }
    }

    /// Makes the clients of all ports reconnect for which `is_affected` returns true. Over HTTP, each response is the
    /// last of its connection from now on, also for new connections, and idle connections end soon. Relayed connections
    /// continue.
    pub fn make_clients_reconnect(&self, is_affected: impl Fn(&PortIdentity) -> bool) {
        let table = self.0.table.lock();
        let ports = table.rows.values().map(|row| row.port.borrow());
        let affected = ports.filter(|port| is_affected(&port.identity));
        affected.for_each(|port| port.must_reconnect.store(true, Ordering::Release));
    }

    /// Returns a version that changes whenever the output of [`PortListeners::each`] may change.
    pub fn version(&self) -> u64 {
        self.0.table.lock().version
    }

    /// Calls `look` with the identity and the bind error, if any, of `number`, if it is in the table.
    pub fn one<T>(&self, number: u16, look: impl FnOnce(&PortIdentity, Option<&io::Error>) -> T) -> Option<T> {
        let table = self.0.table.lock();
        table.rows.get(&number).map(|row| look(&row.port.borrow().identity, row.error.as_ref()))
    }

    /// Calls `look` for all numbers in order, under one lock, so `look` must be short. Returns the version at that
    /// moment.
    pub fn each(&self, mut look: impl FnMut(u16, &PortIdentity, Option<&io::Error>)) -> u64 {
        let table = self.0.table.lock();
        table.rows.iter().for_each(|(number, row)| look(*number, &row.port.borrow().identity, row.error.as_ref()));
        table.version
    }
}

impl ListenersShared {
    fn update_limit(&self, table: &Table) {
        self.served.get().into_iter().for_each(|served| served.connections.set_listeners(table.rows.len()));
    }

    /// Listens at the address, and on both families if it is unspecified and the system has both.
    fn listen(&self, number: u16) -> io::Result<Acceptor> {
        if number == 0 {
            return Err(io::Error::new(ErrorKind::InvalidInput, "0 is not a valid port number"));
        }
        let listener: OwnedFd = listen::open(SocketAddr::new(self.address, number))?.into();
        if let Some(keepalive) = self.keepalive {
            keepalive.set(&listener)?;
        }
        let _runtime = self.runtime.enter();
        Acceptor::new(listener)
    }

    /// Serves a port until it is closed.
    async fn run(self: Arc<Self>, number: u16, mut acceptor: Option<Acceptor>, port: watch::Receiver<Arc<OwnPort>>) {
        let mut changes = port.clone();
        let mut closed = pin!(async move { while changes.changed().await.is_ok() {} });
        let mut pause = RETRY_FIRST;
        let acceptor = loop {
            if let Some(acceptor) = acceptor {
                break acceptor;
            }
            tokio::select! {
                biased; // A closed port is not bound.
                () = &mut closed => return,
                () = tokio::time::sleep(pause) => acceptor = self.retry(number, &port),
            }
            pause = (pause * 2).min(RETRY_MAX);
        };
        let served = tokio::select! {
            biased; // A port that is served accepts its queue, even if it was closed meanwhile.
            served = self.served.wait() => served,
            () = &mut closed => return,
        };
        let serve = |(stream, address)| (served.serve)(Accepted { stream, address, port: port.borrow().clone() });
        loop {
            tokio::select! {
                biased; // A closed port accepts only the connections below.
                () = &mut closed => break,
                accepted = acceptor.accept(&served.connections) => serve(accepted),
            }
        }
        if !self.table.lock().is_closed {
            acceptor.queued().for_each(serve);
        }
    }

    /// Retries the bind of a port, unless it was closed meanwhile. Then the number may belong to another row.
    fn retry(&self, number: u16, port: &watch::Receiver<Arc<OwnPort>>) -> Option<Acceptor> {
        let Table { rows, version, .. } = &mut *self.table.lock();
        let row = rows.get_mut(&number).filter(|row| row.port.subscribe().same_channel(port))?;
        *version += 1;
        let listening = self.listen(number);
        if listening.is_ok() {
            tracing::info!(number, "bound the port of a workload");
        }
        let (acceptor, error) = listening.map_or_else(|error| (None, Some(error)), |acceptor| (Some(acceptor), None));
        row.error = error;
        acceptor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};
    use tokio::time::Instant;

    /// Returns ports of which one has a number that is in use, and the other user of that number.
    fn in_use() -> (PortListeners, u16, TcpListener) {
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let number = other.local_addr().expect("bound").port();
        let ports = PortListeners::new(Ipv4Addr::LOCALHOST.into(), None);
        ports.bind(number, Arc::new("a"));
        (ports, number, other)
    }

    fn is_bound(ports: &PortListeners, number: u16) -> bool {
        ports.one(number, |_, error| error.is_none()).expect("a row")
    }

    /// Goal: a retry that began before its port was closed binds nothing for the next port of the same number, and does
    /// not change its error.
    #[tokio::test]
    async fn a_stale_retry_does_not_act_on_a_new_row() {
        let (ports, number, other) = in_use();
        let stale = ports.0.table.lock().rows[&number].port.subscribe();
        ports.unbind(number);
        ports.bind(number, Arc::new("b"));
        drop(other);
        assert!(ports.0.retry(number, &stale).is_none());
        assert!(!is_bound(&ports, number));
    }

    /// Goal: a number that becomes free at once, as after a quick change of its workload, is bound a few milliseconds
    /// later. Method: a paused clock.
    #[tokio::test(start_paused = true)]
    async fn a_number_that_becomes_free_is_bound_within_milliseconds() {
        let (ports, number, other) = in_use();
        drop(other);
        let begun = Instant::now();
        while !is_bound(&ports, number) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
    }
}
