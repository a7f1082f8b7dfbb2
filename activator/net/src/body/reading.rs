//! Limit on the bytes that are read at once for a polled body.
//!
//! `http_body` has no argument for such a limit, and between the poller and the reader there are bodies that know of
//! neither. So the poller sets the limit in a thread-local for the duration of the poll, and the reader looks there.
//! Both run in the same thread.

use crate::scoped::scoped;
use std::cell::Cell;

thread_local! {
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Polls with a limit of `most` bytes.
pub(crate) fn at_most<T>(most: usize, ask: impl FnOnce() -> T) -> T {
    scoped(&MOST, most, ask)
}

/// Returns the current limit in bytes.
pub(crate) fn most() -> usize {
    MOST.get()
}
