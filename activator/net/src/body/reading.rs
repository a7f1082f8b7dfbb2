//! Limit on the bytes that are read at once for a polled body.
//!
//! `http_body` has no argument for such a limit, and the bodies between the poller and the reader do not know of it. So
//! the poller sets the limit in a thread-local for the duration of the poll, and the reader looks there. Both run in
//! the same thread.

use std::cell::Cell;

thread_local! {
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Polls with a limit of `limit` bytes. Restores the previous limit afterwards, even if `poll` panics.
pub(crate) fn with_limit<T>(limit: usize, poll: impl FnOnce() -> T) -> T {
    struct PreviousLimit(usize);
    impl Drop for PreviousLimit {
        fn drop(&mut self) {
            LIMIT.set(self.0);
        }
    }
    let _previous = PreviousLimit(LIMIT.replace(limit));
    poll()
}

/// Returns the current limit in bytes.
pub(crate) fn limit() -> usize {
    LIMIT.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_limit_lasts_as_long_as_the_poll() {
        assert_eq!(with_limit(1, || (limit(), with_limit(2, limit), limit())), (1, 2, 1));
        let panics = AssertUnwindSafe(|| with_limit(3, || panic!("{} within", limit())));
        catch_unwind(panics).expect_err("it panics");
        assert_eq!(limit(), usize::MAX);
    }
}
