//! Bodies, both ways. Nothing here copies or buffers: frames pass through, one at a time, as the receiver asks.
//!
//! A request's body stays in the client's socket until a pod's connection asks for its first frame; that is what keeps
//! a held request small, and what makes `100 Continue` come after capacity. A [`Gate`] holds it there longer: until the
//! pod has said that it wants it.

mod from_client;
pub(crate) mod reading;
mod replay;
pub(crate) mod unread;

use crate::limits::FIELDS_MAX;
use crate::memory::{Held, Party};
use bytes::Bytes;
use from_client::FromClient;
use futures::task::AtomicWaker;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use replay::{KEPT_FOR_ACTIVATOR, KEPT_MAX, ReplayBuffer};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::time::Instant;
use unread::Unread;

/// Why a body broke off.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A request's body on its way to a pod.
pub enum RequestBody {
    /// None.
    Empty,
    /// A few bytes of ours: a probe's.
    Whole(Option<Bytes>),
    /// Streamed from the client. Boxed: most requests have none, and each is moved a dozen times on its way.
    Streamed(Box<Streamed>),
}

/// A body that comes from the client.
pub struct Streamed {
    /// The client's side.
    body: ReplayBuffer<FromClient>,
    /// What became of it.
    upload: Arc<Upload>,
    /// What it waits for, if anything.
    gate: Option<Arc<Gate>>,
}

/// Marks an answer behind which a client's HTTP/1 connection is closed. The answer was complete before its request, or
/// came before its client was asked for an announced body, so that the rest of the body is not read; or its framing is
/// faulty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndsConnection;

/// Marks an answer whose head is large: what it was charged for is given back when this is dropped. The server keeps it
/// for as long as it keeps the head, in whatever form.
#[derive(Clone)]
pub struct HeadCharge(Arc<Held>);

impl HeadCharge {
    /// Gives back `charge` by dropping it.
    pub fn new(charge: Held) -> Self {
        Self(Arc::new(charge))
    }

    /// Has `connection`, which the head is written to, give way for it.
    pub(crate) fn moves_to(&self, connection: Arc<dyn Party>) {
        self.0.moves_to(connection);
    }
}

impl std::fmt::Debug for HeadCharge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeadCharge")
    }
}

/// Keeps a body from being read until it is opened.
#[derive(Default)]
pub struct Gate {
    open: AtomicBool,
    waiting: AtomicWaker,
}

impl Gate {
    /// From now on the body may be read.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
        self.waiting.wake();
    }

    fn poll_open(&self, cx: &Context<'_>) -> Poll<()> {
        let is_open = || self.open.load(Ordering::Acquire);
        if is_open() {
            return Poll::Ready(());
        }
        self.waiting.register(cx.waker());
        // Opened between the look and the registration, it is seen here.
        if is_open() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// What became of a streamed request body, seen from the side.
#[derive(Debug, Default)]
pub struct Upload {
    passed: AtomicU64,
    finished: AtomicBool,
    broken: AtomicBool,
    /// Somebody asks when it moved.
    followed: AtomicBool,
    moved: Mutex<Option<Instant>>,
}

impl Upload {
    /// Whether all of it was handed on.
    pub fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Bytes that were handed on so far.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Whether it ended in an error: malformed framing, or a client that has gone.
    pub fn broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// From now on it is noted when it moves.
    pub fn follow(&self) {
        self.followed.store(true, Ordering::Relaxed);
    }

    /// When its last frame was handed on, if it is [followed](Self::follow).
    pub fn moved(&self) -> Option<Instant> {
        *self.moved.lock()
    }
}

impl RequestBody {
    /// From the server's side of a connection.
    pub fn new(body: Incoming) -> Self {
        Self::from_client(body, None)
    }

    /// The same over HTTP/2, where the connection counts what lies unread.
    pub(crate) fn over_http2(body: Incoming, unread: &Arc<Unread>) -> Self {
        Self::from_client(body, Some(unread))
    }

    fn from_client(body: Incoming, unread: Option<&Arc<Unread>>) -> Self {
        if body.is_end_stream() {
            return Self::Empty;
        }
        Self::streamed(ReplayBuffer::new(FromClient::new(body, unread.cloned())), Arc::default())
    }

    fn streamed(body: ReplayBuffer<FromClient>, upload: Arc<Upload>) -> Self {
        Self::Streamed(Box::new(Streamed { body, upload, gate: None }))
    }

    /// Puts a closed gate before a streamed body.
    pub fn hold_back(&mut self) -> Option<Arc<Gate>> {
        match self {
            Self::Empty | Self::Whole(_) => None,
            Self::Streamed(streamed) => Some(streamed.gate.insert(Arc::default()).clone()),
        }
    }

    /// Whether nothing of it was asked for yet: it is empty, or its gate is closed.
    pub(crate) fn is_untouched(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(bytes) => bytes.is_some(),
            Self::Streamed(streamed) => streamed.gate.as_ref().is_some_and(|gate| !gate.open.load(Ordering::Acquire)),
        }
    }

    /// Takes the gate away, and keeps no more than for any pod.
    pub(crate) fn set_free(&mut self) {
        if let Self::Streamed(streamed) = self {
            streamed.gate = None;
            streamed.body.keep_at_most(KEPT_MAX);
        }
    }

    /// What another activator takes of it before it has a pod is kept, once it is sent.
    pub(crate) fn keep_window(&mut self) {
        if let Self::Streamed(streamed) = self {
            streamed.body.keep_at_most(KEPT_FOR_ACTIVATOR);
        }
    }

    /// From now on what is sent of it is kept, to be replayed.
    pub(crate) fn keep_sent(&mut self) {
        if let Self::Streamed(streamed) = self {
            streamed.body.keep_sent();
        }
    }

    /// It need not be replayed: its answer has begun.
    pub(crate) fn release(&mut self) {
        if let Self::Streamed(streamed) = self {
            streamed.body.release();
        }
    }

    /// Returns whether the body can be replayed even after all of it was sent.
    pub(crate) fn fits_replay(&self) -> bool {
        self.size_hint().upper().is_some_and(|bytes| bytes <= KEPT_MAX as u64)
    }

    /// Whether all of it can be replayed.
    pub fn is_whole(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(bytes) => bytes.is_some(),
            Self::Streamed(streamed) => streamed.body.is_whole(),
        }
    }

    /// The body as it was before anything was sent, if that can be. What was handed on of it will be once more.
    pub(crate) fn rewound(self) -> Option<Self> {
        match self {
            Self::Streamed(streamed) => {
                let Streamed { body, upload, .. } = *streamed;
                let (body, bytes) = body.rewind()?;
                upload.passed.fetch_sub(bytes as u64, Ordering::Relaxed);
                upload.finished.store(false, Ordering::Release);
                Some(Self::streamed(body, upload))
            }
            other => other.is_whole().then_some(other),
        }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// Follows the upload.
    pub fn upload(&self) -> Option<Arc<Upload>> {
        match self {
            Self::Empty | Self::Whole(_) => None,
            Self::Streamed(streamed) => Some(streamed.upload.clone()),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Streamed(streamed) => {
                let Streamed { body, upload, gate } = &mut **streamed;
                if let Some(gate) = gate {
                    std::task::ready!(gate.poll_open(cx));
                }
                let frame = match std::task::ready!(Pin::new(&mut *body).poll_frame(cx)) {
                    Some(Ok(frame)) if frame.trailers_ref().is_some_and(|trailers| trailers.len() > FIELDS_MAX) => {
                        Some(Err("the trailers have too many fields".into()))
                    }
                    frame => frame.map(|frame| frame.map_err(BodyError::from)),
                };
                match &frame {
                    Some(Ok(frame)) => {
                        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                        upload.passed.fetch_add(bytes, Ordering::Relaxed);
                        if upload.followed.load(Ordering::Relaxed) {
                            *upload.moved.lock() = Some(Instant::now());
                        }
                        if body.is_end_stream() {
                            upload.finished.store(true, Ordering::Release);
                        }
                    }
                    Some(Err(_)) => upload.broken.store(true, Ordering::Release),
                    None => upload.finished.store(true, Ordering::Release),
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(bytes) => bytes.is_none(),
            // What is known already is not asked for: HTTP/2 has to lock its connection for it.
            Self::Streamed(streamed) => streamed.upload.finished() || streamed.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Streamed(streamed) => streamed.body.size_hint(),
        }
    }
}

/// What a body is kept with.
pub trait Guard {
    /// So many more bytes of data have passed.
    fn passed(&mut self, _bytes: usize) {}
}

pin_project! {
    /// A body that keeps `guard` until its end, or until it is dropped, whichever comes first.
    pub struct Guarded<B, G> {
        #[pin]
        body: B,
        guard: Option<G>,
    }
}

impl<B, G> Guarded<B, G> {
    /// Ties `guard`, if there is one, to `body`.
    pub fn new(body: B, guard: impl Into<Option<G>>) -> Self {
        Self { body, guard: guard.into() }
    }
}

impl<B: Body<Data = Bytes>, G: Guard> Body for Guarded<B, G> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        let frame = std::task::ready!(this.body.as_mut().poll_frame(cx));
        match (&frame, this.guard.as_mut()) {
            (Some(Ok(frame)), Some(guard)) => guard.passed(frame.data_ref().map_or(0, Bytes::len)),
            (Some(Ok(_)), None) => {}
            (Some(Err(_)) | None, _) => *this.guard = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer of our own, or of what came through the chain.
pub type Reply<B> = Either<Full<Bytes>, B>;
