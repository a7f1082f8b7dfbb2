//! Gives memory back that a burst has left behind: when a process's threads tidy their heaps.
//!
//! # Why
//!
//! An allocator with a heap for each thread (mimalloc) finds what other threads have freed in it, and returns pages
//! that have become empty, on the occasion of the thread's own allocations. After thousands of held requests were
//! released, or thousands of objects were read at the start, nobody allocates any more, and much of the peak stays
//! resident.
//!
//! # How
//!
//! Every [`INTERVAL`] a new round begins ([`run`]). Each worker of a runtime tidies its own heap, once a round, when
//! it has nothing to do ([`tidy_when_idle`], for the runtime's hook). Those that sleep are woken by tasks that do
//! nothing; one that sleeps on takes part in a later round. The binary's allocator is mimalloc.
//!
//! A round costs what there is to give back: a few microseconds on an idle process.

use crate::scoped::scoped;
use mimalloc as _; // Links the allocator's own library, which has what is declared below.
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::MissedTickBehavior;

/// Time between two rounds: long enough to keep what a busy process needs all the time.
const INTERVAL: Duration = Duration::from_secs(10);

static ROUND: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The round that this thread has taken part in.
    static DONE: Cell<u32> = const { Cell::new(0) };
    /// Whether it runs [`cooling`].
    static COOLING: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    /// mimalloc's: tidies the calling thread's heap, and returns every free page to the kernel.
    safe fn mi_collect(force: bool);
}

/// For a runtime to call whenever one of its workers has nothing to do: tidies the worker's heap, once a round.
pub fn tidy_when_idle() {
    when_idle(|| mi_collect(true));
}

/// Runs `act`, which lets go of buffers that nobody will need soon: an allocator that asks [`is_cooling`] gives their
/// pages back to the kernel at once.
pub fn cooling<T>(act: impl FnOnce() -> T) -> T {
    scoped(&COOLING, true, act)
}

/// Whether the caller runs within [`cooling`]. Allocates nothing.
pub fn is_cooling() -> bool {
    COOLING.get()
}

/// Runs `tidy` if this thread has taken no part in the latest round.
fn when_idle(tidy: impl FnOnce()) {
    let round = ROUND.load(Ordering::Relaxed);
    if DONE.replace(round) != round {
        tidy();
    }
}

/// Begins a round now and then, for as long as the process lives, and wakes this runtime's workers for it. `begun` runs
/// at each beginning, for what the process has beside them.
pub async fn run(mut begun: impl FnMut()) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        ROUND.fetch_add(1, Ordering::Relaxed);
        for _ in 0..Handle::current().metrics().num_workers() {
            tokio::spawn(async {});
        }
        begun();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn cooling_lasts_as_long_as_what_is_done_within() {
        assert!(!is_cooling());
        assert!(cooling(|| cooling(is_cooling) && is_cooling()));
        assert!(!is_cooling());
    }

    /// Goal: a worker tidies once a round however often it idles, and again in the next.
    #[test]
    fn each_round_is_taken_part_in_once() {
        let tidied = Arc::new(AtomicU32::new(0));
        let count = tidied.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .on_thread_park(move || when_idle(|| _ = count.fetch_add(1, Ordering::Relaxed)))
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let rounds = Arc::new(AtomicU32::new(0));
            let begun = rounds.clone();
            tokio::spawn(run(move || _ = begun.fetch_add(1, Ordering::Relaxed)));
            for n in 1..=3 {
                for _ in 0..5 {
                    tokio::time::sleep(INTERVAL / 5).await;
                }
                let (rounds, tidied) = (rounds.load(Ordering::Relaxed), tidied.load(Ordering::Relaxed));
                assert!(rounds >= n && tidied.abs_diff(rounds) <= 1, "round {rounds}, tidied {tidied} times");
            }
        });
    }
}
