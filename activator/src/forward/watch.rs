//! Looks after all connections to pods: one task for the process, no timer for a request.
//!
//! Every 100 ms each connection is judged by [`super::silence`]. Of a doubtful pod the kernel is asked by a connect:
//!
//! | answer | follows |
//! |---|---|
//! | connected | it goes on as before: a segment was lost, or one connection is cut off, which its own silence ends |
//! | refused | the machine is there, the program is not: it is out until its probe passes |
//! | none, and bytes still unacknowledged | the pod is gone: it is out, and every connection to it breaks now: whoever waits for a response, a body or a tunnel is told |
//!
//! While it is asked it gets nothing new. If a connect for a request has just stayed unanswered, it is not asked again.
//! A connect alone proves nothing, since a full accept queue swallows it silently; neither does a silent connection
//! alone, since one flow may be blocked. Both together do.
//!
//! The task sleeps while no connection is open.
//!
//! # Connections on which nothing is outstanding
//!
//! The kernel is told to ask whether the pod is there (keep-alive) after 1 s on connections whose last bytes were ours,
//! once those are acknowledged: an answer is waited for. An unanswered question ends the connection a second later, or
//! at once if a connect stays unanswered too. Others (idle ones, a body or a tunnel between two parts) are asked after
//! 5 s ([`super::dial`]).

use super::dial::{KEEPALIVE, PodStream};
use super::silence::{Gaze, Verdict, silence_max};
use crate::revision::Revision;
use crate::tcp_state::SharedSocket;
use activator_core::Destination;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time between two looks at every connection.
const TICK: Duration = Duration::from_millis(100);

/// Keep-alive's first question where an answer is waited for: the shortest that the kernel knows.
const KEEPALIVE_WAITING: Duration = Duration::from_secs(1);

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
    lost: Notify,
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
    owners: Mutex<HashMap<SocketAddr, Vec<Weak<Revision>>>>,
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
            lost: Notify::new(),
            unanswered: Mutex::default(),
            asking: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
        })
    }

    /// Ready if the pod is found gone from now on. Made before a request is sent, so that none is missed.
    pub(crate) fn lost(&self) -> Notified<'_> {
        self.lost.notified()
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
        *self.unanswered.lock() = None;
    }

    /// Notes a connect that failed after a fair wait.
    pub(crate) fn not_connected(&self, error: &io::Error) {
        if is_silence(error) {
            *self.unanswered.lock() = Some(Instant::now());
        }
    }

    fn is_unanswered(&self, now: Instant) -> bool {
        self.unanswered.lock().is_some_and(|at| now.saturating_duration_since(at) < UNANSWERED)
    }

    async fn ask(&self) -> io::Result<()> {
        let round_trip = self.round_trip().unwrap_or_default();
        let timeout = silence_max(round_trip).min((round_trip * 4).max(ASK_MIN));
        let connected = PodStream::connect(self.address, timeout).await;
        match &connected {
            Ok(stream) => self.connected_in(stream.round_trip),
            Err(error) => self.not_connected(error),
        }
        connected.map(drop)
    }
}

/// Whether a connect failed because nobody answered.
fn is_silence(error: &io::Error) -> bool {
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
        self.inbox.lock().doubted.push(link.clone());
        self.news.notify_one();
    }

    /// A revision is told about this address from now on.
    pub(crate) fn own(&self, address: SocketAddr, revision: &Weak<Revision>) {
        self.owners.lock().entry(address).or_default().push(revision.clone());
    }

    /// And no longer.
    pub(crate) fn disown(&self, address: SocketAddr, revision: &Weak<Revision>) {
        let mut owners = self.owners.lock();
        if let Some(of_address) = owners.get_mut(&address) {
            of_address.retain(|owner| !owner.ptr_eq(revision));
            if of_address.is_empty() {
                owners.remove(&address);
            }
        }
    }

    fn tell(&self, address: SocketAddr, what: impl Fn(&Revision, &Destination)) {
        let owners: Vec<Arc<Revision>> =
            self.owners.lock().get(&address).into_iter().flatten().filter_map(Weak::upgrade).collect();
        let destination = Destination::from(address);
        owners.iter().for_each(|revision| what(revision, &destination));
    }

    /// The task. Ends with `shutdown`, or when nobody else refers to the watch.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut task = Task { watch: self, entries: Vec::new(), asked: JoinSet::new() };
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
                    task.sweep();
                    next = Instant::now() + TICK;
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

    fn look(&mut self, now: Instant) -> Verdict {
        let counts = self.watched.counts();
        let closely = self.watched.link.is_unanswered(now);
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
}

impl Task {
    /// Takes over what is new. Says whether there is nothing to look at.
    fn take_in(&mut self) -> bool {
        let doubted = {
            let mut inbox = self.watch.inbox.lock();
            self.entries.extend(inbox.opened.drain(..).map(Entry::new));
            inbox.sleeping = self.entries.is_empty();
            std::mem::take(&mut inbox.doubted)
        };
        doubted.into_iter().for_each(|link| self.ask(link));
        self.entries.is_empty()
    }

    fn sweep(&mut self) {
        let now = Instant::now();
        self.entries.retain(|entry| Arc::strong_count(&entry.watched) > 1);
        let (mut doubted, mut lost) = (Vec::new(), Vec::new());
        for entry in &mut self.entries {
            match entry.look(now) {
                Verdict::Fine => {}
                Verdict::Doubtful if entry.watched.link.is_unanswered(now) => lost.push(entry.watched.link.clone()),
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
    }

    /// Asks a pod's kernel whether it is there, once at a time. Until it has answered, it gets nothing new.
    fn ask(&mut self, link: Arc<Link>) {
        if link.asking.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::debug!(pod = %link.address, "pod in doubt");
        self.watch.tell(link.address, Revision::pod_doubted);
        self.asked.spawn(async move {
            let answer = link.ask().await;
            (link, answer)
        });
    }

    fn answered(&mut self, link: &Arc<Link>, answer: &io::Result<()>) {
        link.asking.store(false, Ordering::Relaxed);
        let given_up = link.given_up.swap(false, Ordering::Relaxed);
        match answer {
            Ok(()) => self.watch.tell(link.address, Revision::pod_trusted),
            Err(error) if is_silence(error) => {
                if given_up || self.is_silent(link) {
                    self.lose(link);
                } else {
                    self.watch.tell(link.address, Revision::pod_trusted);
                }
            }
            Err(error) => {
                let cause = error.to_string();
                self.watch.tell(link.address, |revision, pod| revision.pod_failed(pod, &cause));
            }
        }
    }

    /// Whether a connection to it is silent at this moment.
    fn is_silent(&mut self, link: &Arc<Link>) -> bool {
        let now = Instant::now();
        let here = |entry: &Entry| entry.watched.link.address == link.address;
        self.entries.iter_mut().any(|entry| here(entry) && entry.look(now) != Verdict::Fine)
    }

    /// The pod is gone.
    fn lose(&self, link: &Arc<Link>) {
        let cause = "it answers neither bytes nor a connect";
        tracing::warn!(pod = %link.address, cause, "pod gone");
        self.watch.tell(link.address, |revision, pod| revision.pod_failed(pod, cause));
        link.lost.notify_waiters();
        // Also those of a pool that was there before this one.
        for entry in self.entries.iter().filter(|entry| entry.watched.link.address == link.address) {
            entry.watched.cut(Broken::Lost);
        }
    }
}
