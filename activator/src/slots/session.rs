//! One session: frames both ways on an upgraded connection, until one side ends it or falls silent.
//!
//! What is to be sent waits in a queue, since whoever sends it must not wait. Its bound is for a sibling that takes nothing,
//! and not for what all pools say at once when the session begins, however many there are: so that is always let in, and the
//! bound is higher from then on by what of it still waits. Nor do answers pile up while there is something to read: the writer
//! has its turn in between. What comes is bounded in the same way, and for the same reason not in the first second.

use super::dialling::LASTS;
use super::security::{Io, ProofError};
use super::{Shared, now};
use activator_core::slots::session::{FRAME_MAX, FRAME_SHARED_MAX, Frame, SessionError, VERSION};
use activator_core::slots::standing::Says;
use activator_core::slots::{Beat, Message, Peer, message};
use activator_net::{Duplex, accept};
use bytes::Bytes;
use common::RevisionKey;
use futures::{SinkExt, StreamExt};
use http::{HeaderValue, Request, Response, StatusCode};
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use tokio_util::sync::CancellationToken;

/// What the connection is upgraded to, and the header that every answer of ours to who asks for it carries.
pub(super) const PROTOCOL: &str = "zeroscale-slots";
/// What may wait to be sent to one sibling, beside what pools say when the session begins.
pub(super) const QUEUE_MAX: usize = 16 * 1024;
/// Frames of one sibling between two beats of ours.
pub(super) const FRAMES_MAX: u32 = 20_000;
/// Longest wait for the other side's first frame.
const HELLO: Duration = Duration::from_secs(3);
/// Sent at once, at most.
const BATCH: usize = 256;

type Frames = Framed<Io, LengthDelimitedCodec>;

/// A session, as the rest of the activator has it.
pub(super) struct Session {
    pub(super) peer: Peer,
    /// By this side.
    pub(super) dialled: bool,
    pub(super) began: Instant,
    queue: mpsc::Sender<Outgoing>,
    /// So much may wait there.
    queue_max: AtomicUsize,
    /// Whether what is read is still delivered.
    open: Mutex<bool>,
    /// Whether pools are in touch over it.
    connected: watch::Sender<bool>,
    frames: AtomicU32,
    ending: CancellationToken,
}

enum Outgoing {
    Frame(Frame),
    Slots(RevisionKey, Message),
}

/// Why a session is not opened, or ends.
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
    Name { wanted: Peer, found: Peer },
    #[error(transparent)]
    Unproven(#[from] ProofError),
    #[error("there is another session")]
    Another,
    #[error("{0} frames within 100 ms")]
    TooMany(u32),
    #[error("a frame out of turn")]
    OutOfTurn,
}

impl Session {
    fn new(peer: Peer, dialled: bool) -> (Arc<Self>, mpsc::Receiver<Outgoing>) {
        // Its bound is `queue_max`, which changes.
        let (queue, outgoing) = mpsc::channel(Semaphore::MAX_PERMITS);
        let queue_max = AtomicUsize::new(QUEUE_MAX);
        let (open, connected) = (Mutex::new(true), watch::Sender::new(false));
        let (frames, ending) = (AtomicU32::new(0), CancellationToken::new());
        (Arc::new(Self { peer, dialled, began: now(), queue, queue_max, open, connected, frames, ending }), outgoing)
    }

    pub(super) fn send_beat(&self, beat: Beat) {
        self.send(Outgoing::Frame(Frame::Beat(beat)));
    }

    pub(super) fn send_says(&self, says: Says) {
        self.send(Outgoing::Frame(Frame::Says(says)));
    }

    pub(super) fn send_slots(&self, key: &RevisionKey, message: Message) {
        self.send(Outgoing::Slots(key.clone(), message));
    }

    /// What cannot be queued must not be lost either: then the session ends.
    fn send(&self, outgoing: Outgoing) {
        if self.waiting() >= self.queue_max.load(Ordering::Relaxed) || self.queue.try_send(outgoing).is_err() {
            self.end("it does not take what it is sent");
        }
    }

    /// What waits to be sent.
    fn waiting(&self) -> usize {
        self.queue.max_capacity().saturating_sub(self.queue.capacity())
    }

    pub(super) fn end(&self, why: &str) {
        if !self.ending.is_cancelled() {
            tracing::debug!(peer = %self.peer, why, "session ends");
            self.ending.cancel();
        }
    }

    /// Nothing is delivered from it any more, from when this returns.
    pub(super) fn shut(&self) {
        *self.open.lock() = false;
    }

    /// Pools are told of it by `tell`, and may say as much as they have to. What it says of slots is delivered from then on.
    pub(super) fn connect(&self, tell: impl FnOnce()) {
        self.queue_max.store(usize::MAX, Ordering::Relaxed);
        tell();
        self.queue_max.store(self.waiting() + QUEUE_MAX, Ordering::Relaxed);
        self.connected.send_replace(true);
    }

    /// Frames are counted anew.
    pub(super) fn begin_interval(&self) {
        self.frames.store(0, Ordering::Relaxed);
    }
}

fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(FRAME_MAX).new_codec()
}

fn framed(io: Io) -> Frames {
    Framed::new(io, codec())
}

/// One step of the beginning, within its bound.
async fn step<T, E: Into<Broken>>(step: impl Future<Output = Result<T, E>>) -> Result<T, Broken> {
    timeout(HELLO, step).await.map_err(|_| Broken::Late)?.map_err(Into::into)
}

/// Opens a session on a connection that was dialled to `peer`, and lets it run.
pub(super) async fn open(shared: &Arc<Shared>, io: Duplex, peer: &Peer) -> Result<(), Broken> {
    let security = &shared.parts.security;
    let mut frames = framed(step(security.dialled(io)).await?);
    let hello = Frame::Hello { version: VERSION, from: shared.me.clone(), token: security.token().await? };
    step(frames.send(Bytes::from(hello.encode()))).await?;
    let (found, _) = hello_of(&mut frames).await?;
    if found != *peer {
        return Err(Broken::Name { wanted: peer.clone(), found });
    }
    begin(shared, frames, peer.clone(), true)
}

/// Answers who asks for a session.
pub(super) fn answer<B, R: Default>(
    shared: &Arc<Shared>,
    request: &mut Request<B>,
    from: SocketAddr,
) -> Option<Response<R>> {
    let (mut response, upgraded) = accept(request, PROTOCOL)?;
    let peer = Peer::from(from.ip().to_canonical().to_string().as_str());
    response.headers_mut().insert(PROTOCOL, HeaderValue::from(VERSION));
    if !shared.roster.lock().knows(&peer) {
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
    shared: &Arc<Shared>,
    upgraded: impl Future<Output = io::Result<Duplex>>,
    peer: &Peer,
) -> Result<(), Broken> {
    let security = &shared.parts.security;
    let io = step(upgraded).await?;
    let mut frames = framed(step(security.accepted(io)).await?);
    let (found, token) = hello_of(&mut frames).await?;
    if found != *peer {
        return Err(Broken::Name { wanted: peer.clone(), found });
    }
    security.prove(peer, token).await?;
    let hello = Frame::Hello { version: VERSION, from: shared.me.clone(), token: None };
    step(frames.send(Bytes::from(hello.encode()))).await?;
    begin(shared, frames, peer.clone(), false)
}

async fn hello_of(frames: &mut Frames) -> Result<(Peer, Option<String>), Broken> {
    let bytes = timeout(HELLO, frames.next()).await.map_err(|_| Broken::Late)?.ok_or(Broken::Ended)??;
    match Frame::decode(&bytes)? {
        Some(Frame::Hello { version: VERSION, from, token }) => Ok((from, token)),
        Some(Frame::Hello { version, .. }) => Err(Broken::Version(version)),
        _ => Err(Broken::OutOfTurn),
    }
}

fn begin(shared: &Arc<Shared>, frames: Frames, peer: Peer, dialled: bool) -> Result<(), Broken> {
    let (session, outgoing) = Session::new(peer, dialled);
    if !shared.with_roster(|roster, _| roster.opened(shared, &session)) {
        return Err(Broken::Another);
    }
    tracing::debug!(peer = %session.peer, dialled, "session");
    session.send_beat(shared.beat(&session.peer));
    shared.parts.runtime.spawn(run(Arc::clone(shared), frames, session, outgoing));
    Ok(())
}

async fn run(shared: Arc<Shared>, frames: Frames, session: Arc<Session>, outgoing: mpsc::Receiver<Outgoing>) {
    let (sink, stream) = frames.split();
    let ended = tokio::select! {
        ended = write(sink, outgoing) => ended,
        ended = read(&shared, &session, stream) => ended,
        () = session.ending.cancelled() => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(peer = %session.peer, %error, "session ended");
    }
    shared.with_roster(|roster, _| roster.ended(&shared, &session));
}

/// Messages about one revision that follow each other share a frame, within its bound.
async fn write(
    mut sink: impl SinkExt<Bytes, Error = io::Error> + Unpin,
    mut outgoing: mpsc::Receiver<Outgoing>,
) -> Result<(), Broken> {
    let mut batch = Vec::with_capacity(BATCH);
    while outgoing.recv_many(&mut batch, BATCH).await > 0 {
        let mut batch = batch.drain(..).peekable();
        while let Some(first) = batch.next() {
            let frame = match first {
                Outgoing::Frame(frame) => frame,
                Outgoing::Slots(key, message) => {
                    let mut size = message.size_max();
                    let mut messages = vec![message];
                    while size < FRAME_SHARED_MAX
                        && let Some(Outgoing::Slots(_, message)) =
                            batch.next_if(|next| matches!(next, Outgoing::Slots(other, _) if *other == key))
                    {
                        size += message.size_max();
                        messages.push(message);
                    }
                    Frame::Slots(message::encode(key.as_str(), messages))
                }
            };
            sink.feed(frame.encode().into()).await?;
        }
        sink.flush().await?;
    }
    Ok(())
}

async fn read(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    mut stream: impl StreamExt<Item = io::Result<bytes::BytesMut>> + Unpin,
) -> Result<(), Broken> {
    let mut connected = session.connected.subscribe();
    while let Some(bytes) = stream.next().await {
        let begins = session.began.elapsed() <= LASTS;
        let frames = if begins { 0 } else { session.frames.fetch_add(1, Ordering::Relaxed) + 1 };
        if frames > FRAMES_MAX {
            return Err(Broken::TooMany(frames));
        }
        match Frame::decode(&bytes?)? {
            Some(Frame::Beat(beat)) => shared.change_peers(|peers| peers.received(&session.peer, beat, now())),
            Some(Frame::Says(says)) => shared.with_roster(|roster, _| roster.said(session, says)),
            Some(Frame::Slots(bytes)) => {
                // Whoever sends it knows that this side shares; its pools may not all have been told yet.
                connected.wait_for(|connected| *connected).await.map_err(|_| Broken::Ended)?;
                deliver(shared, session, &bytes)?;
                if session.waiting() > BATCH {
                    yield_now().await;
                }
            }
            Some(Frame::Hello { .. }) => return Err(Broken::OutOfTurn),
            None => {}
        }
    }
    Err(Broken::Ended)
}

fn deliver(shared: &Shared, session: &Session, bytes: &[u8]) -> Result<(), Broken> {
    let (revision, messages) = message::decode(bytes)?;
    let Some((namespace, name)) = revision.split_once('/') else { return Ok(()) };
    let key = RevisionKey::new(namespace, name);
    let throttler = shared.revision(&key);
    for message in messages {
        let left = match &throttler {
            Some(throttler) => {
                let open = session.open.lock();
                if !*open {
                    return Err(Broken::Ended);
                }
                throttler.receive(&session.peer, message).err()
            }
            None => Some(message),
        };
        if let Some(message) = left {
            let mut roster = shared.roster.lock();
            if !*session.open.lock() {
                return Err(Broken::Ended);
            }
            roster.received_about_unknown(shared, session, key.clone(), message);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{beside_another, throttler};
    use super::*;
    use activator_core::slots::DEAD_AFTER;
    use activator_core::slots::standing::Standing;
    use activator_core::throttler::{Before, Throttler};
    use activator_core::{Destination, Destinations};

    /// A session with the other one, which shares, and what is to be sent to it.
    fn in_touch(shared: &Arc<Shared>) -> (Arc<Session>, mpsc::Receiver<Outgoing>) {
        let (session, outgoing) = Session::new(Peer::from("127.0.0.9"), true);
        assert!(shared.with_roster(|roster, _| roster.opened(shared, &session)));
        let says = Says { foreign: false, complete: true, shares: true };
        shared.with_roster(|roster, _| roster.said(&session, says));
        assert_eq!(shared.roster.lock().standing(), Standing::Shared);
        (session, outgoing)
    }

    fn claim(key: &RevisionKey) -> Vec<u8> {
        let pod = Destination::from(SocketAddr::from(([10, 0, 0, 1], 8012)));
        message::encode(key.as_str(), [Message::Claim { pod, number: 7 }])
    }

    fn is_answered(outgoing: &mut mpsc::Receiver<Outgoing>, key: &RevisionKey) -> bool {
        let answers = |sent| matches!(sent, Outgoing::Slots(of, Message::Confirm { number: 7, .. }) if of == *key);
        std::iter::from_fn(|| outgoing.try_recv().ok()).fold(false, |found, sent| found | answers(sent))
    }

    /// Goal: a claim is answered while its revision is known and has no pool, or one that does not know the claimant.
    #[tokio::test]
    async fn a_claim_that_meets_no_pool_is_answered() {
        let shared = beside_another().shared;
        let (session, mut outgoing) = in_touch(&shared);
        let (no_pool, no_sibling): (Throttler, Throttler) = (throttler(), throttler());
        for (name, throttler) in [("no-pool", no_pool), ("no-sibling", no_sibling)] {
            let key = RevisionKey::new("ns", name);
            if name == "no-sibling" {
                throttler.share(shared.link(&key), shared.pool(now()), Before::Others);
            }
            shared.revisions.insert(key.clone(), throttler);
            deliver(&shared, &session, &claim(&key)).expect("delivered");
            assert!(is_answered(&mut outgoing, &key), "{name}");
        }
    }

    /// Goal: however many pods are claimed all at once when a session begins, that does not end it.
    #[tokio::test(start_paused = true)]
    async fn a_session_that_begins_with_many_claims_goes_on() {
        const PODS: u16 = QUEUE_MAX as u16 + 1;
        let shared = beside_another().shared;
        let (key, throttler) = (RevisionKey::new("ns", "many"), throttler());
        let pod = |port| Destination::from(SocketAddr::from(([10, 0, 0, 1], port)));
        throttler.update(Destinations::Pods((1..=PODS).map(pod).collect()));
        shared.roster.lock().share(&shared, &key, &throttler, Before::Alone(now() - 2 * DEAD_AFTER));
        shared.revisions.insert(key, throttler);
        let (session, mut outgoing) = in_touch(&shared);
        session.send_beat(shared.beat(&session.peer));
        assert!(!session.ending.is_cancelled());
        let claims = std::iter::from_fn(|| outgoing.try_recv().ok())
            .filter(|sent| matches!(sent, Outgoing::Slots(_, Message::Claim { .. })));
        assert_eq!(claims.count(), usize::from(PODS));
    }

    /// Goal: more claims than may wait as answers are answered, though all are there to be read before the first answer is
    /// written.
    #[tokio::test(start_paused = true)]
    async fn many_claims_at_once_are_answered() -> Result<(), Broken> {
        const CLAIMS: u16 = 3 * QUEUE_MAX as u16;
        let shared = beside_another().shared;
        let (session, outgoing) = in_touch(&shared);
        let (ours, theirs) = tokio::io::duplex(8 << 20);
        let mut theirs = Framed::new(theirs, codec());
        let claim = |port: u16| {
            let pod = Destination::from(SocketAddr::from(([10, 0, 0, 1], port)));
            Message::Claim { pod, number: u64::from(port) }
        };
        for ports in (1..=CLAIMS).collect::<Vec<_>>().chunks(BATCH) {
            let frame = Frame::Slots(message::encode("ns/unknown", ports.iter().copied().map(claim)));
            theirs.send(Bytes::from(frame.encode())).await?;
        }
        tokio::spawn(run(Arc::clone(&shared), framed(Box::new(ours)), session, outgoing));
        let mut answers = 0;
        while answers < usize::from(CLAIMS) {
            let bytes = theirs.next().await.ok_or(Broken::Ended)??;
            if let Some(Frame::Slots(bytes)) = Frame::decode(&bytes)? {
                answers += message::decode(&bytes)?.1.len();
            }
        }
        Ok(())
    }

    /// Goal: whose sessions end soon after they begin is dialled ever later, and at once after one that lasted.
    #[tokio::test(start_paused = true)]
    async fn who_ends_sessions_soon_is_left_alone_ever_longer() {
        let shared = beside_another().shared;
        for (lasts, pause) in [(0, Some(20)), (999, Some(40)), (500, Some(80)), (1000, None), (0, Some(20))] {
            let session = Session::new(Peer::from("127.0.0.9"), true).0;
            assert!(shared.with_roster(|roster, _| roster.opened(&shared, &session)));
            tokio::time::advance(Duration::from_millis(lasts)).await;
            shared.with_roster(|roster, _| roster.ended(&shared, &session));
            let found = shared.roster.lock().pauses.get(&session.peer).copied();
            assert_eq!(found, pause.map(Duration::from_millis), "after {lasts} ms");
        }
    }

    /// Goal: whatever waits to be sent goes through: what one sibling uses of many pods, named at once, is no frame beyond
    /// the bound, which would end the session each time.
    #[tokio::test]
    async fn many_confirmations_at_once_go_through() -> Result<(), Broken> {
        const PODS: u16 = 2 * BATCH as u16;
        let (ours, theirs) = tokio::io::duplex(FRAME_MAX);
        let (sink, mut stream) = (Framed::new(ours, codec()), Framed::new(theirs, codec()));
        let (queue, outgoing) = mpsc::channel(QUEUE_MAX);
        let confirm = |port| Message::Confirm {
            pod: Destination::from(SocketAddr::from(([255, 255, 255, 255], port))),
            number: u64::MAX,
            held: true,
            own: (0..1000).map(|n| u64::MAX - n).collect(),
        };
        for port in 0..PODS {
            let sent = queue.try_send(Outgoing::Slots(RevisionKey::new("ns", "a"), confirm(port)));
            assert!(sent.is_ok(), "{port} confirmations fit in");
        }
        drop(queue);
        let reading = tokio::spawn(async move {
            let mut messages = Vec::new();
            while let Some(Ok(bytes)) = stream.next().await {
                let Ok(Some(Frame::Slots(bytes))) = Frame::decode(&bytes) else { break };
                messages.extend(message::decode(&bytes).expect("as it was sent").1);
            }
            messages
        });
        write(sink, outgoing).await?;
        assert!(reading.await.expect("no panic") == (0..PODS).map(confirm).collect::<Vec<_>>());
        Ok(())
    }

    /// Goal: a claim is answered whenever it comes while its revision begins or ends.
    /// Method: one thread delivers it while another one lets the revision begin, or end; many times.
    #[tokio::test]
    async fn a_claim_beside_a_beginning_or_an_end_is_answered() {
        let slots = beside_another();
        let (session, mut outgoing) = in_touch(&slots.shared);
        for turn in 0..1000 {
            let (key, throttler) = (RevisionKey::new("ns", turn.to_string()), throttler());
            let (begins, start) = (turn % 2 == 0, std::sync::Barrier::new(2));
            if !begins {
                slots.enter(&key, &throttler, true);
            }
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    deliver(&slots.shared, &session, &claim(&key)).expect("delivered");
                });
                start.wait();
                match begins {
                    true => slots.enter(&key, &throttler, true),
                    false => slots.exit(&key, &throttler),
                }
            });
            assert!(is_answered(&mut outgoing, &key), "turn {turn}");
            slots.exit(&key, &throttler);
        }
    }
}
