//! One connection to a pod, as those see it that do not own it.

use super::link::Link;
use crate::tcp::state::SharedSocket;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use tokio::net::TcpStream;

/// A connection that is looked after.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(super) link: Arc<Link>,
    pub(super) socket: SharedSocket,
    writes: AtomicU32,
    reads: AtomicU32,
    /// The last bytes were ours.
    pub(super) waiting: AtomicBool,
    /// Our direction was ended: the last of the writes is its end.
    ended: AtomicBool,
    broken: AtomicU8,
}

/// Why a connection was broken from this side.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Broken {
    /// What was sent is not acknowledged.
    Silent = 1,
    /// Its pod is gone.
    Lost = 2,
}

impl Tracked {
    /// A new one to this address.
    ///
    /// # Safety
    /// As of [`SharedSocket::new`], by [`Tracked::close`] and [`Tracked::moved`].
    pub(super) unsafe fn new(stream: &TcpStream, link: &Arc<Link>) -> Self {
        Self {
            link: link.clone(),
            // SAFETY: the caller's promise.
            socket: unsafe { SharedSocket::new(stream) },
            writes: AtomicU32::new(0),
            reads: AtomicU32::new(0),
            waiting: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            broken: AtomicU8::new(0),
        }
    }

    /// Something was written. The one writer is the connection's owner.
    pub(crate) fn wrote(&self) {
        self.count_write();
        self.waiting.store(true, Ordering::Relaxed);
    }

    /// The direction towards the pod was ended, by the owner, who writes nothing more. Its end counts as a write: it is
    /// sent, and acknowledged, as bytes are.
    pub(crate) fn ended(&self) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.count_write();
        }
    }

    fn count_write(&self) {
        self.writes.store(self.writes.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Something was read, by the owner.
    pub(crate) fn read(&self) {
        self.reads.store(self.reads.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.waiting.store(false, Ordering::Relaxed);
    }

    /// Whether nothing has come from the pod, its end included, as the kernel knows.
    pub(crate) fn is_quiet(&self) -> bool {
        self.socket.is_quiet()
    }

    /// Its owner closes it next.
    pub(crate) fn close(&self) {
        self.socket.close();
    }

    /// Its owner does something to its socket, which counts as closed if that fails.
    ///
    /// # Errors
    /// Those of `moving`.
    pub(crate) fn moved<T>(&self, moving: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.socket.moved(moving)
    }

    /// Why the connection was broken from this side, if it was.
    pub(crate) fn why_broken(&self) -> Option<io::Error> {
        match self.broken.load(Ordering::Acquire) {
            0 => None,
            why if why == Broken::Silent as u8 => {
                Some(io::Error::new(ErrorKind::TimedOut, "what was sent is not acknowledged"))
            }
            _ => Some(io::Error::new(ErrorKind::HostUnreachable, "pod gone: it answers neither bytes nor a connect")),
        }
    }

    /// Breaks it off. What waits to be sent is lost once its owner has closed it: else the kernel would try for a
    /// minute or two to bring it to a pod that is gone.
    pub(super) fn cut(&self, why: Broken) {
        self.broken.store(why as u8, Ordering::Release);
        self.socket.reset_on_close();
        self.socket.shut_down();
    }

    /// Its peer sees a reset, not an end, once its owner has closed it.
    pub(crate) fn reset_on_close(&self) {
        self.socket.reset_on_close();
    }

    pub(super) fn counts(&self) -> (u32, u32) {
        (self.writes.load(Ordering::Relaxed), self.reads.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::state::tcp_state;
    use std::os::fd::AsFd;
    use std::time::Duration;
    use tokio::net::TcpListener;

    /// Goal: nothing of a connection that was cut stays in the kernel when its owner has closed it. Method: a peer that
    /// is there, and closes nothing, sees a reset, not an end alone.
    #[tokio::test]
    async fn a_connection_that_was_cut_is_reset_when_it_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let ours = TcpStream::connect(address).await.expect("room");
        let (theirs, _) = listener.accept().await.expect("dialled");
        // SAFETY: it is closed below, before `ours` is.
        let tracked = unsafe { Tracked::new(&ours, &Link::new(address)) };
        tracked.cut(Broken::Lost);
        tracked.close();
        drop(ours);
        let reset = async {
            while !tcp_state(theirs.as_fd()).expect("a TCP socket").closed {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reset).await.expect("a reset");
    }
}
