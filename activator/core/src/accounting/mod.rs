//! Measures the load of a revision for the reports to the autoscaler.
//!
//! [`RequestStats`] computes time-weighted concurrency and arrivals of one source over one window. [`RevisionStats`]
//! tracks one revision in this activator: the signal that the first request sends, the contents of each report, and the
//! time at which the revision is forgotten.

mod request_stats;
mod revision_stats;

pub use request_stats::{RequestReport, RequestStats};
pub use revision_stats::{Clock, Entered, InFlight, Report, RevisionStats, Signal};
