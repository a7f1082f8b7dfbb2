//! The activator: proxies traffic, holds requests while a revision has no capacity, probes pods, reports concurrency.
//!
//! [`run`] is the whole plane; everything that it must be told is in [`Options`].

mod cold_start;
mod options;
mod run;

pub use cold_start::{ColdStart, Phases};
pub use options::{OnColdStart, Options};
pub use run::run;
