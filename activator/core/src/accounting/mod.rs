//! How busy a revision is, as the autoscaler is told.
//!
//! [`RequestStats`] is the arithmetic of one source over one window: time-weighted concurrency and arrivals.
//! [`RevisionStats`] is one revision's life in this activator: what the first request sets off, what each report says,
//! and when the revision is forgotten.

mod request_stats;
mod revision_stats;

pub use request_stats::{RequestReport, RequestStats};
pub use revision_stats::{Clock, Entered, InFlight, Report, RevisionStats, Signal};
