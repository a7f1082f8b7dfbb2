//! What the connections to one address have told of the pod there.

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

/// An unanswered connect counts for so long: beyond keep-alive's first question and its doubt.
const UNANSWERED: Duration = Duration::from_secs(2);

/// Shortest wait for a doubtful pod's answer to a connect, on top of the silence before.
const ASK_MIN: Duration = Duration::from_millis(200);

/// One address, as far as connections to it have told.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    /// The fastest connect so far, in microseconds; `u64::MAX` before the first.
    round_trip: AtomicU64,
    /// Wakes whoever waits for an answer: the pod is gone.
    news: Notify,
    /// How often it was found gone.
    losses: AtomicU32,
    /// Connects that it has answered.
    connects: AtomicU32,
    /// When a connect stayed unanswered, if none has been answered since.
    unanswered: Mutex<Option<Instant>>,
    /// A connect is under way to see whether it is there.
    pub(super) asking: AtomicBool,
    /// The kernel has given up on a connection to it.
    pub(super) given_up: AtomicBool,
}

impl Link {
    pub(crate) fn new(address: SocketAddr) -> Arc<Self> {
        Arc::new(Self {
            address,
            round_trip: AtomicU64::new(u64::MAX),
            news: Notify::new(),
            losses: AtomicU32::new(0),
            connects: AtomicU32::new(0),
            unanswered: Mutex::default(),
            asking: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
        })
    }

    /// The pod's being found gone from now on. Made before a request is sent, so that none is missed.
    pub(crate) fn lost(&self) -> Lost<'_> {
        Lost { link: self, losses: self.losses.load(Ordering::Acquire) }
    }

    pub(super) fn lose(&self) {
        self.losses.fetch_add(1, Ordering::Release);
        self.news.notify_waiters();
    }

    /// The time that the fastest connect so far took.
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

    /// Notes a connect that failed after a fair wait.
    pub(crate) fn not_connected(&self, error: &io::Error) {
        if is_silence(error) {
            *self.unanswered.lock() = Some(Instant::now());
        }
    }

    /// Nobody waits behind a connect that stays unanswered, to do the same.
    ///
    /// # Errors
    /// One has, since `start`.
    pub(crate) fn answers_since(&self, start: Instant) -> io::Result<()> {
        match *self.unanswered.lock() {
            Some(at) if at >= start => Err(io::Error::new(ErrorKind::TimedOut, "connects are not answered")),
            _ => Ok(()),
        }
    }

    pub(super) fn is_unanswered(&self, now: Instant) -> bool {
        self.unanswered.lock().is_some_and(|at| now.saturating_duration_since(at) < UNANSWERED)
    }

    /// It is asked no longer.
    pub(super) fn answered(&self) {
        self.asking.store(false, Ordering::Relaxed);
    }

    /// Connects that it has answered so far.
    pub(crate) fn connects(&self) -> u32 {
        self.connects.load(Ordering::Relaxed)
    }

    /// Asks its kernel by a connect whether it is there.
    ///
    /// # Errors
    /// It has refused, or has answered neither this connect nor another one meanwhile.
    pub(super) async fn ask(&self) -> io::Result<()> {
        let connects = self.connects();
        let round_trip = self.round_trip().unwrap_or_default();
        let timeout = silence_max(round_trip).min((round_trip * 4).max(ASK_MIN));
        let patience = Patience { busy: timeout, doubt: timeout, most: timeout };
        let connected = connect(self.address, patience, || false, || {}).await;
        match &connected {
            // Who has answered another meanwhile is there: a full queue has swallowed this one.
            Err(error) if is_silence(error) && self.connects() != connects => return Ok(()),
            Ok(stream) => self.connected_in(stream.round_trip),
            Err(error) => self.not_connected(error),
        }
        connected.map(drop)
    }
}

/// A pod's being found gone after a certain moment.
pub(crate) struct Lost<'a> {
    link: &'a Link,
    losses: u32,
}

impl Lost<'_> {
    pub(crate) async fn happened(self) {
        loop {
            let news = self.link.news.notified();
            if self.link.losses.load(Ordering::Acquire) != self.losses {
                return;
            }
            news.await;
        }
    }
}

/// Whether a connect failed because nobody answered.
pub(crate) fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{SockFilter, SockRef};
    use tokio::net::TcpListener;
    use tokio_test::{assert_pending, assert_ready, task::spawn};

    const LONG: Duration = Duration::from_millis(100);

    #[test]
    fn a_loss_is_told_to_whoever_began_before_it() {
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
    fn who_began_before_an_unanswered_connect_does_not_try_the_same() {
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

    /// Goal: a pod that leaves the question unanswered is there if it has answered another connect meanwhile, and
    /// silent if it has not. Method: a filter on the listener drops what comes; the other connect is noted by hand.
    #[tokio::test]
    async fn who_answers_another_while_it_is_asked_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        SockRef::from(&listener).attach_filter(&[SockFilter::new(0x06, 0, 0, 0)]).expect("permitted");
        let link = Link::new(listener.local_addr().expect("bound"));
        let start = Instant::now();
        let mut asked = Box::pin(link.ask());
        assert!(futures::poll!(&mut asked).is_pending());
        link.connected_in(Duration::from_millis(1));
        asked.await.expect("it is there");
        assert!(link.answers_since(start).is_ok());
        let silent = link.ask().await.expect_err("it answers nobody");
        assert!(is_silence(&silent), "{silent}");
        assert!(link.answers_since(start).is_err());
    }
}
