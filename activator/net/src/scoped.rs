//! Passes a value to callees through a thread-local for the duration of a call. It is meant for callees that cannot
//! take it as an argument, such as a body that is read by another body.

use std::cell::Cell;
use std::thread::LocalKey;

/// Runs `act` with `cell` set to `value`. Restores the previous value afterwards, even if `act` panics.
pub(crate) fn scoped<V: Copy + 'static, T>(cell: &'static LocalKey<Cell<V>>, value: V, act: impl FnOnce() -> T) -> T {
    struct Former<V: Copy + 'static>(&'static LocalKey<Cell<V>>, V);
    impl<V: Copy> Drop for Former<V> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _former = Former(cell, cell.replace(value));
    act()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_value_lasts_as_long_as_what_is_done_with_it() {
        thread_local!(static VALUE: Cell<u8> = const { Cell::new(0) });
        let now = || VALUE.get();
        assert_eq!(scoped(&VALUE, 1, || (now(), scoped(&VALUE, 2, now), now())), (1, 2, 1));
        let panics = AssertUnwindSafe(|| scoped(&VALUE, 3, || panic!("{} within", now())));
        catch_unwind(panics).expect_err("it panics");
        assert_eq!(now(), 0);
    }
}
