//! API server in a process of its own, for clusters of thousands of workloads. It reports writes.
//!
//! It prints `ready` once the kubeconfig exists. After that, it prints one line for each event:
//!
//! - `scale NAME NANOS`: a patch of the replicas of NAME arrived at that time of the monotonic clock, which all
//!   processes of a machine share. The time is taken when the server has read the request's head and checks its
//!   authorization;
//! - `writes N`: the total number of writes, except renewals of leases; every [`REPORT_EVERY`].
//!
//! On SIGUSR1 it forgets its history, so that watchers must list again.

use super::announce::print;
use local::api::{ApiOptions, ApiServer, Audit};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::unbounded_channel;

/// Interval between two reports of the number of writes.
const REPORT_EVERY: Duration = Duration::from_millis(250);

/// Returns the nanoseconds of the monotonic clock.
pub(crate) fn monotonic_nanos() -> i128 {
    let now = clock_gettime(ClockId::Monotonic);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

pub(super) async fn run(kubeconfig: &Path, range: &str) -> anyhow::Result<()> {
    let (scaled, mut patches) = unbounded_channel();
    let writes = Arc::new(AtomicU64::new(0));
    let counted = writes.clone();
    let audit = Audit::new(move |_, access, _| {
        if access.verb == "patch" && access.resource.ends_with("/scale") {
            let _ = scaled.send((access.name.clone(), monotonic_nanos())); // There is no receiver at the end.
        }
        if !["get", "list", "watch"].contains(&access.verb.as_str()) && access.resource != "leases" {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    // The history has more changes than there are objects of a kind, so that a slow watch does not cause another list.
    let options = ApiOptions { audit: Some(audit), history: 65_536, ..ApiOptions::new(range.parse()?) };
    let server = ApiServer::start(options).await?;
    std::fs::write(kubeconfig, server.kubeconfig())?;
    let mut forget_signals = signal(SignalKind::user_defined1())?;
    print("ready")?;
    let mut ticks = tokio::time::interval(REPORT_EVERY);
    loop {
        tokio::select! {
            Some((name, nanos)) = patches.recv() => print(format_args!("scale {name} {nanos}"))?,
            Some(()) = forget_signals.recv() => server.forget_history(),
            _ = ticks.tick() => print(format_args!("writes {}", writes.load(Ordering::Relaxed)))?,
        }
    }
}
