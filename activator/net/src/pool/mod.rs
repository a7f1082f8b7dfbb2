//! Connections to one pod address, shared by every request that goes there.
//!
//! HTTP/1.1: the most recently used idle connection is taken first, so that a falling load lets the others grow old.
//! Those that the caller's lane has used go before others, which move to it ([`crate::tcp::rebind`]).
//! HTTP/2: the first connection whose pod permits one more stream takes the request; where none does, another is
//! dialled.
//!
//! # Bounds
//!
//! - At most `idle_max` idle HTTP/1.1 connections (upstream: 100 for each address); the surplus is closed on return.
//! - Idle for 90 s: closed (upstream's figure), by a sweep every few seconds over what is idle. Each sweep also closes
//!   three in four of those that nobody has needed since the one before, the youngest, a few aside: a burst leaves
//!   little behind.
//! - At most so many idle ones to all addresses (upstream: 1000): the sweep closes those that stand idle for longest.
//!   A count that every request moved would be the one thing that all cores share.
//! - A connect is given [`silence_max`] of the fastest one so far: the pod's kernel answers it, not its program. If it
//!   answers others meanwhile, its queue was full, which says nothing of the pod: the request tries again, after
//!   [`BUSY_AFTER`].
//! - At most [`DIALS_MAX`] connects under way: released at once, thousands of held requests would overflow the pod's
//!   accept queue and wait for retransmissions. Whoever waits takes a connection that came back meanwhile.
//! - At most [`HTTP2_MAX`] HTTP/2 connections: beyond that, requests wait for a stream. Those that stand idle beside
//!   another are closed by the sweep.

use crate::http1::connection::{Http1, ReturnIdle};
use crate::http2::connection::{Http2, Stream};
use crate::liveness::silence::{doubt_after, silence_max};
use crate::liveness::{Link, Lost, PodObserver, Watch, is_silence};
use crate::pod::stream::PodStream;
use crate::pod::tls::{PodIo, PodTls};
use crate::tcp::connect::{Connecting, Patience, connect};
use activator_core::backends::{Outcome, answer_min};
use common_runtime::tls::Roots;
use common_runtime::trim;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use http::HeaderValue;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Connects under way to one address. Half of the smallest accept queue in common use (128).
const DIALS_MAX: usize = 64;

/// Longest wait for a connect to an address where none has succeeded: long enough for one retransmission (1 s).
const DIAL_UNMEASURED: Duration = Duration::from_millis(1500);

/// When a connect that is not answered is taken for one that its pod's full queue has swallowed, if others are answered
/// meanwhile; and in round trips. The kernel would send it again after a second.
const BUSY_AFTER: Duration = Duration::from_millis(50);
const BUSY_ROUND_TRIPS: u32 = 4;

/// HTTP/2 connections to one address. A pod that permits one stream on each is no worse off than one that speaks
/// HTTP/1.1 to a client with this many connections.
const HTTP2_MAX: usize = 256;

/// Longest wait for a TLS handshake, once the connection stands.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// How long a probe's connect may go on beside others: until the kernel has repeated itself twice.
const HELD_MAX: Duration = Duration::from_secs(4);

/// How long a connection may stay idle.
const IDLE_MAX: Duration = Duration::from_secs(90);

/// Idle connections to one address that stay for all their time, however seldom they are needed: the next request finds
/// one. Each keeps a few of the allocator's pages, of which a burst may have left it the only tenant.
const IDLE_KEPT: usize = 1;

/// Time between two looks at the idle connections.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// All connections to one address.
pub struct Pool {
    /// The address.
    pub address: SocketAddr,
    /// The address that requests go to, as a `Host` header.
    pub(crate) host: HeaderValue,
    /// How requests are encrypted; none: not at all. Probes never are.
    pub(crate) tls: Option<PodTls>,
    idle_max: usize,
    #[expect(clippy::vec_box, reason = "a connection is large and changes hands twice for each request")]
    idle: Mutex<Vec<Box<Http1>>>,
    dials: Semaphore,
    /// A probe's connect that was given up, and may be answered yet.
    held: Arc<Mutex<Option<Connecting>>>,
    link: Arc<Link>,
    watch: Arc<Watch>,
    http2: Mutex<Vec<Http2>>,
    http2_dial: tokio::sync::Mutex<()>,
}

impl Pool {
    /// No connections yet.
    pub(crate) fn new(address: SocketAddr, tls: Option<PodTls>, idle_max: usize, watch: Arc<Watch>) -> Self {
        let dialled = if tls.is_some() { PodTls::address(address) } else { address };
        let host = HeaderValue::try_from(dialled.to_string()).unwrap_or(HeaderValue::from_static("pod"));
        Self {
            address,
            host,
            tls,
            idle_max,
            idle: Mutex::default(),
            dials: Semaphore::new(DIALS_MAX),
            held: Arc::default(),
            link: Link::new(address),
            watch,
            http2: Mutex::default(),
            http2_dial: tokio::sync::Mutex::default(),
        }
    }

    /// Connections to another port of the same pod: a probe's.
    pub(crate) fn beside(&self, address: SocketAddr) -> Self {
        Self { held: self.held.clone(), ..Self::new(address, None, 0, self.watch.clone()) }
    }

    /// Connects for a probe to a plain port, within `timeout`. A connect that is not answered by then goes on, and the
    /// next probe finds it: however far the pod is, it is reached, and however short the network was not there, that
    /// connect is not waited for.
    ///
    /// # Errors
    /// The pod could not be connected to: how the probe ended.
    pub(crate) async fn connect(&self, address: SocketAddr, timeout: Duration) -> Result<PodStream, Outcome> {
        let held = self.held.lock().take().filter(|held| held.address == address && held.start.elapsed() < HELD_MAX);
        let begun = Connecting::begin(address).map_err(|_| Outcome::Unanswered)?;
        let connecting: Vec<Connecting> = held.into_iter().chain([begun]).collect();
        let ended = futures::future::select_all(connecting.iter().map(|connecting| Box::pin(connecting.ended())));
        let _ = tokio::time::timeout(timeout, ended).await;
        let Some(ended) = connecting.iter().position(Connecting::has_ended) else {
            *self.held.lock() = connecting.into_iter().next(); // The older one.
            return Err(Outcome::Unanswered);
        };
        let ended = connecting.into_iter().nth(ended).ok_or(Outcome::Unanswered)?;
        let start = ended.start;
        let stream = ended.finish().and_then(PodStream::new).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Outcome::Refused(start.elapsed()),
            _ => Outcome::Unanswered,
        })?;
        Ok(if address == self.address { self.connected(stream) } else { stream })
    }

    /// How long a probe's answer may take that is given `timeout` from a pod nearby: some round trips in any case.
    pub(crate) fn answer_timeout(&self, timeout: Duration) -> Duration {
        timeout.max(self.link.round_trip().map_or(timeout, answer_min))
    }

    fn connected(&self, mut stream: PodStream) -> PodStream {
        self.link.connected_in(stream.round_trip);
        stream.watch(&self.watch, &self.link);
        stream
    }

    async fn dial(&self) -> io::Result<PodIo> {
        let address = if self.tls.is_some() { PodTls::address(self.address) } else { self.address };
        let patience = match self.link.round_trip() {
            Some(round_trip) => Patience {
                busy: BUSY_AFTER.max(round_trip.saturating_mul(BUSY_ROUND_TRIPS)),
                doubt: doubt_after(round_trip),
                most: silence_max(round_trip),
            },
            None => Patience { busy: DIAL_UNMEASURED, doubt: DIAL_UNMEASURED, most: DIAL_UNMEASURED },
        };
        let connects = self.link.connects();
        let others_were_answered = || self.link.connects() != connects;
        let connected = connect(address, patience, others_were_answered, || self.watch.suspect(&self.link));
        let stream = match connected.await.and_then(PodStream::new) {
            Ok(stream) => self.connected(stream),
            Err(error) if is_silence(&error) && others_were_answered() => {
                let problem = format!("{error}, while others were: its queue is full");
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, problem));
            }
            Err(error) => {
                self.link.not_connected(&error);
                if error.kind() == io::ErrorKind::NetworkUnreachable {
                    self.doubt(); // There is no way to it from here: not for what is in flight either.
                }
                return Err(error);
            }
        };
        let Some(tls) = &self.tls else { return Ok(stream.into()) };
        // The pod's program takes part in this one, and a held request may meet it while it starts.
        match tokio::time::timeout(HANDSHAKE_MAX, tls.handshake(stream)).await {
            Ok(shaken) => shaken,
            Err(_) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("no TLS handshake within {HANDSHAKE_MAX:?}")))
            }
        }
    }

    /// The pod's being found gone from now on. Made before a request is sent, so that none is missed.
    pub(crate) fn lost(&self) -> Lost<'_> {
        self.link.lost()
    }

    /// The kernel has given up on a connection, or on the way there: whether the pod is there at all is to be found
    /// out.
    pub fn doubt(&self) {
        self.watch.doubt(&self.link);
    }

    /// Whether requests are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// An idle HTTP/1.1 connection that the pod has not closed: the caller's lane's, else any.
    pub(crate) fn idle(&self) -> Option<Box<Http1>> {
        loop {
            let mut connection = {
                let mut idle = self.idle.lock();
                let here = idle.iter().rposition(|connection| connection.is_here());
                let last = idle.len().checked_sub(1)?;
                idle.remove(here.unwrap_or(last))
            };
            if connection.is_alive() {
                return Some(connection);
            }
        }
    }

    /// Takes in a connection over which nothing was sent yet: a probe's.
    pub(crate) fn put_fresh(&self, connection: Box<Http1>) {
        let mut idle = self.idle.lock();
        if idle.len() < self.idle_max {
            idle.push(connection);
        }
    }

    /// An HTTP/1.1 connection: idle or new.
    ///
    /// # Errors
    /// The pod could not be connected to.
    pub(crate) async fn http1(&self) -> io::Result<Box<Http1>> {
        if let Some(connection) = self.idle() {
            return Ok(connection);
        }
        let start = Instant::now();
        // The semaphore is never closed.
        let _permit = self.dials.acquire().await.map_err(io::Error::other)?;
        self.link.answers_since(start)?;
        if let Some(connection) = self.idle() {
            return Ok(connection);
        }
        self.dial_http1().await
    }

    /// A new HTTP/1.1 connection: for an upgrade, which does not give it back and must not meet a stale one.
    ///
    /// # Errors
    /// The pod could not be connected to.
    pub(crate) async fn dial_http1(&self) -> io::Result<Box<Http1>> {
        Ok(Http1::new(self.dial().await?))
    }

    /// A place on an HTTP/2 connection: one that has room, or a new one.
    ///
    /// # Errors
    /// The pod could not be connected to.
    pub(crate) async fn http2(&self) -> io::Result<Stream> {
        if let Some(found) = self.open_http2() {
            return Ok(found);
        }
        let start = Instant::now();
        let _dialling = self.http2_dial.lock().await;
        self.link.answers_since(start)?;
        if let Some(found) = self.open_http2() {
            return Ok(found);
        }
        let stream = self.dial().await?;
        let connection = Http2::new(stream).await.map_err(io::Error::other)?;
        let place = connection.reserve();
        self.put_http2(connection);
        Ok(place)
    }

    /// Takes in an HTTP/2 connection.
    pub(crate) fn put_http2(&self, connection: Http2) {
        let mut http2 = self.http2.lock();
        if http2.len() < HTTP2_MAX {
            http2.push(connection);
        }
    }

    /// A place on the first connection of the caller's lane that has room. On the last of any lane whether or not,
    /// where there may be no more.
    pub(crate) fn open_http2(&self) -> Option<Stream> {
        let mut http2 = self.http2.lock();
        let mut here = http2.iter().filter(|connection| connection.is_here() && !connection.is_closed());
        let with_room = here.find_map(Http2::try_reserve);
        with_room.or_else(|| {
            http2.retain(|connection| !connection.is_closed());
            let last = http2.last().filter(|_| http2.len() >= HTTP2_MAX)?;
            Some(last.reserve())
        })
    }

    /// New requests take another HTTP/2 connection than that of `left`, on which others may still run.
    pub(crate) fn leave_http2(&self, left: &Stream) {
        self.http2.lock().retain(|connection| !connection.is_of(left));
    }

    /// Closes every idle connection, because the pod failed or is no more. What is in flight runs on.
    pub fn close(&self) {
        self.idle.lock().clear();
        self.http2.lock().clear();
    }

    fn is_empty(&self) -> bool {
        self.idle.lock().is_empty() && self.http2.lock().iter().all(Http2::is_closed)
    }

    /// Since when each idle connection is idle.
    fn idle_since(&self) -> Vec<Instant> {
        self.idle.lock().iter().map(|connection| connection.idle_since).collect()
    }

    /// Closes what is idle since before `then`.
    fn close_idle_before(&self, then: Instant) {
        let old: Vec<Box<Http1>> = self.idle.lock().extract_if(.., |connection| connection.idle_since < then).collect();
        drop(old);
    }

    fn sweep(&self, now: Instant) {
        let old: Vec<Box<Http1>> = {
            let mut idle = self.idle.lock();
            let idle_for = |connection: &Http1| now.saturating_duration_since(connection.idle_since);
            let is_unneeded = |connection: &Http1| idle_for(connection) >= SWEEP_INTERVAL;
            let unneeded = idle.iter().filter(|connection| is_unneeded(connection));
            let mut unneeded: Vec<Instant> = unneeded.map(|connection| connection.made).collect();
            unneeded.sort_unstable();
            let surplus = unneeded.len().saturating_sub(IDLE_KEPT);
            let mut surplus = surplus - surplus / 4;
            // The oldest ones stay: those of one burst have its memory to themselves, and an allocator gives nothing
            // back of what is shared with one that stays.
            let youngest = unneeded.get(unneeded.len() - surplus).copied();
            let goes = |connection: &mut Box<Http1>| {
                let is_young = youngest.is_some_and(|youngest| connection.made >= youngest);
                let is_surplus = surplus > 0 && is_young && is_unneeded(connection);
                surplus -= usize::from(is_surplus);
                is_surplus || idle_for(connection) >= IDLE_MAX || !connection.is_alive()
            };
            let old = idle.extract_if(.., goes).collect();
            idle.shrink_to(8);
            old
        };
        let spare: Vec<Http2> = {
            let mut http2 = self.http2.lock();
            http2.retain(|connection| !connection.is_closed());
            let first = http2.len().min(1);
            http2.extract_if(first.., |connection| connection.is_idle()).collect()
        };
        // Closing a socket is a system call: not under the lock. Nobody will need their buffers soon.
        trim::cooling(|| drop((old, spare)));
    }
}

impl ReturnIdle for Pool {
    fn return_idle(&self, mut connection: Box<Http1>) {
        if connection.spent {
            return;
        }
        connection.exchange_over();
        connection.idle_since = Instant::now();
        let mut idle = self.idle.lock();
        if idle.len() < self.idle_max {
            idle.push(connection);
        }
    }
}

/// The pools of all addresses.
pub struct Pools {
    idle_max: usize,
    idle_total_max: usize,
    /// The authorities of pods' certificates, where requests to them are encrypted.
    roots: Option<Roots>,
    watch: Arc<Watch>,
    by_address: DashMap<SocketAddr, Arc<Pool>, RandomState>,
}

impl Pools {
    /// None yet. Sweeps for as long as the returned value lives, and until `shutdown`.
    pub fn start(
        (idle_max, idle_total_max): (usize, usize),
        roots: Option<Roots>,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let watch = Arc::<Watch>::default();
        tokio::spawn(watch.clone().run(shutdown.clone()));
        let pools = Arc::new(Self { idle_max, idle_total_max, roots, watch, by_address: DashMap::default() });
        tokio::spawn(sweep(Arc::downgrade(&pools), shutdown));
        pools
    }

    /// The pool of an address for requests to revisions of `namespace`, made if there is none.
    pub fn get(&self, address: SocketAddr, namespace: &str) -> Arc<Pool> {
        let Some(roots) = &self.roots else {
            if let Some(pool) = self.by_address.get(&address) {
                return pool.clone();
            }
            let new = || Arc::new(Pool::new(address, None, self.idle_max, self.watch.clone()));
            return self.by_address.entry(address).or_insert_with(new).clone();
        };
        let tls = PodTls::new(roots.clone(), namespace);
        if let Some(pool) = self.by_address.get(&address)
            && pool.tls.as_ref().is_some_and(|of| of.user_name == tls.user_name)
        {
            return pool.clone();
        }
        // None, or that of a pod of another namespace, which had the address before.
        let pool = Arc::new(Pool::new(address, Some(tls), self.idle_max, self.watch.clone()));
        self.by_address.insert(address, pool.clone());
        pool
    }

    /// Has `observer` told what connections to an address say of the pod there.
    pub fn observe(&self, address: SocketAddr, observer: Weak<dyn PodObserver>) {
        self.watch.observe(address, observer);
    }

    /// Has it told no longer.
    pub fn unobserve(&self, address: SocketAddr, observer: &Weak<dyn PodObserver>) {
        self.watch.unobserve(address, observer);
    }

    /// Closes what is old, and forgets addresses that nobody uses and nothing is kept for: a late request may have made
    /// a pool for a pod that was removed just before.
    fn sweep(&self, now: Instant) {
        let all: Vec<Arc<Pool>> = self.by_address.iter().map(|entry| entry.value().clone()).collect();
        for pool in &all {
            pool.sweep(now);
        }
        self.bound_idle(&all);
        drop(all);
        // Under the entry's lock nobody can get the pool, so a count of one stays one.
        self.by_address.retain(|_, pool| Arc::strong_count(pool) > 1 || !pool.is_empty());
    }

    /// Closes the longest idle connections beyond the bound for all addresses.
    fn bound_idle(&self, all: &[Arc<Pool>]) {
        let mut since: Vec<Instant> = all.iter().flat_map(|pool| pool.idle_since()).collect();
        if since.len() <= self.idle_total_max {
            return;
        }
        let surplus = (since.len() - self.idle_total_max).min(since.len() - 1);
        let (_, oldest_kept, _) = since.select_nth_unstable(surplus);
        all.iter().for_each(|pool| pool.close_idle_before(*oldest_kept));
    }

    /// Forgets an address that no revision lists any more.
    pub fn remove(&self, address: SocketAddr) {
        if let Some((_, pool)) = self.by_address.remove(&address) {
            pool.close();
        }
    }
}

async fn sweep(pools: Weak<Pools>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(SWEEP_INTERVAL) => {}
            () = shutdown.cancelled() => return,
        }
        let Some(pools) = pools.upgrade() else { return };
        pools.sweep(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::WorkerRuntimes;
    use socket2::{SockFilter, SockRef};
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;
    use std::num::NonZeroUsize;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::runtime::Handle;

    async fn listen() -> TcpListener {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port")
    }

    /// Goal: a probe's connect says that nobody listens, and how long it took to hear that; silence says nothing.
    #[tokio::test]
    async fn a_refusal_is_told_from_silence() {
        let listener = listen().await;
        let address = listener.local_addr().expect("bound");
        let pool = Pool::new(address, None, 2, Arc::default());
        let from_there = |outcome| matches!(outcome, Outcome::Refused(took) if took > Duration::ZERO);
        // From here on its kernel drops what comes before TCP sees it.
        SockRef::from(&listener).attach_filter(&[SockFilter::new(0x06, 0, 0, 0)]).expect("permitted");
        let silent = pool.connect(address, Duration::from_millis(5)).await.expect_err("dropped");
        assert_eq!(silent, Outcome::Unanswered);
        drop(listener);
        let refused = pool.connect(address, Duration::from_secs(60)).await.expect_err("nobody listens");
        assert!(from_there(refused), "{refused:?}");
    }

    /// Goal: a program that starts again at its old address is found at once, although a first segment from a port that
    /// its former self remembers is not answered as it should be for some 10 ms. Method: the second connect's beside it.
    #[tokio::test]
    async fn a_connect_that_hangs_delays_no_other() {
        let listener = listen().await;
        let address = listener.local_addr().expect("bound");
        let pool = Pool::new(address, None, 2, Arc::default());
        SockRef::from(&listener).attach_filter(&[SockFilter::new(0x06, 0, 0, 0)]).expect("permitted");
        pool.connect(address, Duration::from_millis(1)).await.expect_err("dropped");
        SockRef::from(&listener).detach_filter().expect("permitted");
        let stream = pool.connect(address, Duration::from_secs(60)).await.expect("beside the one that hangs");
        // As the kernel saw it; the first would have been answered only once it was repeated, after a second.
        assert!(stream.round_trip < Duration::from_secs(1), "{:?}", stream.round_trip);
    }

    #[tokio::test]
    async fn idle_connections_are_taken_again_latest_first_and_bounded() {
        let listener = listen().await;
        let pool = Pool::new(listener.local_addr().expect("bound"), None, 2, Arc::default());
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(pool.http1().await.expect("accepted"));
        }
        for connection in open {
            assert!(!connection.reused);
            pool.return_idle(connection);
        }
        assert!(pool.idle().is_some_and(|connection| connection.reused));
        assert!(pool.idle().is_some());
        assert!(pool.idle().is_none(), "the third was closed");
    }

    /// Goal: a lane takes what it has used, and others' only when it has none.
    /// Method: one connection on each of two lanes, the second lane's on top.
    #[tokio::test]
    async fn a_lane_takes_its_own_connections_first() {
        let listener = listen().await;
        let pool = Arc::new(Pool::new(listener.local_addr().expect("bound"), None, 2, Arc::default()));
        let lanes = WorkerRuntimes::start(NonZeroUsize::MIN.saturating_add(1), |_| {}).expect("two threads");
        let (first, second) = (lanes.next().clone(), lanes.next().clone());
        let dial = |lane: &Handle| {
            let pool = pool.clone();
            lane.spawn(async move { pool.http1().await })
        };
        let mut open = Vec::new();
        for lane in [&first, &second] {
            open.push((lane, dial(lane).await.expect("no panic").expect("accepted")));
        }
        for (lane, connection) in open {
            let pool = pool.clone();
            lane.spawn(async move { pool.return_idle(connection) }).await.expect("no panic");
        }
        let taking = first.spawn(async move { [(); 3].map(|()| pool.idle().map(|connection| connection.is_here())) });
        assert_eq!(taking.await.expect("no panic"), [Some(true), Some(false), None]);
    }

    /// Goal: what a burst has opened goes, three in four at a time; a few stay, and those go at the end of their time.
    #[tokio::test]
    async fn most_of_what_nobody_needs_goes_with_each_sweep() {
        let listener = listen().await;
        let pool = Pool::new(listener.local_addr().expect("bound"), None, 100, Arc::default());
        let mut open = Vec::new();
        for _ in 0..20 {
            open.push(pool.http1().await.expect("accepted"));
        }
        open.into_iter().for_each(|connection| pool.return_idle(connection));
        let begin = Instant::now();
        let left = |after: Duration| {
            pool.sweep(begin + after);
            pool.idle.lock().len()
        };
        let oldest: Vec<Instant> = pool.idle.lock().iter().take(IDLE_KEPT).map(|connection| connection.made).collect();
        pool.idle.lock().reverse();
        assert_eq!(left(SWEEP_INTERVAL / 2), 20, "needed lately");
        assert_eq!([2, 3, 4, 5, 6].map(|n| left(SWEEP_INTERVAL * n)), [5, 2, 1, 1, 1]);
        let stayed: BTreeSet<Instant> = pool.idle.lock().iter().map(|connection| connection.made).collect();
        assert_eq!(stayed, BTreeSet::from_iter(oldest));
        assert_eq!(left(IDLE_MAX + SWEEP_INTERVAL), 0);
    }

    #[tokio::test]
    async fn a_connection_that_the_pod_closed_is_not_taken() {
        let listener = listen().await;
        let pool = Pool::new(listener.local_addr().expect("bound"), None, 2, Arc::default());
        let connection = pool.http1().await.expect("accepted");
        let (mut accepted, _) = listener.accept().await.expect("dialled");
        pool.return_idle(connection);
        accepted.shutdown().await.expect("open");
        drop(accepted);
        // The close has arrived once the kernel says that there is something to read.
        tokio::time::timeout(Duration::from_secs(10), async {
            while pool.idle.lock().first_mut().is_some_and(|connection| connection.is_alive()) {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the close arrives");
        assert!(pool.idle().is_none());
    }

    #[tokio::test]
    async fn all_addresses_together_are_bounded() {
        let pools = Pools::start((10, 3), None, CancellationToken::new());
        let mut kept = Vec::new();
        for _ in 0..5 {
            let listener = listen().await;
            let pool = pools.get(listener.local_addr().expect("bound"), "ns");
            pool.return_idle(pool.http1().await.expect("accepted"));
            kept.push((pool, listener));
            tokio::time::sleep(Duration::from_millis(2)).await; // So that none is idle since the same instant.
        }
        pools.sweep(Instant::now());
        let left: Vec<bool> = kept.iter().map(|(pool, _)| pool.idle().is_some()).collect();
        assert_eq!(left, [false, false, true, true, true], "the longest idle ones went");
    }

    #[tokio::test]
    async fn old_connections_are_closed_and_unused_addresses_forgotten() {
        let listener = listen().await;
        let address = listener.local_addr().expect("bound");
        let pools = Pools::start((2, 10), None, CancellationToken::new());
        let pool = pools.get(address, "ns");
        pool.return_idle(pool.http1().await.expect("accepted"));
        let (mut accepted, _) = listener.accept().await.expect("dialled");
        let now = Instant::now();
        pools.sweep(now + IDLE_MAX - Duration::from_secs(1));
        assert!(pools.by_address.contains_key(&address));
        drop(pool);
        pools.sweep(now + IDLE_MAX + Duration::from_secs(1));
        assert!(!pools.by_address.contains_key(&address));
        assert_eq!(accepted.read(&mut [0]).await.expect("closed, not reset"), 0);
    }
}
