//! Readiness of this activator, for kubelet probes.
//!
//! 200 once the revisions are known and the stat link has been up once, or 10 s have passed since the start: a missing
//! autoscaler must not keep activators from serving warm traffic. 503 before that, 500 only after the shutdown signal.
//! (Knative's activator fails whenever the stat link is down.)

use http::StatusCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Longest wait for the stat link after the start.
const STAT_LINK_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Readiness {
    started: Instant,
    synced: watch::Sender<bool>,
    linked: AtomicBool,
    draining: AtomicBool,
}

impl Readiness {
    pub(crate) fn new(started: Instant) -> Self {
        Self {
            started,
            synced: watch::Sender::new(false),
            linked: AtomicBool::new(false),
            draining: AtomicBool::new(false),
        }
    }

    /// Records that the first full lists of all watches were applied.
    pub(crate) fn set_synced(&self) {
        self.synced.send_replace(true);
    }

    pub(crate) fn set_linked(&self) {
        self.linked.store(true, Ordering::Release);
    }

    pub(crate) fn set_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until the revisions are known. Cancel safe.
    pub(crate) async fn synced(&self) {
        // Cannot fail, because `self` holds the sender.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    pub(crate) fn check(&self, now: Instant) -> (StatusCode, &'static str) {
        if self.draining.load(Ordering::Acquire) {
            (StatusCode::INTERNAL_SERVER_ERROR, "received SIGTERM from kubelet\n")
        } else if !self.is_synced() {
            (StatusCode::SERVICE_UNAVAILABLE, "this activator has not received the list of revisions yet\n")
        } else if !self.linked.load(Ordering::Acquire) && now.duration_since(self.started) < STAT_LINK_WAIT {
            (StatusCode::SERVICE_UNAVAILABLE, "connection has not yet been established\n")
        } else {
            (StatusCode::OK, "")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn health_needs_the_revisions_and_the_stat_link_or_ten_seconds() {
        let readiness = Readiness::new(Instant::now());
        assert_eq!(readiness.check(Instant::now()).0, StatusCode::SERVICE_UNAVAILABLE);
        tokio::time::advance(STAT_LINK_WAIT).await;
        assert_eq!(readiness.check(Instant::now()).0, StatusCode::SERVICE_UNAVAILABLE, "nothing is known");
        readiness.set_synced();
        assert_eq!(readiness.check(Instant::now()).0, StatusCode::OK, "the data path does not need the autoscaler");

        let fresh = Readiness::new(Instant::now());
        fresh.set_synced();
        assert_eq!(fresh.check(Instant::now()).0, StatusCode::SERVICE_UNAVAILABLE);
        fresh.set_linked();
        assert_eq!(fresh.check(Instant::now()).0, StatusCode::OK);
        fresh.set_draining();
        assert_eq!(fresh.check(Instant::now()).0, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
