//! Load generators, the same for every target: separate programs, and for TCP threads of this one.

pub(crate) mod bodies;
pub(crate) mod h2load;
pub(crate) mod tcp;
pub(crate) mod wrk;

use std::time::Duration;

/// Result of one run of a generator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Done {
    /// Number of successful requests. Failed requests are an error of the run.
    pub(crate) requests: f64,
    /// Duration of the run.
    pub(crate) took: Duration,
}
