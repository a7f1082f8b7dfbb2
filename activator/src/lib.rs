//! The activator: proxies traffic, holds requests while a revision has no capacity, probes pods, reports concurrency.
//!
//! [`run()`] runs the whole plane with a Kubernetes API. [`start`] takes a stream of [`discovery::Event`]s instead. All
//! other inputs are in [`Options`].
//!
//! ```text
//! discovery ──events──> registry ──> revision ──> backends ──probes──> pods
//!                          │            │ throttler, stats                ▲
//! client ──> server ──> layers: probe, lookup, relay, log, answers, report, timeouts, hold ──> forward
//!                                         │
//!                                         └──> stats ──> autoscaler
//! ```
//!
//! Modules depend only on those before them in this list:
//!
//! - `refusal`: reasons for error responses
//! - [`discovery`]: cluster state, and the decisions of each kind of install
//! - `metrics`
//! - `holders`: the activators that hold a workload with a hard limit
//! - `answers`: responses without a pod, as a rule
//! - `registry`: revisions, and the tasks that probe and report for them
//! - `layers`: processing of requests and connections
//! - `ports`: ports of workloads
//! - `config`: configuration of the process
//! - `endpoint_removal`: wait of a terminating activator
//! - `run`: start and shutdown
//!
//! Sockets and HTTP are below all of them, in [`activator_net`].

mod answers;
mod config;
pub mod discovery;
mod endpoint_removal;
mod holders;
mod layers;
mod metrics;
mod ports;
mod refusal;
mod registry;
mod run;

pub use activator_core::contract::Contract;
pub use activator_net::{ClientBounds, KeepAlive, WorkerRuntimes};
pub use config::Configs;
pub use config::certificates::InternalTls;
pub use config::clients::ClientOptions;
pub use config::options::Options;
pub use layers::request_log::Observability;
pub use metrics::cold_start::{ColdStart, OnColdStart, Phases};
pub use run::{Activator, run, start};
