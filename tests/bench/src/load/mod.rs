//! Load generators: programs of their own, the same for every target.

pub(crate) mod h2load;
pub(crate) mod wrk;

use std::time::Duration;

/// What one run of a generator did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Done {
    /// Requests that were answered well. Others are an error.
    pub(crate) requests: f64,
    /// In this time.
    pub(crate) took: Duration,
}
