//! State of a pod's address, learned from the connections to it.

use super::silence::silence_max;
use crate::tcp::connect::{Patience, connect};
use parking_lot::Mutex;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Time for which an unanswered connect counts: longer than keep-alive's first probe plus the time to doubt it.
const UNANSWERED: Duration = Duration::from_secs(2);

/// Minimum wait for a doubted pod's answer to a connect, in addition to the silence before.
const CHECK_MIN: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    /// Duration of the fastest connect so far, in microseconds; `u64::MAX` before the first.
    round_trip: AtomicU64,
    /// Wakes the requests that wait for the pod when it is gone.
    news: Notify,
    /// Number of times that the pod was found gone.
    losses: AtomicU32,
    /// Number of connects that the pod has answered.
    connects: AtomicU32,
    /// Time of an unanswered connect, unless one was answered since.
    unanswered: Mutex<Option<Instant>>,
    /// A connect is checking whether the pod is alive. Reset when the check is over.
    pub(super) checking: AtomicBool,
    /// A connection to the pod was given up, by the kernel or for its silence, or there is no route to the pod.
    pub(super) given_up: AtomicBool,
}

impl Link {
    pub(crate) fn new(address: SocketAddr) -> Arc<Self> {
        let (news, losses, connects, unanswered, checking, given_up) = Default::default();
        let round_trip = AtomicU64::new(u64::MAX);
        Arc::new(Self { address, round_trip, news, losses, connects, unanswered, checking, given_up })
    }

    /// Returns a signal that the pod was found gone from now on. Create it before sending a request, so that no signal
    /// is missed.
    pub(crate) fn lost(&self) -> Lost<'_> {
        Lost { link: self, losses: self.losses.load(Ordering::Acquire) }
    }

    /// Records that the pod was found gone.
    pub(crate) fn lose(&self) {
        self.losses.fetch_add(1, Ordering::Release);
        self.news.notify_waiters();
    }

    /// Returns the duration of the fastest connect so far.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        match self.round_trip.load(Ordering::Relaxed) {
            u64::MAX => None,
            micros => Some(Duration::from_micros(micros)),
        }
    }

    pub(crate) fn connected_in(&self, round_trip: Duration) {
        let micros = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
        self.round_trip.fetch_min(micros, Ordering::Relaxed);
        self.connects.fetch_add(1, Ordering::Relaxed);
        *self.unanswered.lock() = None;
    }

    /// Records a connect that failed after a sufficient wait.
    pub(crate) fn not_connected(&self, error: &io::Error) {
        if is_silence(error) {
            *self.unanswered.lock() = Some(Instant::now());
        }
    }

    /// Fails if a connect was left unanswered since `start`, so that waiting requests do not repeat it.
    pub(crate) fn answers_since(&self, start: Instant) -> io::Result<()> {
        match *self.unanswered.lock() {
            Some(at) if at >= start => Err(io::Error::new(ErrorKind::TimedOut, "new connections are not answered")),
            _ => Ok(()),
        }
    }

    pub(super) fn is_unanswered(&self, now: Instant) -> bool {
        self.unanswered.lock().is_some_and(|at| now.saturating_duration_since(at) < UNANSWERED)
    }

    /// Returns the number of connects that the pod has answered.
    pub(crate) fn connects(&self) -> u32 {
        self.connects.load(Ordering::Relaxed)
    }

    /// Checks by a connect whether the pod's kernel is alive. An error means that the pod refused the connect, or
    /// answered neither this connect nor another one meanwhile.
    pub(super) async fn check(&self) -> io::Result<()> {
        let connects = self.connects();
        let round_trip = self.round_trip().unwrap_or_default();
        let timeout = silence_max(round_trip).min((round_trip * 4).max(CHECK_MIN));
        let connected = connect(self.address, Patience::without_doubt(timeout), || false, || {}).await;
        match &connected {
            // The pod answered another connect meanwhile, so it is alive: its full queue dropped this one.
            Err(error) if is_silence(error) && self.connects() != connects => return Ok(()),
            Ok(stream) => self.connected_in(stream.round_trip),
            Err(error) => self.not_connected(error),
        }
        connected.map(drop)
    }
}

/// Signal that a pod was found gone after the signal was created.
pub(crate) struct Lost<'a> {
    link: &'a Link,
    losses: u32,
}

impl Lost<'_> {
    /// Awaits `answer`, unless the pod is lost meanwhile. The future is not moved in here.
    pub(crate) async fn unless<T>(self, answer: impl Future<Output = T> + Unpin) -> Option<T> {
        tokio::select! {
            biased; // An answer that has arrived counts.
            answered = answer => Some(answered),
            () = self.happened() => None,
        }
    }

    /// Awaits a connection, unless the pod is lost meanwhile. Many requests may wait for connections. An error means
    /// that the pod could not be connected to, or is lost.
    pub(crate) async fn connected<T>(self, connection: impl Future<Output = io::Result<T>> + Unpin) -> io::Result<T> {
        self.unless(connection).await.unwrap_or_else(|| Err(ErrorKind::HostUnreachable.into()))
    }

    async fn happened(self) {
        loop {
            let news = self.link.news.notified();
            if self.link.losses.load(Ordering::Acquire) != self.losses {
                return;
            }
            news.await;
        }
    }
}

/// Reports whether a connect failed because there was no answer.
pub(crate) fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::loopback::listen;
    use socket2::{SockFilter, SockRef};
    use tokio_test::{assert_pending, assert_ready, task::spawn};

    const LONG: Duration = Duration::from_millis(100);

    #[test]
    fn a_loss_is_signalled_to_requests_that_began_before_it() {
        let link = Link::new(([127, 0, 0, 1], 80).into());
        let (early, never_polled) = (link.lost(), link.lost());
        let mut early = spawn(early.happened());
        assert_pending!(early.poll());
        link.news.notify_waiters();
        assert!(early.is_woken());
        assert_pending!(early.poll(), "news, but no loss");
        link.lose();
        let mut late = spawn(link.lost().happened());
        assert!(early.is_woken());
        assert_ready!(early.poll());
        assert_ready!(spawn(never_polled.happened()).poll());
        assert_pending!(late.poll());
    }

    #[test]
    fn requests_that_began_before_an_unanswered_connect_do_not_repeat_it() {
        let link = Link::new(([127, 0, 0, 1], 80).into());
        let before = Instant::now();
        assert!(link.answers_since(before).is_ok());
        link.not_connected(&ErrorKind::ConnectionRefused.into());
        assert!(link.answers_since(before).is_ok(), "a refusal is an answer");
        link.not_connected(&ErrorKind::TimedOut.into());
        assert!(link.answers_since(before).is_err());
        assert!(link.answers_since(Instant::now() + LONG).is_ok());
        link.connected_in(LONG);
        assert!(link.answers_since(before).is_ok());
    }

    /// Goal: a pod that does not answer the check is alive if it has answered another connect meanwhile, and silent
    /// otherwise. Method: a filter on the listener drops packets; the other connect is recorded by hand.
    #[tokio::test]
    async fn a_pod_that_answers_another_connect_during_the_check_is_alive() {
        let (listener, address) = listen().await;
        SockRef::from(&listener).attach_filter(&[SockFilter::new(0x06, 0, 0, 0)]).expect("permitted");
        let link = Link::new(address);
        let start = Instant::now();
        let mut check = Box::pin(link.check());
        assert!(futures::poll!(&mut check).is_pending());
        link.connected_in(Duration::from_millis(1));
        check.await.expect("it is there");
        assert!(link.answers_since(start).is_ok());
        let silent = link.check().await.expect_err("it answers nobody");
        assert!(is_silence(&silent), "{silent}");
        assert!(link.answers_since(start).is_err());
    }
}
