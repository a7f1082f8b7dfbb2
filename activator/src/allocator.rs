//! The process's allocator: mimalloc, and beside it a pool for blocks of 8 KiB, the size of hyper's buffers.
//!
//! # Why
//!
//! A held HTTP/1.1 request has three such buffers: one with its head, one to read the next bytes into, one to
//! write the answer with. Two of them lie untouched while it is held, and untouched memory costs nothing, as long as
//! the allocator does not touch it either. Usual allocators do: they keep their lists inside free blocks. This pool
//! keeps its list outside, and blocks start at pages, so that a buffer costs the pages that were written to.
//!
//! # How
//!
//! One range of addresses is reserved at the first use; the kernel backs its pages as they are touched. Blocks are
//! handed out from the list of free ones, warm ones first, else from the range's unused rest. At most [`WARM_MAX`] free
//! blocks are warm and keep their pages; those of the others go back to the kernel, so that a burst of held requests
//! leaves little behind. Whoever lets go of many that will lie idle says so ([`trim::cooling`]).
//!
//! # What it is worth
//!
//! A held request on a fresh connection has 5.6 KiB with it and 13.7 without, after one earlier answer 13.5 and 17.8.
//!
//! mimalloc is built without huge pages, which would double what an idle process keeps.
//!
//! # Odd cases
//!
//! The range cannot be reserved, or is used up: mimalloc serves those blocks too. Which of the two a block came from
//! is told by its address.

use activator_net::trim;
use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Size of a block, and two pages.
const BLOCK: usize = 8192;

/// Blocks start at pages, whatever a layout asks for up to that.
const PAGE: usize = 4096;

/// Blocks of the range: 8 GiB of addresses, not of memory.
const BLOCKS: usize = 1 << 20;

/// Free blocks that keep their pages, at most 512 KiB.
const WARM_MAX: usize = 64;

/// Turns of waiting for the pool's lock before another thread is let run.
const SPINS: u32 = 100;

/// The allocator.
pub(crate) struct Allocator {
    pool: Lock,
}

impl Allocator {
    /// Nothing is reserved yet.
    pub(crate) const fn new() -> Self {
        Self { pool: Lock { taken: AtomicBool::new(false), pool: UnsafeCell::new(Pool::new()) } }
    }
}

fn is_pooled(layout: &Layout) -> bool {
    layout.size() == BLOCK && layout.align() <= PAGE
}

// SAFETY: a block of the pool is `BLOCK` bytes at a page's start, so it fits any layout that `is_pooled`, and is in
// nobody else's hands until it is deallocated (`Pool`). Everything else is mimalloc's, which is an allocator; what
// came from it goes back to it, since `Pool::number` tells the two apart by address and their ranges do not overlap.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_pooled(&layout)
            && let Some(block) = self.pool.with(Pool::take)
        {
            return block.as_ptr();
        }
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_pooled(&layout)
            && let Some((number, enough)) = self.pool.with(|pool| Some((pool.number(block)?, pool.is_warm_enough())))
        {
            let is_cold = enough || trim::is_cooling();
            if is_cold {
                cool(block);
            }
            return self.pool.with(|pool| pool.give_back(number, is_cold));
        }
        // SAFETY: not the pool's, so it came from mimalloc with this layout.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_pooled(&layout) {
            // SAFETY: the caller's promise about the layout is passed on.
            let block = unsafe { self.alloc(layout) };
            if !block.is_null() {
                // SAFETY: the block was just handed out and has the layout's size.
                unsafe { block.write_bytes(0, layout.size()) };
            }
            return block;
        }
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_pooled(&layout) && size != BLOCK {
            // SAFETY: neither is the pool's; the caller's promise is passed on.
            return unsafe { MiMalloc.realloc(block, layout, size) };
        }
        // SAFETY: `realloc`'s caller promises that `size` does not overflow with this alignment.
        let grown = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: its size is not zero, by the same promise.
        let new = unsafe { self.alloc(grown) };
        if !new.is_null() {
            // SAFETY: both are valid for the smaller of the sizes and distinct; the old one came from here.
            unsafe {
                std::ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                self.dealloc(block, layout);
            }
        }
        new
    }
}

/// Gives the pages of a block back to the kernel; the addresses stay ours.
fn cool(block: *mut u8) {
    // SAFETY: the block is the pool's, and nobody else's until it is in the free list. Afterwards it reads as zeroes,
    // which is as good as any content of free memory. A failure leaves it as it was.
    unsafe { libc::madvise(block.cast(), BLOCK, libc::MADV_DONTNEED) };
}

/// A pool behind a lock that allocates nothing, unlike those that park threads.
struct Lock {
    taken: AtomicBool,
    pool: UnsafeCell<Pool>,
}

// SAFETY: the pool is reached through `with` alone, which lets one thread in at a time.
unsafe impl Sync for Lock {}

impl Lock {
    /// A few instructions long each time, and never within itself: `act` neither allocates nor panics.
    fn with<T>(&self, act: impl FnOnce(&mut Pool) -> T) -> T {
        let mut turns = 0;
        while self.taken.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            turns += 1;
            if turns % SPINS == 0 { std::thread::yield_now() } else { spin_loop() }
        }
        // SAFETY: `taken` was false and is true by our doing, so nobody else is here until it is false again.
        let result = act(unsafe { &mut *self.pool.get() });
        self.taken.store(false, Ordering::Release);
        result
    }
}

/// Which blocks of the range are free.
struct Pool {
    state: Range,
    /// Free blocks by number: first the cold ones, whose pages are the kernel's, then the warm ones.
    free: *mut u32,
    free_len: usize,
    cold_len: usize,
    /// Blocks from here on were never handed out.
    unused: usize,
}

/// Where the range is.
#[derive(Clone, Copy)]
enum Range {
    NotYet,
    At(NonNull<u8>),
    None,
}

// SAFETY: the pointers are to memory of the process that no thread owns.
unsafe impl Send for Pool {}

impl Pool {
    const fn new() -> Self {
        Self { state: Range::NotYet, free: null_mut(), free_len: 0, cold_len: 0, unused: 0 }
    }

    /// Reserves the range, and room for every number in the list. Nothing of either is backed by memory yet.
    fn reserve(&mut self) -> Range {
        let Some(list) = map(BLOCKS * size_of::<u32>()) else { return Range::None };
        let Some(range) = map(BLOCKS * BLOCK) else { return Range::None };
        // SAFETY: the range was just mapped. Huge pages would back untouched neighbours too; a refusal does no harm.
        unsafe { libc::madvise(range.as_ptr().cast(), BLOCKS * BLOCK, libc::MADV_NOHUGEPAGE) };
        self.free = list.as_ptr().cast();
        Range::At(range)
    }

    /// A block, if the pool has one.
    fn take(&mut self) -> Option<NonNull<u8>> {
        if let Range::NotYet = self.state {
            self.state = self.reserve();
        }
        let Range::At(range) = self.state else { return None };
        let number = if self.free_len > 0 {
            self.free_len -= 1;
            self.cold_len = self.cold_len.min(self.free_len);
            // SAFETY: below the former length, where numbers were written.
            unsafe { self.free.add(self.free_len).read() as usize }
        } else if self.unused < BLOCKS {
            self.unused += 1;
            self.unused - 1
        } else {
            return None;
        };
        // SAFETY: `number` is below `BLOCKS`, so this is within the range.
        Some(unsafe { range.add(number * BLOCK) })
    }

    /// The number of a block in the range.
    fn number(&self, block: *mut u8) -> Option<u32> {
        let Range::At(range) = self.state else { return None };
        let at = block.addr().checked_sub(range.addr().get())?;
        u32::try_from(at / BLOCK).ok().filter(|number| (*number as usize) < BLOCKS)
    }

    /// Whether as many free blocks are warm as may be.
    fn is_warm_enough(&self) -> bool {
        self.free_len - self.cold_len >= WARM_MAX
    }

    /// Takes back a block that was handed out.
    fn give_back(&mut self, number: u32, is_cold: bool) {
        let end = self.free_len;
        // A cold one stands behind the cold ones, and the first warm one makes room for it.
        let at = if is_cold { self.cold_len } else { end };
        // SAFETY: fewer blocks are free than there are, since this one was not: the list has room for one more. At `at`
        // a number was written before, or it is that room.
        unsafe {
            self.free.add(end).write(self.free.add(at).read());
            self.free.add(at).write(number);
        }
        self.free_len += 1;
        self.cold_len += usize::from(is_cold);
    }
}

/// Addresses without memory behind them.
fn map(size: usize) -> Option<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let at = unsafe { libc::mmap(null_mut(), size, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED { None } else { NonNull::new(at.cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const LAYOUT: Layout = match Layout::from_size_align(BLOCK, 1) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    };

    /// Pages of the block that memory stands behind.
    fn resident(block: *mut u8) -> usize {
        let mut pages = [0_u8; BLOCK / PAGE];
        // SAFETY: the block starts at a page, is mapped, and `pages` has a byte for each of its pages.
        let status = unsafe { libc::mincore(block.cast(), BLOCK, pages.as_mut_ptr()) };
        assert_eq!(status, 0, "the block is mapped");
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    fn take(allocator: &Allocator) -> *mut u8 {
        // SAFETY: the layout has a size.
        let block = unsafe { allocator.alloc(LAYOUT) };
        assert!(!block.is_null());
        block
    }

    fn give(allocator: &Allocator, block: *mut u8) {
        // SAFETY: every block is given back once, with the layout that it was taken with.
        unsafe { allocator.dealloc(block, LAYOUT) };
    }

    #[test]
    fn blocks_cost_what_was_touched_and_free_ones_little() {
        let allocator = Allocator::new();
        let all: Vec<*mut u8> = (0..WARM_MAX * 3).map(|_| take(&allocator)).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "each is handed out once");
        assert!(all.iter().all(|block| resident(*block) == 0 && block.addr() % PAGE == 0));
        for (n, block) in all.iter().enumerate() {
            // SAFETY: the block is ours and that long.
            unsafe { block.write_bytes(n as u8, 100) };
        }
        for (n, block) in all.iter().enumerate() {
            // SAFETY: written before.
            assert_eq!(unsafe { block.add(99).read() }, n as u8, "nobody else writes to it");
        }
        assert_eq!(all.iter().map(|block| resident(*block)).sum::<usize>(), all.len());
        all.iter().for_each(|block| give(&allocator, *block));
        assert_eq!(all.iter().map(|block| resident(*block)).sum::<usize>(), WARM_MAX);

        let again: BTreeSet<*mut u8> = all.iter().map(|_| take(&allocator)).collect();
        assert_eq!(again, all.iter().copied().collect(), "all are there again, each once");
        again.into_iter().for_each(|block| give(&allocator, block));
    }

    #[test]
    fn a_block_that_will_lie_idle_is_cooled_at_once() {
        let allocator = Allocator::new();
        let blocks = [take(&allocator), take(&allocator)];
        // SAFETY: ours, and that long.
        blocks.iter().for_each(|block| unsafe { block.write_bytes(1, 100) });
        trim::cooling(|| give(&allocator, blocks[0]));
        assert_eq!(blocks.map(resident), [0, 1]);
        assert_eq!(take(&allocator), blocks[0], "it is free");
        blocks.iter().for_each(|block| give(&allocator, *block));
    }

    #[test]
    fn a_block_that_grows_or_shrinks_keeps_its_content() {
        let allocator = Allocator::new();
        let sizes = [100, BLOCK, 3 * BLOCK, BLOCK, 50];
        let mut layout = Layout::from_size_align(sizes[0], 1).expect("small");
        // SAFETY: the layout has a size.
        let mut block = unsafe { allocator.alloc(layout) };
        // SAFETY: it is 100 bytes long.
        unsafe { block.write_bytes(7, 50) };
        for size in sizes {
            // SAFETY: the block has this layout, and the new size is small and not zero.
            block = unsafe { allocator.realloc(block, layout, size) };
            layout = Layout::from_size_align(size, 1).expect("small");
            // SAFETY: at least 50 bytes long and written before.
            assert_eq!(unsafe { std::slice::from_raw_parts(block, 50) }, [7; 50], "{size}");
        }
        // SAFETY: given back once, with its layout.
        unsafe { allocator.dealloc(block, layout) };
        let block = take(&allocator);
        // SAFETY: ours.
        unsafe { block.write_bytes(1, BLOCK) };
        give(&allocator, block);
        // SAFETY: the layout has a size; the block is that long.
        let zeroed = unsafe { std::slice::from_raw_parts(allocator.alloc_zeroed(LAYOUT), BLOCK) };
        assert!(zeroed.iter().all(|byte| *byte == 0), "the warm block that comes again is cleared");
        give(&allocator, zeroed.as_ptr().cast_mut());
    }

    #[test]
    fn threads_never_share_a_block() {
        let allocator = Allocator::new();
        std::thread::scope(|scope| {
            for mark in 0..4_u8 {
                let allocator = &allocator;
                scope.spawn(move || {
                    for round in 0..200_usize {
                        let blocks: Vec<*mut u8> = (0..round % 90).map(|_| take(allocator)).collect();
                        // SAFETY: ours, and that long.
                        blocks.iter().for_each(|block| unsafe { block.write_bytes(mark, 16) });
                        std::thread::yield_now();
                        for block in blocks {
                            // SAFETY: written before.
                            assert_eq!(unsafe { std::slice::from_raw_parts(block, 16) }, [mark; 16]);
                            give(allocator, block);
                        }
                    }
                });
            }
        });
    }
}
