//! How long the machine kept threads waiting that had something to do: what a bound on a time allows for besides.
//!
//! A thread for each processor sleeps for moments, and adds up by how much it slept too long. That is what other
//! processes took, or the host of a virtual machine; a chain of work that passes through several threads may have met
//! all of it. On a machine with nothing else to do it is a few milliseconds a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How long a thread sleeps.
const MOMENT: Duration = Duration::from_millis(20);
/// What a sleep takes longer on an idle machine.
const USUAL: Duration = Duration::from_millis(2);

/// Adds up from its making on. Its threads end with it.
pub struct Stalls {
    total: Arc<AtomicU64>, // Nanoseconds.
    over: Arc<AtomicBool>,
}

impl Stalls {
    /// Starts to add up.
    #[expect(clippy::new_without_default, reason = "it starts threads")]
    pub fn new() -> Self {
        let stalls = Self { total: Arc::default(), over: Arc::default() };
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let (total, over) = (stalls.total.clone(), stalls.over.clone());
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let before = Instant::now();
                    std::thread::sleep(MOMENT);
                    let late = before.elapsed().saturating_sub(MOMENT + USUAL);
                    total.fetch_add(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
                }
            });
        }
        stalls
    }

    /// Of all processors together, so far.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total.load(Ordering::Relaxed))
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
