//! Rate limiter for the writes of a process: a [`TokenBucket`] and the writers that wait for a token.
//!
//! Waiting writers are in one set, ordered by class and arrival. Only the first one checks the tokens; the others sleep
//! until they are first. A writer that gives up leaves the set and takes no token. A write that delays a decision moves
//! up, as does one that has waited for a long time ([`Pacing`]).

use crate::ObjectKey;
use crate::queue::WorkQueue;
use crate::write_tally::WriteTally;
use common::write_rate::{Rate, TokenBucket, WriteClass};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

/// Time for which a write waits in its own class. Afterwards it is as urgent as a change of replicas, so that an
/// endless stream of higher classes cannot starve it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Limits all writers of a process together. Clones share the bucket.
#[derive(Clone, Debug)]
pub struct WriteLimiter {
    shared: Arc<LimiterShared>,
}

#[derive(Debug)]
struct LimiterShared {
    state: Mutex<LimiterState>,
    /// Notifies waiters when another one becomes the first.
    moved: Notify,
    tally: WriteTally,
}

#[derive(Debug)]
struct LimiterState {
    bucket: TokenBucket,
    waiting: BTreeSet<(WriteClass, u64)>,
    /// Number of arrivals.
    arrived: u64,
}

impl WriteLimiter {
    /// Creates a full bucket that is refilled at `rate`.
    pub fn new(rate: Rate) -> Self {
        let bucket = TokenBucket::new(rate, Instant::now().into_std());
        let state = Mutex::new(LimiterState { bucket, waiting: BTreeSet::new(), arrived: 0 });
        Self { shared: Arc::new(LimiterShared { state, moved: Notify::new(), tally: WriteTally::default() }) }
    }

    /// Returns the outcomes of writes.
    pub fn write_tally(&self) -> &WriteTally {
        &self.shared.tally
    }

    /// Returns the number of waiting writes.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().waiting.len()
    }

    /// Waits until a write of this class may be sent. Cancel safe: takes nothing unless it returns.
    pub async fn acquire(&self, class: WriteClass) {
        let ticket = {
            let mut state = self.shared.state.lock();
            state.arrived += 1;
            let rank = (class, state.arrived);
            state.waiting.insert(rank);
            Ticket { shared: &self.shared, rank }
        };
        self.shared.moved.notify_waiters(); // This class may be higher than that of the current first waiter.
        loop {
            let moved = self.shared.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable(); // Before the check, so that no later change is missed.
            let ready = {
                let mut state = self.shared.state.lock();
                let first = state.waiting.first() == Some(&ticket.rank);
                if first && state.bucket.take(class, Instant::now().into_std()) {
                    return; // Dropping the ticket removes it and notifies the next waiter.
                }
                first.then(|| Instant::from_std(state.bucket.ready_at(class)))
            };
            match ready {
                Some(ready) => tokio::select! { () = sleep_until(ready) => {}, () = moved => {} },
                None => moved.await,
            }
        }
    }
}

/// Wait of one pass's write for its token.
#[derive(Clone, Copy)]
pub struct Pacing<'a> {
    /// Limiter to wait for.
    pub limiter: &'a WriteLimiter,
    /// Urgency of the write itself.
    pub class: WriteClass,
    /// Queue of decisions that may have to wait for this pass.
    pub decisions: &'a WorkQueue<ObjectKey>,
}

impl Pacing<'_> {
    /// Waits until a write for `object` may be sent. Once a decision about the object waits for this pass to end, the
    /// write gets the decision's class, so no held request waits for a status. After five seconds any write has at
    /// least the class of a change of replicas.
    pub async fn ready(self, object: &ObjectKey) {
        let Self { limiter, class, decisions } = self;
        if class == WriteClass::Wake {
            return limiter.acquire(class).await;
        }
        let patient = async {
            if class > WriteClass::Scale && timeout(PATIENCE, limiter.acquire(class)).await.is_ok() {
                return;
            }
            limiter.acquire(WriteClass::Scale).await;
        };
        tokio::select! {
            biased;
            () = patient => {}
            () = decisions.decision_pending(object) => limiter.acquire(WriteClass::Wake).await,
        }
    }
}

/// Place of a waiter in the set; dropping it leaves the set.
struct Ticket<'a> {
    shared: &'a LimiterShared,
    rank: (WriteClass, u64),
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().waiting.remove(&self.rank);
        self.shared.moved.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Priority;
    use tokio::sync::mpsc;
    use tokio::task::JoinSet;

    /// Starts `count` tasks that wait for `writes` tokens each; dropping the set ends them.
    fn spawn_writers(limiter: &WriteLimiter, count: usize, class: WriteClass, writes: u32) -> JoinSet<()> {
        let mut writers = JoinSet::new();
        for _ in 0..count {
            let limiter = limiter.clone();
            writers.spawn(async move {
                for _ in 0..writes {
                    limiter.acquire(class).await;
                }
            });
        }
        writers
    }

    /// Goal: the highest class goes first even if it arrives last, the rate is kept, and a write that gave up takes no
    /// token.
    #[tokio::test(start_paused = true)]
    async fn the_highest_class_goes_first() {
        use WriteClass::{Event, Object, Scale, Wake};
        let limiter = WriteLimiter::new(Rate { qps: 10.0, burst: 4 });
        for _ in 0..4 {
            limiter.acquire(Wake).await;
        }
        let start = Instant::now();
        let (served, mut order) = mpsc::unbounded_channel();
        let mut waiting = Vec::new();
        for class in [Event, Object, Scale, Wake, Wake] {
            let (limiter, served) = (limiter.clone(), served.clone());
            waiting.push(tokio::spawn(async move {
                limiter.acquire(class).await;
                let _ = served.send((class, start.elapsed().as_millis()));
            }));
            tokio::task::yield_now().await;
        }
        waiting[4].abort(); // The write gives up.
        // Each class needs the tokens that it leaves to higher ones plus its own: 1, 2, 3 and 4 tokens.
        for expected in [(Wake, 10), (Scale, 30), (Object, 50), (Event, 70)] {
            let (class, millis) = order.recv().await.expect("served");
            assert_eq!((class, (millis + 5) / 10), expected);
        }
        assert!(limiter.shared.state.lock().waiting.is_empty());
    }

    /// Goal: a status that waits in a flood moves up as soon as a decision about its revision waits for it, and not
    /// before.
    #[tokio::test(start_paused = true)]
    async fn a_status_that_a_decision_waits_for_moves_up() {
        let (limiter, decisions) = (WriteLimiter::new(Rate { qps: 10.0, burst: 4 }), WorkQueue::default());
        for _ in 0..4 {
            limiter.acquire(WriteClass::Wake).await;
        }
        let _flood = spawn_writers(&limiter, 100, WriteClass::Object, 1);
        let (mine, other) = (ObjectKey::new("ns", "mine"), ObjectKey::new("ns", "other"));
        decisions.add(mine.clone(), Priority::Normal);
        let _held = decisions.next().await;
        let start = Instant::now();
        let pacing = Pacing { limiter: &limiter, class: WriteClass::Object, decisions: &decisions };
        let decided = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            decisions.add(other, Priority::Urgent);
            tokio::time::sleep(Duration::from_secs(1)).await;
            decisions.add(mine.clone(), Priority::Urgent);
        };
        tokio::join!(pacing.ready(&mine), decided);
        let took = start.elapsed();
        assert!(took >= Duration::from_secs(2) && took < Duration::from_millis(2200), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn endless_replica_changes_starve_no_status_and_no_event() {
        let (limiter, decisions) = (WriteLimiter::new(Rate { qps: 10.0, burst: 4 }), WorkQueue::default());
        let _endless = spawn_writers(&limiter, 16, WriteClass::Scale, u32::MAX);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mine = ObjectKey::new("ns", "mine");
        for class in [WriteClass::Object, WriteClass::Event] {
            let pacing = Pacing { limiter: &limiter, class, decisions: &decisions };
            let ready = timeout(Duration::from_secs(30), pacing.ready(&mine)).await;
            assert!(ready.is_ok(), "{class:?}");
        }
    }
}
