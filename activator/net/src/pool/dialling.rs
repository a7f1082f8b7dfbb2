//! Dialling a pod: how long a connect may take, how many are under way, and what one that fails says of the pod.
//!
//! - A connect is given [`silence_max`] of the fastest one so far: the pod's kernel answers it, not its program. If it
//!   answers others meanwhile, its queue was full, which says nothing of the pod: the request tries again, after
//!   [`BUSY_AFTER`].
//! - At most [`DIALS_MAX`] connects are under way: released at once, thousands of held requests would overflow the pod's
//!   accept queue and wait for retransmissions.

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

/// Connects under way to one address. Half of the smallest accept queue in common use (128).
const DIALS_MAX: usize = 64;

/// Longest wait for a connect to an address where none has succeeded: long enough for one retransmission (1 s).
const DIAL_UNMEASURED: Duration = Duration::from_millis(1500);

/// When a connect that is not answered is taken for one that its pod's full queue has swallowed, if others are answered
/// meanwhile; and in round trips. The kernel would send it again after a second.
const BUSY_AFTER: Duration = Duration::from_millis(50);
const BUSY_ROUND_TRIPS: u32 = 4;

/// Longest wait for a TLS handshake, once the connection stands.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

pub(super) struct Dialler {
    /// Where plain requests go.
    address: SocketAddr,
    /// How requests are encrypted; none: not at all.
    tls: Option<PodTls>,
    permits: Semaphore,
    link: Arc<Link>,
    liveness: Arc<Liveness>,
}

impl Dialler {
    pub(super) fn new(address: SocketAddr, tls: Option<PodTls>, liveness: Arc<Liveness>) -> Self {
        Self { address, tls, permits: Semaphore::new(DIALS_MAX), link: Link::new(address), liveness }
    }

    /// How requests are encrypted.
    pub(super) fn tls(&self) -> Option<&PodTls> {
        self.tls.as_ref()
    }

    /// Where connections are looked after.
    pub(super) fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }

    /// Where requests are dialled.
    pub(super) fn target(&self) -> SocketAddr {
        if self.tls.is_some() { PodTls::address(self.address) } else { self.address }
    }

    /// The fastest connect so far.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.link.round_trip()
    }

    /// The pod's being found gone from now on. Made before a request is sent, so that none is missed.
    pub(super) fn lost(&self) -> Lost<'_> {
        self.link.lost()
    }

    /// Every connection to the pod is to end.
    pub(super) fn cut(&self) {
        self.liveness.cut(&self.link);
    }

    /// The kernel has given up on a connection, or on the way there: whether the pod is there at all is to be found
    /// out.
    pub(super) fn doubt(&self) {
        self.liveness.doubt(&self.link);
    }

    /// Waits for leave to dial.
    ///
    /// # Errors
    /// Never: the semaphore is not closed.
    pub(super) async fn permit(&self) -> io::Result<SemaphorePermit<'_>> {
        self.permits.acquire().await.map_err(io::Error::other)
    }

    /// Nobody waits behind a connect that stays unanswered, to do the same.
    ///
    /// # Errors
    /// One has, since `start`.
    pub(super) fn answers_since(&self, start: Instant) -> io::Result<()> {
        self.link.answers_since(start)
    }

    /// Takes a new connection to the address, and has it looked after.
    ///
    /// # Errors
    /// It is connected no longer.
    pub(super) fn connected(&self, connected: Connected) -> io::Result<PodStream> {
        let mut stream = PodStream::new(connected)?;
        self.link.connected_in(stream.round_trip);
        stream.track(&self.liveness, &self.link);
        Ok(stream)
    }

    /// Connects, and shakes hands if requests are encrypted.
    ///
    /// # Errors
    /// The pod could not be connected to. [`io::ErrorKind::ResourceBusy`]: it had no room for this connect.
    pub(super) async fn dial(&self) -> io::Result<PodIo> {
        let stream = self.dial_plain(self.target()).await?;
        let Some(tls) = &self.tls else { return Ok(stream.into()) };
        // The pod's program takes part in this one, and a held request may meet it while it starts.
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
                    self.doubt(); // There is no way to it from here: not for what is in flight either.
                }
                Err(error)
            }
        }
    }
}
