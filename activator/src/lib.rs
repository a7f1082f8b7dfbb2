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

mod alarm;
mod backends;
mod body;
mod certificates;
mod cold_start;
mod config;
pub mod discovery;
mod exchange;
mod explain;
mod forward;
mod gather;
mod http1;
mod http2;
mod lanes;
mod layers;
mod loan;
mod metrics;
mod options;
mod prober;
mod quote;
mod refusal;
mod registry;
mod request_log;
mod revision;
mod run;
mod series;
mod server;
mod stats;
mod tcp_state;
mod trace;

pub use certificates::InternalTls;
pub use cold_start::{ColdStart, Phases};
pub use config::{Configs, Observability};
pub use forward::headers::Contract;
pub use lanes::Lanes;
pub use options::{OnColdStart, Options};
pub use run::{Activator, run, start};
