//! Bodies of requests and responses. They copy and buffer nothing: frames pass one at a time, as the receiver polls.
//!
//! A request's body stays in the client's socket until a pod's connection polls its first frame. That keeps a held
//! request small, and delays `100 Continue` until there is capacity. [`RequestBody::set_held`] holds it longer: until
//! the pod has asked for it.

mod from_client;
pub(crate) mod reading;
mod replay;
pub(crate) mod unread_frames;

use crate::limits::FIELDS_MAX;
use crate::memory::HeldCharge;
use bytes::Bytes;
use from_client::FromClient;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use replay::{REPLAY_FOR_ACTIVATOR_MAX, REPLAY_MAX, ReplayBuffer};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::time::Instant;
use unread_frames::UnreadFrames;

/// Reason why a body failed.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A request's body on its way to a pod.
pub enum RequestBody {
    /// No body.
    Empty,
    /// A few bytes of our own, for a probe.
    Whole(Option<Bytes>),
    /// Streamed from the client. Boxed, because most requests have none, and each request is moved a dozen times.
    Streamed(Box<Streamed>),
}

/// A body that is streamed from the client.
pub struct Streamed {
    body: ReplayBuffer<FromClient>,
    upload: Arc<Upload>,
    /// The body must not be read yet.
    is_held: bool,
}

/// Marker of a response after which a client's HTTP/1 connection is closed. One of these happened: the response was
/// complete before its request; the client was never asked for an announced body, so that its rest is not read; the
/// response's framing is faulty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndsConnection;

/// Charge of a response with a large head, an extension of the response. The server keeps it as long as it keeps the
/// head, in any form.
pub type HeadCharge = Arc<HeldCharge>;

/// Progress of a streamed request body, for observers besides its reader.
#[derive(Debug, Default)]
pub struct Upload {
    yielded_bytes: AtomicU64,
    finished: AtomicBool,
    broken: AtomicBool,
    /// Set if the time of the last frame is recorded.
    records_frame_times: AtomicBool,
    last_frame_at: Mutex<Option<Instant>>,
}

impl Upload {
    /// Reports whether the body was yielded completely.
    pub fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Returns the number of bytes yielded so far.
    pub fn yielded_bytes(&self) -> u64 {
        self.yielded_bytes.load(Ordering::Relaxed)
    }

    /// Reports whether the body ended in an error: malformed framing, or a client that disconnected.
    pub fn broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Starts recording the time of the last frame.
    pub fn record_frame_times(&self) {
        self.records_frame_times.store(true, Ordering::Relaxed);
    }

    /// Returns the time of the last frame, if [`record_frame_times`](Self::record_frame_times) was called.
    pub fn last_frame_at(&self) -> Option<Instant> {
        *self.last_frame_at.lock()
    }
}

impl RequestBody {
    /// Wraps a body from the server's side of a connection. Over HTTP/2, `unread` counts the connection's unread
    /// frames.
    pub(crate) fn new(body: Incoming, unread: Option<&Arc<UnreadFrames>>) -> Self {
        if body.is_end_stream() {
            return Self::Empty;
        }
        Self::streamed(ReplayBuffer::new(FromClient::new(body, unread.cloned())), Arc::default())
    }

    fn streamed(body: ReplayBuffer<FromClient>, upload: Arc<Upload>) -> Self {
        Self::Streamed(Box::new(Streamed { body, upload, is_held: false }))
    }

    /// Sets whether a streamed body is held: it yields nothing, and its poller is not woken. Returns false for any
    /// other body.
    pub(crate) fn set_held(&mut self, is_held: bool) -> bool {
        match self {
            Self::Empty | Self::Whole(_) => false,
            Self::Streamed(streamed) => {
                streamed.is_held = is_held;
                true
            }
        }
    }

    /// Reports whether nothing of the body was read: it is empty or held, or has our own bytes.
    pub(crate) fn is_untouched(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(bytes) => bytes.is_some(),
            Self::Streamed(streamed) => streamed.is_held,
        }
    }

    /// Ends the hold, and limits the replay buffer to the size for pods.
    pub(crate) fn reset_for_pods(&mut self) {
        if let Self::Streamed(streamed) = self {
            streamed.is_held = false;
            streamed.body.kept_max = REPLAY_MAX;
        }
    }

    /// Extends the replay buffer to the amount that another activator accepts before it has a pod.
    pub(crate) fn extend_replay(&mut self) {
        if let Self::Streamed(streamed) = self {
            streamed.body.kept_max = REPLAY_FOR_ACTIVATOR_MAX;
        }
    }

    /// Starts keeping sent bytes for a replay.
    pub(crate) fn keep_sent(&mut self) {
        if let Self::Streamed(streamed) = self {
            streamed.body.keeps_sent = true;
        }
    }

    /// Stops keeping sent bytes, because the response has begun.
    pub(crate) fn release(&mut self) {
        if let Self::Streamed(streamed) = self {
            streamed.body.release();
        }
    }

    /// Reports whether the body can be replayed even after all of it was sent.
    pub(crate) fn fits_replay(&self) -> bool {
        self.size_hint().upper().is_some_and(|bytes| bytes <= REPLAY_MAX as u64)
    }

    /// Reports whether the whole body can be replayed.
    pub fn is_whole(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(bytes) => bytes.is_some(),
            Self::Streamed(streamed) => streamed.body.keeps_sent,
        }
    }

    /// Returns the body as it was before anything was sent, if possible. The bytes already sent will be sent again.
    pub(crate) fn rewound(self) -> Option<Self> {
        match self {
            Self::Streamed(streamed) => {
                let Streamed { body, upload, .. } = *streamed;
                let (body, bytes) = body.rewind()?;
                upload.yielded_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
                upload.finished.store(false, Ordering::Release);
                Some(Self::streamed(body, upload))
            }
            other => other.is_whole().then_some(other),
        }
    }

    /// Reports whether there is no body.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// Returns the progress of the upload.
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
                let Streamed { body, upload, is_held } = &mut **streamed;
                if *is_held {
                    return Poll::Pending;
                }
                let frame = match std::task::ready!(Pin::new(&mut *body).poll_frame(cx)) {
                    Some(Ok(frame)) if frame.trailers_ref().is_some_and(|trailers| trailers.len() > FIELDS_MAX) => {
                        Some(Err("the trailers have more than 1024 fields".into()))
                    }
                    frame => frame.map(|frame| frame.map_err(BodyError::from)),
                };
                match &frame {
                    Some(Ok(frame)) => {
                        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                        upload.yielded_bytes.fetch_add(bytes, Ordering::Relaxed);
                        if upload.records_frame_times.load(Ordering::Relaxed) {
                            *upload.last_frame_at.lock() = Some(Instant::now());
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
            // Check our flag first: HTTP/2 has to lock its connection to answer.
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

/// Guard that is kept with a body.
pub trait Guard {
    /// Counts bytes of data that have passed.
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

/// Body of a response: our own, or one from the chain.
pub type Reply<B> = Either<Full<Bytes>, B>;
