//! How long an activator that is asked to end goes on serving: until clients are led elsewhere.
//!
//! The endpoints of each workload's Service are a write of the autoscaler's, at 220 a second: ten thousand workloads take
//! three quarters of a minute, longer than any pause that would be right for ten. So it waits until its address stands in no
//! slice, and [`FOLLOWED_WITHIN`] longer, until nodes have followed. It waits no longer when nothing has been taken out for
//! [`PATIENCE`], since nobody seems to do so, nor beyond [`DEPARTURE_MAX`].
//!
//! Where its address is the only one and no other activator is ready, nobody takes over, and there is nothing to wait for.

use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Longest wait.
const DEPARTURE_MAX: Duration = Duration::from_secs(180);
/// Longest time in which nothing is taken out.
const PATIENCE: Duration = Duration::from_secs(3);
/// How soon nodes follow the last change.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(1);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(100);

/// Waits; `left` tells in how many workloads' slices this activator stands whose place others can take.
///
/// Cancel safe.
pub(crate) async fn led_elsewhere(left: impl Fn() -> usize) {
    let begun = Instant::now();
    let (mut least, mut since) = (left(), begun);
    if least == 0 {
        return;
    }
    while begun.elapsed() < DEPARTURE_MAX {
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
    tracing::warn!(left = least, "clients of workloads may still be led here: nobody has taken this activator out");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_activator_serves_until_its_clients_are_led_elsewhere() {
        let begun = Instant::now();
        led_elsewhere(|| 0).await;
        assert_eq!(begun.elapsed(), Duration::ZERO, "nobody is led here");

        let begun = Instant::now();
        led_elsewhere(|| 10_000_usize.saturating_sub(220 * begun.elapsed().as_secs() as usize)).await;
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(46) && took < Duration::from_secs(48), "{took:?}");

        let begun = Instant::now();
        led_elsewhere(|| 7).await;
        let took = begun.elapsed();
        assert!(took >= PATIENCE && took < PATIENCE + Duration::from_secs(1), "nobody takes it out: {took:?}");

        let begun = Instant::now();
        led_elsewhere(|| 10_000 - begun.elapsed().as_secs() as usize).await;
        assert!(begun.elapsed() < DEPARTURE_MAX + Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}
