//! Connections to pods, shared by all requests to the same address.
//!
//! | file | content |
//! |---|---|
//! | [`dialling`] | new connections: timeouts, concurrency, TLS |
//! | [`http2`], [`crate::http1::connection::idle`] | reusable connections |
//! | [`sweep`] | closing idle connections |
//!
//! A request that waits for a permit to dial takes a connection that is returned meanwhile. The sweep also bounds the
//! idle HTTP/1.1 connections to all addresses (upstream: 1000). An exact count would be changed by every request, and
//! would be the only data shared by all cores.

mod dialling;
mod http2;
mod sweep;
#[cfg(test)]
mod tests;

use crate::http1::connection::Http1;
use crate::http1::connection::idle::Http1Pool;
use crate::http2::connection::{Http2, Stream};
use crate::liveness::{self, Link, Liveness, Lost, PodObserver};
use crate::pod::stream::PodStream;
use crate::pod::tls::PodTls;
use crate::relay::end::TcpEnd;
use crate::relay::mark;
use crate::tcp::connect::{Patience, connect};
use activator_core::backends::{ProbeOutcome, min_response_time};
use common::backend::Protocol;
use common_runtime::tls::Roots;
use dashmap::DashMap;
use dialling::{DIALS_MAX, target_of};
use foldhash::fast::RandomState;
use http::HeaderValue;
use http2::Http2Pool;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// All connections to one address.
pub struct Pool {
    /// The address.
    pub address: SocketAddr,
    /// Address of requests, as a `Host` header.
    pub(crate) host: HeaderValue,
    /// TLS settings of requests; `None` if they are plain.
    tls: Option<PodTls>,
    /// Permits to dial.
    permits: Semaphore,
    link: Arc<Link>,
    liveness: Arc<Liveness>,
    pub(crate) http1: Arc<Http1Pool>,
    pub(crate) http2: Http2Pool,
    /// The pod receives relayed connections without HTTP, so no connection is kept for a first request.
    pub(crate) relays: AtomicBool,
    /// Support of each protocol by the pod, as far as it was detected.
    http_support: Mutex<[Option<bool>; 2]>,
    last_logged: Mutex<Option<Instant>>,
}

/// Minimum time between two logged failures of a pod.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum wait for a nearby pod's stream limit on a new HTTP/2 connection. Until then the connection carries one
/// request, and a pod sends its settings before it responds.
const SETTLES_WITHIN: Duration = Duration::from_millis(500);

impl Pool {
    fn new(address: SocketAddr, tls: Option<PodTls>, idle_max: usize, liveness: Arc<Liveness>) -> Self {
        let target = target_of(address, tls.as_ref()).to_string();
        let host = HeaderValue::try_from(target).unwrap_or(HeaderValue::from_static("pod"));
        let (permits, link) = (Semaphore::new(DIALS_MAX), Link::new(address));
        let (http1, http2) = (Http1Pool::new(idle_max), Http2Pool::default());
        let (relays, http_support, last_logged) = Default::default();
        Self { address, host, tls, permits, link, liveness, http1, http2, relays, http_support, last_logged }
    }

    /// Creates a pool for probes to another port of the same pod.
    pub(crate) fn beside(&self, address: SocketAddr) -> Self {
        Self::new(address, None, 0, self.liveness.clone())
    }

    /// Reports whether any connect to the address has ever succeeded.
    pub fn has_connected(&self) -> bool {
        self.link.round_trip().is_some()
    }

    /// Reports whether requests are encrypted. Probes never are.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Connects for a probe to a plain port, within `timeout`. Returns the probe's outcome if the pod could not be
    /// connected to.
    pub(crate) async fn connect(&self, address: SocketAddr, timeout: Duration) -> Result<PodStream, ProbeOutcome> {
        let start = Instant::now();
        let connected = connect(address, Patience::without_doubt(timeout), || false, || {}).await;
        let connected = connected.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => ProbeOutcome::Refused(start.elapsed()),
            _ => ProbeOutcome::Unanswered,
        })?;
        let own = address == self.address;
        let stream = if own { self.connected(connected) } else { PodStream::new(connected, None) };
        stream.map_err(|_| ProbeOutcome::Unanswered)
    }

    /// Extends `timeout`, which is meant for a nearby pod, to at least a few round trips.
    pub(crate) fn answer_timeout(&self, timeout: Duration) -> Duration {
        timeout.max(self.link.round_trip().map_or(timeout, min_response_time))
    }

    /// Returns a signal that the pod was found gone from now on. Create it before sending a request, so that no signal
    /// is missed.
    pub(crate) fn lost(&self) -> Lost<'_> {
        self.link.lost()
    }

    /// Starts to check whether the pod is alive, because the kernel has given up a connection or the route.
    pub fn doubt(&self) {
        self.liveness.doubt(&self.link);
    }

    /// Returns a new HTTP/1.1 connection, or one that becomes idle during the wait for a permit to dial.
    /// `must_not_repeat` is set for a request that must not run twice. An error means that the pod could not be
    /// connected to.
    pub(crate) async fn http1(&self, must_not_repeat: bool) -> io::Result<Box<Http1>> {
        let _permit = self.permit().await?;
        if let Some(connection) = self.http1.take(must_not_repeat) {
            return Ok(connection);
        }
        if must_not_repeat {
            self.http1.close_one();
        }
        Ok(Http1::new(self.dial().await?))
    }

    /// Returns a new HTTP/1.1 connection, even if others are idle, because only a new one proves that the pod is alive.
    /// An error means that the pod could not be connected to.
    pub(crate) async fn new_http1(&self) -> io::Result<Box<Http1>> {
        let _permit = self.permit().await?;
        Ok(Http1::new(self.dial().await?))
    }

    /// Dials a dedicated connection for plain bytes.
    ///
    /// # Errors
    /// The pod could not be connected to. [`io::ErrorKind::ResourceBusy`]: it had no room for this connect, which is no
    /// evidence against the pod.
    pub async fn connect_tcp(&self) -> io::Result<TcpEnd> {
        if !self.relays.swap(true, Ordering::Relaxed) {
            // This closes a probe's connection: the pod may serve only one client, and wait for input on that one.
            self.close();
        }
        let lost = self.lost();
        let connecting = pin!(async {
            let _permit = self.permit().await?;
            self.dial_plain(self.address).await?.into_end()
        });
        lost.connected(connecting).await
    }

    /// Dials a dedicated connection to another activator, sends `mark`, and returns the connection and the activator's
    /// answer.
    ///
    /// # Errors
    /// The activator could not be connected to, or closed the connection before its answer.
    pub async fn connect_marked(&self, mark: &str) -> io::Result<(TcpEnd, u8)> {
        let mut end = self.connect_tcp().await?;
        let answer = self.lost().connected(pin!(mark::send_mark(&mut end, mark))).await?;
        Ok((end, answer))
    }

    /// Reports whether the pod sends bytes on a new connection before its client does, within this time.
    ///
    /// # Errors
    /// The pod could not be connected to, or closed the connection.
    pub async fn speaks_first(&self, within: Duration) -> io::Result<bool> {
        let permit = self.permit().await?;
        let mut end = self.dial_plain(self.address).await?.into_end()?;
        drop(permit);
        let mut byte = [0; 1];
        let mut read = ReadBuf::new(&mut byte);
        match tokio::time::timeout(self.answer_timeout(within), poll_fn(|cx| end.poll_read(cx, &mut read))).await {
            Ok(read) => Ok(read? > 0),
            Err(_) => Ok(false),
        }
    }

    /// Reserves a place on an HTTP/2 connection: one with room, or a new one. Before it dials, it waits for the pod's
    /// stream limit on the worker's newest connection, which may have room. It does not hold the lock meanwhile,
    /// because the dials of all workers take that. Connections that were made before `since` are not used, because only
    /// a new one proves that the pod is alive. An error means that the pod could not be connected to.
    pub(crate) async fn http2(&self, since: Option<Instant>) -> io::Result<Stream> {
        let start = Instant::now();
        loop {
            let dialling = self.http2.dialling.lock().await;
            self.link.answers_since(start)?;
            if let Some(found) = self.http2.open(since) {
                return Ok(found);
            }
            let Some(newest) = self.http2.unsettled(since) else {
                let connection = Http2::new(self.dial().await?).await.map_err(io::Error::other)?;
                let place = connection.reserve();
                self.http2.put(connection);
                return Ok(place);
            };
            drop(dialling);
            newest.settled(self.answer_timeout(SETTLES_WITHIN)).await;
        }
    }

    /// Reports whether the pod speaks HTTP/2. If that is unknown, a new connection shows it: an HTTP/2 pod sends its
    /// settings. A pod that sends nothing is assumed to be slow. An error means that the pod could not be connected to.
    pub(crate) async fn takes_http2(&self) -> io::Result<bool> {
        let start = Instant::now();
        let _dialling = self.http2.dialling.lock().await;
        if let Some(known) = self.speaks(Protocol::H2c) {
            return Ok(known);
        }
        if !self.http2.is_empty() {
            return Ok(true);
        }
        self.link.answers_since(start)?;
        let Ok(connection) = Http2::new(self.dial().await?).await else { return Ok(false) };
        if connection.settled(self.answer_timeout(SETTLES_WITHIN)).await {
            self.record_support(Protocol::H2c, true);
        } else if connection.is_closed() {
            return Ok(false);
        }
        self.http2.put(connection);
        Ok(true)
    }

    /// Reports whether the pod speaks `protocol`; `None` if that is unknown.
    pub(crate) fn speaks(&self, protocol: Protocol) -> Option<bool> {
        self.http_support.lock()[protocol as usize]
    }

    pub(crate) fn record_support(&self, protocol: Protocol, speaks: bool) {
        self.http_support.lock()[protocol as usize] = Some(speaks);
    }

    /// Reports whether another failure of the pod should be logged: at most one per minute.
    pub fn should_log_failure(&self, now: Instant) -> bool {
        let mut last_logged = self.last_logged.lock();
        let again = last_logged.is_none_or(|last| now.saturating_duration_since(last) >= LOG_INTERVAL);
        if again {
            *last_logged = Some(now);
        }
        again
    }

    /// Closes every idle connection, because the pod failed or is gone. Requests in flight continue.
    pub fn close(&self) {
        self.http1.clear();
        self.http2.clear();
    }

    fn is_empty(&self) -> bool {
        self.http1.is_empty() && self.http2.is_empty()
    }
}

/// Pools of all addresses.
pub struct Pools {
    idle_max: usize,
    idle_total_max: usize,
    /// Certificate authorities of the pods, if requests are encrypted.
    roots: Option<Roots>,
    liveness: Arc<Liveness>,
    by_address: DashMap<SocketAddr, Arc<Pool>, RandomState>,
}

impl Pools {
    /// Starts without pools. The limits are for the idle connections to one address, and to all. Sweeps until the
    /// returned value is dropped, or `shutdown`.
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

    /// Returns the pool of an address for requests to pods of `namespace`, and creates it if needed.
    pub fn get(&self, address: SocketAddr, namespace: &str) -> Arc<Pool> {
        self.pool(address, self.roots.as_ref().map(|roots| PodTls::new(roots.clone(), namespace)))
    }

    /// Returns the pool of another activator's address.
    pub fn of_activator(&self, address: SocketAddr) -> Arc<Pool> {
        self.pool(address, self.roots.clone().map(PodTls::of_activator))
    }

    fn pool(&self, address: SocketAddr, tls: Option<PodTls>) -> Arc<Pool> {
        let user_name = tls.as_ref().map(|tls| &tls.user_name);
        let matches = |pool: &Pool| pool.tls.as_ref().map(|tls| &tls.user_name) == user_name;
        if let Some(pool) = self.by_address.get(&address).filter(|pool| matches(pool)) {
            return pool.clone();
        }
        let new = || Arc::new(Pool::new(address, tls.clone(), self.idle_max, self.liveness.clone()));
        let mut pool = self.by_address.entry(address).or_insert_with(new);
        if !matches(&pool) {
            *pool = new(); // The other one belongs to a pod of another namespace that had the address before.
        }
        pool.clone()
    }

    /// Removes an address that no revision lists any more.
    pub fn remove(&self, address: SocketAddr) {
        if let Some((_, pool)) = self.by_address.remove(&address) {
            pool.close();
        }
    }

    /// Ends every connection to the pod at this address at once, on any of its ports, with the requests on them. If
    /// pods share their node's address, the connections to all pods of the node end.
    pub fn cut(&self, pod: IpAddr) {
        let of_pod = self.by_address.iter().filter(|entry| entry.key().ip() == pod);
        let of_pod: Vec<Arc<Pool>> = of_pod.map(|entry| entry.value().clone()).collect();
        for pool in of_pod {
            // The table's locks are not held here.
            pool.close();
            pool.link.lose();
        }
        // Some connections may have no pool any more: the sweep removes a pool whose last connection is a tunnel.
        self.liveness.cut(pod);
    }

    /// Notifies `observer` of evidence from connections to an address.
    pub fn observe(&self, address: SocketAddr, observer: Weak<dyn PodObserver>) {
        self.liveness.observe(address, observer);
    }

    /// Stops the notifications.
    pub fn unobserve(&self, address: SocketAddr, observer: &Weak<dyn PodObserver>) {
        self.liveness.unobserve(address, observer);
    }

    /// Closes old connections, and removes unused pools without connections: a late request may have created a pool for
    /// a pod that was just removed.
    fn sweep(&self, now: Instant) {
        let all: Vec<Arc<Pool>> = self.by_address.iter().map(|entry| entry.value().clone()).collect();
        for pool in &all {
            pool.sweep(now);
        }
        sweep::bound_idle(&all, self.idle_total_max);
        drop(all);
        // While the entry is locked, the pool cannot be cloned, so a count of one stays one.
        self.by_address.retain(|_, pool| Arc::strong_count(pool) > 1 || !pool.is_empty());
    }
}
