//! Connecting to a pod.
//!
//! A pod's kernel answers a connect, not its program, so that its silence says something of the pod.
//! But a timer that fires says only that time has passed here, maybe on a machine so busy that nobody has looked at
//! the socket since. So it is our kernel that says whether a connect was answered, and how long that took.

use crate::tcp::state::{TcpState, tcp_state};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// A connection, and how long it took to make.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) stream: TcpStream,
    /// From the connect's start to its answer, as the kernel saw it.
    pub(crate) round_trip: Duration,
}

/// A connect under way.
#[derive(Debug)]
pub(crate) struct Connecting {
    pub(crate) address: SocketAddr,
    pub(crate) start: Instant,
    /// Writable once the connect has come to an end.
    stream: TcpStream,
}

impl Connecting {
    /// Sends it off.
    ///
    /// # Errors
    /// There is no way to the address, or its refusal has come already.
    pub(crate) fn begin(address: SocketAddr) -> io::Result<Self> {
        let start = Instant::now();
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(Self { address, start, stream: TcpStream::from_std(socket.into())? }),
        }
    }

    /// Waits until it has come to an end, well or badly.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn ended(&self) {
        // An error is told again by whoever looks at it next.
        let _ = self.stream.writable().await;
    }

    /// Whether it has come to an end by now. The runtime may not know it yet.
    pub(crate) fn has_ended(&self) -> bool {
        !self.state().is_ok_and(|state| state.connecting)
    }

    /// The connection.
    ///
    /// # Errors
    /// Refused or unreachable.
    pub(crate) fn finish(self) -> io::Result<Connected> {
        if let Some(refused) = self.stream.take_error()? {
            return Err(refused);
        }
        // Zero if a segment was lost on the way.
        let measured = self.state()?.round_trip;
        let round_trip = if measured.is_zero() { self.start.elapsed() } else { measured };
        Ok(Connected { stream: self.stream, round_trip })
    }

    fn state(&self) -> io::Result<TcpState> {
        tcp_state(self.stream.as_fd())
    }
}

/// How long a connect may stay unanswered, in three steps, none shorter than the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until another one is tried, if the pod has answered others since: it had no room for this one.
    pub(crate) busy: Duration,
    /// Until the pod is doubted, if it has not.
    pub(crate) doubt: Duration,
    /// At all.
    pub(crate) most: Duration,
}

/// Connects. `others_answered` tells whether the pod has answered others meanwhile; `doubted` is called if there is
/// reason to.
///
/// # Errors
/// Refused, unreachable, or not answered in time.
pub(crate) async fn connect(
    address: SocketAddr,
    patience: Patience,
    others_answered: impl Fn() -> bool,
    doubted: impl FnOnce(),
) -> io::Result<Connected> {
    let connecting = Connecting::begin(address)?;
    let mut doubted = Some(doubted);
    for after in [patience.busy, patience.doubt, patience.most].map(|after| after.min(patience.most)) {
        let _ = timeout_at(connecting.start + after, connecting.ended()).await;
        if connecting.has_ended() {
            return connecting.finish();
        }
        if others_answered() {
            return Err(unanswered(after));
        }
        if after == patience.doubt && after < patience.most {
            doubted.take().into_iter().for_each(|doubted| doubted());
        }
    }
    Err(unanswered(patience.most))
}

/// Nobody has answered for so long.
fn unanswered(timeout: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("connect not answered within {timeout:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{SockFilter, SockRef};
    use tokio::net::TcpListener;

    async fn listen() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        (listener, address)
    }

    /// Goal: a timer that fires before anybody has looked at the socket is not taken for the pod's silence.
    /// Method: no time at all, so that it fires at the first look; the kernel has shaken hands with itself before.
    #[tokio::test]
    async fn a_late_look_at_a_connect_that_was_answered_is_no_silence() {
        const NONE: Duration = Duration::ZERO;
        const NOW: Patience = Patience { busy: NONE, doubt: NONE, most: NONE };
        let (listener, address) = listen().await;
        let connected = connect(address, NOW, || true, || panic!("it was answered")).await.expect("answered");
        assert!(connected.round_trip > NONE && connected.round_trip < Duration::from_secs(1), "{connected:?}");
        drop(listener);
        let refused = connect(address, NOW, || true, || panic!("it was answered")).await.expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    /// Goal: a connect that nobody answers is doubted first, and given up later; one that is answered is neither. Where
    /// others are answered, it is given up early and nobody is doubted.
    #[tokio::test]
    async fn a_connect_without_an_answer_is_doubted_then_given_up() {
        const PATIENCE: Patience = Patience {
            busy: Duration::from_millis(10),
            doubt: Duration::from_millis(20),
            most: Duration::from_millis(40),
        };
        let (listener, address) = listen().await;
        let mut doubts = 0;
        connect(address, PATIENCE, || true, || doubts += 1).await.expect("answered");
        assert_eq!(doubts, 0);
        // From here on its kernel drops what comes before TCP sees it.
        SockRef::from(&listener).attach_filter(&[SockFilter::new(0x06, 0, 0, 0)]).expect("permitted");
        let start = Instant::now();
        let silent = connect(address, PATIENCE, || false, || doubts += 1).await.expect_err("dropped");
        assert_eq!((silent.kind(), doubts), (io::ErrorKind::TimedOut, 1));
        assert!(start.elapsed() >= PATIENCE.most);
        let never = Patience { doubt: PATIENCE.most, ..PATIENCE };
        connect(address, never, || false, || doubts += 1).await.expect_err("dropped");
        assert_eq!(doubts, 1, "nobody asked to be told");
        let busy = Patience { most: Duration::from_secs(3600), ..PATIENCE };
        let busy = connect(address, busy, || true, || doubts += 1).await.expect_err("dropped");
        assert_eq!((busy.to_string().as_str(), doubts), ("connect not answered within 10ms", 1));
    }
}
