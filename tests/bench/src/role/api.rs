//! The API server of a large autoscaler's cluster, in a process of its own, and what is written to it.
//!
//! It says `ready` once the kubeconfig is there. From then on, one line for each:
//!
//! - `scale NAME NANOS`: a patch of the replicas of NAME has come in, at that time of the monotonic clock, which all
//!   processes of a machine share. It is read where the server has read the request's head and asks whether it is
//!   allowed;
//! - `writes N`: so many writes in all, renewals of leases aside; every [`TOLD`].
//!
//! On SIGUSR1 it forgets its history, so that whoever watches has to list again.

use super::announce::say;
use local::api::{ApiOptions, ApiServer, Audit};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::unbounded_channel;

/// Between two counts of writes.
const TOLD: Duration = Duration::from_millis(250);

/// Nanoseconds of the monotonic clock.
pub(crate) fn monotonic_nanos() -> i128 {
    let now = clock_gettime(ClockId::Monotonic);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

/// Serves for ever.
pub(super) async fn run(kubeconfig: &Path, range: &str) -> anyhow::Result<()> {
    let (scaled, mut patches) = unbounded_channel();
    let writes = Arc::new(AtomicU64::new(0));
    let counted = writes.clone();
    let audit = Audit::new(move |_, access, _| {
        if access.verb == "patch" && access.resource.ends_with("/scale") {
            let _ = scaled.send((access.name.clone(), monotonic_nanos())); // Nobody listens at the end.
        }
        if !["get", "list", "watch"].contains(&access.verb.as_str()) && access.resource != "leases" {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    // More changes than objects of a kind: a watch that is behind must not lead to another list.
    let options = ApiOptions { audit: Some(audit), history: 65_536, ..ApiOptions::new(range.parse()?) };
    let server = ApiServer::start(options).await?;
    std::fs::write(kubeconfig, server.kubeconfig())?;
    let mut forgets = signal(SignalKind::user_defined1())?;
    say("ready")?;
    let mut ticks = tokio::time::interval(TOLD);
    loop {
        tokio::select! {
            Some((name, nanos)) = patches.recv() => say(format_args!("scale {name} {nanos}"))?,
            Some(()) = forgets.recv() => server.forget_history(),
            _ = ticks.tick() => say(format_args!("writes {}", writes.load(Ordering::Relaxed)))?,
        }
    }
}
