//! Shared view of one connection to a pod, for users that do not own it.

use super::UNREACHABLE;
use super::link::Link;
use crate::tcp::state::SharedSocket;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(crate) struct Tracked {
    pub(super) link: Arc<Link>,
    pub(crate) socket: SharedSocket,
    writes: AtomicU32,
    reads: AtomicU32,
    /// The last bytes were ours.
    pub(super) waiting: AtomicBool,
    /// FIN was sent. It counts as the last write.
    ended: AtomicBool,
    broken: OnceLock<CloseReason>,
}

/// Reason why this side has closed a connection, as an error.
type CloseReason = (ErrorKind, &'static str);

/// Sent bytes are not acknowledged.
pub(super) const SILENT: CloseReason = (ErrorKind::TimedOut, "the sent bytes are not acknowledged");

pub(super) const LOST: CloseReason = (ErrorKind::HostUnreachable, UNREACHABLE);

impl Tracked {
    /// Wraps a new connection to this address.
    ///
    /// # Safety
    /// See [`SharedSocket::new`].
    pub(super) unsafe fn new(stream: &TcpStream, link: &Arc<Link>) -> Self {
        // SAFETY: guaranteed by the caller.
        let socket = unsafe { SharedSocket::new(stream) };
        let (writes, reads, waiting, ended, broken) = Default::default();
        Self { link: link.clone(), socket, writes, reads, waiting, ended, broken }
    }

    /// Counts a write. The connection's owner is its only writer.
    pub(crate) fn wrote(&self) {
        self.count_write();
        self.waiting.store(true, Ordering::Relaxed);
    }

    /// Counts our FIN, which the owner has sent and after which it writes nothing. It counts as a write, because it is
    /// sent and acknowledged like bytes.
    pub(crate) fn ended(&self) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.count_write();
        }
    }

    fn count_write(&self) {
        self.writes.store(self.writes.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) {
        self.reads.store(self.reads.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.waiting.store(false, Ordering::Relaxed);
    }

    /// Returns the reason why this side closed the connection, if it did.
    pub(crate) fn why_broken(&self) -> Option<io::Error> {
        self.broken.get().map(|(kind, cause)| io::Error::new(*kind, *cause))
    }

    /// Closes the connection. Unsent bytes are lost once the owner has closed it: otherwise the kernel would retransmit
    /// for a minute or two to a pod that is gone.
    pub(super) fn cut(&self, why: CloseReason) {
        let _ = self.broken.set(why); // An earlier reason stays.
        self.socket.reset_on_close();
        self.socket.shut_down();
    }

    pub(super) fn counts(&self) -> (u32, u32) {
        (self.writes.load(Ordering::Relaxed), self.reads.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::loopback;
    use crate::tcp::state::tcp_state;
    use std::os::fd::AsFd;
    use std::time::Duration;

    /// Goal: nothing of a cut connection stays in the kernel when its owner has closed it. Method: a live peer that
    /// closes nothing sees a reset, not only FIN.
    #[tokio::test]
    async fn closing_a_cut_connection_resets_it() {
        let (ours, theirs) = loopback::connected().await;
        let link = Link::new(ours.peer_addr().expect("connected"));
        // SAFETY: it is closed below, before `ours` is.
        let tracked = unsafe { Tracked::new(&ours, &link) };
        tracked.cut(LOST);
        tracked.socket.close();
        drop(ours);
        let reset = async {
            while !tcp_state(theirs.as_fd()).expect("a TCP socket").closed {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reset).await.expect("a reset");
    }
}
