//! A live page of all workloads, and its data, for people and for the command line. Read-only, and only in standalone.
//!
//! ```text
//! stats, wakes, decisions ─▶ records (one ring of samples each) ─┐
//! pods, objects ─────────────────────────────────────────────────┴▶ local ─▶ table (changes)
//!                                                                    │
//!        page/, clients ◀── server ◀── list, detail ◀────────────────┴── replicas ◀─▶ the other replicas
//! ```
//!
//! The page asks every other second for changes. The replica that receives the request queries the other replicas, and
//! each returns the workloads that it owns.
//!
//! # Costs
//!
//! A sleeping workload has a record of some 300 bytes ([`records`]). Without a client nothing else is kept or
//! computed; every five seconds one pass over the decision loops adds to the records. With a client, each request
//! compares a quick hash of every workload, and summarizes those that changed or have pods ([`local`]).
//!
//! # Access
//!
//! Any client that reaches the address may look. It is a loopback address by default; any other address requires a
//! token ([`access`]). The dashboard changes nothing.

mod access;
mod containers;
mod detail;
mod list;
mod local;
mod records;
mod replicas;
mod ring;
mod routes;
mod server;
pub mod settings;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod wakes;
mod why;

pub use settings::{Price, Settings};

use crate::collect::Collector;
use crate::ingest::peers::Peers;
use crate::ingest::queries::Responder;
use crate::pods::PodIndex;
use crate::reconcile::display::Objects;
use crate::scale::multiscaler::Multiscaler;
use common_controller::shares::Shares;
use common_runtime::clock::Clock;
use kube::Client;
use local::LocalReplica;
use records::Records;
use server::Server;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Dependencies of the dashboard.
pub(crate) struct Parts {
    pub(crate) objects: Arc<dyn Objects>,
    /// Client that reads the pods of a workload.
    pub(crate) client: Client,
    pub(crate) multiscaler: Arc<Multiscaler>,
    pub(crate) collector: Arc<Collector>,
    pub(crate) pods: Arc<PodIndex>,
    pub(crate) shares: Shares,
    pub(crate) peers: Arc<Peers>,
    pub(crate) clock: Clock,
    /// Name of this replica.
    pub(crate) me: String,
}

/// Dashboard bound to its address.
pub(crate) struct Dashboard {
    server: Server,
    own: Arc<LocalReplica>,
}

impl Dashboard {
    /// Binds its address, and starts to record load and wakes.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(crate) fn new(settings: Settings, parts: Parts) -> anyhow::Result<Self> {
        let server = Server::bind(&settings)?;
        let records = Arc::new(Records::new(parts.clock.clone()));
        parts.collector.tell(records.clone());
        parts.multiscaler.tell(records.clone());
        let own = LocalReplica { parts, settings, records, table: Mutex::default() };
        Ok(Self { server, own: Arc::new(own) })
    }

    /// Returns the responder to the other replicas' queries.
    pub(crate) fn responder(&self) -> Responder {
        replicas::responder(self.own.clone())
    }

    /// Serves in `tasks` until `shutdown`.
    pub(crate) fn start(self, tasks: &TaskTracker, shutdown: &CancellationToken) {
        let Self { server, own } = self;
        tasks.spawn(own.clone().record(shutdown.clone()));
        if let Ok(address) = server.address() {
            tracing::info!(%address, "dashboard");
        }
        tasks.spawn(server.serve(own, shutdown.clone()));
    }
}
