//! Atomics and the mutex under one name, so that loom can replace them.
//!
//! Under `--cfg loom` the breaker uses loom's types, and `tests/breaker_loom.rs` tries every interleaving of its model.
//! Otherwise these are the atomics of std and the mutex of `parking_lot`.

#[cfg(not(loom))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use self::model::Mutex;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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
}
