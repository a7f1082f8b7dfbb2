//! One HTTP/2 connection to a pod, by prior knowledge, shared by as many requests as the pod permits.
//!
//! The pod's limit (`SETTINGS_MAX_CONCURRENT_STREAMS`) is followed as it changes; whoever picks a connection takes a
//! [`Stream`] first, which holds the request's place until its response has ended, so that a request does not wait
//! behind the limit while another connection could carry it. Until the pod's settings have come, which takes a round
//! trip, the connection takes one request: of a burst before them a pod with a lower limit would refuse the rest, and
//! bodies of which much has gone could not be sent again. Who comes meanwhile waits ([`Http2::settled`]). A pod that
//! says nothing for a while is taken to permit [`STREAMS_ASSUMED`].
//!
//! A task drives the connection: it reads, writes, and wakes whoever an answer is for. Everything else is done by the
//! requests' own tasks: each opens its stream, sends its body, and waits for its answer. After each turn the driver
//! notes the limit, and whether the connection takes more, so that who looks for a connection need not ask it.
//!
//! # Windows
//!
//! What a pod may send before it is read is bounded on each stream and on the connection. If the streams' windows came to
//! more than the connection's, answers that some clients do not read would use that up, and every other stream of the
//! connection would stand still. So no more streams are opened than have room in it, and there are two ways to divide it
//! ([`Windows`]).
//!
//! No PINGs: whether the pod is there, TCP tells ([`crate::liveness`]), and gRPC servers close connections on which pings
//! come more often than every few minutes, long answers and all.

use crate::body::RequestBody;
use crate::http2::Sending;
use crate::http2::exchange::{Exchange, Failed, Outgoing};
use crate::http2::paced::Paced;
use crate::limits;
use crate::pod::tls::PodIo;
use crate::worker;
use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use http::header::CONTENT_LENGTH;
use http::{Method, Request};
use http_body::Body;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// What we can receive on all streams of a connection before it is passed on.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// Largest head of an answer, decoded; `h2` resets the stream of a larger one, and ends the connection at four times
/// as much.
const HEADER_LIST_MAX: u32 = limits::HEAD_MAX;

/// Streams that a pod surely takes at once: the least that RFC 9113 (6.5.2) recommends.
const STREAMS_ASSUMED: usize = 100;

/// Streams before the pod has said how many it takes.
const STREAMS_AT_FIRST: usize = 1;

/// `h2`'s limit until then: none that a pod could say, so that it shows when the pod's has come. (A pod that sets no
/// limit has `usize::MAX`.)
const UNSAID: usize = usize::MAX - 1;

/// Bytes of one stream that wait to be written.
const SEND_BUFFER_MAX: usize = 1024 * 1024;

/// How a connection's window is divided among its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    /// Few streams with large windows: large answers pass fast, also from pods that are not near.
    Wide,
    /// Many streams with small ones.
    Narrow,
}

impl Windows {
    /// Most streams at once.
    const fn streams(self) -> u32 {
        match self {
            Self::Wide => 32,
            Self::Narrow => 200,
        }
    }

    /// What we can receive on one of them before it is passed on.
    const fn of_a_stream(self) -> u32 {
        CONNECTION_WINDOW / self.streams()
    }
}

/// A handle on the connection. When there is none left, and no place on it, the connection is closed.
#[derive(Clone)]
pub(crate) struct Http2 {
    shared: Arc<Shared>,
    /// Where it is driven. Here, so that other workers, in passing, do not touch what changes with each request.
    worker: Option<usize>,
    /// How many connections its pool had before it; the pool numbers them.
    pub(crate) number: usize,
}

struct Shared {
    sender: Mutex<SendRequest<Bytes>>,
    // What is known of the connection without asking it.
    answered: AtomicBool,
    closed: AtomicBool,
    in_flight: AtomicUsize,
    /// Most streams at once: that the pod takes, and that have room.
    limit: AtomicUsize,
    windows: Windows,
    made: Instant,
    /// Nobody waits for what the pod permits: it has said so, or said nothing for long, or the connection has ended.
    settled: AtomicBool,
    /// The pod's settings have come.
    said: AtomicBool,
    /// Wakes whoever waits for that.
    news: Notify,
}

/// Whether a connection is there yet, without keeping it.
pub(crate) struct Alive {
    shared: Weak<Shared>,
    worker: Option<usize>,
}

impl Alive {
    /// Whether somebody has it still.
    pub(crate) fn is_alive(&self) -> bool {
        self.shared.strong_count() > 0
    }

    /// Whether it is driven where the caller runs.
    pub(crate) fn is_here(&self) -> bool {
        self.worker == worker::current()
    }
}

/// A request's place on a connection, given back on drop.
pub(crate) struct Stream {
    shared: Arc<Shared>,
    was_idle: bool,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Http2 {
    /// Sends preface and settings over a connected stream.
    pub(crate) async fn new(stream: impl Into<PodIo>, windows: Windows) -> Result<Self, h2::Error> {
        let (sender, connection) = Builder::new()
            .initial_window_size(windows.of_a_stream())
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADER_LIST_MAX)
            .initial_max_send_streams(UNSAID)
            .max_send_buffer_size(SEND_BUFFER_MAX)
            .enable_push(false)
            .handshake(Paced::new(stream.into()))
            .await?;
        let shared = Arc::new(Shared {
            answered: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            limit: AtomicUsize::new(STREAMS_AT_FIRST),
            windows,
            made: Instant::now(),
            settled: AtomicBool::new(false),
            said: AtomicBool::new(false),
            news: Notify::new(),
            sender: Mutex::new(sender),
        });
        tokio::spawn(drive(connection, shared.clone()));
        Ok(Self { shared, worker: worker::current(), number: 0 })
    }

    /// Whether it is driven where the caller runs.
    pub(crate) fn is_here(&self) -> bool {
        self.worker == worker::current()
    }

    /// Whether `stream` is a place on it.
    pub(crate) fn is_of(&self, stream: &Stream) -> bool {
        Arc::ptr_eq(&self.shared, &stream.shared)
    }

    /// How its window is divided.
    pub(crate) fn windows(&self) -> Windows {
        self.shared.windows
    }

    /// Whether it is there yet, later.
    pub(crate) fn alive(&self) -> Alive {
        Alive { shared: Arc::downgrade(&self.shared), worker: self.worker }
    }

    /// Whether no further request can be sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    /// Whether it is known how many streams the pod takes, as far as it will be.
    pub(crate) fn is_settled(&self) -> bool {
        self.shared.settled.load(Ordering::Acquire)
    }

    /// Returns whether the pod has sent its settings, which proves that it speaks HTTP/2.
    pub(crate) fn has_settings(&self) -> bool {
        self.shared.said.load(Ordering::Acquire)
    }

    /// Waits until it is: until the pod's settings have come or the connection has ended, at most for `within` from when
    /// it was connected.
    pub(crate) async fn settled(&self, within: Duration) {
        let news = self.shared.news.notified();
        if !self.is_settled() && timeout_at(self.shared.made + within, news).await.is_err() {
            self.shared.assume_limit();
        }
    }

    /// Whether nothing is under way on it.
    pub(crate) fn is_idle(&self) -> bool {
        self.shared.in_flight.load(Ordering::Acquire) == 0
    }

    /// A place, if the pod permits one more.
    pub(crate) fn try_reserve(&self) -> Option<Stream> {
        let limit = self.shared.limit.load(Ordering::Acquire);
        self.shared
            .in_flight
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < limit).then_some(n + 1))
            .ok()
            .map(|before| Stream { shared: self.shared.clone(), was_idle: before == 0 })
    }

    /// A place, whatever the pod permits: on a new connection, or where the request waits for one of the others to end.
    pub(crate) fn reserve(&self) -> Stream {
        self.shared.in_flight.fetch_add(1, Ordering::AcqRel);
        Stream { shared: self.shared.clone(), was_idle: false }
    }
}

impl Stream {
    /// Whether its connection stood idle before.
    pub(crate) fn was_idle(&self) -> bool {
        self.was_idle
    }

    /// Whether an answer came over its connection before.
    pub(crate) fn has_answered(&self) -> bool {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// An answer has come.
    pub(crate) fn answered(&self) {
        if !self.has_answered() {
            self.shared.answered.store(true, Ordering::Relaxed);
        }
    }

    /// Sends `request`; the future waits for the response's head. Dropping it resets the stream.
    pub(crate) fn exchange(&self, request: Request<RequestBody>) -> Exchange {
        let (head, mut body) = request.into_parts();
        let mut request = Request::from_parts(head, ());
        body.keep_sent();
        if let Some(length) = body.size_hint().exact().filter(|length| *length > 0 || means_a_body(request.method())) {
            request.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
        }
        let ended = body.is_end_stream();
        match self.shared.open(request, ended) {
            Ok((answer, stream)) => {
                let upload =
                    if ended { Outgoing::Over(Some(body)) } else { Outgoing::Going(Sending::new(stream, body)) };
                Exchange::Sent { answer, upload }
            }
            Err(error) => Exchange::Failed(Some(Failed::Unsent(error, body))),
        }
    }
}

/// Whether the method leads to expect a body, so that even its absence is told (RFC 9110, 8.6).
fn means_a_body(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::DELETE | Method::CONNECT)
}

impl Shared {
    /// Opens a stream and sends its head; an error says that the connection takes no more.
    fn open(&self, request: Request<()>, ended: bool) -> Result<(ResponseFuture, h2::SendStream<Bytes>), h2::Error> {
        let mut sender = self.sender.lock();
        let opened = sender.send_request(request, ended);
        if opened.is_err() {
            self.closed.store(true, Ordering::Release);
        } else if sender.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending() {
            // This handle insists on waiting for that stream's turn; others may queue as well.
            let another = sender.clone();
            *sender = another;
        }
        opened
    }

    fn look(&self) {
        let mut sender = self.sender.lock();
        if let Poll::Ready(Err(_)) = sender.poll_ready(&mut Context::from_waker(Waker::noop())) {
            self.closed.store(true, Ordering::Release);
        }
        self.note_limit(&sender);
    }

    /// Notes how many streams the pod takes, as far as it has said so.
    fn note_limit(&self, sender: &SendRequest<Bytes>) {
        let said = sender.current_max_send_streams();
        let taken = match said {
            UNSAID if self.settled.load(Ordering::Relaxed) => STREAMS_ASSUMED,
            UNSAID => STREAMS_AT_FIRST,
            said => said,
        };
        self.limit.store(taken.min(self.windows.streams() as usize), Ordering::Release);
        if said != UNSAID {
            self.said.store(true, Ordering::Release);
            self.settle();
        }
    }

    /// The pod's settings are not waited for any longer.
    fn assume_limit(&self) {
        let sender = self.sender.lock();
        self.settle();
        self.note_limit(&sender);
    }

    fn settle(&self) {
        if !self.settled.load(Ordering::Relaxed) {
            self.settled.store(true, Ordering::Release);
            self.news.notify_waiters();
        }
    }
}

/// Drives a connection to its end.
async fn drive(mut connection: Connection<Paced<PodIo>, Bytes>, shared: Arc<Shared>) {
    let shared = Arc::downgrade(&{ shared });
    let ended = poll_fn(|cx| {
        let polled = Pin::new(&mut connection).poll(cx);
        if let Some(shared) = shared.upgrade() {
            shared.look();
        }
        polled
    });
    let ended = ended.await;
    if let Some(shared) = shared.upgrade() {
        shared.closed.store(true, Ordering::Release);
        shared.settle();
    }
    if let Err(error) = ended {
        tracing::debug!(%error, "HTTP/2 connection to a pod ended");
    }
}
