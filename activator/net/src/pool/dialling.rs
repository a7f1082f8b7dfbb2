//! Dials pods: timeouts of connects, their concurrency, and the evidence of a failed connect.
//!
//! - A connect may take [`silence_max`] of the fastest one so far, because the pod's kernel answers it, not its
//!   program. If the pod answers others meanwhile, its queue was full, which is no evidence against the pod: the
//!   request tries again after [`BUSY_AFTER`].
//! - At most [`DIALS_MAX`] connects run at the same time. Thousands of released requests would otherwise overflow the
//!   pod's accept queue and wait for retransmissions.

use crate::liveness::silence::{doubt_after, silence_max};
use crate::liveness::{Link, Liveness, Lost, is_silence};
use crate::pod::stream::PodStream;
use crate::pod::tls::{PodIo, PodTls};
use crate::tcp::connect::{Connected, Patience, connect};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Maximum number of concurrent connects to one address: half of the smallest common accept queue (128).
const DIALS_MAX: usize = 64;

/// Maximum wait for a connect to an address without an earlier success: long enough for one retransmission (1 s).
const DIAL_UNMEASURED: Duration = Duration::from_millis(1500);

/// Time after which an unanswered connect counts as dropped by the pod's full queue, if others are answered meanwhile:
/// a minimum, and a number of round trips. The kernel would retransmit after a second.
const BUSY_AFTER: Duration = Duration::from_millis(50);
const BUSY_ROUND_TRIPS: u32 = 4;

/// Maximum wait for a TLS handshake after the connect.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

pub(super) struct Dialler {
    /// Address of plain requests.
    address: SocketAddr,
    /// TLS settings of requests; `None` if they are plain.
    tls: Option<PodTls>,
    permits: Semaphore,
    link: Arc<Link>,
    liveness: Arc<Liveness>,
}

impl Dialler {
    pub(super) fn new(address: SocketAddr, tls: Option<PodTls>, liveness: Arc<Liveness>) -> Self {
        Self { address, tls, permits: Semaphore::new(DIALS_MAX), link: Link::new(address), liveness }
    }

    /// Returns the TLS settings of requests.
    pub(super) fn tls(&self) -> Option<&PodTls> {
        self.tls.as_ref()
    }

    /// Returns the liveness monitor of the connections.
    pub(super) fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }

    /// Returns the address that requests are sent to.
    pub(super) fn target(&self) -> SocketAddr {
        if self.tls.is_some() { PodTls::address(self.address) } else { self.address }
    }

    /// Returns the duration of the fastest connect so far.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.link.round_trip()
    }

    /// Returns a signal that the pod was found gone from now on. Create it before sending a request, so that no signal
    /// is missed.
    pub(super) fn lost(&self) -> Lost<'_> {
        self.link.lost()
    }

    /// Ends every connection to the pod.
    pub(super) fn cut(&self) {
        self.liveness.cut(&self.link);
    }

    /// Starts to check whether the pod is alive, because the kernel has given up a connection or the route.
    pub(super) fn doubt(&self) {
        self.liveness.doubt(&self.link);
    }

    /// Waits for a permit to dial.
    ///
    /// # Errors
    /// Never, because the semaphore is not closed.
    pub(super) async fn permit(&self) -> io::Result<SemaphorePermit<'_>> {
        self.permits.acquire().await.map_err(io::Error::other)
    }

    /// Fails if a connect was left unanswered, so that waiting requests do not repeat it.
    ///
    /// # Errors
    /// A connect was left unanswered since `start`.
    pub(super) fn answers_since(&self, start: Instant) -> io::Result<()> {
        self.link.answers_since(start)
    }

    /// Wraps a new connection to the address, and tracks it.
    ///
    /// # Errors
    /// The socket is no longer connected.
    pub(super) fn connected(&self, connected: Connected) -> io::Result<PodStream> {
        let mut stream = PodStream::new(connected)?;
        self.link.connected_in(stream.round_trip);
        stream.track(&self.liveness, &self.link);
        Ok(stream)
    }

    /// Connects, with a TLS handshake if requests are encrypted.
    ///
    /// # Errors
    /// The pod could not be connected to. [`io::ErrorKind::ResourceBusy`]: it had no room for this connect.
    pub(super) async fn dial(&self) -> io::Result<PodIo> {
        let stream = self.dial_plain(self.target()).await?;
        let Some(tls) = &self.tls else { return Ok(stream.into()) };
        // The handshake involves the pod's program, which may still be starting when a held request arrives.
        match tokio::time::timeout(HANDSHAKE_MAX, tls.handshake(stream)).await {
            Ok(shaken) => shaken,
            Err(_) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("no TLS handshake within {HANDSHAKE_MAX:?}")))
            }
        }
    }

    /// Connects to a port of the pod.
    ///
    /// # Errors
    /// As [`Dialler::dial`]'s.
    pub(super) async fn dial_plain(&self, target: SocketAddr) -> io::Result<PodStream> {
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
        let connected = connect(target, patience, others_were_answered, || self.liveness.suspect(&self.link)).await;
        match connected.and_then(|connected| self.connected(connected)) {
            Ok(stream) => Ok(stream),
            Err(error) if is_silence(&error) && others_were_answered() => {
                let problem = format!("{error}, while others were: its queue is full");
                Err(io::Error::new(io::ErrorKind::ResourceBusy, problem))
            }
            Err(error) => {
                self.link.not_connected(&error);
                if error.kind() == io::ErrorKind::NetworkUnreachable {
                    self.doubt(); // There is no route from here, so requests in flight are affected too.
                }
                Err(error)
            }
        }
    }
}
