//! How much may be read at once for a body that is asked for data.
//!
//! `http_body` has no argument for it, and between who asks and who reads stand bodies that know nothing of either. So
//! who asks says it beside the call, for as long as the call lasts, and who reads looks here: both are in one thread.

use std::cell::Cell;

thread_local! {
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Asks for data of which no more than `most` bytes are to be read.
pub(crate) fn at_most<T>(most: usize, ask: impl FnOnce() -> T) -> T {
    /// Puts back what was said before, if `ask` panics, too.
    struct Before(usize);
    impl Drop for Before {
        fn drop(&mut self) {
            MOST.set(self.0);
        }
    }
    let _before = Before(MOST.replace(most));
    ask()
}

/// Most bytes to be read now.
pub(crate) fn most() -> usize {
    MOST.get()
}
