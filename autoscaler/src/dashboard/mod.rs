//! Live page of all workloads, and its data for people and for the command line. Read-only, and only in standalone.
//!
//! ```text
//! stats, wakes, decisions ─▶ records (one ring of samples each) ─┐
//! pods, objects ─────────────────────────────────────────────────┴▶ local: rows ─▶ list, detail ─▶ server ─▶ page/, clients
//!                                                                                      ▲
//!                                                                the other replicas ───┘ replicas
//! ```
//!
//! The page requests changes every other second. The replica that receives the request queries the other replicas, and
//! each returns the workloads that it owns.
//!
//! # Costs
//!
//! A sleeping workload has a record of some 300 bytes ([`records`]). Without a client nothing else is kept or
//! computed; every five seconds one pass over the decision loops adds to the records. With a client, each request
//! compares a hash of every workload, and builds the rows of those that changed or have pods ([`local`]).
//!
//! # Access
//!
//! Any client that reaches the address may view the page. The default is a loopback address; any other address requires
//! a token ([`access`]). The dashboard changes nothing.

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
use crate::reconcile::Objects;
use crate::scale::multiscaler::Multiscaler;
use common_controller::shares::Shares;
use common_runtime::clock::Clock;
use kube::Client;
use local::LocalReplica;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

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

/// Binds the dashboard's address, and serves it in `tasks` until `shutdown`. Returns the responder to the other
/// replicas' queries.
pub(crate) fn start(
    settings: Settings,
    parts: Parts,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) -> anyhow::Result<Responder> {
    let listener = settings.bind()?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "the dashboard is served");
    }
    let own = LocalReplica::new(settings, parts);
    tasks.spawn(own.clone().record(shutdown.clone()));
    tasks.spawn(own.clone().serve(listener, shutdown.clone()));
    Ok(replicas::responder(own))
}
