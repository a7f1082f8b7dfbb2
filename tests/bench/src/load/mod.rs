//! Load generators, the same for every target: separate programs, or threads of this one for TCP and for bodies
//! over HTTP/1.1.

pub(crate) mod bodies;
pub(crate) mod h2load;
pub(crate) mod tcp;
pub(crate) mod wrk;

use anyhow::Context;
use std::time::Duration;

/// Result of one run of a generator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LoadResult {
    /// Number of successful requests, or of other units of the load. A failed request is an error of the run.
    pub(crate) count: f64,
    /// Duration of the run.
    pub(crate) took: Duration,
}

/// Runs `drive` on `number` threads, which may block in the kernel. Returns the sum of their results.
async fn on_threads(
    number: usize,
    drive: impl Fn() -> anyhow::Result<f64> + Clone + Send + 'static,
) -> anyhow::Result<f64> {
    let threads: Vec<_> = (0..number).map(|_| std::thread::spawn(drive.clone())).collect();
    let joined = tokio::task::spawn_blocking(move || {
        let done = threads.into_iter().map(|thread| thread.join().ok().context("a thread panicked")?);
        done.sum::<anyhow::Result<f64>>()
    });
    joined.await?
}
