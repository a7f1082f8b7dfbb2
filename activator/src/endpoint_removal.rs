//! Wait of a terminating activator until clients no longer reach it.
//!
//! The autoscaler rewrites the endpoints of each workload's Service, at 220 writes a second. Ten thousand workloads
//! take 45 seconds, which would be too long a pause for ten workloads. So the activator waits until no slice lists its
//! address, and then [`FOLLOWED_WITHIN`] longer, until the nodes have applied the change. It stops waiting if no
//! address was removed for [`PATIENCE`], because then nothing seems to remove addresses, and after [`WAIT_MAX`] in
//! any case.
//!
//! If its address is the only one and no other activator is ready, nothing can take over and the activator does not
//! wait.

use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(180);
/// Longest time without progress.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time that nodes need to apply the last change.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(1);
/// Interval between two checks.
const LOOK: Duration = Duration::from_millis(100);

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
        sleep(LOOK).await;
        let now = left();
        if now == 0 {
            return sleep(FOLLOWED_WITHIN).await;
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
    async fn an_activator_serves_until_its_clients_are_led_elsewhere() {
        let begun = Instant::now();
        wait_until_removed_from_endpoints(|| 0).await;
        assert_eq!(begun.elapsed(), Duration::ZERO, "nobody is led here");

        let begun = Instant::now();
        wait_until_removed_from_endpoints(|| 10_000_usize.saturating_sub(220 * begun.elapsed().as_secs() as usize))
            .await;
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(46) && took < Duration::from_secs(48), "{took:?}");

        let begun = Instant::now();
        wait_until_removed_from_endpoints(|| 7).await;
        let took = begun.elapsed();
        assert!(took >= PATIENCE && took < PATIENCE + Duration::from_secs(1), "nobody takes it out: {took:?}");

        let begun = Instant::now();
        wait_until_removed_from_endpoints(|| 10_000 - begun.elapsed().as_secs() as usize).await;
        assert!(begun.elapsed() < WAIT_MAX + Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}
