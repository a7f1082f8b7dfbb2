//! How much may be read at once for a body that is asked for data.
//!
//! `http_body` has no argument for it, and between who asks and who reads stand bodies that know nothing of either. So
//! who asks says it beside the call, for as long as the call lasts, and who reads looks here: both are in one thread.

use crate::scoped::scoped;
use std::cell::Cell;

thread_local! {
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Asks for data of which no more than `most` bytes are to be read.
pub(crate) fn at_most<T>(most: usize, ask: impl FnOnce() -> T) -> T {
    scoped(&MOST, most, ask)
}

/// Most bytes to be read now.
pub(crate) fn most() -> usize {
    MOST.get()
}
