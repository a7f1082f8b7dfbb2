//! Waiting for one's turn to write: [`Pace`] with a queue for each line.
//!
//! Whoever waits stands in one ordered set. Only its first looks at the tokens; the others sleep until they are first.
//! Who gives up waiting leaves the set and takes no token. A write that a decision has to wait for moves up
//! ([`Place`]).

use super::queue::Queue;
use autoscaler_core::pace::{Line, Pace, Rate};
use common::RevisionKey as Key;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The turns of all writers of a process. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Somebody else is first now.
    moved: Notify,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    waiting: BTreeSet<(Line, u64)>,
    came: u64,
}

impl Turns {
    pub(crate) fn new(rate: Rate) -> Self {
        let pace = Pace::new(rate, Instant::now().into_std());
        let state = Mutex::new(State { pace, waiting: BTreeSet::new(), came: 0 });
        Self { shared: Arc::new(Shared { state, moved: Notify::new() }) }
    }

    /// Waits until a write of this line may be sent.
    ///
    /// # Cancel safety
    /// Nothing is taken unless this returns.
    pub(crate) async fn next(&self, line: Line) {
        let ticket = {
            let mut state = self.shared.state.lock();
            let first = state.waiting.first().is_none_or(|(other, _)| line < *other);
            if first && state.pace.take(line, Instant::now().into_std()) {
                return;
            }
            state.came += 1;
            let place = (line, state.came);
            state.waiting.insert(place);
            Ticket { shared: &self.shared, place }
        };
        self.shared.moved.notify_waiters(); // Perhaps a faster line than that of whoever was first.
        loop {
            let moved = self.shared.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable(); // Before the look, so that no change after it is missed.
            let ready = {
                let mut state = self.shared.state.lock();
                let first = state.waiting.first() == Some(&ticket.place);
                if first && state.pace.take(line, Instant::now().into_std()) {
                    return; // The ticket leaves the set, and the next one hears of it.
                }
                first.then(|| Instant::from_std(state.pace.ready_at(line)))
            };
            match ready {
                Some(ready) => tokio::select! { () = sleep_until(ready) => {}, () = moved => {} },
                None => moved.await,
            }
        }
    }
}

/// The line that a write of a pass stands in.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) turns: &'a Turns,
    pub(crate) line: Line,
    /// The queue whose decisions may have to wait for that pass.
    pub(crate) decisions: &'a Queue<Key>,
}

impl Place<'_> {
    /// Waits until a write for `revision` may be sent. Once a decision about the revision waits for the pass to end,
    /// its write stands in the decision's line: no request is held for the sake of a status.
    pub(crate) async fn turn(self, revision: &Key) {
        let Self { turns, line, decisions } = self;
        if line == Line::Wake {
            return turns.next(line).await;
        }
        tokio::select! {
            biased;
            () = turns.next(line) => {}
            () = decisions.hurried(revision) => turns.next(Line::Wake).await,
        }
    }
}

/// A place among those who wait.
struct Ticket<'a> {
    shared: &'a Shared,
    place: (Line, u64),
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().waiting.remove(&self.place);
        self.shared.moved.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::queue::Lane;
    use std::time::Duration;
    use tokio::sync::mpsc;

    /// Goal: whoever came last in the fastest line goes first, the rate is kept, and who gave up costs nothing.
    #[tokio::test(start_paused = true)]
    async fn the_fastest_line_goes_first() {
        let turns = Turns::new(Rate { qps: 10.0, burst: 4 });
        for _ in 0..4 {
            turns.next(Line::Wake).await;
        }
        let start = Instant::now();
        let (served, mut order) = mpsc::unbounded_channel();
        let mut waiting = Vec::new();
        for line in [Line::Event, Line::Object, Line::Scale, Line::Wake, Line::Wake] {
            let (turns, served) = (turns.clone(), served.clone());
            waiting.push(tokio::spawn(async move {
                turns.next(line).await;
                let _ = served.send((line, start.elapsed().as_millis()));
            }));
            tokio::task::yield_now().await;
        }
        waiting[4].abort(); // Gives up.
        let mut got = Vec::new();
        for _ in 0..4 {
            got.push(order.recv().await.expect("served"));
        }
        // Each line needs what it leaves to the faster ones, plus its own token: 1, 2, 3 and 4 of them.
        let tokens: Vec<_> = got.iter().map(|(line, ms)| (*line, (ms + 5) / 10)).collect();
        assert_eq!(tokens, [(Line::Wake, 10), (Line::Scale, 30), (Line::Object, 50), (Line::Event, 70)]);
        assert!(turns.shared.state.lock().waiting.is_empty());
    }

    /// Goal: a status that waits in a flood moves up as soon as a decision about its revision waits for it, and only
    /// then.
    #[tokio::test(start_paused = true)]
    async fn a_status_that_a_decision_waits_for_moves_up() {
        let (turns, decisions) = (Turns::new(Rate { qps: 10.0, burst: 4 }), Queue::default());
        for _ in 0..4 {
            turns.next(Line::Wake).await;
        }
        let flood: Vec<_> = (0..100)
            .map(|_| {
                let turns = turns.clone();
                tokio::spawn(async move { turns.next(Line::Object).await })
            })
            .collect();
        let (mine, other) = (Key::new("ns", "mine"), Key::new("ns", "other"));
        decisions.add(mine.clone(), Lane::Normal);
        let _held = decisions.next().await;
        let start = Instant::now();
        let place = Place { turns: &turns, line: Line::Object, decisions: &decisions };
        let decided = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            decisions.add(other, Lane::Urgent);
            tokio::time::sleep(Duration::from_secs(1)).await;
            decisions.add(mine.clone(), Lane::Urgent);
        };
        tokio::join!(place.turn(&mine), decided);
        let took = start.elapsed();
        assert!(took >= Duration::from_secs(2) && took < Duration::from_millis(2200), "{took:?}");
        flood.into_iter().for_each(|status| status.abort());
    }

    /// Goal: in a flood of statuses a wake-up is sent at once.
    #[tokio::test(start_paused = true)]
    async fn a_flood_of_statuses_does_not_delay_a_wake_up() {
        let turns = Turns::new(Rate::AUTOSCALER);
        let flood: Vec<_> = (0..500)
            .map(|_| {
                let turns = turns.clone();
                tokio::spawn(async move { turns.next(Line::Object).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let start = Instant::now();
        for _ in 0..40 {
            turns.next(Line::Wake).await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "half of the bucket was kept for them");
        for status in flood {
            status.await.expect("no panic");
        }
        assert!(start.elapsed() > Duration::from_secs(10), "the flood itself keeps to the rate: {:?}", start.elapsed());
    }
}
