//! TCP's user timeout, in force while bytes surely find room.
//!
//! It bounds how long sent bytes may stay unacknowledged, and counts also the time in which a peer acknowledges but has
//! no room: a program may well pause reading. So it holds only for bytes that surely find room: once more has been
//! written than that, it is lifted, until the peer's kernel has acknowledged all of it.

use crate::tcp::state::tcp_state;
use socket2::SockRef;
use std::os::fd::AsFd;
use std::time::Duration;

/// Bytes that fit into any kernel's receive buffer beside what is there already: half of the smallest first window in
/// common use (64 KiB).
pub(crate) const SURE_ROOM: usize = 32 * 1024;

/// What is in force on one socket, whose one writer this is.
#[derive(Debug)]
pub(crate) struct UserTimeout {
    bound: Option<Duration>,
    /// Bytes written since the peer was known to have acknowledged all.
    pending: usize,
    lifted: bool,
}

impl UserTimeout {
    /// Of a socket on which this bound has been set; none: nothing is bounded.
    pub(crate) fn new(bound: Option<Duration>) -> Self {
        Self { bound, pending: 0, lifted: false }
    }

    /// So many bytes are to be written.
    pub(crate) fn before_write(&mut self, socket: &impl AsFd, length: usize) {
        if self.bound.is_none() || !self.lifted && self.pending.saturating_add(length) <= SURE_ROOM {
            return;
        }
        if length > SURE_ROOM {
            return self.set_lifted(socket, true); // Nothing that the kernel may say would change that.
        }
        let all_taken = tcp_state(socket.as_fd()).is_ok_and(|now| !now.unacknowledged && !now.unsent);
        if all_taken {
            self.pending = 0;
        }
        self.set_lifted(socket, self.pending.saturating_add(length) > SURE_ROOM);
    }

    /// So many were.
    pub(crate) fn wrote(&mut self, length: usize) {
        self.pending = self.pending.saturating_add(length);
    }

    fn set_lifted(&mut self, socket: &impl AsFd, lifted: bool) {
        if self.lifted != lifted {
            // An error says that it is not connected any more, which is told by the write.
            let _ = SockRef::from(socket).set_tcp_user_timeout(self.bound.filter(|_| !lifted));
            self.lifted = lifted;
        }
    }
}
