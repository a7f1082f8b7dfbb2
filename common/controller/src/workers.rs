//! Workers: each takes a key, runs a pass over it, tells what went wrong, and takes the next.
//!
//! A pass that fails comes back after a back-off; so does one that panics or takes longer than [`PASS_TIMEOUT`], so no
//! object can stop the others. What is under way is never cut off by the end of the process: only the wait for the next
//! key ends with it.
//!
//! Many passes find nothing to write, and end without having waited for anything. Between two of them a worker lets other
//! tasks run: a sweep over thousands of keys would else keep a thread to itself, and what renews leases and reads stats
//! would have none.

use crate::error::Failure;
use crate::queue::{Item, Priority, WorkQueue};
use futures::FutureExt;
use std::fmt::Display;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longest duration of one pass; what is left undone is done by the next.
pub const PASS_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a key may fail before it is told at warn: objects of one manifest come and go in any order.
const QUIET: Duration = Duration::from_secs(5);

/// Where workers get their keys.
#[derive(Clone, Debug)]
pub struct Workers<K: Ord> {
    /// The kind of objects, for the log.
    pub kind: &'static str,
    /// The keys.
    pub queue: WorkQueue<K>,
    /// The one priority that they serve; all, the highest first, if there is none.
    pub only: Option<Priority>,
}

impl<K: Ord + Hash + Clone + Display> Workers<K> {
    /// One worker: runs `pass` for one key after the other, until `shutdown`.
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
                let is_known = error.is_conflict() || error.is_early() || error.is_reported();
                if is_known || !item.is_worth_telling(QUIET) {
                    tracing::debug!(kind, %key, %error, "will be tried again");
                } else {
                    tracing::warn!(kind, %key, %error, "could not be reconciled; will be tried again");
                }
            }
            Ok(Err(_)) => tracing::error!(kind, %key, "a reconcile has panicked; will be tried again"),
            Err(_) => {
                let seconds = PASS_TIMEOUT.as_secs();
                tracing::warn!(kind, %key, seconds, "a reconcile took too long; will be tried again");
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

    /// Goal: however many keys wait whose passes have nothing to wait for, others have their turn after each.
    #[tokio::test]
    async fn a_sweep_lets_others_run() {
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
