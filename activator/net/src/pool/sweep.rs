//! Periodic closing of idle connections: by age and need at each address, and by number over all addresses.

use super::{Pool, Pools};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(super) const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Sweeps until all pools are dropped, or `shutdown`.
pub(super) async fn run(pools: Weak<Pools>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(SWEEP_INTERVAL) => {}
            () = shutdown.cancelled() => return,
        }
        let Some(pools) = pools.upgrade() else { return };
        pools.sweep(Instant::now());
    }
}

impl Pool {
    /// Closes connections that are old, or left by a burst.
    pub(super) fn sweep(&self, now: Instant) {
        // Closing a socket is a system call, so the locks are not held here.
        drop((self.http1.sweep(now, SWEEP_INTERVAL), self.http2.sweep()));
    }
}

/// Closes the connections beyond `total_max` that were idle for longest.
pub(super) fn bound_idle(all: &[Arc<Pool>], total_max: usize) {
    let mut since: Vec<Instant> = all.iter().flat_map(|pool| pool.http1.idle_since()).collect();
    if since.len() <= total_max {
        return;
    }
    let surplus = (since.len() - total_max).min(since.len() - 1);
    let (_, oldest_kept, _) = since.select_nth_unstable(surplus);
    all.iter().for_each(|pool| drop(pool.http1.take_idle_before(*oldest_kept)));
}
