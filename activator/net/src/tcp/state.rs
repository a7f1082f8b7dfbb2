//! Kernel state of TCP connections (`TCP_INFO`). Only this module reads it.
//!
//! The safe interfaces in use (tokio, socket2, rustix) do not offer this option, hence the unsafe code. A call takes
//! about a microsecond; none is made per request.
//!
//! Observers of a socket do not duplicate its descriptor: a request would then use three descriptors instead of two.
//! Instead, the owner announces the close ([`SharedSocket::close`]), and an observer blocks it while looking.

use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Numbers of TCP states, from `net/tcp_states.h`.
const TCP_SYN_SENT: u8 = 2;
const TCP_CLOSE: u8 = 7;
const TCP_CLOSE_WAIT: u8 = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpState {
    /// The peer has not answered the connect.
    pub(crate) connecting: bool,
    /// The peer has sent FIN, and may or may not still be there.
    pub(crate) peer_finished: bool,
    /// The connection was reset or given up.
    pub(crate) closed: bool,
    /// Sent bytes or a FIN await an acknowledgement.
    pub(crate) unacknowledged: bool,
    /// Only our FIN awaits an acknowledgement. Always false before Linux 4.19, which introduced the byte counters, and
    /// after a packet could not leave this machine, because the kernel counts it twice.
    pub(crate) only_fin_unacked: bool,
    /// Number of unanswered window probes or keep-alive probes.
    pub(crate) probes: u8,
    /// Bytes wait to be sent.
    pub(crate) unsent: bool,
    /// Bytes wait to be sent although the peer has room: this machine has no route to the peer.
    pub(crate) stuck: bool,
    /// Send window: bytes that the peer has room for, including the unacknowledged ones.
    pub(crate) room: u32,
    /// The unacknowledged bytes were sent more than once.
    pub(crate) repeated: bool,
    /// Total number of retransmissions.
    pub(crate) retransmits: u32,
    /// Time since bytes were last sent or retransmitted. Like `last_ack_ago`, precise to a few milliseconds.
    pub(crate) sent_ago: Duration,
    /// Time since an acknowledgement was last received.
    pub(crate) last_ack_ago: Duration,
    /// Time since data was last received.
    pub(crate) received_ago: Duration,
    /// Smoothed round-trip time of the kernel; zero before the first measurement.
    pub(crate) round_trip: Duration,
}

/// A socket that code besides its owner may inspect until the owner closes it.
#[derive(Debug)]
pub(crate) struct SharedSocket {
    /// Descriptor of the owner, which keeps it open while this is locked. `None` once it is closed.
    descriptor: Mutex<Option<RawFd>>,
    /// The peer has only ended its sending side, and still reads.
    half_closed: AtomicBool,
}

impl SharedSocket {
    /// Shares a socket.
    ///
    /// # Safety
    /// The owner calls [`SharedSocket::close`] before it closes the socket. It wraps operations that may close the
    /// socket in [`SharedSocket::with_exclusive`].
    pub(crate) unsafe fn new(socket: &impl AsFd) -> Self {
        let descriptor = Mutex::new(Some(socket.as_fd().as_raw_fd()));
        Self { descriptor, half_closed: AtomicBool::new(false) }
    }

    /// Ends the sharing, because the owner is about to close the socket.
    pub(crate) fn close(&self) {
        *self.descriptor.lock() = None;
    }

    /// Runs an operation of the owner while no other thread uses the socket. If it fails, the socket counts as closed.
    pub(crate) fn with_exclusive<T>(&self, operation: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut descriptor = self.descriptor.lock();
        operation().inspect_err(|_| *descriptor = None)
    }

    /// Returns the kernel's state of the socket, or `None` if it is closed.
    pub(crate) fn state(&self) -> Option<TcpState> {
        self.with(|socket| tcp_state(socket).ok()).flatten()
    }

    /// Reports whether the peer has gone. If its FIN was noticed within `half_close` of its last data, the peer may
    /// still read, and only a reset counts.
    pub(crate) fn has_left(&self, half_close: Duration) -> bool {
        let Some(state) = self.state() else { return true };
        if state.peer_finished && state.received_ago < half_close {
            self.half_closed.store(true, Ordering::Relaxed);
        }
        state.closed || state.peer_finished && !self.half_closed.load(Ordering::Relaxed)
    }

    /// Reports whether there is nothing to read: no data, end or reset that the owner may not have noticed yet.
    pub(crate) fn is_quiet(&self) -> bool {
        let look = |socket: BorrowedFd<'_>| {
            SockRef::from(&socket).recv_with_flags(&mut [MaybeUninit::uninit()], libc::MSG_PEEK | libc::MSG_DONTWAIT)
        };
        match self.with(look) {
            Some(Err(error)) => error.kind() == io::ErrorKind::WouldBlock,
            Some(Ok(_)) | None => false,
        }
    }

    /// Makes the final close send a reset. Bytes that wait to be sent are lost.
    pub(crate) fn reset_on_close(&self) {
        // An error means that the socket is no longer connected.
        let _ = self.with(|socket| SockRef::from(&socket).set_linger(Some(Duration::ZERO)));
    }

    /// Shuts down both directions. Tasks that wait for the socket are woken.
    pub(crate) fn shut_down(&self) {
        // An error means that the socket was no longer connected.
        let _ = self.with(|socket| SockRef::from(&socket).shutdown(Shutdown::Both));
    }

    /// Sets the time without input after which the kernel sends keep-alive probes.
    pub(crate) fn set_keepalive_time(&self, time: Duration) {
        // An error means that the socket is no longer connected.
        let _ = self.with(|socket| SockRef::from(&socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(time)));
    }

    fn with<T>(&self, look: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        let descriptor = self.descriptor.lock();
        // SAFETY: the socket is open. Its owner closes it only after it has removed the descriptor here (see `new`),
        // which needs the lock that is held until `look` returns.
        descriptor.map(|number| look(unsafe { BorrowedFd::borrow_raw(number) }))
    }
}

/// Returns the kernel's state of a borrowed connection. An error means that the descriptor is not a TCP socket.
pub(crate) fn tcp_state(socket: BorrowedFd<'_>) -> io::Result<TcpState> {
    // SAFETY: `tcp_info` consists of integers, for which all zero bits are valid. (An older kernel fills in fewer.)
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open while `socket` lives. `info` is writable and `length` is its size, beyond which
    // the kernel does not write.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast::<libc::c_void>(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(TcpState {
        connecting: info.tcpi_state == TCP_SYN_SENT,
        peer_finished: info.tcpi_state == TCP_CLOSE_WAIT,
        closed: info.tcpi_state == TCP_CLOSE,
        unacknowledged: info.tcpi_unacked > 0,
        only_fin_unacked: info.tcpi_unacked > 0 && is_every_byte_acknowledged(&info),
        probes: info.tcpi_probes,
        unsent: info.tcpi_notsent_bytes > 0,
        stuck: info.tcpi_notsent_bytes > 0
            && info.tcpi_unacked == 0
            && info.tcpi_snd_wnd >= info.tcpi_notsent_bytes.min(info.tcpi_snd_mss),
        room: info.tcpi_snd_wnd,
        repeated: info.tcpi_retransmits > 0,
        retransmits: info.tcpi_total_retrans,
        sent_ago: Duration::from_millis(info.tcpi_last_data_sent.into()),
        last_ack_ago: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        received_ago: Duration::from_millis(info.tcpi_last_data_recv.into()),
        round_trip: Duration::from_micros(info.tcpi_rtt.into()),
    })
}

/// Reports whether every byte that was sent or waits to be sent is acknowledged. Retransmitted bytes count both as sent
/// and as retransmitted. The acknowledged bytes include one for the SYN.
fn is_every_byte_acknowledged(info: &libc::tcp_info) -> bool {
    let sent = info.tcpi_bytes_sent.saturating_sub(info.tcpi_bytes_retrans);
    sent > 0 && info.tcpi_notsent_bytes == 0 && info.tcpi_bytes_acked > sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::SockFilter;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Returns both ends of a connection, and the shared view of ours.
    fn connected() -> (TcpStream, TcpStream, SharedSocket) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let ours = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (theirs, _) = listener.accept().expect("dialled");
        // SAFETY: no test closes `ours` before `shared` is closed or used for the last time.
        let shared = unsafe { SharedSocket::new(&ours) };
        (ours, theirs, shared)
    }

    fn until(shared: &SharedSocket, wanted: impl Fn(&TcpState) -> bool) -> TcpState {
        for _ in 0..10_000 {
            let state = shared.state().expect("open");
            if wanted(&state) {
                return state;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it stays {:?}", shared.state());
    }

    #[test]
    fn the_kernels_state_is_reported_until_the_socket_is_closed() {
        let (mut ours, mut theirs, shared) = connected();
        ours.write_all(b"hello").expect("open");
        theirs.read_exact(&mut [0; 5]).expect("open");
        until(&shared, |state| !state.unacknowledged);

        // From here on, the peer's kernel drops incoming packets before TCP sees them.
        SockRef::from(&theirs).attach_filter(&[SockFilter::new(0x06, 0, 0, 0)]).expect("permitted");
        ours.write_all(b"more").expect("open");
        let unanswered = until(&shared, |state| state.repeated);
        assert!(unanswered.unacknowledged && unanswered.last_ack_ago > unanswered.sent_ago, "{unanswered:?}");
        drop(theirs);

        shared.shut_down();
        assert_eq!(ours.read(&mut [0]).expect("ended here"), 0);
        shared.close();
        assert_eq!(shared.state(), None);
    }

    /// Goal: an unacknowledged FIN is distinguished from unacknowledged bytes, however often the kernel retransmits
    /// either. Method: a peer whose kernel drops packets, before or after the bytes.
    #[test]
    fn an_unacknowledged_fin_is_distinguished_from_bytes() {
        for (bytes, alone) in [(false, true), (true, false)] {
            let (mut ours, mut theirs, shared) = connected();
            ours.write_all(b"hello").expect("open");
            theirs.read_exact(&mut [0; 5]).expect("open");
            assert!(!until(&shared, |state| !state.unacknowledged).only_fin_unacked);

            SockRef::from(&theirs).attach_filter(&[SockFilter::new(0x06, 0, 0, 0)]).expect("permitted");
            if bytes {
                ours.write_all(b"more").expect("open");
            }
            ours.shutdown(Shutdown::Write).expect("open");
            assert_eq!(until(&shared, |state| state.unacknowledged).only_fin_unacked, alone);
            assert_eq!(until(&shared, |state| state.repeated).only_fin_unacked, alone, "sent again");
        }
    }

    #[test]
    fn a_fin_is_distinguished_from_a_reset() {
        let (mut ours, theirs, shared) = connected();
        theirs.shutdown(Shutdown::Write).expect("open");
        assert!(!until(&shared, |state| state.peer_finished).closed);
        drop(theirs);
        ours.write_all(b"anybody there?").expect("open on this side");
        until(&shared, |state| state.closed);
    }
}
