//! Closing what nobody needs, every few seconds: by age and need at each address, and by number over all of them.

use super::{Pool, Pools};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time between two looks at the idle connections.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Sweeps for as long as there are pools, and until `shutdown`.
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
    /// Closes what is old, and what a burst has left.
    pub(super) fn sweep(&self, now: Instant) {
        // Closing a socket is a system call: not under the locks.
        drop((self.http1.sweep(now), self.http2.sweep()));
    }
}

/// Closes the connections beyond `total_max` that have been idle for longest.
pub(super) fn bound_idle(all: &[Arc<Pool>], total_max: usize) {
    let mut since: Vec<Instant> = all.iter().flat_map(|pool| pool.http1.idle_since()).collect();
    if since.len() <= total_max {
        return;
    }
    let surplus = (since.len() - total_max).min(since.len() - 1);
    let (_, oldest_kept, _) = since.select_nth_unstable(surplus);
    all.iter().for_each(|pool| drop(pool.http1.idle_before(*oldest_kept)));
}
