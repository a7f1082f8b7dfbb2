//! The tests' allocator: the system's, which counts for each thread what is allocated and not given back.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: usize, sign: i64) {
    // Without the thread's own value, at its end, nothing is counted.
    let _ = BYTES.try_with(|sum| sum.set(sum.get() + sign * bytes as i64));
}

// SAFETY: everything is the system's; to count neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

/// What `make` makes, and the bytes that it has allocated for it.
pub(crate) fn allocated<T>(make: impl FnOnce() -> T) -> (T, u64) {
    let before = BYTES.get();
    let made = make();
    (made, u64::try_from(BYTES.get() - before).unwrap_or(0))
}
