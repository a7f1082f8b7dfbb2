//! Pipes that move bytes between sockets without a copy (`splice(2)`).
//!
//! A pipe belongs to a direction only while bytes stream through it. An empty pipe returns to its thread, which keeps a
//! few. So connections with little traffic have none, and a direction that gets none continues with copies. There are
//! at most [`PIPES_MAX`], so that clients that do not read their streams cannot use up the descriptors.

use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use std::cell::RefCell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum number of spare pipes of a thread.
const SPARE_MAX: usize = 16;

/// Maximum number of pipes of the process, with two descriptors each.
pub(crate) const PIPES_MAX: usize = 128;

static PIPES: Semaphore = Semaphore::const_new(PIPES_MAX);

/// Upper bound for one `splice`. The pipe's capacity usually limits it to less, because each of its slots holds one
/// fragment of a network packet.
const MOVED_MAX: usize = 512 * 1024;

const FLAGS: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);

thread_local! {
    static SPARE: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// Kernel pipe between two sockets.
#[derive(Debug)]
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// Number of bytes in the pipe.
    pub(super) filled: usize,
    /// Number of bytes that were moved in last; zero if the pipe is new to its direction.
    pub(super) last_read: usize,
    _permit: SemaphorePermit<'static>,
}

impl Pipe {
    /// Returns an empty pipe, or `None` if there are too many pipes or no descriptors.
    pub(super) fn get() -> Option<Self> {
        SPARE.with_borrow_mut(Vec::pop).or_else(|| {
            let permit = PIPES.try_acquire().ok()?;
            let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
            Some(Self { read, write, filled: 0, last_read: 0, _permit: permit })
        })
    }

    /// Keeps an empty pipe for reuse by this thread. Closes the pipe if it holds bytes or the thread has enough spare
    /// pipes.
    pub(super) fn recycle(mut self) {
        self.last_read = 0;
        if self.filled == 0 {
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_MAX {
                    spare.push(self);
                }
            });
        }
    }

    /// Moves received bytes into the pipe. The pipe is empty, so `WouldBlock` means that the socket has no input. Fails
    /// with the socket's error.
    pub(super) fn fill(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.filled = retry_on_intr(|| splice(socket, None, &self.write, None, MOVED_MAX, FLAGS))?;
        self.last_read = self.filled;
        Ok(self.last_read)
    }

    /// Moves out as many bytes as the socket has room for. Fails with the socket's error.
    pub(super) fn drain(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let moved = retry_on_intr(|| splice(&self.read, None, socket, None, self.filled, FLAGS))?;
        self.filled = self.filled.saturating_sub(moved);
        Ok(moved)
    }
}
