//! Session with one sibling: frames in both directions on an upgraded connection, until a side ends it or becomes
//! silent.
//!
//! Outgoing messages are queued, because the senders must not wait. The queue's bound protects against a sibling that
//! does not read: the number of messages per workload is small and does not depend on the number of requests.

use super::security::{Io, ProofError};
use super::{SharedHolders, now};
use activator_core::holders::session::{FRAME_MAX, Frame, Hello, SessionError, VERSION};
use activator_core::holders::sharing_mode::SharingReport;
use activator_core::holders::{Beat, Message, Peer, Running, message};
use activator_net::{Duplex, accept};
use bytes::Bytes;
use common::RevisionKey;
use futures::{SinkExt, StreamExt};
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
/// Longest wait for the other side's first frame.
const HELLO: Duration = Duration::from_secs(3);
/// Maximum number of messages per flush.
const BATCH: usize = 256;

type Frames = Framed<Io, LengthDelimitedCodec>;

/// Handle of a session, for the rest of the activator.
pub(super) struct Session {
    pub(super) peer: Peer,
    /// This side dialled.
    pub(super) dialled: bool,
    pub(super) began: Instant,
    /// Address at which the sibling accepts relayed requests. `key` marks these.
    pub(super) relays_to: SocketAddr,
    pub(super) key: Arc<str>,
    queue: mpsc::Sender<Outgoing>,
    /// False after `shut`: no message is delivered any more.
    open: Mutex<bool>,
    /// True once links are connected to the sibling.
    connected: watch::Sender<bool>,
    ending: CancellationToken,
}

enum Outgoing {
    Frame(Frame),
    Holder(RevisionKey, Message),
}

/// Reason why a session does not open, or ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Message(#[from] message::FrameError),
    #[error("the other side said nothing for {HELLO:?}")]
    Late,
    #[error("the other side ended it")]
    Ended,
    #[error("version {0} is not {VERSION}")]
    Version(u32),
    #[error("{found} answers where {wanted} was expected")]
    Name { wanted: Peer, found: String },
    #[error(transparent)]
    Unproven(#[from] ProofError),
    #[error("there is another session")]
    Another,
    #[error("a frame out of turn")]
    OutOfTurn,
}

impl Session {
    fn new(peer: Peer, dialled: bool, relays_to: SocketAddr, key: &str) -> (Arc<Self>, mpsc::Receiver<Outgoing>) {
        let (queue, outgoing) = mpsc::channel(QUEUE_MAX);
        let (open, connected) = (Mutex::new(true), watch::Sender::new(false));
        let (key, ending) = (key.into(), CancellationToken::new());
        (Arc::new(Self { peer, dialled, began: now(), relays_to, key, queue, open, connected, ending }), outgoing)
    }

    pub(super) fn send_beat(&self, beat: Beat) {
        self.send(Outgoing::Frame(Frame::Beat(beat)));
    }

    pub(super) fn send_report(&self, report: SharingReport) {
        self.send(Outgoing::Frame(Frame::Report(report)));
    }

    pub(super) fn send_holder(&self, key: &RevisionKey, message: Message) {
        self.send(Outgoing::Holder(key.clone(), message));
    }

    /// Queues a message. If the queue is full, the session ends, because no message may be lost.
    fn send(&self, outgoing: Outgoing) {
        if self.queue.try_send(outgoing).is_err() {
            self.end("it does not take what it is sent");
        }
    }

    pub(super) fn end(&self, why: &str) {
        if !self.ending.is_cancelled() {
            tracing::debug!(peer = %self.peer, why, "session ends");
            self.ending.cancel();
        }
    }

    /// Stops the delivery of messages before it returns.
    pub(super) fn shut(&self) {
        *self.open.lock() = false;
    }

    /// Starts the delivery of messages about workloads, now that links know the session.
    pub(super) fn connect(&self) {
        self.connected.send_replace(true);
    }
}

fn framed(io: Io) -> Frames {
    Framed::new(io, LengthDelimitedCodec::builder().max_frame_length(FRAME_MAX).new_codec())
}

/// Returns the first frame of this side.
fn hello(shared: &SharedHolders, token: Option<String>) -> Bytes {
    let hello = Hello { version: VERSION, from: shared.me.to_string(), token, key: shared.key.clone() };
    Frame::Hello(hello).into_bytes().into()
}

/// Runs one step of the handshake within its time limit.
async fn step<T, E: Into<Broken>>(step: impl Future<Output = Result<T, E>>) -> Result<T, Broken> {
    timeout(HELLO, step).await.map_err(|_| Broken::Late)?.map_err(Into::into)
}

/// Opens a session on a connection dialled to `peer`, and starts its task.
pub(super) async fn open(shared: &Arc<SharedHolders>, io: Duplex, peer: &Peer) -> Result<(), Broken> {
    let security = &shared.parts.security;
    let mut frames = framed(step(security.dialled(io)).await?);
    let token = security.token().await?;
    step(frames.send(hello(shared, token))).await?;
    let (_, key) = hello_of(&mut frames, peer).await?;
    begin(shared, frames, peer.clone(), true, &key)
}

/// Answers a request that asks for a session.
pub(super) fn answer<B, R: Default>(
    shared: &Arc<SharedHolders>,
    request: &mut Request<B>,
    from: SocketAddr,
) -> Option<Response<R>> {
    let (mut response, upgraded) = accept(request, PROTOCOL)?;
    let peer = Peer::from(from.ip().to_canonical().to_string().as_str());
    response.headers_mut().insert(PROTOCOL, HeaderValue::from(VERSION));
    if !shared.membership.lock().knows(&peer) {
        tracing::debug!(%peer, "no session with an address that is no activator's");
        *response.status_mut() = StatusCode::FORBIDDEN;
        response.headers_mut().remove(http::header::CONNECTION);
        response.headers_mut().remove(http::header::UPGRADE);
        return Some(response);
    }
    let answering = Arc::clone(shared);
    shared.parts.runtime.spawn(async move {
        if let Err(error) = accepted(&answering, upgraded, &peer).await {
            tracing::debug!(%peer, %error, "no session");
        }
    });
    Some(response)
}

async fn accepted(
    shared: &Arc<SharedHolders>,
    upgraded: impl Future<Output = io::Result<Duplex>>,
    peer: &Peer,
) -> Result<(), Broken> {
    let security = &shared.parts.security;
    let io = step(upgraded).await?;
    let mut frames = framed(step(security.accepted(io)).await?);
    let (token, key) = hello_of(&mut frames, peer).await?;
    security.prove(peer, token).await?;
    step(frames.send(hello(shared, None))).await?;
    begin(shared, frames, peer.clone(), false, &key)
}

/// Reads the hello of the expected peer and returns its token and key.
async fn hello_of(frames: &mut Frames, peer: &Peer) -> Result<(Option<String>, String), Broken> {
    let bytes = timeout(HELLO, frames.next()).await.map_err(|_| Broken::Late)?.ok_or(Broken::Ended)??;
    match Frame::decode(&bytes)? {
        Some(Frame::Hello(hello)) if hello.version != VERSION => Err(Broken::Version(hello.version)),
        Some(Frame::Hello(hello)) if hello.from == peer.as_str() => Ok((hello.token, hello.key)),
        Some(Frame::Hello(hello)) => Err(Broken::Name { wanted: peer.clone(), found: hello.from }),
        _ => Err(Broken::OutOfTurn),
    }
}

fn begin(shared: &Arc<SharedHolders>, frames: Frames, peer: Peer, dialled: bool, key: &str) -> Result<(), Broken> {
    let relays_to = shared.membership.lock().relays_to(&peer, shared.parts.port).ok_or(Broken::OutOfTurn)?;
    let (session, outgoing) = Session::new(peer, dialled, relays_to, key);
    if !shared.with_membership(|membership, _| membership.opened(shared, &session)) {
        return Err(Broken::Another);
    }
    tracing::debug!(peer = %session.peer, dialled, "session");
    session.send_beat(shared.beat(&session.peer));
    shared.parts.runtime.spawn(run(Arc::clone(shared), frames, session, outgoing));
    Ok(())
}

async fn run(shared: Arc<SharedHolders>, frames: Frames, session: Arc<Session>, outgoing: mpsc::Receiver<Outgoing>) {
    let (sink, stream) = frames.split();
    let ended = tokio::select! {
        ended = write(sink, outgoing) => ended,
        ended = read(&shared, &session, stream) => ended,
        () = session.ending.cancelled() => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(peer = %session.peer, %error, "session ended");
    }
    shared.with_membership(|membership, _| membership.ended(&shared, &session));
}

async fn write(
    mut sink: impl SinkExt<Bytes, Error = io::Error> + Unpin,
    mut outgoing: mpsc::Receiver<Outgoing>,
) -> Result<(), Broken> {
    let mut batch = Vec::with_capacity(BATCH);
    while outgoing.recv_many(&mut batch, BATCH).await > 0 {
        for outgoing in batch.drain(..) {
            let frame = match outgoing {
                Outgoing::Frame(frame) => frame,
                Outgoing::Holder(key, message) => Frame::Holder(message::encode(key.as_str(), message)),
            };
            sink.feed(frame.into_bytes().into()).await?;
        }
        sink.flush().await?;
    }
    Ok(())
}

async fn read(
    shared: &Arc<SharedHolders>,
    session: &Arc<Session>,
    mut stream: impl StreamExt<Item = io::Result<bytes::BytesMut>> + Unpin,
) -> Result<(), Broken> {
    let mut connected = session.connected.subscribe();
    while let Some(bytes) = stream.next().await {
        match Frame::decode(&bytes?)? {
            Some(Frame::Beat(beat)) => shared.change_peers(|peers| peers.received(&session.peer, beat, now())),
            Some(Frame::Report(report)) => {
                shared.with_membership(|membership, _| membership.record_report(session, report))
            }
            Some(Frame::Holder(bytes)) => {
                // The sender knows that this side shares, but not all links here may know yet.
                connected.wait_for(|connected| *connected).await.map_err(|_| Broken::Ended)?;
                deliver(shared, session, &bytes)?;
            }
            Some(Frame::Hello(_)) => return Err(Broken::OutOfTurn),
            None => {}
        }
    }
    Err(Broken::Ended)
}

/// Delivers a message to its workload. A workload that is inactive here holds nothing and runs nothing, so a claim is
/// confirmed. If it becomes active meanwhile, it asks before it sends.
fn deliver(shared: &SharedHolders, session: &Session, bytes: &[u8]) -> Result<(), Broken> {
    let (workload, message) = message::decode(bytes)?;
    let (Some((namespace, name)), Some(message)) = (workload.split_once('/'), message) else { return Ok(()) };
    let key = RevisionKey::new(namespace, name);
    let open = session.open.lock();
    if !*open {
        return Err(Broken::Ended);
    }
    match (shared.link(&key), message) {
        (Some(link), message) => link.receive(&session.peer, message),
        (None, Message::Claim { number, .. }) => {
            session.send_holder(&key, Message::Confirm { number, running: Running::new() });
        }
        (None, _) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{beside_another, throttler};
    use super::*;
    use activator_core::holders::Lots;
    use activator_core::holders::sharing_mode::SharingMode;

    fn session() -> (Arc<Session>, mpsc::Receiver<Outgoing>) {
        Session::new(Peer::from("127.0.0.9"), true, SocketAddr::from(([127, 0, 0, 9], 1)), "key")
    }

    /// Opens a session with a sibling that shares. Also returns its outgoing messages.
    fn in_touch(shared: &Arc<SharedHolders>) -> (Arc<Session>, mpsc::Receiver<Outgoing>) {
        let (session, outgoing) = session();
        assert!(shared.with_membership(|membership, _| membership.opened(shared, &session)));
        let report = SharingReport { foreign: false, complete: true, shares: true };
        shared.with_membership(|membership, _| membership.record_report(&session, report));
        assert_eq!(shared.membership.lock().sharing_mode(), SharingMode::Shared);
        (session, outgoing)
    }

    /// Goal: a claim is answered regardless of whether its workload is active here, becomes active or ends. Method: one
    /// thread delivers the claim while another one starts or ends the workload; many times.
    #[tokio::test]
    async fn a_claim_is_answered_whatever_happens() {
        let holders = beside_another();
        let (session, mut outgoing) = in_touch(&holders.shared);
        let answers = |sent, key: &RevisionKey| matches!(sent, Outgoing::Holder(of, Message::Confirm { number: 7, .. }) if of == *key);
        for turn in 0..1000 {
            let (key, throttler) = (RevisionKey::new("ns", turn.to_string()), throttler());
            let (begins, start) = (turn % 2 == 0, std::sync::Barrier::new(2));
            let link = (!begins).then(|| holders.enter(&key, &throttler, true));
            let claim = message::encode(key.as_str(), Message::Claim { number: 7, lots: Lots::ALL });
            let link = std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    deliver(&holders.shared, &session, &claim).expect("delivered");
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
            assert!(sent.into_iter().any(|sent| answers(sent, &key)), "turn {turn}");
            link.iter().for_each(|link| holders.exit(link));
        }
    }

    /// Goal: if sessions end early, the wait before the next dial grows. After a long session there is no wait.
    #[tokio::test(start_paused = true)]
    async fn who_ends_sessions_soon_is_left_alone_ever_longer() {
        let shared = beside_another().shared;
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
