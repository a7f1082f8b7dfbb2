//! Self-healing WebSocket client: carries stats from activators to an autoscaler, and between autoscalers.
//!
//! A [`DurableSender`] keeps one connection to one of several URLs, tried in order, and reconnects for as long as it
//! lives. It sends binary frames without acknowledgement. It only knows that a frame was written to a socket.
//!
//! # The rules (Knative's values)
//!
//! - A ping is sent every 10/3 s. The link is given up 10 s after the last pong, whatever else arrives: a peer that
//!   sends data but no pongs counts as lost.
//! - An address has 3 s for connect and handshake together.
//! - After a loss, the first attempt is immediate if the link had received a pong, or if the peer announced a restart
//!   (close code 1012). An announcement counts once between pongs, so that a peer that keeps announcing cannot cause a
//!   busy loop. Further attempts back off from 100 ms by a factor of 1.3 up to 5 s, so that a restarted autoscaler is
//!   found soon, each extended by up to a half. Upstream starts over after twenty steps, which is nearly the same.
//! - A write error is a loss at once, as is a write that does not finish before the read deadline.
//!
//! # TLS
//!
//! A `wss://` URL needs [`Config::trust`]. With trust, every URL must be `wss://` unless [`Config::allow_plain`] is
//! set, so nothing is sent unencrypted by mistake. The certificate must contain the name that the trust requires,
//! whatever address is dialled.
//!
//! # Frames without a connection
//!
//! Without a connection, frames are rejected ([`SendError::NotConnected`]) and not stored, because a stat is only valid
//! for the second in which it was measured. Frames that were queued when the link broke are dropped, and
//! [`DurableSender::send`] reports that to its caller. A caller whose signal must arrive calls `send` again once
//! [`DurableSender::connected`] is true.
//!
//! # Not here
//!
//! Reading data frames (discarded), compression.

mod backoff;
#[cfg(test)]
mod encrypted_tests;
mod link;
#[cfg(test)]
mod tests;

use crate::credential::TokenFile;
use crate::resolve::Resolve;
use crate::tls::Trust;
use backoff::Backoff;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Uri};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Maximum number of frames that wait for the socket. One frame a second carries all regular stats. The others are
/// first-request signals, one for each revision that wakes, about 60 bytes each. So a thousand workloads may wake at
/// the same instant. If the queue is full, the newest frame is rejected ([`SendError::Full`]).
pub const QUEUE_CAPACITY: usize = 1024;

/// Time between pings.
const PING_INTERVAL: Duration = Duration::from_millis(3_333);
/// Longest time without a pong.
const READ_DEADLINE: Duration = Duration::from_secs(10);
/// Time for connect and handshake at one address.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);

/// Settings of a link.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Additional headers of the handshake request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Token that proves our identity, if the peer requires one.
    pub token: Option<TokenFile>,
    /// Requirements on the peer's certificate; `None`: URLs are `ws://`.
    pub trust: Option<Trust>,
    /// Permits `ws://` URLs despite [`Config::trust`], for peers without TLS.
    pub allow_plain: bool,
}

/// Reason why a frame was not sent. After [`SendError::Full`] no part of it was sent. After [`SendError::NotConnected`]
/// it may have been sent, if the link broke during a write, so sending it again may duplicate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no connection, or it broke before the frame was written.
    #[error("no connection to the peer has been established")]
    NotConnected,
    /// [`QUEUE_CAPACITY`] frames are already waiting.
    #[error("too many frames wait for the socket")]
    Full,
}

/// Reason why a link cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("URL {url:?} {rule}")]
pub struct UrlError {
    url: String,
    rule: &'static str,
}

/// Sends frames over a self-healing link. Clones share the link; it ends with the last of them, or on shutdown.
#[derive(Clone, Debug)]
pub struct DurableSender {
    queue: mpsc::Sender<Outgoing>,
    connected: watch::Receiver<bool>,
}

/// Queued frame, and the sender that waits for the write, if any.
#[derive(Debug)]
struct Outgoing {
    frame: Bytes,
    written: Option<oneshot::Sender<()>>,
}

/// Parsed URL of a link.
#[derive(Clone, Debug)]
struct Target {
    uri: Uri,
    tls: bool,
    host: String,
    port: u16,
}

impl DurableSender {
    /// Starts a link to the first of `urls` that responds, and maintains it until `shutdown` or until every clone is
    /// dropped. On shutdown, queued frames are still written, within a second, followed by a close frame.
    ///
    /// Must be called within a tokio runtime. Fails without a URL, for a malformed URL, or if only the URL or only the
    /// trust requires TLS.
    pub fn start(
        urls: Vec<String>,
        resolver: Arc<dyn Resolve>,
        config: Config,
        shutdown: CancellationToken,
    ) -> Result<Self, UrlError> {
        let targets = urls
            .iter()
            .map(|url| {
                let refused = |rule| Err(UrlError { url: url.clone(), rule });
                match (Target::parse(url), &config.trust) {
                    (None, _) => refused("must have the form ws://HOST[:PORT][/PATH], or the same with wss://"),
                    (Some(Target { tls: true, .. }), None) => {
                        refused("requires trusted CAs: set ZEROSCALE_STAT_TLS_CA_FILE")
                    }
                    (Some(Target { tls: false, .. }), Some(_)) if !config.allow_plain => {
                        refused("must begin with wss://, since ZEROSCALE_STAT_TLS_CA_FILE is set")
                    }
                    (Some(target), _) => Ok(target),
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        if targets.is_empty() {
            return Err(UrlError { url: String::new(), rule: "is missing" });
        }
        let (queue, frames) = mpsc::channel(QUEUE_CAPACITY);
        let (connected_tx, connected) = watch::channel(false);
        let backoff = Backoff::default();
        let link = link::Link { targets, resolver, config, backoff, frames, connected: connected_tx, shutdown };
        tokio::spawn(link::run(link));
        Ok(Self { queue, connected })
    }

    /// Queues a frame. Never blocks; `Ok` means queued, not written. See [`SendError`].
    pub fn try_send(&self, frame: Bytes) -> Result<(), SendError> {
        self.enqueue(Outgoing { frame, written: None })
    }

    /// Sends a frame and waits until all of it is written to the connected socket. This does not prove that the peer
    /// has read it, but pings detect a peer that disappeared before. Dropping the future leaves the frame queued: it may
    /// still be sent. A frame that was queued when the link broke reports [`SendError::NotConnected`].
    pub async fn send(&self, frame: Bytes) -> Result<(), SendError> {
        let (written, done) = oneshot::channel();
        self.enqueue(Outgoing { frame, written: Some(written) })?;
        done.await.map_err(|_| SendError::NotConnected)
    }

    /// Returns the current state of the connection, with every change.
    pub fn connected(&self) -> watch::Receiver<bool> {
        self.connected.clone()
    }

    /// Reports whether there is currently a connection.
    pub fn is_connected(&self) -> bool {
        *self.connected.borrow()
    }

    fn enqueue(&self, outgoing: Outgoing) -> Result<(), SendError> {
        if !self.is_connected() {
            return Err(SendError::NotConnected);
        }
        self.queue.try_send(outgoing).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::NotConnected,
        })
    }
}

impl Target {
    fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let tls = match uri.scheme_str()? {
            "ws" => false,
            "wss" => true,
            _ => return None,
        };
        let host = uri.host().filter(|host| !host.is_empty())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Some(Self { uri, tls, host, port })
    }
}
