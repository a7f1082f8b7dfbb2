//! Workers: each takes a key, runs a pass over it, logs errors, and takes the next key.
//!
//! A pass that fails is retried after a back-off. So is a pass that panics or takes longer than [`PASS_TIMEOUT`], so no
//! object can block the others. Shutdown never interrupts a running pass; only the wait for the next key ends.
//!
//! Many passes write nothing and end without having awaited anything. So a worker yields after each pass. Otherwise a
//! sweep over thousands of keys would monopolize a thread, and tasks that renew leases and read stats would starve.

use crate::error::Failure;
use crate::queue::{Item, Priority, WorkQueue};
use futures::FutureExt;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longest duration of one pass; the next pass does the remaining work.
pub const PASS_TIMEOUT: Duration = Duration::from_secs(30);

/// Configuration of workers.
#[derive(Clone, Debug)]
pub struct Workers<K: Ord> {
    /// Kind of objects, for the log.
    pub kind: &'static str,
    /// Queue of keys.
    pub queue: WorkQueue<K>,
    /// The only priority that the workers serve; `None`: all, the highest first.
    pub only: Option<Priority>,
}

impl<K: Ord + Clone + Display> Workers<K> {
    /// Runs one worker: calls `pass` for one key after the other, until `shutdown`.
    pub async fn work<E: Failure, F: Future<Output = Result<(), E>>>(
        self,
        shutdown: CancellationToken,
        pass: impl Fn(K, Priority) -> F,
    ) {
        loop {
            let item = tokio::select! {
                item = self.queue.next_in(self.only) => item,
                () = shutdown.cancelled() => return,
            };
            let pass = AssertUnwindSafe(pass(item.key().clone(), item.priority())).catch_unwind();
            self.settle(item, tokio::time::timeout(PASS_TIMEOUT, pass).await);
            tokio::task::yield_now().await;
        }
    }

    fn settle<E: Failure, P, T>(&self, item: Item<K>, outcome: Result<Result<Result<(), E>, P>, T>) {
        let (kind, key) = (self.kind, item.key());
        match outcome {
            Ok(Ok(Ok(()))) => return,
            Ok(Ok(Err(error))) => {
                let is_known = error.is_conflict() || error.is_temporary() || error.is_reported();
                if is_known || !item.should_report() {
                    tracing::debug!(kind, %key, %error, "the object was not reconciled; it will be retried");
                } else {
                    tracing::warn!(kind, %key, %error, "the object could not be reconciled; it will be retried");
                }
            }
            Ok(Err(_)) => tracing::error!(kind, %key, "a reconcile panicked; it will be retried"),
            Err(_) => {
                let seconds = PASS_TIMEOUT.as_secs();
                tracing::warn!(kind, %key, seconds, "a reconcile took too long and was cancelled; it will be retried");
            }
        }
        item.retry();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriteError;
    use std::future::ready;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Goal: other tasks get a turn after each pass, even if many keys wait whose passes await nothing.
    #[tokio::test]
    async fn a_sweep_lets_other_tasks_run() {
        let (queue, passes) = (WorkQueue::new(), Arc::new(AtomicUsize::new(0)));
        (0..1_000).for_each(|key| queue.add(key, Priority::Slow));
        let workers = Workers { kind: "key", queue, only: None };
        let (shutdown, counted) = (CancellationToken::new(), passes.clone());
        tokio::spawn(workers.work(shutdown.clone(), move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            ready(Ok::<(), WriteError>(()))
        }));
        let mut turns = 0;
        while passes.load(Ordering::Relaxed) < 1_000 {
            tokio::task::yield_now().await;
            turns += 1;
        }
        shutdown.cancel();
        assert!(turns >= 500, "{turns} turns during 1 000 passes");
    }
}
