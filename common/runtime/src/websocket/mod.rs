//! A WebSocket client that mends itself: what carries stats from activators to an autoscaler, and between autoscalers.
//!
//! A [`DurableSender`] keeps one connection to one of several URLs, tried in order, and dials again for as long as it
//! lives. It sends binary frames and nothing is acknowledged; what it knows is that a frame was handed to a socket.
//!
//! # The rules (Knative's figures; see [`Config`])
//!
//! - A ping goes out every 10/3 s. The link is given up 10 s after the last pong, whatever else arrives: a peer that
//!   sends but no longer answers is as gone as a silent one.
//! - An address has 3 s for connect and handshake together.
//! - After a loss the first attempt is immediate if the link had proven itself with a pong, or if the peer said that it
//!   restarts (close code 1012; granted once between proofs, so that a peer that only ever says so cannot make us
//!   spin). Further attempts back off from 100 ms by a factor of 1.3, each lengthened by up to a half, and no wait
//!   exceeds [`Config::backoff_max`]: upstream starts over after twenty steps, which comes to much the same.
//! - A write error is a loss at once, as is a write that does not finish before the read deadline.
//!
//! # TLS
//!
//! A `wss://` URL needs [`Config::trust`], and with trust every URL must be `wss://` unless [`Config::allow_plain`]
//! says otherwise: nothing is sent in plain by mistake. The
//! certificate must bear the name that the trust demands, whatever address is dialled.
//!
//! # What happens to frames
//!
//! While there is no connection, frames are refused ([`SendError::NotConnected`]); nothing is kept for later, because a
//! stat is about the second in which it was taken. Frames that were queued when the link broke are dropped, and
//! [`DurableSender::send`] says so to its caller. Who must get a signal across asks `send` again once
//! [`DurableSender::connected`] says true.
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
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Uri};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Frames that may wait for the socket. One frame a second carries all regular stats; the rest are first-request
/// signals, one for each revision that wakes, about 60 bytes each. So a thousand services waking in one instant fit.
/// When full, the newest frame is refused ([`SendError::Full`]).
pub const QUEUE_CAPACITY: usize = 1024;

/// How a link behaves. The defaults are Knative's.
#[derive(Clone, Debug)]
pub struct Config {
    /// Time between pings; 10/3 s.
    pub ping_interval: Duration,
    /// Longest time without a pong; 10 s.
    pub read_deadline: Duration,
    /// Time for connect and handshake at one address; 3 s.
    pub handshake_timeout: Duration,
    /// First wait between attempts; 100 ms. Each further one is 1.3 times as long.
    pub backoff_first: Duration,
    /// Longest wait between attempts, jitter aside; 5 s, so that an autoscaler that comes back is found soon.
    pub backoff_max: Duration,
    /// Frames that may wait for the socket; at least 1.
    pub queue_capacity: usize,
    /// Further headers of the handshake request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// A token that proves who we are, if the peer wants one.
    pub token: Option<TokenFile>,
    /// What the peer's certificate must prove; none: URLs are `ws://`.
    pub trust: Option<Trust>,
    /// Whether URLs may be `ws://` in spite of [`Config::trust`], for peers that do not speak TLS yet.
    pub allow_plain: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ping_interval: Duration::from_millis(3_333),
            read_deadline: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(3),
            backoff_first: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            queue_capacity: QUEUE_CAPACITY,
            headers: Vec::new(),
            token: None,
            trust: None,
            allow_plain: false,
        }
    }
}

/// Why a frame was not sent. After [`SendError::Full`] none of it has left; after [`SendError::NotConnected`] it may
/// have, if the link broke in the middle of a write, so sending it again may repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no connection, or it broke before the frame was written.
    #[error("no connection to the peer has been established")]
    NotConnected,
    /// [`Config::queue_capacity`] frames wait already.
    #[error("too many frames wait for the socket")]
    Full,
}

/// Why a link cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// No URL was given.
    #[error("no URL to connect to")]
    None,
    /// A URL that is not `ws://HOST[:PORT][/PATH]`, or `wss://` likewise.
    #[error("URL {0:?} must have the form ws://HOST[:PORT][/PATH], or wss:// likewise")]
    Invalid(String),
    /// A `wss://` URL, and nothing says whose certificates to believe.
    #[error("URL {0:?} needs authorities to believe: ZEROSCALE_STAT_TLS_CA_FILE")]
    Untrusted(String),
    /// A `ws://` URL where TLS is asked for.
    #[error("URL {0:?} must begin with wss://, since ZEROSCALE_STAT_TLS_CA_FILE is set")]
    Plain(String),
}

/// Sends frames over a link that mends itself. Clones share the link; it ends with the last of them, or on shutdown.
#[derive(Clone, Debug)]
pub struct DurableSender {
    queue: mpsc::Sender<Outgoing>,
    connected: watch::Receiver<bool>,
}

/// A frame on its way, and who wants to know when it was written.
#[derive(Debug)]
struct Outgoing {
    frame: Bytes,
    written: Option<oneshot::Sender<()>>,
}

/// One of a link's URLs, taken apart.
#[derive(Clone, Debug)]
struct Target {
    uri: Uri,
    tls: bool,
    host: String,
    port: u16,
}

impl DurableSender {
    /// Starts a link to the first of `urls` that answers, and keeps it up until `shutdown`, or until every clone is
    /// gone. On shutdown queued frames are still written, within a second, and the peer is told with a close frame.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// No URL, or one of another form; or TLS is asked for by one of URL and trust alone.
    pub fn start(
        urls: Vec<String>,
        resolver: Arc<dyn Resolve>,
        config: Config,
        shutdown: CancellationToken,
    ) -> Result<Self, UrlError> {
        let targets = urls
            .iter()
            .map(|url| match (Target::parse(url)?, &config.trust) {
                (Target { tls: true, .. }, None) => Err(UrlError::Untrusted(url.clone())),
                (Target { tls: false, .. }, Some(_)) if !config.allow_plain => Err(UrlError::Plain(url.clone())),
                (target, _) => Ok(target),
            })
            .collect::<Result<Vec<_>, _>>()?;
        if targets.is_empty() {
            return Err(UrlError::None);
        }
        let (queue, frames) = mpsc::channel(config.queue_capacity.max(1));
        let (connected_tx, connected) = watch::channel(false);
        tokio::spawn(link::run(link::Link { targets, resolver, config, frames, connected: connected_tx, shutdown }));
        Ok(Self { queue, connected })
    }

    /// Queues a frame. Never blocks; `Ok` means queued, not written.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn try_send(&self, frame: Bytes) -> Result<(), SendError> {
        self.enqueue(Outgoing { frame, written: None })
    }

    /// Sends a frame and waits until all of it was handed to the connected socket. That is no proof that the peer read
    /// it, but a peer that vanished before is found out by the pings.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the frame queued: it may still be sent.
    ///
    /// # Errors
    /// See [`SendError`]. A frame that was queued when the link broke reports [`SendError::NotConnected`].
    pub async fn send(&self, frame: Bytes) -> Result<(), SendError> {
        let (written, done) = oneshot::channel();
        self.enqueue(Outgoing { frame, written: Some(written) })?;
        done.await.map_err(|_| SendError::NotConnected)
    }

    /// Whether there is a connection now, and every change of that.
    pub fn connected(&self) -> watch::Receiver<bool> {
        self.connected.clone()
    }

    /// Whether there is a connection now.
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
    fn parse(url: &str) -> Result<Self, UrlError> {
        let invalid = || UrlError::Invalid(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let tls = match uri.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            _ => return Err(invalid()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(invalid)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Self { uri, tls, host, port })
    }
}
