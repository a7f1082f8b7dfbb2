//! The activator: proxies traffic, holds requests while a revision has no capacity, probes pods, reports concurrency.
//!
//! [`run`] is the whole plane against a Kubernetes API; [`start`] is the same with a stream of
//! [`discovery::Event`]s in its place. Everything else that it must be told is in [`Options`].
//!
//! ```text
//! discovery ──events──> registry ──> revision ──> backends ──probes──> pods
//!                          │            │ throttler, stats                ▲
//! client ──> server ──> layers: probe, lookup, log, report, timeouts, hold ──> forward
//!                                         │
//!                                         └──> stats ──> autoscaler
//! ```

mod config;
pub mod discovery;
mod explain;
mod health;
mod layers;
mod metrics;
mod quote;
mod registry;
mod run;
mod stats;

pub use activator_core::contract::Contract;
pub use activator_net::WorkerRuntimes;
pub use config::certificates::InternalTls;
pub use config::options::{OnColdStart, Options};
pub use config::{Configs, Observability};
pub use metrics::cold_start::{ColdStart, Phases};
pub use run::{Activator, run, start};
