//! Writes under way for each bucket, so that no lease changes hands beneath one of them.
//!
//! A write is begun with a [`WriteGuard`], which is given only while the lease is certain to last for another
//! [`WRITE_MARGIN`](super::WRITE_MARGIN), and has to be over at [`WriteGuard::deadline`], ahead of the lease's end.
//! Whoever gives a lease away or up waits until the guards of its bucket are gone. So a former owner's write can land
//! late neither after a handover nor after an expiry, however slowly the API server answers.
//!
//! # Odd cases
//!
//! A write that ended without an answer may still be carried out: until the API server has heard that its caller is
//! gone ([`CANCEL_MARGIN`]), the guard of a write that was not [answered](WriteGuard::answered) counts on.

use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// From the moment a write is given up to the moment when it is certain not to be carried out any more.
pub const CANCEL_MARGIN: Duration = Duration::from_millis(500);

/// A write for a bucket under way. Whatever is left of it must be given up at its deadline.
#[derive(Debug)]
pub struct WriteGuard {
    token: Option<TaskTrackerToken>,
    deadline: Option<Instant>,
}

impl WriteGuard {
    /// The guard of what nobody else can ever own.
    pub fn unbounded() -> Self {
        Self { token: None, deadline: None }
    }

    /// When the write must be over; `None`: whenever it is.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The write was answered, so nothing of it can come later.
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

/// The writes under way, by bucket. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Writers(Arc<[TaskTracker]>);

impl Writers {
    pub(super) fn new(buckets: usize) -> Self {
        let tracker = || {
            let tracker = TaskTracker::new();
            tracker.close(); // Only an open one keeps who waits for its end waiting; more may begin nevertheless.
            tracker
        };
        Self(std::iter::repeat_with(tracker).take(buckets).collect())
    }

    /// A guard for a bucket whose lease ends at `until`. Whoever closes the bucket must have excluded this call.
    pub(super) fn begin(&self, bucket: usize, until: Instant) -> Option<WriteGuard> {
        let token = self.0.get(bucket)?.token();
        Some(WriteGuard { token: Some(token), deadline: until.checked_sub(CANCEL_MARGIN) })
    }

    /// Waits until no write for the bucket is under way.
    pub(super) async fn idle(&self, bucket: usize) {
        if let Some(tracker) = self.0.get(bucket) {
            tracker.wait().await;
        }
    }
}
