//! A live page of all workloads, and its data, for people and for the command line. Read-only, and only in standalone.
//!
//! ```text
//! stats, wakes, decisions ─▶ records (one ring of samples each) ─┐
//! pods, objects ─────────────────────────────────────────────────┴▶ own ─▶ table (changes)
//!                                                                    │
//!        page/, clients ◀── server ◀── list, detail ◀────────────────┴── replicas ◀─▶ the other replicas
//! ```
//!
//! The page asks every other second for changes. The replica that receives the request queries the other replicas, and
//! each returns the workloads that it owns.
//!
//! # Costs
//!
//! A sleeping workload has a record of about fifty bytes ([`records`]). Without a client nothing else is kept or
//! computed; every five seconds one pass over the decision loops adds to the records. With a client, each request
//! compares a quick hash of every workload, and summarizes those that changed ([`own`]).
//!
//! # Access
//!
//! Any client that reaches the address may look. It is a loopback address by default; any other address requires a
//! token ([`access`]). The dashboard changes nothing.

mod access;
mod containers;
mod detail;
mod list;
mod own;
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
use crate::ingest::asking::Questions;
use crate::ingest::peers::Peers;
use crate::pods::PodIndex;
use crate::reconcile::shown::Objects;
use crate::scale::multiscaler::Multiscaler;
use bytes::Bytes;
use common_controller::shares::Shares;
use common_runtime::admin::text;
use common_runtime::clock::Clock;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use http::{Response, StatusCode};
use http_body_util::Full;
use kube::Client;
use own::Own;
use records::Records;
use replicas::{Answering, Replicas};
use server::Server;
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Dependencies of the dashboard.
pub(crate) struct Parts {
    pub(crate) multiscaler: Arc<Multiscaler>,
    pub(crate) collector: Arc<Collector>,
    pub(crate) pods: Arc<PodIndex>,
    pub(crate) shares: Shares,
    pub(crate) peers: Peers,
    pub(crate) clock: Clock,
    /// Name of this replica.
    pub(crate) me: String,
}

/// Dashboard that records, and is served once the objects are known.
pub(crate) struct Dashboard {
    server: Server,
    settings: Settings,
    parts: Parts,
    records: Arc<Records>,
    answering: Arc<Later>,
}

impl Dashboard {
    /// Binds its address, and starts to record.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(crate) fn new(settings: Settings, parts: Parts) -> anyhow::Result<Self> {
        let server = Server::bind(&settings)?;
        let records = Arc::new(Records::new(parts.clock.clone()));
        parts.collector.tell(records.clone());
        parts.multiscaler.tell(records.clone());
        Ok(Self { server, settings, parts, records, answering: Arc::default() })
    }

    /// Returns the responder to the other replicas' queries.
    pub(crate) fn questions(&self) -> Arc<dyn Questions> {
        self.answering.clone()
    }

    /// Serves these objects, and their pods read with `client`, in `tasks` until `shutdown`.
    pub(crate) fn start(
        self,
        objects: Arc<dyn Objects>,
        client: Client,
        tasks: &TaskTracker,
        shutdown: &CancellationToken,
    ) {
        let Parts { multiscaler, collector, pods, shares, peers, clock, me } = self.parts;
        let (price, entry, records) = (self.settings.price, self.settings.entry, self.records);
        let replicas = Replicas { peers, shares: shares.clone() };
        let table = own::Looks::default();
        let own =
            Own { objects, client, multiscaler, collector, pods, shares, records, clock, price, entry, me, table };
        let own = Arc::new(own);
        // Set only once.
        let _ = self.answering.0.set(Answering::new(own.clone()));
        tasks.spawn(own.clone().record(shutdown.clone()));
        if let Ok(address) = self.server.address() {
            tracing::info!(%address, "dashboard");
        }
        tasks.spawn(self.server.serve(own, replicas, shutdown.clone()));
    }
}

/// Responder that returns 503 until the dashboard has started.
#[derive(Default)]
struct Later(OnceLock<Answering>);

impl Questions for Later {
    fn answer(&self, path: String) -> BoxFuture<'static, Response<Full<Bytes>>> {
        match self.0.get() {
            Some(answering) => answering.answer(path),
            None => ready(text(StatusCode::SERVICE_UNAVAILABLE, "not yet\n")).boxed(),
        }
    }
}
