//! How long the machine kept threads waiting that had something to do: what a bound on a time allows for besides.
//!
//! A thread for each processor sleeps for moments, and adds up by how much it slept too long, where that is more than
//! threads cost each other that take turns. It is what the host of a virtual machine took, or a crowd of processes; a
//! chain of work that passes through several threads may have met all of it. Where nothing of the kind happens it is
//! nothing, and bounds are as they are written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How long a thread sleeps.
const MOMENT: Duration = Duration::from_millis(20);
/// What a sleep may take longer when threads take turns.
const USUAL: Duration = Duration::from_millis(20);

/// Adds up from its making on. Its threads end with it.
pub struct Stalls {
    total: Arc<AtomicU64>, // Nanoseconds.
    longest: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Stalls {
    /// Starts to add up.
    #[expect(clippy::new_without_default, reason = "it starts threads")]
    pub fn new() -> Self {
        let stalls = Self { total: Arc::default(), longest: Arc::default(), over: Arc::default() };
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let (total, longest, over) = (stalls.total.clone(), stalls.longest.clone(), stalls.over.clone());
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let before = Instant::now();
                    std::thread::sleep(MOMENT);
                    let late = before.elapsed().saturating_sub(MOMENT);
                    if late > USUAL {
                        let late = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
                        total.fetch_add(late, Ordering::Relaxed);
                        longest.fetch_max(late, Ordering::Relaxed);
                    }
                }
            });
        }
        stalls
    }

    /// Of all processors together, so far.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total.load(Ordering::Relaxed))
    }

    /// The longest, so far.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Relaxed))
    }

    /// Looks back for `window`, and not beyond this moment.
    pub fn recent(&self, window: Duration) -> Recent<'_> {
        Recent { stalls: self, window, looks: [(Instant::now(), self.total())].into() }
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// What share of the time until now threads stalled.
pub struct Recent<'a> {
    stalls: &'a Stalls,
    window: Duration,
    /// The total at each look, from before the window on.
    looks: VecDeque<(Instant, Duration)>,
}

impl Recent<'_> {
    /// A part of the window: 0 where no thread stalled, up to the number of processors.
    pub fn share(&mut self) -> f64 {
        let (now, total) = (Instant::now(), self.stalls.total());
        self.looks.push_back((now, total));
        while self.looks.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= self.window) {
            self.looks.pop_front();
        }
        let before = self.looks.front().map_or(total, |(_, total)| *total);
        (total - before).as_secs_f64() / self.window.as_secs_f64()
    }
}
