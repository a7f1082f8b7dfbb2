//! What a thread says to whoever it calls, beside the call and for as long as the call lasts: for callees that have no
//! argument for it, such as a body that another one reads.

use std::cell::Cell;
use std::thread::LocalKey;

/// Runs `act`, in which `cell` has this value. Then it has the former one again, also when `act` panics.
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
