//! The allocator of both binaries, and a runtime that gives back what the start and bursts of events have used.

use common_runtime::trim;
use mimalloc::MiMalloc;
use std::future::Future;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Runs a process on a runtime with a worker for each core, whose heaps are tidied while they idle.
///
/// # Errors
/// Threads that cannot be started, or what `process` ends with.
pub(crate) fn block_on(process: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().on_thread_park(trim::tidy_when_idle).build()?;
    runtime.block_on(async {
        tokio::spawn(trim::run(|| {}));
        process.await
    })
}
