//! Gives memory back that a burst has left behind.
//!
//! # Why
//!
//! mimalloc keeps a heap for each thread. What other threads free in it, and pages that have become empty, it finds when
//! the thread allocates, and it returns pages to the kernel on such occasions only. After thousands of held requests were
//! released nobody allocates any more, and half of the peak stayed resident.
//!
//! # How
//!
//! Every [`INTERVAL`] a new round begins. Each worker of the runtime, and each lane, tidies its own heap, once a round, when it has nothing
//! to do ([`when_idle`], the runtime's hook). Those that sleep are woken by tasks that do nothing; one that sleeps on
//! takes part in a later round.
//!
//! A round costs what there is to give back: a few microseconds on an idle process.

use crate::allocator::Allocator;
use activator::Lanes;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::MissedTickBehavior;

/// Time between two rounds: long enough to keep what a busy process needs all the time.
const INTERVAL: Duration = Duration::from_secs(10);

/// The latest round.
static ROUND: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The round that this thread has taken part in.
    static DONE: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "C" {
    /// mimalloc's: tidies the calling thread's heap, and returns every free page to the kernel.
    safe fn mi_collect(force: bool);
}

/// For a runtime to call whenever one of its workers has nothing to do.
pub(crate) fn when_idle() {
    let round = ROUND.load(Ordering::Relaxed);
    if DONE.replace(round) != round {
        mi_collect(true);
    }
}

/// Begins a round now and then, for as long as the process lives.
pub(crate) async fn run(allocator: &'static Allocator, lanes: Lanes) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        allocator.cool_unneeded();
        ROUND.fetch_add(1, Ordering::Relaxed);
        for _ in 0..Handle::current().metrics().num_workers() {
            tokio::spawn(async {});
        }
        lanes.wake();
    }
}
