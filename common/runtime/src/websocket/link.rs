//! Task behind a [`DurableSender`](super::DurableSender): connect, run, lose, wait, connect again.

use super::backoff::Backoff;
use super::{Config, HANDSHAKE_TIMEOUT, Outgoing, PING_INTERVAL, READ_DEADLINE, Target};
use crate::failure_log::FailureLog;
use crate::resolve::Resolve;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::header::AUTHORIZATION;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout, timeout_at};
use tokio_tungstenite::tungstenite::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::sync::CancellationToken;

/// Maximum number of addresses of one host that are tried per attempt: a Service has one, a headless one a few.
const ADDRESSES_MAX: usize = 8;
/// Maximum number of frames written before one flush.
const BATCH_MAX: usize = 64;
/// Time for the last frames and the close frame at shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Size of the read buffer: peers send only pongs and close frames.
const READ_BUFFER: usize = 4 * 1024;
/// Longest message that a peer may send; longer ones end the link.
const INCOMING_MAX: usize = 64 * 1024;

/// Connection, encrypted or not.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}
type Socket = Box<dyn ByteStream>;

pub(super) struct Link {
    pub(super) targets: Vec<Target>,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) config: Config,
    pub(super) backoff: Backoff,
    pub(super) frames: mpsc::Receiver<Outgoing>,
    pub(super) connected: watch::Sender<bool>,
    pub(super) shutdown: CancellationToken,
}

#[derive(Debug)]
pub(super) enum End {
    /// Shutdown, or all senders are dropped: do not connect again.
    Finished,
    /// The peer announced a restart (1012).
    Restarting,
    /// Any other loss, with its reason.
    Lost(String),
}

/// Maintains the link. Ends on shutdown or when the last sender is dropped.
pub(super) async fn run(mut link: Link) {
    let peer = link.targets.first().map(|target| target.uri.to_string()).unwrap_or_default();
    let mut failures = FailureLog::for_operation(format!("the link to {peer}"));
    loop {
        let wait = link.backoff.wait(&mut rand::rng());
        if !wait.is_zero() && refuse_while(&mut link.frames, &link.shutdown, sleep(wait)).await.is_none() {
            return;
        }
        let dial = dial(&link.targets, &*link.resolver, &link.config);
        let stream = match refuse_while(&mut link.frames, &link.shutdown, dial).await {
            None => return,
            Some(Ok(stream)) => stream,
            Some(Err(error)) => {
                failures.failed(&error);
                continue;
            }
        };
        link.connected.send_replace(true);
        failures.recovered();
        let end = drive(stream, &mut link.frames, &mut link.backoff, &link.shutdown).await;
        link.connected.send_replace(false);
        // The flag is cleared first, so no more frames are queued. A late one is rejected before the next connection.
        while link.frames.try_recv().is_ok() {}
        match end {
            End::Finished => return,
            End::Restarting => link.backoff.restarting(),
            End::Lost(reason) => {
                tracing::info!(%peer, %reason, "the connection was lost and will be established again")
            }
        }
    }
}

/// Awaits `work` and rejects frames meanwhile (dropping an [`Outgoing`] notifies its sender). Returns `None` if the
/// link must end.
async fn refuse_while<T>(
    frames: &mut mpsc::Receiver<Outgoing>,
    shutdown: &CancellationToken,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::pin!(work);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return None,
            frame = frames.recv() => { frame?; }
            done = &mut work => return Some(done),
        }
    }
}

/// Connects to the first address of the first target that completes a handshake.
async fn dial(targets: &[Target], resolver: &dyn Resolve, config: &Config) -> io::Result<WebSocketStream<Socket>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for target in targets {
        let resolving = resolver.resolve(&target.host, target.port);
        let addresses = match within(HANDSHAKE_TIMEOUT, resolving, "the resolver did not respond").await {
            Ok(addresses) => addresses,
            Err(error) => {
                last = error;
                continue;
            }
        };
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            let shaking = handshake(address, target, config);
            match within(HANDSHAKE_TIMEOUT, shaking, "the handshake did not finish in time").await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
            }
        }
    }
    Err(last)
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>, late: &'static str) -> io::Result<T> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, late)))
}

async fn handshake(address: SocketAddr, target: &Target, config: &Config) -> io::Result<WebSocketStream<Socket>> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let socket: Socket = match config.trust.as_ref().filter(|_| target.tls) {
        Some(trust) => Box::new(trust.connect(socket).await?),
        None => Box::new(socket),
    };
    let mut request = ClientRequestBuilder::new(target.uri.clone());
    for (name, value) in &config.headers {
        let value = value.to_str().map_err(io::Error::other)?;
        request = request.with_header(name.as_str(), value);
    }
    if let Some(token) = &config.token {
        let bearer = token.bearer().await?;
        request = request.with_header(AUTHORIZATION.as_str(), bearer.to_str().map_err(io::Error::other)?);
    }
    let limits = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .max_message_size(Some(INCOMING_MAX))
        .max_frame_size(Some(INCOMING_MAX));
    let (stream, _) = client_async_with_config(request, socket, Some(limits)).await.map_err(io::Error::other)?;
    Ok(stream)
}

/// Sends frames until the connection ends. Generic over the stream so that its timing is tested without sockets.
pub(super) async fn drive<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: WebSocketStream<S>,
    frames: &mut mpsc::Receiver<Outgoing>,
    backoff: &mut Backoff,
    shutdown: &CancellationToken,
) -> End {
    let mut deadline = Instant::now() + READ_DEADLINE;
    let mut ping = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut batch = Vec::with_capacity(BATCH_MAX);
    loop {
        // Biased: a lost link is noticed before more is written to it, and frames go before pings.
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {
                while batch.len() < BATCH_MAX && let Ok(frame) = frames.try_recv() {
                    batch.push(frame);
                }
                close_link(&mut stream, &mut batch).await;
                return End::Finished;
            }
            message = stream.next() => match message {
                Some(Ok(Message::Pong(_))) => {
                    deadline = Instant::now() + READ_DEADLINE;
                    backoff.proven();
                }
                Some(Ok(Message::Close(Some(frame)))) if frame.code == CloseCode::Restart => return End::Restarting,
                Some(Ok(Message::Close(frame))) => return End::Lost(format!("the peer closed the connection: {frame:?}")),
                Some(Ok(Message::Ping(_))) => {
                    // The library has queued the pong. It is sent with the next flush, which must not wait for a frame.
                    if let Err(reason) = before(deadline, stream.flush()).await {
                        return End::Lost(reason);
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return End::Lost(error.to_string()),
                None => return End::Lost("the peer closed the connection".to_owned()),
            },
            () = sleep_until(deadline) => {
                return End::Lost(format!("no pong for {READ_DEADLINE:?}"));
            }
            received = frames.recv_many(&mut batch, BATCH_MAX) => {
                if received == 0 {
                    close_link(&mut stream, &mut batch).await;
                    return End::Finished;
                }
                if let Err(reason) = write(&mut stream, &mut batch, deadline).await {
                    return End::Lost(reason);
                }
            }
            _ = ping.tick() => {
                if let Err(reason) = before(deadline, stream.send(Message::Ping(Bytes::new()))).await {
                    return End::Lost(reason);
                }
            }
        }
    }
}

/// Writes and flushes a batch, then notifies its senders. On failure the batch is dropped, which also notifies them.
async fn write<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut WebSocketStream<S>,
    batch: &mut Vec<Outgoing>,
    deadline: Instant,
) -> Result<(), String> {
    for outgoing in &mut *batch {
        let frame = std::mem::take(&mut outgoing.frame);
        before(deadline, stream.feed(Message::Binary(frame))).await?;
    }
    before(deadline, stream.flush()).await?;
    for outgoing in batch.drain(..) {
        if let Some(written) = outgoing.written {
            // The sender may have stopped waiting.
            let _ = written.send(());
        }
    }
    Ok(())
}

/// Sends the last frames and a close frame, within [`CLOSE_TIMEOUT`]; does not wait for the peer's response.
async fn close_link<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut WebSocketStream<S>, batch: &mut Vec<Outgoing>) {
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    let close = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    if write(stream, batch, deadline).await.is_ok() {
        let _ = timeout_at(deadline, stream.close(Some(close))).await;
    }
}

/// Awaits a write until `deadline`.
async fn before(deadline: Instant, write: impl Future<Output = Result<(), WsError>>) -> Result<(), String> {
    match timeout_at(deadline, write).await {
        Ok(written) => written.map_err(|error| error.to_string()),
        Err(_) => Err("a write did not finish before the read deadline".to_owned()),
    }
}
