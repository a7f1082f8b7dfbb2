//! Session with one sibling: frames in both directions on an upgraded connection, until a side ends it or becomes
//! silent.
//!
//! Outgoing messages are queued, because the senders must not wait. The queue's bound protects against a sibling that
//! does not read: the number of messages per workload is small and does not depend on the number of requests.

use super::security::Io;
use super::{Holders, now};
use activator_core::holders::message::WorkloadMessage;
use activator_core::holders::session::{FRAME_MAX, Frame, Hello, VERSION};
use activator_core::holders::{Message, Peer, Running};
use activator_net::{Duplex, accept};
use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use common::RevisionKey;
use futures::{SinkExt, StreamExt, TryStreamExt};
use http::{HeaderValue, Request, Response, StatusCode};
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use tokio_util::sync::CancellationToken;

/// Protocol of the upgrade, and name of the header in each of our responses to a request for a session.
pub(super) const PROTOCOL: &str = "zeroscale-holders";
/// Maximum number of queued messages to one sibling: several for each of ten thousand workloads.
pub(super) const QUEUE_MAX: usize = 64 * 1024;
/// Time limit of each step of the handshake.
const STEP_MAX: Duration = Duration::from_secs(3);
/// Maximum number of messages per flush.
const BATCH: usize = 256;

const CLOSED: &str = "the other activator has closed the session";
const UNEXPECTED: &str = "the other activator has sent an unexpected frame";

type Frames = Framed<Io, LengthDelimitedCodec>;

/// Handle of a session, for the rest of the activator.
pub(super) struct Session {
    pub(super) peer: Peer,
    pub(super) dialled: bool,
    pub(super) began: Instant,
    /// Address at which the sibling accepts relayed requests. `key` marks these.
    pub(super) relays_to: SocketAddr,
    pub(super) key: Arc<str>,
    queue: mpsc::Sender<Frame>,
    /// False after `shut`: no message is delivered any more.
    open: Mutex<bool>,
    /// True once links are connected to the sibling. Starts the delivery of messages about workloads.
    pub(super) connected: watch::Sender<bool>,
    ending: CancellationToken,
}

impl Session {
    fn new(peer: Peer, dialled: bool, relays_to: SocketAddr, key: &str) -> (Arc<Self>, mpsc::Receiver<Frame>) {
        let (queue, outgoing) = mpsc::channel(QUEUE_MAX);
        let (open, connected) = (Mutex::new(true), watch::Sender::new(false));
        let (key, ending) = (key.into(), CancellationToken::new());
        (Arc::new(Self { peer, dialled, began: now(), relays_to, key, queue, open, connected, ending }), outgoing)
    }

    pub(super) fn send_holder(&self, key: &RevisionKey, message: Message) {
        self.send(Frame::Holder(WorkloadMessage::new(key.as_str(), message)));
    }

    /// Queues a frame. If the queue is full, the session ends, because no message may be lost.
    pub(super) fn send(&self, frame: Frame) {
        if self.queue.try_send(frame).is_err() {
            self.end("the send queue is full");
        }
    }

    pub(super) fn end(&self, why: &str) {
        if !self.ending.is_cancelled() {
            tracing::debug!(peer = %self.peer, why, "session with another activator ends");
            self.ending.cancel();
        }
    }

    /// Stops the delivery of messages before it returns.
    pub(super) fn shut(&self) {
        *self.open.lock() = false;
    }
}

fn framed(io: Io) -> Frames {
    Framed::new(io, LengthDelimitedCodec::builder().max_frame_length(FRAME_MAX).new_codec())
}

/// Returns the first frame of this side.
fn hello(shared: &Holders, token: Option<String>) -> Bytes {
    let hello = Hello { version: VERSION, from: shared.me.to_string(), token, key: shared.key.clone() };
    Frame::Hello(hello).into_bytes().into()
}

/// Runs one step of the handshake within its time limit.
async fn step<T, E: Into<anyhow::Error>>(step: impl Future<Output = Result<T, E>>) -> anyhow::Result<T> {
    let late = || format!("the other activator has sent nothing for {STEP_MAX:?}");
    timeout(STEP_MAX, step).await.with_context(late)?.map_err(Into::into)
}

/// Opens a session on a connection dialled to `peer`, and starts its task.
pub(super) async fn open(shared: &Arc<Holders>, io: Duplex, peer: &Peer) -> anyhow::Result<()> {
    let security = &shared.parts.security;
    let mut frames = framed(step(security.dialled(io)).await?);
    let token = security.token().await?;
    step(frames.send(hello(shared, token))).await?;
    let (_, key) = read_hello(&mut frames, peer).await?;
    begin(shared, frames, *peer, true, &key)
}

/// Answers a request that asks for a session.
pub(crate) fn answer<B, R: Default>(
    shared: &Arc<Holders>,
    request: &mut Request<B>,
    from: SocketAddr,
) -> Option<Response<R>> {
    let (mut response, upgraded) = accept(request, PROTOCOL)?;
    let peer = from.ip().to_canonical();
    response.headers_mut().insert(PROTOCOL, HeaderValue::from(VERSION));
    if !shared.membership.lock().knows(&peer) {
        tracing::debug!(%peer, "session refused: the address belongs to no activator");
        *response.status_mut() = StatusCode::FORBIDDEN;
        response.headers_mut().remove(http::header::CONNECTION);
        response.headers_mut().remove(http::header::UPGRADE);
        return Some(response);
    }
    let answering = Arc::clone(shared);
    shared.parts.runtime.spawn(async move {
        if let Err(error) = accepted(&answering, upgraded, &peer).await {
            tracing::debug!(%peer, %error, "session could not be opened");
        }
    });
    Some(response)
}

async fn accepted(
    shared: &Arc<Holders>,
    upgraded: impl Future<Output = io::Result<Duplex>>,
    peer: &Peer,
) -> anyhow::Result<()> {
    let security = &shared.parts.security;
    let io = step(upgraded).await?;
    let mut frames = framed(step(security.accepted(io)).await?);
    let (token, key) = read_hello(&mut frames, peer).await?;
    security.prove(peer, token).await?;
    step(frames.send(hello(shared, None))).await?;
    begin(shared, frames, *peer, false, &key)
}

/// Reads the hello of the expected peer and returns its token and key.
async fn read_hello(frames: &mut Frames, peer: &Peer) -> anyhow::Result<(Option<String>, String)> {
    let bytes = step(frames.try_next()).await?.context(CLOSED)?;
    let Some(Frame::Hello(Hello { version, from, token, key })) = Frame::decode(&bytes)? else { bail!(UNEXPECTED) };
    ensure!(
        version == VERSION,
        "the other activator uses version {version} of the protocol, this one version {VERSION}"
    );
    ensure!(from == peer.to_string(), "activator {from} answers at the address of activator {peer}");
    Ok((token, key))
}

fn begin(shared: &Arc<Holders>, frames: Frames, peer: Peer, dialled: bool, key: &str) -> anyhow::Result<()> {
    let relays_to = shared.membership.lock().relays_to(&peer, shared.parts.port);
    let (session, outgoing) = Session::new(peer, dialled, relays_to, key);
    if !shared.with_membership(|membership, _| membership.opened(shared, &session)) {
        bail!("there is another session with activator {}", session.peer);
    }
    tracing::debug!(peer = %session.peer, dialled, "session with another activator opened");
    session.send(shared.beat(&session.peer));
    shared.parts.runtime.spawn(run(Arc::clone(shared), frames, session, outgoing));
    Ok(())
}

async fn run(shared: Arc<Holders>, frames: Frames, session: Arc<Session>, outgoing: mpsc::Receiver<Frame>) {
    let (sink, stream) = frames.split();
    let ended = tokio::select! {
        ended = write(sink, outgoing) => ended,
        ended = read(&shared, &session, stream) => ended,
        () = session.ending.cancelled() => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(peer = %session.peer, %error, "session with another activator ended");
    }
    shared.with_membership(|membership, _| membership.ended(&shared, &session));
}

async fn write(
    mut sink: impl SinkExt<Bytes, Error = io::Error> + Unpin,
    mut outgoing: mpsc::Receiver<Frame>,
) -> anyhow::Result<()> {
    let mut batch = Vec::with_capacity(BATCH);
    while outgoing.recv_many(&mut batch, BATCH).await > 0 {
        for frame in batch.drain(..) {
            sink.feed(frame.into_bytes().into()).await?;
        }
        sink.flush().await?;
    }
    Ok(())
}

async fn read(
    shared: &Arc<Holders>,
    session: &Arc<Session>,
    mut stream: impl StreamExt<Item = io::Result<bytes::BytesMut>> + Unpin,
) -> anyhow::Result<()> {
    let mut connected = session.connected.subscribe();
    while let Some(bytes) = stream.next().await {
        match Frame::decode(&bytes?)? {
            Some(Frame::Beat(beat)) => shared.change_peers(|peers| peers.record_beat(&session.peer, beat, now())),
            Some(Frame::Report(report)) => {
                shared.with_membership(|membership, _| membership.record_report(session, report))
            }
            Some(Frame::Holder(message)) => {
                // The sender knows that this side shares limits, but some links here may not know it yet.
                connected.wait_for(|connected| *connected).await.context(CLOSED)?;
                deliver(shared, session, message)?;
            }
            Some(Frame::Hello(_)) => bail!(UNEXPECTED),
            None => {}
        }
    }
    bail!(CLOSED)
}

/// Delivers a message to its workload. A workload that is inactive here holds nothing and runs nothing, so a claim is
/// confirmed. If it becomes active meanwhile, it asks before it sends.
fn deliver(shared: &Holders, session: &Session, message: WorkloadMessage) -> anyhow::Result<()> {
    let (workload, message) = message.into_parts()?;
    let (Some((namespace, name)), Some(message)) = (workload.split_once('/'), message) else { return Ok(()) };
    let key = RevisionKey::new(namespace, name);
    let open = session.open.lock();
    if !*open {
        bail!(CLOSED);
    }
    loop {
        match (shared.link(&key), &message) {
            (Some(link), message) => {
                let is_delivered = link.receive(&session.peer, message.clone());
                if !is_delivered && !shared.link(&key).is_some_and(|present| Arc::ptr_eq(&present, &link)) {
                    continue; // The workload has become inactive meanwhile.
                }
            }
            (None, Message::Claim { number, .. }) => {
                session.send_holder(&key, Message::Confirm { number: *number, running: Running::new() });
            }
            (None, _) => {}
        }
        return Ok(());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{beside_another, throttler};
    use super::*;
    use activator_core::holders::Shards;
    use activator_core::holders::sharing_mode::{SharingMode, SharingReport};

    fn session() -> (Arc<Session>, mpsc::Receiver<Frame>) {
        Session::new(Peer::from([127, 0, 0, 9]), true, SocketAddr::from(([127, 0, 0, 9], 1)), "key")
    }

    /// Opens a session with a sibling that shares limits. Also returns its outgoing messages.
    fn session_of_sharing_sibling(shared: &Arc<Holders>) -> (Arc<Session>, mpsc::Receiver<Frame>) {
        let (session, outgoing) = session();
        assert!(shared.with_membership(|membership, _| membership.opened(shared, &session)));
        let report = SharingReport { foreign: false, complete: true, shares: true };
        shared.with_membership(|membership, _| membership.record_report(&session, report));
        assert_eq!(shared.membership.lock().mode, SharingMode::Shared);
        (session, outgoing)
    }

    /// Method: one thread delivers the claim while another one starts or ends the workload; many times.
    #[tokio::test]
    async fn a_claim_is_confirmed_while_its_workload_starts_or_ends() {
        let holders = beside_another();
        let (session, mut outgoing) = session_of_sharing_sibling(&holders);
        let confirm = |key: &RevisionKey| {
            let confirm = Message::Confirm { number: 7, running: Running::new() };
            Frame::Holder(WorkloadMessage::new(key.as_str(), confirm))
        };
        for turn in 0..1000 {
            let (key, throttler) = (RevisionKey::new("ns", turn.to_string()), throttler());
            let (begins, start) = (turn % 2 == 0, std::sync::Barrier::new(2));
            let link = (!begins).then(|| holders.enter(&key, &throttler, true));
            let claim = WorkloadMessage::new(key.as_str(), Message::Claim { number: 7, shards: Shards::ALL });
            let link = std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    deliver(&holders, &session, claim).expect("delivered");
                });
                start.wait();
                match link {
                    None => Some(holders.enter(&key, &throttler, true)),
                    Some(link) => {
                        holders.exit(&link);
                        None
                    }
                }
            });
            let sent: Vec<_> = std::iter::from_fn(|| outgoing.try_recv().ok()).collect();
            assert!(sent.contains(&confirm(&key)), "turn {turn}");
            link.iter().for_each(|link| holders.exit(link));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_before_a_dial_grows_with_each_short_session() {
        let shared = beside_another();
        for (lasts, pause) in [(0, Some(20)), (999, Some(40)), (500, Some(80)), (1000, None), (0, Some(20))] {
            let session = session().0;
            assert!(shared.with_membership(|membership, _| membership.opened(&shared, &session)));
            tokio::time::advance(Duration::from_millis(lasts)).await;
            shared.with_membership(|membership, _| membership.ended(&shared, &session));
            let found = shared.membership.lock().pauses.get(&session.peer).copied();
            assert_eq!(found, pause.map(Duration::from_millis), "after {lasts} ms");
        }
    }
}
