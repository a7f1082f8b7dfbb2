//! Measures how long the machine keeps runnable threads waiting. Tests add this time to their bounds.
//!
//! One thread per processor sleeps for short moments, and adds up the time that it overslept, if that exceeds the delay
//! of threads that merely take turns. Such time was taken by the host of a virtual machine, or by many other processes.
//! A chain of work through several threads may have been delayed by all of it. Without such stalls the sum is zero, and
//! the bounds apply as written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Duration of a thread's sleep.
const MOMENT: Duration = Duration::from_millis(20);
/// Normal oversleep of threads that take turns.
const USUAL: Duration = Duration::from_millis(20);

/// Sum of stalls since its creation. Its threads end when it is dropped.
pub struct Stalls {
    total: Arc<AtomicU64>, // Nanoseconds.
    longest: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Stalls {
    /// Starts to measure.
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

    /// Returns the sum of the stalls of all processors so far.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total.load(Ordering::Relaxed))
    }

    /// Returns the longest stall so far.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Relaxed))
    }

    /// Starts a sliding window of length `window`, which reaches back to this moment at most.
    pub fn recent(&self, window: Duration) -> Recent<'_> {
        Recent { stalls: self, window, samples: [(Instant::now(), self.total())].into() }
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Share of stalled time in a sliding window.
pub struct Recent<'a> {
    stalls: &'a Stalls,
    window: Duration,
    /// Total at each call. The first one is at or before the start of the window.
    samples: VecDeque<(Instant, Duration)>,
}

impl Recent<'_> {
    /// Returns the stalled share of the window: 0 if no thread stalled, up to the number of processors.
    pub fn share(&mut self) -> f64 {
        let (now, total) = (Instant::now(), self.stalls.total());
        self.samples.push_back((now, total));
        while self.samples.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= self.window) {
            self.samples.pop_front();
        }
        let before = self.samples.front().map_or(total, |(_, total)| *total);
        (total - before).as_secs_f64() / self.window.as_secs_f64()
    }
}
