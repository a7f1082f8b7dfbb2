//! Wait of a terminating activator until clients no longer reach it.
//!
//! The autoscaler rewrites the endpoints of each workload's Service, at 220 writes a second. That takes 45 seconds for
//! ten thousand workloads and a moment for ten, so no fixed pause suits both. The activator waits until no slice lists
//! its address, and then [`NODE_DELAY`] longer, until the nodes have applied the change. It stops waiting if no address
//! was removed for [`PATIENCE`], because then nothing seems to remove addresses, and after [`WAIT_MAX`] in any case.
//!
//! If its address is the only one and no other activator is ready, nothing can take over and the activator does not
//! wait.

use std::time::Duration;
use tokio::time::{Instant, sleep};

const WAIT_MAX: Duration = Duration::from_secs(180);
/// Longest time without progress.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time that nodes need to apply the last change.
const NODE_DELAY: Duration = Duration::from_secs(1);
/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until `left` returns 0. `left` counts the workloads that still lead clients here although another activator
/// could take over.
///
/// Cancel safe.
pub(crate) async fn wait_until_removed_from_endpoints(left: impl Fn() -> usize) {
    let begun = Instant::now();
    let (mut least, mut since) = (left(), begun);
    if least == 0 {
        return;
    }
    while begun.elapsed() < WAIT_MAX {
        sleep(CHECK_INTERVAL).await;
        let now = left();
        if now == 0 {
            return sleep(NODE_DELAY).await;
        }
        if now < least {
            (least, since) = (now, Instant::now());
        }
        if since.elapsed() >= PATIENCE {
            break;
        }
    }
    tracing::warn!(
        left = least,
        "some Services still list this activator, so clients may still connect to it while it shuts down"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_wait_ends_with_the_last_removal_or_without_progress() {
        let seconds = Duration::from_secs;
        type Row = (&'static str, fn(usize) -> usize, Duration, Duration);
        let rows: [Row; 4] = [
            ("no workload", |_| 0, seconds(0), Duration::from_nanos(1)),
            ("220 removals a second", |passed| 10_000_usize.saturating_sub(220 * passed), seconds(46), seconds(48)),
            ("no removal", |_| 7, PATIENCE, PATIENCE + seconds(1)),
            ("one removal a second", |passed| 10_000 - passed, seconds(0), WAIT_MAX + seconds(1)),
        ];
        for (case, left, least, bound) in rows {
            let begun = Instant::now();
            wait_until_removed_from_endpoints(|| left(begun.elapsed().as_secs() as usize)).await;
            let took = begun.elapsed();
            assert!((least..bound).contains(&took), "{case}: {took:?}");
        }
    }
}
