//! Atomics and the mutex under one name, so that loom can stand in for them.
//!
//! Under `--cfg loom` the breaker runs on loom's types and every interleaving of its model is tried
//! (`tests/breaker_loom.rs`); otherwise these are std's atomics and `parking_lot`'s mutex.

#[cfg(not(loom))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
pub(crate) use self::thread::lane;
#[cfg(all(test, not(loom)))]
pub(crate) use self::thread::set_lane;

#[cfg(loom)]
pub use self::model::set_lane;
#[cfg(loom)]
pub(crate) use self::model::{Mutex, lane};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
mod thread {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    thread_local! {
        static LANE: Cell<usize> = const { Cell::new(UNKNOWN) };
    }

    const UNKNOWN: usize = usize::MAX;

    /// A small number for the calling thread, the same as long as it lives: threads are numbered as they first ask, so
    /// that as many as the machine runs at once differ in the low bits.
    #[inline]
    pub(crate) fn lane() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        LANE.with(|lane| {
            if lane.get() == UNKNOWN {
                lane.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            lane.get()
        })
    }

    /// For tests: goes on as another thread.
    #[cfg(test)]
    pub(crate) fn set_lane(lane: usize) {
        LANE.with(|own| own.set(lane));
    }
}

#[cfg(loom)]
mod model {
    /// loom's mutex with the interface of `parking_lot`'s. A poisoned lock means that the model has already failed.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }

    loom::thread_local! {
        static LANE: std::cell::Cell<usize> = std::cell::Cell::new(0);
    }

    /// What the model said of the calling thread.
    pub(crate) fn lane() -> usize {
        LANE.with(std::cell::Cell::get)
    }

    /// The model says which threads share spares and which do not: 0 for those that never call this.
    pub fn set_lane(lane: usize) {
        LANE.with(|own| own.set(lane));
    }
}
