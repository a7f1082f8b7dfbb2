//! TCP user timeout, active only while the written bytes surely fit into the peer's buffer.
//!
//! The kernel's timeout bounds how long sent bytes may stay unacknowledged. It also runs while the peer acknowledges
//! but has no room, although a program may pause reading. So it is active only for bytes that surely fit. Once more
//! bytes are written, it is switched off until the peer's kernel has acknowledged all of them and has as much room
//! again. Acknowledged bytes occupy that room until the program reads them.

use crate::tcp::state::{TcpState, tcp_state};
use socket2::SockRef;
use std::os::fd::AsFd;
use std::time::Duration;

/// Bytes that fit into any kernel's receive buffer besides its content: half of the smallest common initial window (64
/// KiB).
pub(crate) const SURE_ROOM: usize = 32 * 1024;

/// State of the user timeout of one socket. The socket must have no other writer.
#[derive(Debug)]
pub(crate) struct UserTimeout {
    bound: Option<Duration>,
    /// Bytes written since the peer was known to have acknowledged everything and to have room.
    pending: usize,
    lifted: bool,
}

impl UserTimeout {
    /// Creates the state for a socket on which `bound` is set. `None` means no timeout.
    pub(crate) fn new(bound: Option<Duration>) -> Self {
        Self { bound, pending: 0, lifted: false }
    }

    /// Adjusts the timeout before a write of `length` bytes.
    pub(crate) fn before_write(&mut self, socket: &impl AsFd, length: usize) {
        if self.bound.is_none() || !self.lifted && self.pending.saturating_add(length) <= SURE_ROOM {
            return;
        }
        if length > SURE_ROOM {
            return self.set_lifted(socket, true); // The kernel's state cannot change that.
        }
        let has_room = |now: TcpState| !now.unacknowledged && !now.unsent && now.room as usize >= SURE_ROOM;
        if tcp_state(socket.as_fd()).is_ok_and(has_room) {
            self.pending = 0;
        }
        self.set_lifted(socket, self.pending.saturating_add(length) > SURE_ROOM);
    }

    pub(crate) fn wrote(&mut self, length: usize) {
        self.pending = self.pending.saturating_add(length);
    }

    fn set_lifted(&mut self, socket: &impl AsFd, lifted: bool) {
        if self.lifted != lifted {
            // An error means that the socket is no longer connected. The write reports that.
            let _ = SockRef::from(socket).set_tcp_user_timeout(self.bound.filter(|_| !lifted));
            self.lifted = lifted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread::sleep;

    /// Goal: a peer that pauses reading is not bounded, even if it acknowledges each of many small writes. A peer that
    /// reads is bounded.
    #[test]
    fn a_peer_that_pauses_reading_has_no_timeout() {
        const PIECE: usize = 4096;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut ours = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (_theirs, _) = listener.accept().expect("dialled");
        ours.set_nodelay(true).and_then(|()| ours.set_nonblocking(true)).expect("permitted");
        let bound = Some(Duration::from_secs(5));
        SockRef::from(&ours).set_tcp_user_timeout(bound).expect("permitted");
        let mut timeout = UserTimeout::new(bound);
        let user_timeout = |socket: &TcpStream| SockRef::from(socket).tcp_user_timeout().expect("open");
        for piece in 0.. {
            timeout.before_write(&ours, PIECE);
            assert!(piece > 0 || user_timeout(&ours) == bound, "there is room");
            match ours.write(&[7; PIECE]) {
                Ok(length) => timeout.wrote(length),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            }
            // Let the kernel send the piece before the next one.
            for _ in 0..20 {
                let now = tcp_state(ours.as_fd()).expect("open");
                if !now.unacknowledged && !now.unsent {
                    break;
                }
                sleep(Duration::from_millis(1));
            }
            let now = tcp_state(ours.as_fd()).expect("open");
            if now.unsent {
                break; // The piece meets a closed window.
            }
        }
        assert_eq!(user_timeout(&ours), None, "lifted before the window was closed");
    }
}
