//! Connects to pods.
//!
//! The pod's kernel answers a connect, not its program, so silence means that the pod itself is unreachable. But an
//! expired timer only shows that time has passed here: on a busy machine, the task may run late. So the kernel's state
//! decides whether the connect was answered, and how long that took.

use crate::tcp::state::tcp_state;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// A connection, and the duration of its connect.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) stream: TcpStream,
    /// Time from the connect's start to its answer, as measured by the kernel.
    pub(crate) round_trip: Duration,
}

/// Durations of an unanswered connect, in three steps that never decrease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Time until another connection is tried, if the pod has answered other connects since: it had no room for this
    /// one.
    pub(crate) busy: Duration,
    /// Time until the pod is doubted, if it has not answered others.
    pub(crate) doubt: Duration,
    /// Total time.
    pub(crate) most: Duration,
}

impl Patience {
    /// Waits for `timeout` without doubts.
    pub(crate) const fn without_doubt(timeout: Duration) -> Self {
        Self { busy: timeout, doubt: timeout, most: timeout }
    }
}

/// Connects. `others_answered` reports whether the pod has answered other connects meanwhile. `doubted` is called when
/// the pod is doubted. An error means that the connect was refused, the address is unreachable, or there was no answer
/// in time.
pub(crate) async fn connect(
    address: SocketAddr,
    patience: Patience,
    others_answered: impl Fn() -> bool,
    doubted: impl FnOnce(),
) -> io::Result<Connected> {
    let start = Instant::now();
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    let stream = match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
        _ => TcpStream::from_std(socket.into())?, // It becomes writable when the connect has ended.
    };
    let mut doubted = Some(doubted);
    for after in [patience.busy, patience.doubt, patience.most].map(|after| after.min(patience.most)) {
        let _ = timeout_at(start + after, stream.writable()).await;
        // The runtime may not know yet that the connect has ended.
        let state = tcp_state(stream.as_fd())?;
        if !state.connecting {
            if let Some(refused) = stream.take_error()? {
                return Err(refused);
            }
            // The measured time is zero if a segment was lost.
            let round_trip = if state.round_trip.is_zero() { start.elapsed() } else { state.round_trip };
            return Ok(Connected { stream, round_trip });
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

/// Returns the error for a connect without an answer.
fn unanswered(timeout: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no response within {timeout:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::loopback::listen;
    use socket2::{SockFilter, SockRef};

    /// Goal: a timer that fires before the socket was checked does not count as silence of the pod. Method: a timeout
    /// of zero fires at the first check, but the kernel has completed the handshake before.
    #[tokio::test]
    async fn a_late_timer_does_not_make_an_answered_connect_fail() {
        const NONE: Duration = Duration::ZERO;
        const NOW: Patience = Patience { busy: NONE, doubt: NONE, most: NONE };
        let (listener, address) = listen().await;
        let connected = connect(address, NOW, || true, || panic!("it was answered")).await.expect("answered");
        assert!(connected.round_trip > NONE && connected.round_trip < Duration::from_secs(1), "{connected:?}");
        drop(listener);
        let refused = connect(address, NOW, || true, || panic!("it was answered")).await.expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    /// Goal: an unanswered connect is first doubted, then given up; an answered one is neither. If other connects are
    /// answered, it is given up early and the pod is not doubted.
    #[tokio::test]
    async fn an_unanswered_connect_is_doubted_then_given_up() {
        let [busy, doubt, most] = [10, 20, 40].map(Duration::from_millis);
        let patience = Patience { busy, doubt, most };
        let (listener, address) = listen().await;
        let mut doubts = 0;
        connect(address, patience, || true, || doubts += 1).await.expect("answered");
        assert_eq!(doubts, 0);
        // From here on, the kernel drops incoming packets before TCP sees them.
        SockRef::from(&listener).attach_filter(&[SockFilter::new(0x06, 0, 0, 0)]).expect("permitted");
        let start = Instant::now();
        let silent = connect(address, patience, || false, || doubts += 1).await.expect_err("dropped");
        assert_eq!((silent.kind(), doubts), (io::ErrorKind::TimedOut, 1));
        assert!(start.elapsed() >= patience.most);
        let never = Patience { doubt: patience.most, ..patience };
        connect(address, never, || false, || doubts += 1).await.expect_err("dropped");
        assert_eq!(doubts, 1, "nobody asked to be told");
        let busy = Patience { most: Duration::from_secs(3600), ..patience };
        let busy = connect(address, busy, || true, || doubts += 1).await.expect_err("dropped");
        assert_eq!((busy.to_string().as_str(), doubts), ("no response within 10ms", 1));
    }
}
