//! Looks after all connections to pods: one task for the process, no timer for a request.
//!
//! Every 100 ms each connection is judged by [`silence`]. A pod is doubtful if one of them is, or if a request's
//! connect stays unanswered. Its kernel is asked by a connect of our own:
//!
//! | answer | follows |
//! |---|---|
//! | connected | it goes on as before: a segment was lost, or one connection is cut off, which its own silence ends |
//! | refused | the machine is there, the program is not: it is out until its probe passes |
//! | none, and bytes still unacknowledged | the pod is gone: it is out, and every connection to it breaks now: whoever waits for a response, a body or a tunnel is told |
//!
//! While it is asked it gets nothing new. If a connect for a request was given up just now, it is not asked again.
//! A connect alone proves nothing, since a full accept queue swallows it silently; neither does a silent connection
//! alone, since one flow may be blocked. Both together do.
//!
//! # When nothing is unacknowledged
//!
//! All that was sent may have been acknowledged just before the pod went, and every new request need a new connection.
//! Keep-alive would tell a second later, the shortest time that the kernel knows. So when our own connect has gone
//! without an answer for a while, one HTTP/1.1 exchange whose request is complete adds an empty line to it, which a
//! kernel acknowledges and a server skips (RFC 9112, 2.2); one that does not skip it notices after its answer, and that
//! connection is not used again. HTTP/2 has connections enough for new requests; TLS waits for keep-alive.
//!
//! The task sleeps while no connection is open.
//!
//! # Connections on which nothing is outstanding
//!
//! The kernel is told to ask whether the pod is there (keep-alive) after 1 s on connections whose last bytes were ours,
//! once those are acknowledged: an answer is waited for. An unanswered question ends the connection a second later, or
//! at once if a connect stays unanswered too. Others (idle ones, a body or a tunnel between two parts) are asked after
//! 5 s ([`crate::pod::stream`]).

pub(crate) mod silence;

use crate::tcp::connect::{Patience, connect};
use crate::tcp::state::SharedSocket;
use parking_lot::Mutex;
use silence::{Gaze, Verdict, silence_max};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// First keep-alive probe on a connection without traffic (upstream's 5 s).
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(5);

/// Time between two looks at every connection.
const TICK: Duration = Duration::from_millis(100);

/// The same while a pod has left our connect unanswered.
const TICK_CLOSELY: Duration = Duration::from_millis(20);

/// Keep-alive's first question where an answer is waited for: the shortest that the kernel knows.
const KEEPALIVE_WAITING: Duration = Duration::from_secs(1);

/// An unanswered connect counts for so long: beyond keep-alive's first question and its doubt.
const UNANSWERED: Duration = Duration::from_secs(2);

/// Shortest wait for a doubtful pod's answer to a connect, on top of the silence before.
const ASK_MIN: Duration = Duration::from_millis(200);

/// After an unanswered connect, longest time in which a connection may prove to be silent: until an empty line's
/// acknowledgement is overdue, and some. Until then the pod gets nothing new.
const PROOF_MAX: Duration = Duration::from_millis(300);

/// Room for so many connections is kept; what a burst needed beyond that is given back.
const ENTRIES_KEPT: usize = 64;

/// An empty line.
const QUESTION: &[u8] = b"\r\n";

/// Is told what the connections to a pod say of it.
pub trait PodObserver: Send + Sync {
    /// The pod may be gone: it is to get nothing new until that is known.
    fn pod_doubted(&self, pod: SocketAddr);

    /// A pod that was in doubt is there.
    fn pod_trusted(&self, pod: SocketAddr);

    /// The pod cannot be reached, and everything on its way there is lost.
    fn pod_failed(&self, pod: SocketAddr, cause: &str);
}

/// One address, as far as connections to it have told.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    /// The fastest connect so far, in microseconds; `u64::MAX` before the first.
    round_trip: AtomicU64,
    /// Wakes whoever waits for an answer: the pod is gone, or somebody is to ask it something.
    news: Notify,
    /// How often it was found gone.
    losses: AtomicU32,
    /// Connects that it has answered.
    connects: AtomicU32,
    /// One of those that wait for its answer is to ask whether it is there.
    question: AtomicBool,
    /// When a connect stayed unanswered, if none has been answered since.
    unanswered: Mutex<Option<Instant>>,
    /// A connect is under way to see whether it is there.
    asking: AtomicBool,
    /// The kernel has given up on a connection to it.
    given_up: AtomicBool,
}

/// A connection that is looked after.
#[derive(Debug)]
pub(crate) struct Watched {
    link: Arc<Link>,
    socket: SharedSocket,
    writes: AtomicU32,
    reads: AtomicU32,
    /// The last bytes were ours.
    waiting: AtomicBool,
    /// Something that was to be written found no room.
    blocked: AtomicBool,
    broken: AtomicU8,
}

/// Why a connection was broken from this side.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Broken {
    Silent = 1,
    Lost = 2,
}

/// All connections to pods, and who is to be told about which address.
#[derive(Default)]
pub(crate) struct Watch {
    inbox: Mutex<Inbox>,
    news: Notify,
    observers: Mutex<HashMap<SocketAddr, Vec<Weak<dyn PodObserver>>>>,
}

#[derive(Default)]
struct Inbox {
    opened: Vec<Arc<Watched>>,
    doubted: Vec<Arc<Link>>,
    /// The task waits for a first connection.
    sleeping: bool,
}

// === impl Link ===

impl Link {
    pub(crate) fn new(address: SocketAddr) -> Arc<Self> {
        Arc::new(Self {
            address,
            round_trip: AtomicU64::new(u64::MAX),
            news: Notify::new(),
            losses: AtomicU32::new(0),
            connects: AtomicU32::new(0),
            question: AtomicBool::new(false),
            unanswered: Mutex::default(),
            asking: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
        })
    }

    /// The pod's being found gone from now on. Made before a request is sent, so that none is missed.
    pub(crate) fn lost(&self) -> Lost<'_> {
        Lost { link: self, losses: self.losses.load(Ordering::Acquire) }
    }

    fn lose(&self) {
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

    /// Notes a connect.
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

    fn is_unanswered(&self, now: Instant) -> bool {
        self.unanswered.lock().is_some_and(|at| now.saturating_duration_since(at) < UNANSWERED)
    }

    /// It is asked no longer.
    fn answered(&self) {
        self.asking.store(false, Ordering::Relaxed);
        self.question.store(false, Ordering::Relaxed);
    }

    /// Connects that it has answered so far.
    pub(crate) fn connects(&self) -> u32 {
        self.connects.load(Ordering::Relaxed)
    }

    async fn ask(&self) -> io::Result<()> {
        let round_trip = self.round_trip().unwrap_or_default();
        let timeout = silence_max(round_trip).min((round_trip * 4).max(ASK_MIN));
        let patience = Patience { busy: timeout / 2, doubt: timeout / 2, most: timeout };
        // What it answers to others is not asked here: it is this one that a full queue may swallow.
        let connected = connect(
            self.address,
            patience,
            || false,
            || {
                self.question.store(true, Ordering::Release);
                self.news.notify_waiters();
            },
        );
        let connected = connected.await;
        match &connected {
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
    /// Waits for it.
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

// === impl Watched ===

impl Watched {
    /// Something was written. The one writer is the connection's owner.
    pub(crate) fn wrote(&self) {
        self.writes.store(self.writes.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.waiting.store(true, Ordering::Relaxed);
    }

    /// Something was read, by the owner.
    pub(crate) fn read(&self) {
        self.reads.store(self.reads.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.waiting.store(false, Ordering::Relaxed);
    }

    /// Whether all that its owner had to write could be written.
    pub(crate) fn set_all_written(&self, all: bool) {
        self.blocked.store(!all, Ordering::Relaxed);
    }

    /// Whether somebody is to ask the pod whether it is there.
    pub(crate) fn is_question_wanted(&self) -> bool {
        self.link.question.load(Ordering::Acquire)
    }

    /// Asks it, behind a request that is complete. Says whether that was done: it is, once. For the owner.
    pub(crate) fn question(&self) -> bool {
        if self.blocked.load(Ordering::Relaxed) || !self.link.question.swap(false, Ordering::AcqRel) {
            return false;
        }
        tracing::debug!(pod = %self.link.address, "an empty line asks whether it is there");
        self.socket.send(QUESTION);
        self.wrote();
        true
    }

    /// Whether nothing has come from the pod, its end included, as the kernel knows.
    pub(crate) fn is_quiet(&self) -> bool {
        self.socket.is_quiet()
    }

    /// This is the socket, as it was.
    pub(crate) fn is_at(&self, stream: &TcpStream) {
        self.socket.set(stream);
    }

    /// The socket is about to be closed.
    pub(crate) fn closing(&self) {
        self.socket.closing();
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

    fn cut(&self, why: Broken) {
        self.broken.store(why as u8, Ordering::Release);
        self.socket.shut_down();
    }

    fn counts(&self) -> (u32, u32) {
        (self.writes.load(Ordering::Relaxed), self.reads.load(Ordering::Relaxed))
    }
}

// === impl Watch ===

impl Watch {
    /// Looks after a new connection.
    pub(crate) fn open(&self, stream: &TcpStream, link: &Arc<Link>) -> Arc<Watched> {
        let watched = Arc::new(Watched {
            link: link.clone(),
            socket: SharedSocket::new(stream),
            writes: AtomicU32::new(0),
            reads: AtomicU32::new(0),
            waiting: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            broken: AtomicU8::new(0),
        });
        let sleeping = {
            let mut inbox = self.inbox.lock();
            inbox.opened.push(watched.clone());
            inbox.sleeping
        };
        if sleeping {
            self.news.notify_one();
        }
        watched
    }

    /// The kernel has given up on a connection to this address. Asks whether it is there at all.
    pub(crate) fn doubt(&self, link: &Arc<Link>) {
        link.given_up.store(true, Ordering::Relaxed);
        self.suspect(link);
    }

    /// A request's connect has stayed unanswered for a while. Asks whether it is there at all.
    pub(crate) fn suspect(&self, link: &Arc<Link>) {
        self.inbox.lock().doubted.push(link.clone());
        self.news.notify_one();
    }

    /// `observer` is told about this address from now on.
    pub(crate) fn observe(&self, address: SocketAddr, observer: Weak<dyn PodObserver>) {
        self.observers.lock().entry(address).or_default().push(observer);
    }

    /// And no longer.
    pub(crate) fn unobserve(&self, address: SocketAddr, observer: &Weak<dyn PodObserver>) {
        let mut observers = self.observers.lock();
        if let Some(of_address) = observers.get_mut(&address) {
            of_address.retain(|one| !std::ptr::addr_eq(one.as_ptr(), observer.as_ptr()));
            if of_address.is_empty() {
                observers.remove(&address);
            }
        }
    }

    /// A pod that was asked goes on as before.
    fn trust(&self, link: &Link) {
        link.answered();
        self.tell(link.address, |observer, pod| observer.pod_trusted(pod));
    }

    fn tell(&self, address: SocketAddr, what: impl Fn(&dyn PodObserver, SocketAddr)) {
        let observers: Vec<Arc<dyn PodObserver>> =
            self.observers.lock().get(&address).into_iter().flatten().filter_map(Weak::upgrade).collect();
        observers.iter().for_each(|observer| what(&**observer, address));
    }

    /// The task. Ends with `shutdown`, or when nobody else refers to the watch.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut task = Task { watch: self, entries: Vec::new(), asked: JoinSet::new(), unproven: Vec::new() };
        let mut next = Instant::now();
        loop {
            let idle = task.take_in();
            let tick = async {
                match idle {
                    true => std::future::pending().await,
                    false => tokio::time::sleep_until(next).await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = task.watch.news.notified() => {}
                Some(asked) = task.asked.join_next() => match asked {
                    Ok((link, answer)) => task.answered(&link, &answer),
                    Err(error) => tracing::error!(%error, "a connect panicked"),
                },
                () = tick => {
                    let closely = task.sweep();
                    next = Instant::now() + if closely { TICK_CLOSELY } else { TICK };
                }
            }
        }
    }
}

struct Entry {
    watched: Arc<Watched>,
    gaze: Gaze,
    /// Keep-alive asks early.
    asks_early: bool,
}

impl Entry {
    fn new(watched: Arc<Watched>) -> Self {
        Self { watched, gaze: Gaze::default(), asks_early: false }
    }

    /// `closely`: a connect to its pod has just stayed unanswered.
    fn look(&mut self, now: Instant, closely: bool) -> Verdict {
        let counts = self.watched.counts();
        let verdict = self.gaze.look(now, counts, closely, || self.watched.socket.state());
        let waits = self.watched.waiting.load(Ordering::Relaxed) && self.gaze.is_settled(counts.0);
        if self.asks_early != waits {
            self.asks_early = waits;
            self.watched.socket.set_keepalive_time(if waits { KEEPALIVE_WAITING } else { KEEPALIVE });
        }
        verdict
    }
}

struct Task {
    watch: Arc<Watch>,
    entries: Vec<Entry>,
    asked: JoinSet<(Arc<Link>, io::Result<()>)>,
    /// Pods that did not answer a connect, and until when a connection may prove that they are gone.
    unproven: Vec<(Arc<Link>, Instant)>,
}

impl Task {
    /// Takes over what is new. Says whether there is nothing to look at.
    fn take_in(&mut self) -> bool {
        self.take_opened();
        let doubted = std::mem::take(&mut self.watch.inbox.lock().doubted);
        doubted.into_iter().for_each(|link| self.ask(link));
        self.entries.is_empty()
    }

    fn take_opened(&mut self) {
        let mut inbox = self.watch.inbox.lock();
        self.entries.extend(std::mem::take(&mut inbox.opened).into_iter().map(Entry::new));
        inbox.sleeping = self.entries.is_empty();
    }

    /// Looks at every connection. Says whether the next look is to come soon.
    fn sweep(&mut self) -> bool {
        let now = Instant::now();
        self.entries.retain(|entry| Arc::strong_count(&entry.watched) > 1);
        if self.entries.capacity() > ENTRIES_KEPT.max(4 * self.entries.len()) {
            self.entries.shrink_to(ENTRIES_KEPT.max(2 * self.entries.len()));
        }
        let mut closely = false;
        let (mut doubted, mut lost) = (Vec::new(), Vec::new());
        for entry in &mut self.entries {
            let unanswered = entry.watched.link.is_unanswered(now);
            closely |= unanswered;
            match entry.look(now, unanswered) {
                Verdict::Fine => {}
                Verdict::Doubtful if unanswered => lost.push(entry.watched.link.clone()),
                Verdict::Doubtful => doubted.push(entry.watched.link.clone()),
                Verdict::Silent => {
                    let link = &entry.watched.link;
                    tracing::debug!(pod = %link.address, "a connection's bytes are not acknowledged");
                    link.given_up.store(true, Ordering::Relaxed);
                    doubted.push(link.clone());
                    entry.watched.cut(Broken::Silent);
                }
            }
        }
        doubted.into_iter().for_each(|link| self.ask(link));
        lost.sort_unstable_by_key(|link| link.address);
        lost.dedup_by_key(|link| link.address);
        lost.iter().for_each(|link| self.lose(link));
        for (link, _) in self.unproven.extract_if(.., |(_, until)| *until <= now) {
            self.watch.trust(&link);
        }
        closely
    }

    /// Asks a pod's kernel whether it is there, once at a time. Until it has answered, it gets nothing new.
    fn ask(&mut self, link: Arc<Link>) {
        if link.asking.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::debug!(pod = %link.address, "pod in doubt");
        self.watch.tell(link.address, |observer, pod| observer.pod_doubted(pod));
        self.asked.spawn(async move {
            let answer = link.ask().await;
            (link, answer)
        });
    }

    fn answered(&mut self, link: &Arc<Link>, answer: &io::Result<()>) {
        let given_up = link.given_up.swap(false, Ordering::Relaxed);
        match answer {
            Ok(()) => self.watch.trust(link),
            Err(error) if is_silence(error) => {
                if given_up || self.is_silent(link) {
                    self.lose(link);
                } else {
                    self.unproven.push((link.clone(), Instant::now() + PROOF_MAX));
                }
            }
            Err(error) => {
                link.answered();
                let cause = error.to_string();
                self.watch.tell(link.address, |observer, pod| observer.pod_failed(pod, &cause));
            }
        }
    }

    /// Whether a connection to it is silent at this moment.
    fn is_silent(&mut self, link: &Arc<Link>) -> bool {
        let now = Instant::now();
        let here = |entry: &Entry| entry.watched.link.address == link.address;
        let closely = link.is_unanswered(now);
        self.entries.iter_mut().any(|entry| here(entry) && entry.look(now, closely) != Verdict::Fine)
    }

    /// The pod is gone.
    fn lose(&mut self, link: &Arc<Link>) {
        self.unproven.retain(|(unproven, _)| !Arc::ptr_eq(unproven, link));
        link.answered();
        let cause = "it answers neither bytes nor a connect";
        tracing::warn!(pod = %link.address, cause, "pod gone");
        self.watch.tell(link.address, |observer, pod| observer.pod_failed(pod, cause));
        link.lose();
        // Also those of a moment ago, and those of a pool that was there before this one.
        self.take_opened();
        for entry in self.entries.iter().filter(|entry| entry.watched.link.address == link.address) {
            entry.watched.cut(Broken::Lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_test::{assert_pending, assert_ready, task::spawn};

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
        assert!(link.answers_since(Instant::now() + TICK).is_ok());
        link.connected_in(TICK);
        assert!(link.answers_since(before).is_ok());
    }
}
