//! The activator: proxies traffic, holds requests while a revision has no capacity, probes pods, reports concurrency.
//!
//! [`run()`] is the whole plane against a Kubernetes API; [`start`] is the same with a stream of
//! [`discovery::Event`]s in its place. Everything else that it must be told is in [`Options`].
//!
//! ```text
//! discovery ──events──> registry ──> revision ──> backends ──probes──> pods
//!                          │            │ throttler, stats                ▲
//! client ──> server ──> layers: probe, lookup, relay, log, answers, report, timeouts, hold ──> forward
//!                                         │
//!                                         └──> stats ──> autoscaler
//! ```
//!
//! Folders use those above them: [`discovery`] (what the cluster tells, and what each kind of install decides),
//! `metrics`, `holders` (which activator holds a workload with a hard limit), `answers` (what is answered without a pod, as a rule), `registry` (revisions, and the tasks that probe and report for them), `layers` (a request's way, and a
//! connection's), `ports` (workloads' own), `config` (what the process is told), `run`. What is below them all, sockets
//! and HTTP, is [`activator_net`].

mod answers;
mod config;
mod departure;
pub mod discovery;
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
