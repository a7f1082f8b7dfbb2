//! Writes in flight for each bucket, so that no lease changes hands during a write.
//!
//! A write begins with a [`WriteGuard`], which is only given while the lease is certain to last for another
//! [`WRITE_MARGIN`](super::WRITE_MARGIN). The write must be over at [`WriteGuard::deadline`], before the lease ends. A
//! process that hands over or releases a lease first waits until the guards of its bucket are dropped. So a former
//! owner's write cannot take effect after a handover or an expiry, however slowly the API server responds.
//!
//! # Edge cases
//!
//! A write that ended without a response may still be carried out, until the API server has noticed that its caller is
//! gone ([`CANCEL_MARGIN`]). So the guard of a write that was not [answered](WriteGuard::answered) remains in effect
//! for that time.

use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Time after a write is cancelled until it is certain not to be carried out any more.
pub const CANCEL_MARGIN: Duration = Duration::from_millis(500);

/// Write in flight for a bucket. If it is not over at the deadline, it must be cancelled.
#[derive(Debug)]
pub struct WriteGuard {
    token: Option<TaskTrackerToken>,
    deadline: Option<Instant>,
}

impl WriteGuard {
    /// Creates a guard for a bucket that no other process can ever own.
    pub fn unbounded() -> Self {
        Self { token: None, deadline: None }
    }

    /// Returns the time at which the write must be over; `None`: no limit.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Records that the write has a response, so it cannot take effect later.
    pub fn answered(mut self) {
        self.token = None;
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        if let (Some(token), Ok(runtime)) = (self.token.take(), Handle::try_current()) {
            runtime.spawn(async move {
                tokio::time::sleep(CANCEL_MARGIN).await;
                drop(token);
            });
        }
    }
}

/// Writes in flight, by bucket. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Writers(Arc<[TaskTracker]>);

impl Writers {
    pub(super) fn new(buckets: usize) -> Self {
        let tracker = || {
            let tracker = TaskTracker::new();
            tracker.close(); // An open tracker would keep waiters waiting; a closed one still accepts new tasks.
            tracker
        };
        Self(std::iter::repeat_with(tracker).take(buckets).collect())
    }

    /// Returns a guard for a bucket whose lease ends at `until`. The caller must hold the lock of the views, so that
    /// the bucket is not given up before the guard is counted.
    pub(super) fn begin(&self, bucket: usize, until: Instant) -> Option<WriteGuard> {
        let token = self.0.get(bucket)?.token();
        Some(WriteGuard { token: Some(token), deadline: until.checked_sub(CANCEL_MARGIN) })
    }

    /// Waits until no write for the bucket is in flight.
    pub(super) async fn idle(&self, bucket: usize) {
        if let Some(tracker) = self.0.get(bucket) {
            tracker.wait().await;
        }
    }
}
