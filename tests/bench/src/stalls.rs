//! Detects stalls of the machine itself, so that figures from such moments can be discarded.
//!
//! The host of a virtual machine may take a processor away for milliseconds or longer. It reports this late, in
//! hundredths of a second, or not at all. Therefore a thread on each processor, with a higher priority than all
//! ordinary threads, sleeps for short times. If it oversleeps by more than [`OVERSLEEP_MAX`], no thread ran on that
//! processor. Our own processes cannot delay it.
//!
//! Without the permission (`CAP_SYS_NICE`), no stall is detected and every figure counts.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Duration of one sleep.
const SLEEP: Duration = Duration::from_millis(1);
/// Maximum normal oversleep.
const OVERSLEEP_MAX: Duration = Duration::from_millis(1);

/// Detects stalls from its creation on. Its threads end when it is dropped.
pub(crate) struct StallDetector {
    watchers: Vec<Arc<Watcher>>,
    ended: Arc<AtomicBool>,
}

struct Watcher(Mutex<ObservedGaps>);

struct ObservedGaps {
    latest: Instant,
    /// Each gap lasts from before a sleep until after it.
    gaps: Vec<(Instant, Instant)>,
}

impl StallDetector {
    /// Starts a thread on each usable processor, or on none without the permission.
    pub(crate) fn new() -> Self {
        let ended = Arc::<AtomicBool>::default();
        let usable = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let watchers =
            (0..CpuSet::MAX_CPU).filter(|cpu| usable.is_set(*cpu)).filter_map(|cpu| Watcher::start(cpu, &ended));
        Self { watchers: watchers.collect(), ended }
    }

    /// Reports whether stalls are detected at all.
    pub(crate) fn is_active(&self) -> bool {
        !self.watchers.is_empty()
    }

    /// Reports whether a processor stalled at any time between `from` and `to`.
    pub(crate) async fn stalled_between(&self, from: Instant, to: Instant) -> bool {
        let mut stalled = false;
        for watcher in &self.watchers {
            while watcher.with_gaps(|observed| observed.latest) <= to {
                tokio::time::sleep(SLEEP).await;
            }
            stalled |=
                watcher.with_gaps(|observed| observed.gaps.iter().any(|(start, end)| *start < to && from < *end));
        }
        stalled
    }
}

impl Drop for StallDetector {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl Watcher {
    /// Starts the thread of a processor. Returns `None` without the permission.
    fn start(cpu: usize, ended: &Arc<AtomicBool>) -> Option<Arc<Self>> {
        let watcher = Arc::new(Self(Mutex::new(ObservedGaps { latest: Instant::now(), gaps: Vec::new() })));
        let (own, ended) = (watcher.clone(), ended.clone());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let pinned = pin_with_priority(cpu);
            let watches = pinned.is_ok();
            let _ = sender.send(pinned); // The receiver waits below.
            while watches && !ended.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::sleep(SLEEP);
                let now = Instant::now();
                own.with_gaps(|observed| {
                    observed.latest = now;
                    if now - before > SLEEP + OVERSLEEP_MAX {
                        observed.gaps.push((before, now));
                    }
                });
            }
        });
        receiver.recv().is_ok_and(|pinned| pinned.is_ok()).then_some(watcher)
    }

    fn with_gaps<T>(&self, look: impl FnOnce(&mut ObservedGaps) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Binds the calling thread to this processor, with a higher priority than all ordinary threads.
fn pin_with_priority(cpu: usize) -> io::Result<()> {
    let mut alone = CpuSet::new();
    alone.set(cpu);
    sched_setaffinity(None, &alone)?;
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter is read during the call only; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &first) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_span_counts_as_stalled_if_it_overlaps_a_gap() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let watcher = Arc::new(Watcher(Mutex::new(ObservedGaps { latest: at(1000), gaps: vec![(at(10), at(20))] })));
        let stalls = StallDetector { watchers: vec![watcher], ended: Arc::default() };
        for (from, to, stalled) in [(0, 9, false), (0, 11, true), (12, 14, true), (19, 30, true), (21, 30, false)] {
            assert_eq!(stalls.stalled_between(at(from), at(to)).await, stalled, "{from} to {to} ms");
        }
    }

    /// Goal: the threads continue to measure, and `stalled_between` waits for all of them.
    #[tokio::test]
    async fn stalled_between_waits_for_a_later_measurement_of_each_thread() {
        let stalls = StallDetector::new();
        let now = Instant::now();
        let _ = stalls.stalled_between(now, now).await; // The result depends on the machine.
        assert!(stalls.watchers.iter().all(|watcher| watcher.with_gaps(|observed| observed.latest) > now));
    }
}
