//! Limit on the bytes that are read at once for a polled body.
//!
//! `http_body` has no argument for such a limit, and between the poller and the reader there are bodies that know of
//! neither. So the poller sets the limit in a thread-local for the duration of the poll, and the reader looks there.
//! Both run in the same thread.

use std::cell::Cell;

thread_local! {
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Polls with a limit of `most` bytes. Restores the previous limit afterwards, even if `ask` panics.
pub(crate) fn at_most<T>(most: usize, ask: impl FnOnce() -> T) -> T {
    struct Former(usize);
    impl Drop for Former {
        fn drop(&mut self) {
            MOST.set(self.0);
        }
    }
    let _former = Former(MOST.replace(most));
    ask()
}

/// Returns the current limit in bytes.
pub(crate) fn most() -> usize {
    MOST.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_limit_lasts_as_long_as_the_poll() {
        assert_eq!(at_most(1, || (most(), at_most(2, most), most())), (1, 2, 1));
        let panics = AssertUnwindSafe(|| at_most(3, || panic!("{} within", most())));
        catch_unwind(panics).expect_err("it panics");
        assert_eq!(most(), usize::MAX);
    }
}
