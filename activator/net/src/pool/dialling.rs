//! Dials pods: timeouts of connects, their concurrency, and the evidence of a failed connect.
//!
//! - A connect may take [`silence_max`] of the fastest one so far, because the pod's kernel answers it, not its
//!   program. If the pod answers others meanwhile, its queue was full, which is no evidence against the pod: the
//!   request tries again after [`BUSY_AFTER`].
//! - At most [`DIALS_MAX`] connects run at the same time. Thousands of released requests would otherwise overflow the
//!   pod's accept queue and wait for retransmissions.

use super::Pool;
use crate::liveness::is_silence;
use crate::liveness::silence::{doubt_after, silence_max};
use crate::pod::stream::PodStream;
use crate::pod::tls::{PodIo, PodTls};
use crate::tcp::connect::{Connected, Patience, connect};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

/// Maximum number of concurrent connects to one address: half of the smallest common accept queue (128).
pub(super) const DIALS_MAX: usize = 64;

/// Maximum wait for a connect to an address without an earlier success: long enough for one retransmission (1 s).
const DIAL_UNMEASURED: Duration = Duration::from_millis(1500);

/// Time after which an unanswered connect counts as dropped by the pod's full queue, if others are answered meanwhile:
/// a minimum, and a number of round trips. The kernel would retransmit after a second.
const BUSY_AFTER: Duration = Duration::from_millis(50);
const BUSY_ROUND_TRIPS: u32 = 4;

/// Maximum wait for a TLS handshake after the connect.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

impl Pool {
    /// Waits for a permit to dial. An error means that a connect was left unanswered meanwhile, so that waiting
    /// requests do not repeat it.
    pub(super) async fn permit(&self) -> io::Result<SemaphorePermit<'_>> {
        let start = Instant::now();
        let permit = self.permits.acquire().await.map_err(io::Error::other)?;
        self.link.answers_since(start)?;
        Ok(permit)
    }

    /// Wraps a new connection to the address, and tracks it. An error means that the socket is no longer connected.
    pub(super) fn connected(&self, connected: Connected) -> io::Result<PodStream> {
        self.link.connected_in(connected.round_trip);
        PodStream::new(connected, Some((&self.liveness, &self.link)))
    }

    /// Connects, with a TLS handshake if requests are encrypted. An error means that the pod could not be connected to.
    /// With [`io::ErrorKind::ResourceBusy`] it had no room for this connect.
    pub(super) async fn dial(&self) -> io::Result<PodIo> {
        let stream = self.dial_plain(target_of(self.address, self.tls.as_ref())).await?;
        let Some(tls) = &self.tls else { return Ok(stream.into()) };
        // The handshake involves the pod's program, which may still be starting when a held request arrives.
        match tokio::time::timeout(HANDSHAKE_MAX, tls.handshake(stream)).await {
            Ok(shaken) => shaken,
            Err(_) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("no TLS handshake within {HANDSHAKE_MAX:?}")))
            }
        }
    }

    /// Connects to a port of the pod. Same errors as [`Pool::dial`].
    pub(super) async fn dial_plain(&self, target: SocketAddr) -> io::Result<PodStream> {
        let patience = match self.link.round_trip() {
            Some(round_trip) => Patience {
                busy: BUSY_AFTER.max(round_trip.saturating_mul(BUSY_ROUND_TRIPS)),
                doubt: doubt_after(round_trip),
                most: silence_max(round_trip),
            },
            None => Patience::without_doubt(DIAL_UNMEASURED),
        };
        let connects = self.link.connects();
        let others_were_answered = || self.link.connects() != connects;
        let connected = connect(target, patience, others_were_answered, || self.liveness.suspect(&self.link)).await;
        match connected.and_then(|connected| self.connected(connected)) {
            Ok(stream) => Ok(stream),
            Err(error) if is_silence(&error) && others_were_answered() => {
                let problem = format!("{error}, but others were answered: the pod's accept queue is full");
                Err(io::Error::new(io::ErrorKind::ResourceBusy, problem))
            }
            Err(error) => {
                self.link.not_connected(&error);
                if error.kind() == io::ErrorKind::NetworkUnreachable {
                    // There is no route from here, so requests in flight are affected too.
                    self.liveness.doubt(&self.link);
                }
                Err(error)
            }
        }
    }
}

/// Returns the address that requests are sent to, encrypted or not.
pub(super) fn target_of(address: SocketAddr, tls: Option<&PodTls>) -> SocketAddr {
    if tls.is_some() { PodTls::address(address) } else { address }
}
