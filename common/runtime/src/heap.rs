//! A runtime that gives back what the start and bursts of events have used. The binary's allocator is mimalloc.

use crate::trim;
use std::future::Future;

/// Runs a process on a runtime with a worker for each core, whose heaps are tidied while they idle.
///
/// # Errors
/// Threads that cannot be started, or what `process` ends with.
pub fn block_on(process: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().on_thread_park(trim::tidy_when_idle).build()?;
    runtime.block_on(async {
        tokio::spawn(trim::run(|| {}));
        process.await
    })
}
