//! Connections to pods, shared by every request that goes to the same address.
//!
//! | file | has |
//! |---|---|
//! | [`dialling`] | new connections: how long, how many at once, TLS |
//! | [`probe_connect`] | those of probes |
//! | [`spoken`] | what the pod has been found to speak |
//! | [`http1`], [`http2`] | what may be used again |
//! | [`sweep`] | what is closed, and when |
//!
//! Whoever waits for leave to dial takes a connection that came back meanwhile. Idle HTTP/1.1 connections to all
//! addresses are bounded too (upstream: 1000) by the sweep: a count that every request moved would be the one thing that
//! all cores share.

mod dialling;
mod http1;
mod http2;
mod probe_connect;
mod spoken;
mod sweep;
#[cfg(test)]
mod tests;

use crate::http1::connection::{Http1, ReturnIdle};
use crate::http2::connection::{Http2, Stream};
use crate::liveness::{self, Link, Liveness, Lost, PodObserver};
use crate::pod::stream::PodStream;
use crate::pod::tls::{PodIo, PodTls};
use crate::relay::end::TcpEnd;
use crate::relay::mark;
use activator_core::backends::{Outcome, answer_min};
use common::backend::Protocol;
use common_runtime::tls::Roots;
use dashmap::DashMap;
use dialling::Dialler;
use foldhash::fast::RandomState;
use http::HeaderValue;
use http1::Http1Pool;
use http2::Http2Pool;
use parking_lot::Mutex;
use probe_connect::ProbeConnects;
use spoken::PodHttp;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// All connections to one address.
pub struct Pool {
    /// The address.
    pub address: SocketAddr,
    /// The address that requests go to, as a `Host` header.
    pub(crate) host: HeaderValue,
    dialler: Dialler,
    probes: ProbeConnects,
    http1: Http1Pool,
    http2: Http2Pool,
    /// Whether the pod is sent connections that are no HTTP.
    relays: AtomicBool,
    /// HTTP that the pod has been found to speak.
    pub(crate) spoken: PodHttp,
    /// When its last failure was told of.
    told: Mutex<Option<Instant>>,
}

/// A pod's failures are told of no more often.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// How long a pod nearby may take to say how many streams it permits on a new HTTP/2 connection. Until then it has one
/// request there, which no pod answers before it has said that.
const SETTLES_WITHIN: Duration = Duration::from_millis(500);

impl Pool {
    fn new(address: SocketAddr, tls: Option<PodTls>, idle_max: usize, liveness: Arc<Liveness>) -> Self {
        let dialler = Dialler::new(address, tls, liveness);
        let host = HeaderValue::try_from(dialler.target().to_string()).unwrap_or(HeaderValue::from_static("pod"));
        let (probes, http1, http2) = (ProbeConnects::default(), Http1Pool::new(idle_max), Http2Pool::default());
        let (relays, spoken, told) = (AtomicBool::new(false), PodHttp::default(), Mutex::default());
        Self { address, host, dialler, probes, http1, http2, relays, spoken, told }
    }

    /// Connections to another port of the same pod: a probe's.
    pub(crate) fn beside(&self, address: SocketAddr) -> Self {
        let liveness = self.dialler.liveness().clone();
        Self { probes: self.probes.clone(), ..Self::new(address, None, 0, liveness) }
    }

    /// Whether anything was connected to there, ever.
    pub fn has_connected(&self) -> bool {
        self.dialler.round_trip().is_some()
    }

    /// Whether requests are encrypted. Probes never are.
    pub fn is_encrypted(&self) -> bool {
        self.dialler.tls().is_some()
    }

    /// Connects for a probe to a plain port, within `timeout`.
    ///
    /// # Errors
    /// The pod could not be connected to: how the probe ended.
    pub(crate) async fn connect(&self, address: SocketAddr, timeout: Duration) -> Result<PodStream, Outcome> {
        let connected = self.probes.connect(address, timeout).await?;
        let own = address == self.address;
        let stream = if own { self.dialler.connected(connected) } else { PodStream::new(connected) };
        stream.map_err(|_| Outcome::Unanswered)
    }

    /// How long an answer may take that is given `timeout` from a pod nearby: some round trips in any case.
    pub(crate) fn answer_timeout(&self, timeout: Duration) -> Duration {
        timeout.max(self.dialler.round_trip().map_or(timeout, answer_min))
    }

    /// The pod's being found gone from now on. Made before a request is sent, so that none is missed.
    pub(crate) fn lost(&self) -> Lost<'_> {
        self.dialler.lost()
    }

    /// The kernel has given up on a connection, or on the way there: whether the pod is there at all is to be found
    /// out.
    pub fn doubt(&self) {
        self.dialler.doubt();
    }

    /// Closes what is idle, and has every connection to the pod end.
    fn cut(&self) {
        self.close();
        self.dialler.cut();
    }

    /// An idle HTTP/1.1 connection that the pod has not closed. With `once`, for a request that must not run twice.
    #[inline]
    pub(crate) fn idle(&self, once: bool) -> Option<Box<Http1>> {
        self.http1.take(once)
    }

    /// Whether the pod is sent connections that are no HTTP, and none is to be kept for a first request.
    pub(crate) fn relays(&self) -> bool {
        self.relays.load(Ordering::Relaxed)
    }

    /// Takes in an HTTP/1.1 connection over which nothing was sent yet: a probe's.
    pub(crate) fn put_fresh(&self, connection: Box<Http1>) {
        self.http1.put(connection);
    }

    /// An HTTP/1.1 connection: [idle](Self::idle) or new.
    ///
    /// # Errors
    /// The pod could not be connected to.
    pub(crate) async fn http1(&self, once: bool) -> io::Result<Box<Http1>> {
        if let Some(connection) = self.idle(once) {
            return Ok(connection);
        }
        let start = Instant::now();
        let _permit = self.dialler.permit().await?;
        self.dialler.answers_since(start)?;
        if let Some(connection) = self.idle(once) {
            return Ok(connection);
        }
        if once {
            self.http1.close_one();
        }
        self.dial_http1().await
    }

    /// A new HTTP/1.1 connection, idle ones aside: that the pod accepts one tells that it is there.
    ///
    /// # Errors
    /// The pod could not be connected to.
    pub(crate) async fn new_http1(&self) -> io::Result<Box<Http1>> {
        let start = Instant::now();
        let _permit = self.dialler.permit().await?;
        self.dialler.answers_since(start)?;
        self.dial_http1().await
    }

    /// A new HTTP/1.1 connection: for an upgrade, which does not give it back and must not meet a stale one.
    ///
    /// # Errors
    /// The pod could not be connected to.
    pub(crate) async fn dial_http1(&self) -> io::Result<Box<Http1>> {
        Ok(Http1::new(self.dialler.dial().await?))
    }

    /// A connection of its own to the pod, as nothing but bytes.
    ///
    /// # Errors
    /// The pod could not be connected to. [`io::ErrorKind::ResourceBusy`]: it had no room for this connect, which says
    /// nothing of the pod.
    pub async fn connect_tcp(&self) -> io::Result<TcpEnd> {
        if !self.relays.swap(true, Ordering::Relaxed) {
            self.close(); // A probe's connection: the pod may serve one client only, and wait for what this one says.
        }
        let start = Instant::now();
        let lost = self.lost();
        let connecting = async {
            let _permit = self.dialler.permit().await?;
            self.dialler.answers_since(start)?;
            self.dialler.dial_plain(self.address).await?.into_end()
        };
        tokio::select! {
            biased; // What has come counts.
            connected = connecting => connected,
            () = lost.happened() => Err(io::ErrorKind::HostUnreachable.into()),
        }
    }

    /// A connection of its own to another activator, which is told by `mark` what to do with it, and that one's word.
    ///
    /// # Errors
    /// It could not be connected to, or broke the connection before its word.
    pub async fn connect_marked(&self, mark: &str) -> io::Result<(TcpEnd, u8)> {
        let mut end = self.connect_tcp().await?;
        let lost = self.lost();
        tokio::select! {
            biased; // What has come counts.
            said = mark::ask(&mut end, mark) => said.map(|said| (end, said)),
            () = lost.happened() => Err(io::ErrorKind::HostUnreachable.into()),
        }
    }

    /// Returns whether the pod sends something on a new connection before its client does, within this time.
    ///
    /// # Errors
    /// The pod could not be connected to, or broke the connection.
    pub async fn speaks_first(&self, within: Duration) -> io::Result<bool> {
        let start = Instant::now();
        let permit = self.dialler.permit().await?;
        self.dialler.answers_since(start)?;
        let mut end = self.dialler.dial_plain(self.address).await?.into_end()?;
        drop(permit);
        let mut byte = [0; 1];
        let mut read = ReadBuf::new(&mut byte);
        match tokio::time::timeout(self.answer_timeout(within), poll_fn(|cx| end.poll_read(cx, &mut read))).await {
            Ok(read) => Ok(read? > 0),
            Err(_) => Ok(false),
        }
    }

    /// A place on an HTTP/2 connection: one that has room, or a new one.
    ///
    /// # Errors
    /// The pod could not be connected to.
    pub(crate) async fn http2(&self) -> io::Result<Stream> {
        match self.open_http2() {
            Some(found) => Ok(found),
            None => self.http2_since(0, || self.open_http2()).await,
        }
    }

    /// A place on an HTTP/2 connection that was made after this was asked for, for whichever of the worker's requests:
    /// that the pod accepts one tells that it is there.
    ///
    /// # Errors
    /// The pod could not be connected to.
    pub(crate) async fn new_http2(&self) -> io::Result<Stream> {
        let made = self.http2.made();
        self.http2_since(made, || self.http2.open_since(made)).await
    }

    /// A place that `open` finds, or one on a new connection. Before it dials, it waits until it is known how many
    /// streams the pod takes on the newest connection of the caller's worker, if that was made after so many: it may
    /// have room. Not under the lock, which the dials of all workers take.
    async fn http2_since(&self, made: usize, open: impl Fn() -> Option<Stream>) -> io::Result<Stream> {
        let start = Instant::now();
        loop {
            let dialling = self.http2.dialling.lock().await;
            self.dialler.answers_since(start)?;
            if let Some(found) = open() {
                return Ok(found);
            }
            let Some(newest) = self.http2.unsettled_since(made) else { return self.dial_http2().await };
            drop(dialling);
            newest.settled(self.answer_timeout(SETTLES_WITHIN)).await;
        }
    }

    /// Returns whether the pod speaks HTTP/2. If that is not known, a new connection tells: the pod answers it with its
    /// settings. A pod that says nothing is taken to be slow.
    ///
    /// # Errors
    /// The pod could not be connected to.
    pub(crate) async fn takes_http2(&self) -> io::Result<bool> {
        let start = Instant::now();
        let _dialling = self.http2.dialling.lock().await;
        if let Some(known) = self.spoken.knows(Protocol::H2c) {
            return Ok(known);
        }
        if !self.http2.is_empty() {
            return Ok(true);
        }
        self.dialler.answers_since(start)?;
        let Ok(connection) = self.new_http2_over(self.dialler.dial().await?).await else { return Ok(false) };
        connection.settled(self.answer_timeout(SETTLES_WITHIN)).await;
        let said = connection.has_settings();
        if said {
            self.spoken.note(Protocol::H2c, true);
        } else if connection.is_closed() {
            return Ok(false);
        }
        self.put_http2(connection);
        Ok(true)
    }

    async fn dial_http2(&self) -> io::Result<Stream> {
        let connection = self.new_http2_over(self.dialler.dial().await?).await.map_err(io::Error::other)?;
        let place = connection.reserve();
        self.put_http2(connection);
        Ok(place)
    }

    /// An HTTP/2 connection over a stream that is connected.
    ///
    /// # Errors
    /// The pod has closed it.
    pub(crate) async fn new_http2_over(&self, stream: impl Into<PodIo>) -> Result<Http2, h2::Error> {
        Http2::new(stream, self.http2.next_windows()).await
    }

    /// Takes in an HTTP/2 connection.
    pub(crate) fn put_http2(&self, connection: Http2) {
        self.http2.put(connection);
    }

    /// A place on an HTTP/2 connection that is there.
    #[inline]
    pub(crate) fn open_http2(&self) -> Option<Stream> {
        self.http2.open()
    }

    /// New requests take another HTTP/2 connection than that of `left`, on which others may still run.
    pub(crate) fn leave_http2(&self, left: &Stream) {
        self.http2.leave(left);
    }

    /// Whether another failure of the pod is worth a line of the log: one each minute is.
    pub fn is_told_again(&self, now: Instant) -> bool {
        let mut told = self.told.lock();
        let again = told.is_none_or(|last| now.saturating_duration_since(last) >= TOLD_EVERY);
        if again {
            *told = Some(now);
        }
        again
    }

    /// Closes every idle connection, because the pod failed or is no more. What is in flight runs on.
    pub fn close(&self) {
        self.http1.clear();
        self.http2.clear();
    }

    fn is_empty(&self) -> bool {
        self.http1.is_empty() && self.http2.is_empty()
    }
}

impl ReturnIdle for Pool {
    fn return_idle(&self, mut connection: Box<Http1>) {
        if connection.spent {
            return;
        }
        connection.exchange_over();
        connection.idle_since = Instant::now();
        self.http1.put(connection);
    }
}

/// The pools of all addresses.
pub struct Pools {
    idle_max: usize,
    idle_total_max: usize,
    /// The authorities of pods' certificates, where requests to them are encrypted.
    roots: Option<Roots>,
    liveness: Arc<Liveness>,
    by_address: DashMap<SocketAddr, Arc<Pool>, RandomState>,
}

impl Pools {
    /// None yet. At most so many connections are idle: to one address, and to all. Sweeps for as long as the returned
    /// value lives, and until `shutdown`.
    pub fn start(
        (idle_max, idle_total_max): (usize, usize),
        roots: Option<Roots>,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let liveness = Arc::<Liveness>::default();
        tokio::spawn(liveness::run(liveness.clone(), shutdown.clone()));
        let pools = Arc::new(Self { idle_max, idle_total_max, roots, liveness, by_address: DashMap::default() });
        tokio::spawn(sweep::run(Arc::downgrade(&pools), shutdown));
        pools
    }

    /// The pool of an address for requests to pods of `namespace`, made if there is none.
    pub fn get(&self, address: SocketAddr, namespace: &str) -> Arc<Pool> {
        let Some(roots) = &self.roots else {
            if let Some(pool) = self.by_address.get(&address) {
                return pool.clone();
            }
            let new = || Arc::new(Pool::new(address, None, self.idle_max, self.liveness.clone()));
            return self.by_address.entry(address).or_insert_with(new).clone();
        };
        let tls = PodTls::new(roots.clone(), namespace);
        if let Some(pool) = self.by_address.get(&address)
            && pool.dialler.tls().is_some_and(|of| of.user_name == tls.user_name)
        {
            return pool.clone();
        }
        // None, or that of a pod of another namespace, which had the address before.
        let pool = Arc::new(Pool::new(address, Some(tls), self.idle_max, self.liveness.clone()));
        self.by_address.insert(address, pool.clone());
        pool
    }

    /// The pool of another activator's address.
    pub fn of_activator(&self, address: SocketAddr) -> Arc<Pool> {
        if let Some(pool) = self.by_address.get(&address) {
            return pool.clone();
        }
        let tls = self.roots.clone().map(PodTls::of_activator);
        let new = || Arc::new(Pool::new(address, tls, self.idle_max, self.liveness.clone()));
        self.by_address.entry(address).or_insert_with(new).clone()
    }

    /// Forgets an address that no revision lists any more.
    pub fn remove(&self, address: SocketAddr) {
        if let Some((_, pool)) = self.by_address.remove(&address) {
            pool.close();
        }
    }

    /// Ends every connection to the pod at this address at once, whichever of its ports they go to, and what runs on
    /// them. Where pods have the address of their node, those to all pods there end.
    pub fn cut(&self, pod: IpAddr) {
        let of_pod = self.by_address.iter().filter(|entry| entry.key().ip() == pod);
        let of_pod: Vec<Arc<Pool>> = of_pod.map(|entry| entry.value().clone()).collect();
        of_pod.iter().for_each(|pool| pool.cut()); // Under none of the table's locks.
        // Some may be of no pool any more: the sweep forgets one whose last connection is a tunnel.
        self.liveness.cut(&Link::new(SocketAddr::new(pod, 0)));
    }

    /// Has `observer` told what connections to an address say of the pod there.
    pub fn observe(&self, address: SocketAddr, observer: Weak<dyn PodObserver>) {
        self.liveness.observe(address, observer);
    }

    /// Has it told no longer.
    pub fn unobserve(&self, address: SocketAddr, observer: &Weak<dyn PodObserver>) {
        self.liveness.unobserve(address, observer);
    }

    /// Closes what is old, and forgets addresses that nobody uses and nothing is kept for: a late request may have made
    /// a pool for a pod that was removed just before.
    fn sweep(&self, now: Instant) {
        let all: Vec<Arc<Pool>> = self.by_address.iter().map(|entry| entry.value().clone()).collect();
        for pool in &all {
            pool.sweep(now);
        }
        sweep::bound_idle(&all, self.idle_total_max);
        drop(all);
        // Under the entry's lock nobody can get the pool, so a count of one stays one.
        self.by_address.retain(|_, pool| Arc::strong_count(pool) > 1 || !pool.is_empty());
    }
}
