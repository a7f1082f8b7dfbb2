//! What the kernel knows of a TCP connection (`TCP_INFO`): the one place that asks it.
//!
//! None of the safe interfaces to the kernel that we use (tokio, socket2, rustix) offers this option, hence the unsafe
//! code. An answer costs about a microsecond; nothing here is called for each request.
//!
//! Nobody who looks at a socket has a descriptor of its own for it: a request would use three of them in place of two.
//! So a socket's owner says when it closes ([`SharedSocket::close`]), and whoever looks keeps it from doing so meanwhile.

use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Numbers of the kernel's states, as in `net/tcp_states.h`.
const TCP_SYN_SENT: u8 = 2;
const TCP_CLOSE: u8 = 7;
const TCP_CLOSE_WAIT: u8 = 8;

/// A connection at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpState {
    /// The peer has not answered the connect.
    pub(crate) connecting: bool,
    /// The peer has sent its end, and may or may not be there still.
    pub(crate) peer_finished: bool,
    /// The connection is no more: reset, or given up.
    pub(crate) closed: bool,
    /// Whether something that was sent waits for an acknowledgement.
    pub(crate) unacknowledged: bool,
    /// Whether that is the end of our direction (FIN) alone. Never before Linux 4.19, which counts the bytes, nor once a packet
    /// could not leave this machine, which it counts twice.
    pub(crate) end_alone: bool,
    /// Questions that wait for an answer: whether there is room again, or whether anybody is there (keep-alive).
    pub(crate) questions: u8,
    /// Whether something waits to be sent.
    pub(crate) unsent: bool,
    /// Whether it waits although the peer has room for it: there is no way to it from here.
    pub(crate) stuck: bool,
    /// Bytes that the peer has room for, those that wait for an acknowledgement included.
    pub(crate) room: u32,
    /// Whether what waits was sent more than once.
    pub(crate) repeated: bool,
    /// Times so far that anything was sent again.
    pub(crate) repeats: u32,
    /// Since bytes were sent last, again or for the first time. To a few milliseconds, as the next.
    pub(crate) sent_ago: Duration,
    /// Since an acknowledgement of anything came last.
    pub(crate) heard_ago: Duration,
    /// Time since data came last.
    pub(crate) received_ago: Duration,
    /// The kernel's smoothed round trip; zero before one was measured.
    pub(crate) round_trip: Duration,
}

/// A socket that others than its owner may look at, until its owner closes it.
#[derive(Debug)]
pub(crate) struct SharedSocket {
    /// The owner's, which stays open while this is locked; none once it is closed.
    descriptor: Mutex<Option<RawFd>>,
    /// The peer has ended its side only, and reads on.
    half_closed: AtomicBool,
}

impl SharedSocket {
    /// Of a socket.
    ///
    /// # Safety
    /// Its owner calls [`SharedSocket::close`] before it closes the socket, and does what may close it in
    /// [`SharedSocket::moved`].
    pub(crate) unsafe fn new(socket: &impl AsFd) -> Self {
        let descriptor = Mutex::new(Some(socket.as_fd().as_raw_fd()));
        Self { descriptor, half_closed: AtomicBool::new(false) }
    }

    /// The owner closes the socket next. Nobody looks at it any more.
    pub(crate) fn close(&self) {
        *self.descriptor.lock() = None;
    }

    /// The owner does something to the socket while nobody looks. If that fails, the socket counts as closed.
    ///
    /// # Errors
    /// Those of `moving`.
    pub(crate) fn moved<T>(&self, moving: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut descriptor = self.descriptor.lock();
        moving().inspect_err(|_| *descriptor = None)
    }

    /// What the kernel knows of it; nothing if it is closed.
    pub(crate) fn state(&self) -> Option<TcpState> {
        self.with(|socket| tcp_state(socket).ok()).flatten()
    }

    /// Returns whether the peer has gone. If its end was seen within `half_close` of its last data, it may still read:
    /// then only a reset counts.
    pub(crate) fn has_left(&self, half_close: Duration) -> bool {
        let Some(state) = self.state() else { return true };
        if state.peer_finished && state.received_ago < half_close {
            self.half_closed.store(true, Ordering::Relaxed);
        }
        state.closed || state.peer_finished && !self.half_closed.load(Ordering::Relaxed)
    }

    /// Whether there is nothing to read, no end and no reset either, of which its owner may not have been told yet.
    pub(crate) fn is_quiet(&self) -> bool {
        let look = |socket: BorrowedFd<'_>| {
            SockRef::from(&socket).recv_with_flags(&mut [MaybeUninit::uninit()], libc::MSG_PEEK | libc::MSG_DONTWAIT)
        };
        match self.with(look) {
            Some(Err(error)) => error.kind() == io::ErrorKind::WouldBlock,
            Some(Ok(_)) | None => false,
        }
    }

    /// Has the peer see a reset once the last has closed it. Also what waits to be sent is lost then.
    pub(crate) fn reset_on_close(&self) {
        // An error says that it is not connected any more.
        let _ = self.with(|socket| SockRef::from(&socket).set_linger(Some(Duration::ZERO)));
    }

    /// Ends both directions. Whoever waits for the socket is woken.
    pub(crate) fn shut_down(&self) {
        // An error says that it was not connected any more.
        let _ = self.with(|socket| SockRef::from(&socket).shutdown(Shutdown::Both));
    }

    /// How long nothing may come before the kernel asks whether anybody is there.
    pub(crate) fn set_keepalive_time(&self, time: Duration) {
        // An error says that it is not connected any more.
        let _ = self.with(|socket| SockRef::from(&socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(time)));
    }

    fn with<T>(&self, look: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        let descriptor = self.descriptor.lock();
        // SAFETY: the socket is open: its owner closes it only after it has taken the number from here (see `new`), for
        // which it needs the lock that is held until `look` returns.
        descriptor.map(|number| look(unsafe { BorrowedFd::borrow_raw(number) }))
    }
}

/// What the kernel knows of a connection that is borrowed from its owner.
///
/// # Errors
/// It is no TCP socket.
pub(crate) fn tcp_state(socket: BorrowedFd<'_>) -> io::Result<TcpState> {
    // SAFETY: `tcp_info` consists of integers, for which all bits zero is a value. (An older kernel fills in less.)
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open for as long as `socket` lives; `info` is writable and `length` is its size, beyond
    // which the kernel does not write.
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
        end_alone: info.tcpi_unacked > 0 && is_every_byte_acknowledged(&info),
        questions: info.tcpi_probes,
        unsent: info.tcpi_notsent_bytes > 0,
        stuck: info.tcpi_notsent_bytes > 0
            && info.tcpi_unacked == 0
            && info.tcpi_snd_wnd >= info.tcpi_notsent_bytes.min(info.tcpi_snd_mss),
        room: info.tcpi_snd_wnd,
        repeated: info.tcpi_retransmits > 0,
        repeats: info.tcpi_total_retrans,
        sent_ago: Duration::from_millis(info.tcpi_last_data_sent.into()),
        heard_ago: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        received_ago: Duration::from_millis(info.tcpi_last_data_recv.into()),
        round_trip: Duration::from_micros(info.tcpi_rtt.into()),
    })
}

/// Whether all bytes are that were ever sent or wait to be. What was sent again is counted as sent, and as repeated; what
/// is acknowledged includes one for the connect.
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

    /// Both ends of a connection, and ours as others see it.
    fn connected() -> (TcpStream, TcpStream, SharedSocket) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let ours = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (theirs, _) = listener.accept().expect("dialled");
        // SAFETY: no test closes `ours` before `shared` is closed or looked at for the last time.
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
    fn what_the_kernel_knows_is_told_for_as_long_as_the_socket_is_open() {
        let (mut ours, mut theirs, shared) = connected();
        ours.write_all(b"hello").expect("open");
        theirs.read_exact(&mut [0; 5]).expect("open");
        until(&shared, |state| !state.unacknowledged);

        // From here on their kernel drops what comes before TCP sees it.
        SockRef::from(&theirs).attach_filter(&[SockFilter::new(0x06, 0, 0, 0)]).expect("permitted");
        ours.write_all(b"more").expect("open");
        let unheard = until(&shared, |state| state.repeated);
        assert!(unheard.unacknowledged && unheard.heard_ago > unheard.sent_ago, "{unheard:?}");
        drop(theirs);

        shared.shut_down();
        assert_eq!(ours.read(&mut [0]).expect("ended here"), 0);
        shared.close();
        assert_eq!(shared.state(), None);
    }

    /// Goal: an end that is not acknowledged is told from bytes that are not, however often the kernel has sent either
    /// again. Method: a peer whose kernel drops what comes, before or after the bytes.
    #[test]
    fn an_end_alone_is_told_from_bytes() {
        for (bytes, alone) in [(false, true), (true, false)] {
            let (mut ours, mut theirs, shared) = connected();
            ours.write_all(b"hello").expect("open");
            theirs.read_exact(&mut [0; 5]).expect("open");
            assert!(!until(&shared, |state| !state.unacknowledged).end_alone);

            SockRef::from(&theirs).attach_filter(&[SockFilter::new(0x06, 0, 0, 0)]).expect("permitted");
            if bytes {
                ours.write_all(b"more").expect("open");
            }
            ours.shutdown(Shutdown::Write).expect("open");
            assert_eq!(until(&shared, |state| state.unacknowledged).end_alone, alone);
            assert_eq!(until(&shared, |state| state.repeated).end_alone, alone, "sent again");
        }
    }

    #[test]
    fn a_peer_that_finished_is_told_from_one_that_reset() {
        let (mut ours, theirs, shared) = connected();
        theirs.shutdown(Shutdown::Write).expect("open");
        assert!(!until(&shared, |state| state.peer_finished).closed);
        drop(theirs);
        ours.write_all(b"anybody there?").expect("open on this side");
        until(&shared, |state| state.closed);
    }
}
