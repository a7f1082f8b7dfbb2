//! A live page of all workloads, and the data behind it, for people and for the command line. Read-only; standalone's
//! alone.
//!
//! ```text
//! stats, wakes, decisions ─▶ records (one ring of samples each) ─┐
//! pods, objects ─────────────────────────────────────────────────┴▶ own ─▶ table (what has changed)
//!                                                                    │
//!        page/, clients ◀── server ◀── list, detail ◀────────────────┴── replicas ◀─▶ the other replicas
//! ```
//!
//! The page asks every other second for what has changed. The replica that it asks puts the same question to the others,
//! each of which tells of the workloads that it decides on.
//!
//! # Costs
//!
//! A workload that sleeps has a record of some fifty bytes ([`records`]). While nobody looks, nothing else is kept and
//! nothing is made; every five seconds one look at each decision loop adds to the records. While somebody looks, each
//! question has a glance at every workload, and a closer look at what has changed ([`own`]).
//!
//! # Who may look
//!
//! Whoever reaches its address, which is a loopback address unless it is told otherwise; then a token is demanded
//! ([`access`]). Nothing here changes anything.

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

/// What it is made of.
pub(crate) struct Parts {
    pub(crate) multiscaler: Arc<Multiscaler>,
    pub(crate) collector: Arc<Collector>,
    pub(crate) pods: Arc<PodIndex>,
    pub(crate) shares: Shares,
    pub(crate) peers: Peers,
    pub(crate) clock: Clock,
    /// This replica's name.
    pub(crate) me: String,
}

/// A dashboard that records, and is served once the objects are known.
pub(crate) struct Dashboard {
    server: Server,
    settings: Settings,
    parts: Parts,
    records: Arc<Records>,
    answering: Arc<Later>,
}

impl Dashboard {
    /// Binds its address, and begins to record.
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

    /// What answers the other replicas.
    pub(crate) fn questions(&self) -> Arc<dyn Questions> {
        self.answering.clone()
    }

    /// Serves it, with these objects, and their pods by `client`, in `tasks` until `shutdown`.
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
        // Only one is ever given.
        let _ = self.answering.0.set(Answering::new(own.clone()));
        tasks.spawn(own.clone().record(shutdown.clone()));
        if let Ok(address) = self.server.address() {
            tracing::info!(%address, "dashboard");
        }
        tasks.spawn(self.server.serve(own, replicas, shutdown.clone()));
    }
}

/// Answers others as soon as there is something to answer with.
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
