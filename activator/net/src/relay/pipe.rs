//! Pipes that bytes are moved through from socket to socket without a copy (`splice(2)`).
//!
//! A pipe belongs to a direction only while bytes stream through it; one that is empty again goes back to its thread,
//! which keeps a few. So connections on which little happens have none, and who gets none goes on by copies. There are at
//! most [`PIPES_MAX`]: clients that read nothing of what streams to them must not use up the descriptors.

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use std::cell::RefCell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pipes that a thread keeps.
const KEPT_MAX: usize = 16;

/// Pipes of the process, of two descriptors each.
pub(crate) const PIPES_MAX: usize = 128;

static PIPES: AtomicUsize = AtomicUsize::new(0);

/// Bytes moved at once. A pipe's slots hold less, unless the network's pieces are as large as they can be.
pub(super) const MOVED_MAX: usize = 512 * 1024;

const FLAGS: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);

thread_local! {
    static KEPT: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// A pipe that is empty, or whose bytes are on their way.
#[derive(Debug)]
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    filled: usize,
    /// Bytes that came last.
    came: usize,
    _counted: Counted,
}

/// One of the pipes that there may be.
#[derive(Debug)]
struct Counted;

impl Counted {
    fn new() -> Option<Self> {
        let before = PIPES.fetch_add(1, Ordering::Relaxed);
        let counted = Self; // Dropped, and not counted any more, if it is one too many.
        (before < PIPES_MAX).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        PIPES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pipe {
    /// An empty one; none if there are as many as there may be, or no descriptors.
    pub(super) fn get() -> Option<Self> {
        KEPT.with_borrow_mut(Vec::pop).or_else(|| {
            let counted = Counted::new()?;
            let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
            Some(Self { read, write, filled: 0, came: 0, _counted: counted })
        })
    }

    /// Gives it back, if it is empty.
    pub(super) fn put(mut self) {
        self.came = 0;
        if self.filled == 0 {
            KEPT.with_borrow_mut(|kept| {
                if kept.len() < KEPT_MAX {
                    kept.push(self);
                }
            });
        }
    }

    /// Bytes in it.
    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// Bytes that were moved in last; none if it is new to its direction.
    pub(super) fn came(&self) -> usize {
        self.came
    }

    /// Moves what has come into the empty pipe, so that only the socket can be what has nothing.
    ///
    /// # Errors
    /// The socket's.
    pub(super) fn fill(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.filled = retried(|| splice(socket, None, &self.write, None, MOVED_MAX, FLAGS))?;
        self.came = self.filled;
        Ok(self.came)
    }

    /// Moves out what the socket has room for.
    ///
    /// # Errors
    /// The socket's.
    pub(super) fn drain(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let moved = retried(|| splice(&self.read, None, socket, None, self.filled, FLAGS))?;
        self.filled = self.filled.saturating_sub(moved);
        Ok(moved)
    }
}

fn retried(call: impl Fn() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}
