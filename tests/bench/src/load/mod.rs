//! Load generators, the same for every target: programs of their own, and for TCP threads of this one.

pub(crate) mod bodies;
pub(crate) mod h2load;
pub(crate) mod tcp;
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
